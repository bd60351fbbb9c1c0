"""A member that knows several gateways goes to the next one by itself."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from moot.errors import UsageError
from moot.participant import connect
from tests.cluster.conftest import StartGateway
from tests.gateway.running_gateway import LocalGateway
from tests.ports import held_port
from tests.waiting import bounded, until


async def test_a_member_whose_gateway_stops_goes_on_at_the_next(start: StartGateway) -> None:
    async with AsyncExitStack() as stack:
        b = await stack.enter_async_context(start("b"))
        first = AsyncExitStack()
        a = await first.enter_async_context(start("a"))
        carol = await b.join("carol")
        async with connect(f"{a.url},{b.url}", "lab", "t-alice") as alice:
            await alice.chat("here")
            await carol.hear(lambda m: m["payload"].get("text") == "here")
            await first.aclose()
            await until(lambda: _is_at_b(b))
            async with bounded():
                await alice.chat("there")
                await carol.hear(lambda m: m["payload"].get("text") == "there")


async def test_an_address_where_nobody_is_does_not_matter(start: StartGateway) -> None:
    with held_port() as port:
        async with start("a") as a, connect(f"http://127.0.0.1:{port}, {a.url}", "lab", "t-bob") as bob:
            assert bob.me == "bob"


async def test_no_address_at_all_is_told() -> None:
    with pytest.raises(UsageError, match="address of a gateway is missing"):
        async with connect(" , ", "lab", "t"):
            pass


def _is_at_b(room: LocalGateway) -> bool:
    sessions = room.gateway.directory.hosts["lab"].space.state.roster.sessions.values()
    return any(each.member.name == "alice" and each.id.startswith("b.") for each in sessions)
