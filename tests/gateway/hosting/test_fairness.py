"""One connection that sends all it can: others go on, memory stays, and it is let go in the end.

Over real sockets, with both readers of frames and both event loops. No time is measured: what counts is how
much of a flood was handled before a word of somebody else was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from moot.net import read_schedule, websocket_server
from moot.net.frame_reader import FrameReader, PurePythonFrameReader
from moot.net.websocket_server import ServerSocket
from tests.gateway.raw import (
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawClient,
    closing,
    frame,
    raw_client,
)
from tests.gateway.running_gateway import (
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served
from tests.waiting import HANG_SECONDS, until

PEOPLE = participants(alice=["*"], bob=["chat"])
FRAMES = 50_000
SLICE_FRAMES = 20
# A turn as short as can be: one slice, whoever it belongs to. The rest is bounded by the number of frames.
SLICES: dict[str, Any] = {
    "read_slice_frames": SLICE_FRAMES,
    "read_slice_seconds": 60,
    "read_turn_seconds": 1e-9,
}
FLOODS = {
    "pings": frame(PING, mask=bytes(4)),
    "pongs": frame(PONG, mask=bytes(4)),
    "tiny messages": frame(TEXT, b"x", mask=bytes(4)),
    "empty continuations": frame(CONTINUATION, final=False, mask=bytes(4)),
}
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
READERS = {"pure": PurePythonFrameReader, "compiled": FrameReader}


@pytest.fixture(params=READERS)
def handled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames each slice had: with one reader or the other, seen from outside of it."""
    sizes: list[int] = []

    class Counting:
        def __init__(self, *given: Any) -> None:
            self._reader = READERS[request.param](*given)

        def read(self, max_frames: int, seconds: float) -> bool:
            frames = 0
            # One at a time: the same as all at once, and countable.
            while frames < max_frames:
                frames += 1
                if not self._reader.read(1, seconds):
                    break
            else:
                sizes.append(frames)
                return True
            sizes.append(frames)
            return False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "_reader":
                object.__setattr__(self, name, value)
            else:
                setattr(self._reader, name, value)

    monkeypatch.setattr(websocket_server, "FrameReader", Counting)
    return sizes


async def flooding(gateway: LocalGateway, client: RawClient, data: bytes) -> None:
    """Send until the gateway takes no more for now, or has it all."""
    client.send(data)
    await until(lambda: client.writer.transport.get_write_buffer_size() < len(data))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("flood", FLOODS)
def test_a_word_is_answered_while_a_flood_waits(
    tmp_path: Path, handled: list[int], flood: str, loop: str
) -> None:
    """The word comes while more is read than was handled, and goes before the rest of it."""

    async def test() -> None:
        limits: dict[str, Any] = {"max_message_fragments": 10 * FRAMES, "max_connections_per_address": 0}
        async with (
            running_gateway(tmp_path, PEOPLE, **SLICES, **limits) as gateway,
            raw_client(gateway.port) as flooder,
        ):
            alice = await gateway.join("alice")
            await flooder.upgraded(token="t-bob")
            if flood == "empty continuations":
                flooder.send(frame(TEXT, b"", final=False))
            handled.clear()
            await flooding(gateway, flooder, FLOODS[flood] * FRAMES)
            await until(lambda: sum(handled) > SLICE_FRAMES)
            before = sum(handled)
            assert before < FRAMES // 2, "the flood is not over when the word is said"
            for _ in range(3):
                await alice.ask("chat", {"text": "hello"})
            assert sum(handled) - before < FRAMES // 2
            assert max(handled) <= SLICE_FRAMES

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(test())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_message_of_endless_fragments_is_ended(tmp_path: Path, handled: list[int], loop: str) -> None:
    async def test() -> None:
        async with (
            running_gateway(tmp_path, PEOPLE, max_message_fragments=50) as gateway,
            raw_client(gateway.port) as client,
        ):
            await client.upgraded(token="t-bob")
            client.send(frame(TEXT, b"", final=False) + FLOODS["empty continuations"] * 10_000)
            last = (await client.frames_until(CLOSE))[-1]
            assert (last.code, last.reason) == (1008, "message in more than 50 fragments")
            assert await client.ended() == b""

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(test())


def sockets_of(gateway: LocalGateway) -> list[ServerSocket]:
    assert gateway.gateway._websockets is not None
    return list(gateway.gateway._websockets.sockets)


async def test_a_connection_gives_back_what_a_large_message_took(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "x" * 900_000})
        assert [each._reader.held_bytes for each in sockets_of(gateway)] == [0]


async def test_pongs_that_nobody_reads_are_not_collected(tmp_path: Path) -> None:
    """Only the last ping is answered then (RFC 6455, 5.5.3)."""
    # However long nobody reads here, that is no reason to hang up.
    patient: dict[str, Any] = {"outbox_seconds": HANG_SECONDS, "ping_seconds": 2 * HANG_SECONDS}
    async with (
        running_gateway(tmp_path, PEOPLE, **patient) as gateway,
        raw_client(gateway.port, receive_buffer=4_096) as client,
    ):
        await client.upgraded(token="t-bob")
        (connection,) = sockets_of(gateway)
        transport = connection._transport
        assert transport is not None
        client.writer.transport.set_write_buffer_limits(high=0)
        sent, most = 0, 0
        # Enough for all buffers between us: until the gateway cannot write any more, and as much again.
        while sent < 10_000 or not connection._is_full or sent < most * 2:
            client.send(frame(PING, b"%0125d" % sent, mask=bytes(4)) * 100)
            await client.writer.drain()
            sent += 100
            if not connection._is_full:
                most = sent
        client.send(frame(PING, b"the last"))
        await until(lambda: connection._pongs and connection._pongs[-1].endswith(b"the last"))
        assert len(connection._pongs) == 1
        waiting = transport.get_write_buffer_size()
        assert waiting <= websocket_server.WRITE_BUFFER_BYTES + read_schedule.SLICE_BYTES
        while (one := await client.frame()) is not None and one.payload != b"the last":
            assert one.opcode in (PONG, TEXT)
        assert one is not None


@pytest.mark.parametrize("reader", READERS)
async def test_two_close_frames_in_one_packet_are_one_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """Autobahn 7.1.2: the first is answered, the second is too late."""
    monkeypatch.setattr(websocket_server, "FrameReader", READERS[reader])
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        await client.upgraded(token="t-bob")
        client.send(closing(1000) + closing(1001))
        assert await client.closed() == 1000
        assert await client.ended() == b""


async def test_stopping_drops_who_does_not_answer_the_close(tmp_path: Path) -> None:
    """Whatever `close_seconds` is: the gateway is not there any more to wait."""
    async with AsyncExitStack() as stack:
        async with running_gateway(tmp_path, PEOPLE, close_seconds=3_600) as gateway:
            client = await stack.enter_async_context(raw_client(gateway.port))
            await client.upgraded(token="t-bob")
        *_, last = await client.frames_until(CLOSE)
        assert last.code == 1001
        assert await client.ended() == b""
        await until(lambda: not sockets_of(gateway))


@pytest.mark.parametrize("reads", [True, False], ids=["silent", "never reading"])
async def test_a_process_ends_in_time_with_peers_that_do_not_answer(tmp_path: Path, reads: bool) -> None:
    settings = gateway_settings({"lab": space_settings(PEOPLE)}, close_seconds=3_600)
    async with (
        served(write_config(tmp_path, settings)) as gateway,
        raw_client(gateway.port, receive_buffer=None if reads else 4_096) as client,
    ):
        await client.upgraded(token="t-bob")
        if not reads:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(frame(PING, bytes(125)) * 20_000)
        code, _ = await gateway.end()
        assert code == 0


# HTTP


def request_lines(port: int, *more: str) -> bytes:
    return "\r\n".join(["GET /health HTTP/1.1", f"Host: 127.0.0.1:{port}", *more, "", ""]).encode()


@pytest.mark.parametrize("loop", LOOPS)
def test_requests_of_one_connection_are_parsed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """Thousands in one packet: each is answered, in order, and never are two at work."""
    count = 3_000
    open_requests = 0
    most = 0
    made = RequestResponseCycle.__init__

    def making(self: RequestResponseCycle, *given: Any, **named: Any) -> None:
        nonlocal open_requests, most
        open_requests += 1
        most = max(most, open_requests)
        answered = named["on_response"]

        def done() -> None:
            nonlocal open_requests
            open_requests -= 1
            answered()

        made(self, *given, **(named | {"on_response": done}))

    monkeypatch.setattr(RequestResponseCycle, "__init__", making)

    async def test() -> None:
        async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
            client.send(request_lines(gateway.port) * count)
            for _ in range(count):
                status, headers = await client.answer()
                assert status == 200
                await client.reader.readexactly(int(headers["content-length"]))

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(test())
    assert most == 1


async def test_a_body_may_come_in_any_pieces_with_requests_behind_it(tmp_path: Path) -> None:
    body = b'{"kind":"chat","payload":{"text":"' + b"\\r\\n" * 20_000 + b'"}}'
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        post = (
            f"POST /participants/alice/messages?space=lab HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
            f"Authorization: Bearer t-alice\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
        )
        client.send((post + body) * 3 + request_lines(gateway.port))
        for _ in range(4):
            status, headers = await client.answer()
            assert status == 200
            await client.reader.readexactly(int(headers["content-length"]))


@pytest.mark.parametrize(("count", "status"), [(99, 200), (100, 400)])
async def test_a_request_has_so_many_headers_at_most(tmp_path: Path, count: int, status: int) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        client.send(request_lines(gateway.port, *["a:"] * count))
        assert (await client.answer())[0] == status


async def test_who_does_not_read_a_response_is_dropped(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, PEOPLE, response_seconds=0.05) as gateway,
        raw_client(gateway.port, receive_buffer=4_096) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request_lines(gateway.port).replace(b"/health", b"/openapi.json") * 1_000)
        listener = gateway.gateway._listener
        assert listener is not None
        await until(lambda: listener.server_state.connections)
        await until(lambda: not listener.server_state.connections)
