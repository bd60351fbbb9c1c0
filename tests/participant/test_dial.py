"""Sockets opened by us: bytes, close codes, bounds, and when to try again (RFC 6455)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from moot.errors import OutboxFull, TimedOut, Unreachable, UsageError
from moot.net.connect_errors import UpgradeRefused
from moot.net.websocket_client import (
    ClientSocket,
    dial,
    should_reconnect,
    websocket_url,
)
from moot.protocol.close_codes import CLOSE_CODES
from tests.waiting import until


class Ears:
    """What a line says to whoever listens."""

    def __init__(self) -> None:
        self.lines: list[ClientSocket] = []
        self.messages: list[tuple[bytes, bool]] = []
        self.endings: list[tuple[int, str]] = []

    def opened(self, line: ClientSocket) -> None:
        self.lines.append(line)

    def received(self, data: bytes, binary: bool) -> None:
        self.messages.append((data, binary))

    def closed(self, code: int, reason: str) -> None:
        self.endings.append((code, reason))


@asynccontextmanager
async def serving(
    handler: Callable[[ServerConnection], Awaitable[None]], **options: Any
) -> AsyncIterator[str]:
    async with serve(handler, "127.0.0.1", 0, compression=None, ping_interval=None, **options) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/ws"


def _flood(line: ClientSocket) -> None:
    for _ in range(1000):
        line.send(b"x" * 100_000, binary=True)


async def echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)


async def test_whole_messages_both_ways_whatever_the_frames() -> None:
    async def handler(socket: ServerConnection) -> None:
        await socket.send(["frag", "men", "ted ü"])
        await echo(socket)

    listener = Ears()
    async with serving(handler) as url:
        line = await dial(url, listener, headers={})
        line.send("text ü".encode())
        line.send(b"\x00\xff", binary=True)
        line.send(b"x" * 500_000, binary=True)
        await until(lambda: len(listener.messages) == 4)
        assert listener.messages[0] == ("fragmented ü".encode(), False)
        assert listener.messages[1] == ("text ü".encode(), False)
        assert listener.messages[2] == (b"\x00\xff", True)
        assert len(listener.messages[3][0]) == 500_000
        line.close(1000, "done")
        await line.wait_closed(5)
        assert listener.endings == [(1000, "done")]
        # On a connection that is gone nothing happens any more.
        line.send(b"late")
        line.close(1000, "again")
        assert listener.lines == [line]


async def test_how_it_ended_is_told_once() -> None:
    for code, reason in ((4003, "removed"), (1013, "later"), (1000, "")):

        async def handler(socket: ServerConnection, code: int = code, reason: str = reason) -> None:
            await socket.close(code, reason)

        listener = Ears()
        async with serving(handler) as url:
            line = await dial(url, listener, headers={})
            await line.wait_closed(5)
            assert listener.endings == [(code, reason)]

    async def vanish(socket: ServerConnection) -> None:
        socket.transport.abort()

    listener = Ears()
    async with serving(vanish) as url:
        line = await dial(url, listener, headers={})
        await line.wait_closed(5)
        assert listener.endings == [(1006, "")]


async def test_a_server_that_breaks_the_protocol_is_left() -> None:
    async def too_big(socket: ServerConnection) -> None:
        await socket.send(b"x" * 5000)
        await socket.wait_closed()

    listener = Ears()
    async with serving(too_big) as url:
        await dial(url, listener, headers={}, message_bytes=1000)
        await until(lambda: bool(listener.endings))
        assert listener.messages == []


async def test_an_answer_that_is_no_websocket() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        await writer.drain()
        writer.close()

    for head, status, returns in (
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\n\r\nwho", 401, False),
        (b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n", 503, True),
        (b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 302, False),
    ):
        server = await asyncio.start_server(lambda r, w, head=head: answer(r, w, head), "127.0.0.1", 0)  # type: ignore[misc]
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        with pytest.raises(UpgradeRefused) as turned:
            await dial(url, Ears(), headers={"Authorization": "Bearer x"})
        assert turned.value.status == status
        assert turned.value.is_temporary is returns
        server.close()
        await server.wait_closed()


async def test_nobody_and_silence_are_bounded() -> None:
    with pytest.raises(Unreachable, match="cannot be reached"):
        await dial("ws://127.0.0.1:9/ws?token=x", Ears(), headers={})
    hung = asyncio.Event()
    connected: list[asyncio.StreamWriter] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        await hung.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
    with pytest.raises(Unreachable):
        await dial(url, Ears(), headers={}, connect_seconds=0.1)
    # Cancelling in the middle leaves no socket open.
    before = len(connected)
    dialling = asyncio.create_task(dial(url, Ears(), headers={}))
    await until(lambda: len(connected) > before)
    dialling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialling
    hung.set()
    server.close()
    await server.wait_closed()


async def test_a_server_that_reads_nothing_fills_the_outbox_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck = asyncio.Event()

    async def deaf(socket: ServerConnection) -> None:
        socket.transport.pause_reading()
        await stuck.wait()

    listener = Ears()
    async with serving(deaf, close_timeout=0.1) as url:
        monkeypatch.setattr("moot.net.websocket_client.OUTBOX_BYTES", 1 << 20)
        line = await dial(url, listener, headers={}, ping_seconds=0)
        with pytest.raises(OutboxFull):
            _flood(line)
        assert line.is_full
        transport = line._transport
        assert transport is not None
        assert transport.underlying_transport.get_write_buffer_size() <= 1 << 20
        with pytest.raises(TimedOut, match="read nothing"):
            await line.wait_drained(0.05)
        line.abort()
        stuck.set()
        await until(lambda: bool(listener.endings))


def test_close_codes_decide_and_unknown_ones_are_the_networks() -> None:
    for code, row in CLOSE_CODES.items():
        assert should_reconnect(code) is row.reconnect
    assert should_reconnect(1006)
    assert should_reconnect(1012)


def test_addresses() -> None:
    assert websocket_url("http://h:1", "/ws", {"space": "a b"}) == "ws://h:1/ws?space=a+b"
    assert websocket_url("https://h/moot/", "/ws", {}) == "wss://h/moot/ws"
    assert websocket_url("ws://h/ws", "/ws", {}) == "ws://h/ws"
    assert websocket_url("wss://[::1]:9", "/ws", {}) == "wss://[::1]:9/ws"
    for bad in ("h", "ftp://h", "http://", "http://h:99999", "http://u:p@h"):
        with pytest.raises(UsageError):
            websocket_url(bad, "/ws", {})
