"""A member that knows several gateways goes to the next one by itself."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moot.cli.client.gateway_request import request_gateway
from moot.errors import Unreachable, UsageError
from moot.participant import connect
from moot.participant.connection.connect_options import ConnectOptions
from moot.participant.connection.envelope_sender import CloseReason
from moot.participant.connection.link import (
    BACKOFF_FIRST_SECONDS,
    NEXT_GATEWAY_SECONDS,
    SILENT_GATEWAY_SECONDS,
    Link,
)
from moot.participant.limits import ParticipantLimits
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.running_gateway import LocalGateway
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded, until


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


async def test_a_gateway_that_hangs_is_left_for_the_next_one(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and says nothing, as one that is paused: its own limits are minutes here."""
    monkeypatch.setattr("moot.participant.connection.link.BACKOFF_FIRST_SECONDS", 0.01)
    monkeypatch.setattr("moot.participant.connection.link.NEXT_GATEWAY_SECONDS", 0.05)
    monkeypatch.setattr("moot.participant.connection.link.WELCOME_SECONDS", 2 * HANG_SECONDS)
    monkeypatch.setattr("moot.net.websocket_client.CONNECT_SECONDS", 2 * HANG_SECONDS)
    limits = ParticipantLimits(connect_seconds=HANG_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with (
            start("a") as a,
            bounded(),
            connect(f"{nobody},{a.url}", "lab", "t-bob", limits=limits) as bob,
        ):
            assert bob.me == "bob"


async def test_a_machine_that_falls_silent_is_left_for_the_next_gateway(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections are not closed: nothing comes any more, as when its cable is pulled."""
    assert 2 * SILENT_GATEWAY_SECONDS + NEXT_GATEWAY_SECONDS <= 7
    monkeypatch.setattr("moot.participant.connection.link.SILENT_GATEWAY_SECONDS", 1.0)
    limits = ParticipantLimits(connect_seconds=HANG_SECONDS)
    is_silent, tasks, own_port = asyncio.Event(), TaskSet("machine"), 0
    writers: list[asyncio.StreamWriter] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if is_silent.is_set():
                # Whoever sends is never answered.
                await asyncio.Event().wait()
            # The gateway knows itself by its own port.
            writer.write(data.replace(b":%d\r" % own_port, b":%d\r" % a.gateway.port))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if is_silent.is_set():
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", a.gateway.port)
        writers.append(far_writer)
        tasks.start(forward(reader, far_writer))
        tasks.start(forward(far_reader, writer))

    async with start("a") as a, start("b") as b:
        machine = await asyncio.start_server(serve, "127.0.0.1", 0)
        own_port = machine.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{own_port}"
        carol = await b.join("carol")
        try:
            async with bounded(), connect(f"{url},{b.url}", "lab", "t-bob", limits=limits) as bob:
                back = asyncio.Event()
                bob.on_reconnected(back.set)
                is_silent.set()
                await back.wait()
                await bob.chat("from the other one")
                await carol.hear(lambda m: m["payload"].get("text") == "from the other one")
        finally:
            machine.close()
            await tasks.close()
            for each in writers:
                each.transport.abort()


class DeadLink(Link):
    """No gateway answers: which were tried, how long each was given, and every wait in between."""

    async def _order_gateways(self) -> list[str]:
        return list(self._options.urls)

    async def _run_once(self, try_seconds: float) -> Unreachable:
        steps.append((self.url, try_seconds))
        return Unreachable("nobody")

    async def _wait_before_retry(self, seconds: float) -> None:
        steps.append(("wait", seconds))
        if len(steps) >= 12:
            self.leaving = CloseReason(1000, "enough")


steps: list[tuple[str, float]] = []


async def test_all_gateways_are_tried_between_two_waits_and_are_given_longer_each_time() -> None:
    """A member of a killed gateway of three is back within 3 seconds, whichever of the others hangs."""
    steps.clear()
    options = ConnectOptions("http://a,http://b,http://c")
    assert (len(options.urls) - 1) * NEXT_GATEWAY_SECONDS <= 3
    link = DeadLink(options, cast("Any", SimpleNamespace(handle_closed=lambda _reason: None)))
    await link.run()
    first, longer = NEXT_GATEWAY_SECONDS, 2 * NEXT_GATEWAY_SECONDS
    tried = [(where.removeprefix("http://"), seconds) for where, seconds in steps if where != "wait"]
    assert tried[:6] == [
        ("a", first),
        ("b", first),
        ("c", first),
        ("a", longer),
        ("b", longer),
        ("c", longer),
    ]
    waits = [place for place, (where, _) in enumerate(steps) if where == "wait"]
    assert waits == [3, 7, 11]
    assert next(seconds for where, seconds in steps if where == "wait") <= BACKOFF_FIRST_SECONDS


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
            with pytest.raises(Unreachable, match=r"(?s)is not available.*connection refused"):
                await asyncio.to_thread(request_gateway, "GET", f"{a.url},{nobody}", "spaces", "t-alice")
            a.gateway.readiness.phase = "running"


def _is_at_b(gateway: LocalGateway) -> bool:
    sessions = gateway.gateway.directory.hosts["lab"].space.state.roster.sessions.values()
    return any(each.member.name == "alice" and each.id.startswith("b.") for each in sessions)
