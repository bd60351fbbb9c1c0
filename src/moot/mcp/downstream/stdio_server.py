"""MCP over the standard streams of this process: one message a line, and nothing else ever on stdout.

While serving, descriptor 1 leads to stderr and descriptor 0 to nowhere, so that a stray `print`, a library or
a child cannot write between our lines or read them away. Reading and writing happen on the event loop: a
thread for each line, as the SDK does it, costs more than the whole answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from moot.mcp.downstream import stateless
from moot.mcp.downstream.handshake import HandshakeSession
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.rpc import (
    InvalidRpcMessage,
    RequestId,
    RpcRequest,
    error_of,
    notification_of,
    read,
)
from moot.mcp.downstream.running_requests import RunningRequests
from moot.mcp.eras import JsonObject
from moot.protocol import strict_json

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 16


class LineTransport(Protocol):
    """Where lines go. `write` never waits."""

    def write(self, line: bytes) -> None: ...


class StdioConnection:
    """One client at the other end of two pipes; it may speak either era, request by request."""

    def __init__(self, face: McpServer, lines: LineTransport) -> None:
        self._face = face
        self._lines = lines
        self._running = RunningRequests(face.spawn, face.counts, limit=face.limits.requests)
        self._session = HandshakeSession(face, self._running, self._send)

    def receive(self, line: bytes) -> None:
        """Take one line. Whatever is in it, this answers or ignores it and never raises."""
        if not line.strip():
            return
        try:
            message = read(line)
        except InvalidRpcMessage as fault:
            self._face.counts.faults += 1
            self._write(error_of(fault.id, fault))
            return
        try:
            if isinstance(message, RpcRequest) and stateless.is_stateless(message.params):
                self._stateless(message)
            else:
                # Notifications too: both eras cancel alike here, and share their ids.
                self._session.receive(message)
        except Exception:
            # A connection's task: one message must not end it.
            log.exception("a message could not be taken")

    def close(self) -> None:
        self._session.close()

    def _stateless(self, request: RpcRequest) -> None:
        def notify(method: str, params: JsonObject) -> None:
            self._write(notification_of(method, params))

        def reply(message: JsonObject | None) -> None:
            if message is not None:
                self._write(message)

        self._running.start(request, stateless.answer(self._face, request, notify), reply)

    def _send(self, message: JsonObject, _about: RequestId | None) -> None:
        self._write(message)

    def _write(self, message: JsonObject) -> None:
        self._lines.write(strict_json.encode(message) + b"\n")


class Pipe(asyncio.Protocol):
    """Cuts what comes in into lines, and stops reading while what goes out is not taken."""

    def __init__(self, line_bytes: int, take: Callable[[bytes], None], too_long: Callable[[], None]) -> None:
        self._line_bytes = line_bytes
        self._take = take
        self._too_long = too_long
        self._kept = bytearray()
        self._skipping = False
        self.transport: asyncio.ReadTransport | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a read pipe gives no other

    def data_received(self, data: bytes) -> None:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = data[start:end] if not self._kept else bytes(self._kept) + data[start:end]
            self._kept.clear()
            start = end + 1
            if self._skipping:
                self._skipping = False
            elif len(line) > self._line_bytes:
                self._too_long()
            else:
                self._take(line)
        rest = data[start:]
        if self._skipping or not rest:
            return
        if len(self._kept) + len(rest) > self._line_bytes:
            # Not kept: the line is refused when it is this long already, and the rest of it passed over.
            self._kept.clear()
            self._skipping = True
            self._too_long()
        else:
            self._kept += rest

    def eof_received(self) -> bool:
        if self._kept and not self._skipping:
            self._take(bytes(self._kept))
            self._kept.clear()
        self.ended.set()
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()


class _Writing(asyncio.BaseProtocol):
    """The write side: tells the read side when the client does not read, and everybody when it is gone."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def pause_writing(self) -> None:
        if self._pipe.transport is not None and not self._pipe.transport.is_closing():
            self._pipe.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._pipe.transport is not None and not self._pipe.transport.is_closing():
            self._pipe.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._pipe.ended.set()


class _PipeLines:
    def __init__(self, transport: asyncio.WriteTransport, limit: int, gone: asyncio.Event) -> None:
        self._transport = transport
        self._limit = limit
        self._gone = gone

    def write(self, line: bytes) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(line)
        if self._transport.get_write_buffer_size() > self._limit:
            log.error("the client does not read; giving up", extra={"unread_bytes": self._limit})
            self._gone.set()


class _FileLines:
    """Stdout that is a file (`> out.json`): event loops cannot watch those, and they never block for long."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._descriptor, line) :]


def _is_plain(descriptor: int) -> bool:
    """A file, or a device such as /dev/null: nobody can wait for those, and libuv ends whoever tries."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor))


async def serve(face: McpServer, *, stop: asyncio.Event, stdin: int = 0, stdout: int = 1) -> None:
    """Serve until the client closes its end, or `stop` is set."""
    async with _claimed(stdin, stdout) as (source, sink):
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        box: list[StdioConnection] = []
        refusal = InvalidRpcMessage(-32600, f"a message has at most {face.limits.message_bytes} bytes")

        def too_long() -> None:
            lines.write(strict_json.encode(error_of(None, refusal)) + b"\n")

        pipe = Pipe(face.limits.message_bytes, lambda line: box[0].receive(line), too_long)
        lines: LineTransport
        writing: asyncio.WriteTransport | None = None
        if _is_plain(sink):
            lines = _FileLines(sink)
        else:
            out = os.fdopen(os.dup(sink), "wb", buffering=0)
            writing, _ = await loop.connect_write_pipe(lambda: _Writing(pipe), out)
            lines = _PipeLines(writing, face.limits.unread_bytes, gone)
        connection = StdioConnection(face, lines)
        box.append(connection)
        reading: asyncio.ReadTransport | None = None
        if _is_plain(source):
            _read_file(source, pipe)
        else:
            given = os.fdopen(os.dup(source), "rb", buffering=0)
            reading, _ = await loop.connect_read_pipe(lambda: pipe, given)
        try:
            await _first(pipe.ended, gone, stop)
            # Whoever says stop, and does not just close its end, waits for no answers.
            if not gone.is_set() and not stop.is_set():
                await _settle(connection, face)
        finally:
            connection.close()
            if reading is not None:
                reading.close()
            if writing is not None:
                await _flushed(writing)
                writing.close()


def _read_file(descriptor: int, pipe: Pipe) -> None:
    """Stdin that is a file: all of it is there already."""
    while data := os.read(descriptor, _CHUNK):
        pipe.data_received(data)
    pipe.eof_received()


# A client that closes its end has nothing to hear any more; one that is a script piping its requests in
# still reads. Long enough for calls that answer at once, short enough for nobody to notice.
_LAST_SECONDS: Final = 2.0


async def _settle(connection: StdioConnection, face: McpServer) -> None:
    """Let what is under way finish, for a moment."""
    end = asyncio.get_running_loop().time() + min(_LAST_SECONDS, face.limits.decision_seconds)
    while len(connection._running) and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)


async def _flushed(writing: asyncio.WriteTransport) -> None:
    end = asyncio.get_running_loop().time() + _LAST_SECONDS
    while writing.get_write_buffer_size() and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


@asynccontextmanager
async def _claimed(stdin: int, stdout: int) -> AsyncIterator[tuple[int, int]]:
    """Private descriptors for our lines; meanwhile the standard ones lead elsewhere."""
    if (stdin, stdout) != (0, 1):
        yield stdin, stdout
        return
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nowhere, 0)
        os.dup2(2, 1)
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for descriptor in (nowhere, source, sink):
            os.close(descriptor)
