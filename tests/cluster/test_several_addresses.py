"""A member that knows several gateways goes to the next one by itself."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from moot.cli.client.gateway_request import request_gateway
from moot.errors import UsageError
from moot.participant import connect
from moot.participant.connection.link import Link
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


async def test_nobody_waits_before_the_next_gateway_is_tried(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a gateway that was killed are back within the time that a connection and a join take."""
    waits: list[float] = []

    async def note_wait(_self: Link, seconds: float) -> None:
        waits.append(seconds)

    async with start("b") as b:
        first = AsyncExitStack()
        a = await first.enter_async_context(start("a"))
        carol = await b.join("carol")
        with held_port() as port:
            nobody = f"http://127.0.0.1:{port}"
            async with connect(f"{a.url},{nobody},{b.url}", "lab", "t-alice") as alice:
                monkeypatch.setattr(Link, "_wait_before_retry", note_wait)
                back = asyncio.Event()
                alice.on_reconnected(back.set)
                # As the kernel does for a process that was killed.
                for one in list(a.gateway._upgrade_handler.sockets if a.gateway._upgrade_handler else ()):
                    assert one._connection is not None
                    one._connection.abort()
                a.gateway.readiness.phase = "starting"
                async with bounded():
                    await back.wait()
                    await alice.chat("there")
                    await carol.hear(lambda m: m["payload"].get("text") == "there")
                assert waits == []
                a.gateway.readiness.phase = "running"
        await first.aclose()


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
