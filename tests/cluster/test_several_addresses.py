"""A member that knows several gateways goes to the next one by itself."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from moot.cli.client.gateway_request import request_gateway
from moot.errors import UsageError
from moot.participant import connect
from moot.protocol.operation import Json
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


async def test_a_request_over_http_goes_to_the_next_gateway_and_is_made_once(start: StartGateway) -> None:
    asked: list[str] = []

    def body(page: str) -> Json:
        asked.append(page)
        return {"page": page}

    with held_port() as port:
        async with start("a") as a:
            nobody = f"http://127.0.0.1:{port}"
            for given in (f"{nobody},{a.url}", f"{a.ws} , {nobody}"):
                where, answer = await asyncio.to_thread(
                    request_gateway, "POST", given, "sign-in-links", "t-alice", body=body
                )
                assert (where, answer.status_code) == (f"{a.url}/", 201)
            assert asked == [f"{nobody}/", f"{a.url}/", f"{a.url}/"]
            # One that does not serve is not asked for more.
            assert a.gateway.node is not None
            a.gateway.readiness.phase = "starting"
            _, answer = await asyncio.to_thread(request_gateway, "GET", a.url, "spaces", "t-alice")
            assert answer.status_code == 503
            with pytest.raises(UsageError, match=r"(?s)is not available.*no gateway answers"):
                await asyncio.to_thread(request_gateway, "GET", f"{a.url},{nobody}", "spaces", "t-alice")
            a.gateway.readiness.phase = "running"


def _is_at_b(gateway: LocalGateway) -> bool:
    sessions = gateway.gateway.directory.hosts["lab"].space.state.roster.sessions.values()
    return any(each.member.name == "alice" and each.id.startswith("b.") for each in sessions)
