"""MCP over the standard streams of this process: one message a line, and nothing else ever on stdout.

While serving, descriptor 1 leads to stderr and descriptor 0 to nowhere, so that a stray `print`, a library or
a child cannot write between our lines or consume them. Reading and writing happen on the event loop: a
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
    Message,
    RequestId,
    RpcRequest,
    batch_of,
    error_of,
    message_of,
    notification_of,
    parse_value,
)
from moot.mcp.downstream.running_requests import RunningRequests
from moot.mcp.eras import JsonObject
from moot.protocol import strict_json
from moot.protocol.rpc_codes import INVALID_REQUEST

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 16


class LineWriter(Protocol):
    """Where lines go. `write` never waits."""

    def write(self, line: bytes) -> None: ...


class StdioConnection:
    """One client at the other end of two pipes; each request may be of either era."""

    def __init__(self, server: McpServer, lines: LineWriter) -> None:
        self._server = server
        self._lines = lines
        self._running = RunningRequests(server.spawn, server.counts, max_requests=server.limits.max_requests)
        self._session = HandshakeSession(server, self._running, self._send)

    def receive(self, line: bytes) -> None:
        """Process one line. Whatever is in it, this answers or ignores it and never raises."""
        if not line.strip():
            return
        try:
            value = parse_value(line)
            if value.__class__ is list and self._session.takes_batches:
                messages = batch_of(value, max_messages=self._server.limits.max_batch_messages)
            else:
                messages = [message_of(value)]
        except InvalidRpcMessage as fault:
            self._write(error_of(fault.id, fault))
            return
        for message in messages:
            try:
                self._process(message)
            except Exception:
                # A connection's task: one message must not end it.
                log.exception("a message could not be processed")

    def _process(self, message: Message) -> None:
        if isinstance(message, RpcRequest) and stateless.is_stateless(message.params):
            self._answer_stateless(message)
        else:
            # Notifications too: both eras cancel in the same way here, and share their ids.
            self._session.receive(message)

    def close(self) -> None:
        self._session.close()

    def _answer_stateless(self, request: RpcRequest) -> None:
        def notify(method: str, params: JsonObject) -> None:
            self._write(notification_of(method, params))

        def reply(message: JsonObject | None) -> None:
            if message is not None:
                self._write(message)

        self._running.start(request, stateless.answer(self._server, request, notify), reply)

    def _send(self, message: JsonObject, _about: RequestId | None) -> None:
        self._write(message)

    def _write(self, message: JsonObject) -> None:
        self._lines.write(strict_json.encode(message) + b"\n")


class LineReader(asyncio.Protocol):
    """Cuts input into lines, and stops reading while output is not read."""

    def __init__(
        self, line_bytes: int, on_line: Callable[[bytes], None], on_too_long: Callable[[], None]
    ) -> None:
        self._line_bytes = line_bytes
        self._on_line = on_line
        self._on_too_long = on_too_long
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
                self._on_too_long()
            else:
                self._on_line(line)
        rest = data[start:]
        if self._skipping or not rest:
            return
        if len(self._kept) + len(rest) > self._line_bytes:
            # The line is refused when it is this long, and the rest of it is skipped.
            self._kept.clear()
            self._skipping = True
            self._on_too_long()
        else:
            self._kept += rest

    def eof_received(self) -> bool:
        if self._kept and not self._skipping:
            self._on_line(bytes(self._kept))
            self._kept.clear()
        self.ended.set()
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()


class _WriteSide(asyncio.BaseProtocol):
    """The write side: pauses the read side while the client does not read, and notices when it is gone."""

    def __init__(self, pipe: LineReader) -> None:
        self._pipe = pipe

    def pause_writing(self) -> None:
        if self._pipe.transport is not None and not self._pipe.transport.is_closing():
            self._pipe.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._pipe.transport is not None and not self._pipe.transport.is_closing():
            self._pipe.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._pipe.ended.set()


class _PipeWriter:
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


class _FileWriter:
    """Stdout that is a file (`> out.json`): event loops cannot watch files, and they never block for long."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._descriptor, line) :]


def _is_file(descriptor: int) -> bool:
    """A file, or a device such as /dev/null: event loops cannot wait for those, and libuv aborts."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor))


async def serve(server: McpServer, *, stop: asyncio.Event, stdin: int = 0, stdout: int = 1) -> None:
    """Serve until the client closes its end, or `stop` is set."""
    async with _take_over_streams(stdin, stdout) as (source, sink):
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        box: list[StdioConnection] = []
        refusal = InvalidRpcMessage(
            INVALID_REQUEST, f"a message has at most {server.limits.message_bytes} bytes"
        )

        def too_long() -> None:
            lines.write(strict_json.encode(error_of(None, refusal)) + b"\n")

        pipe = LineReader(server.limits.message_bytes, lambda line: box[0].receive(line), too_long)
        lines: LineWriter
        writing: asyncio.WriteTransport | None = None
        if _is_file(sink):
            lines = _FileWriter(sink)
        else:
            out = os.fdopen(os.dup(sink), "wb", buffering=0)
            writing, _ = await loop.connect_write_pipe(lambda: _WriteSide(pipe), out)
            lines = _PipeWriter(writing, server.limits.unread_bytes, gone)
        connection = StdioConnection(server, lines)
        box.append(connection)
        reading: asyncio.ReadTransport | None = None
        if _is_file(source):
            _read_file(source, pipe)
        else:
            given = os.fdopen(os.dup(source), "rb", buffering=0)
            reading, _ = await loop.connect_read_pipe(lambda: pipe, given)
        try:
            await _wait_for_any(pipe.ended, gone, stop)
            # After a stop, unlike a closed pipe, nobody waits for answers.
            if not gone.is_set() and not stop.is_set():
                await _finish_requests(connection, server)
        finally:
            connection.close()
            if reading is not None:
                reading.close()
            if writing is not None:
                await _flush(writing)
                writing.close()


def _read_file(descriptor: int, pipe: LineReader) -> None:
    """Stdin that is a file: all of it is there already."""
    while data := os.read(descriptor, _CHUNK):
        pipe.data_received(data)
    pipe.eof_received()


# A client that closes its end may be a script that pipes its requests in and still reads. Long enough for
# quick calls, short enough for nobody to notice.
_FINISH_SECONDS: Final = 2.0


async def _finish_requests(connection: StdioConnection, server: McpServer) -> None:
    """Let running requests finish, for a moment."""
    end = asyncio.get_running_loop().time() + min(_FINISH_SECONDS, server.limits.decision_seconds)
    while len(connection._running) and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)


async def _flush(writing: asyncio.WriteTransport) -> None:
    end = asyncio.get_running_loop().time() + _FINISH_SECONDS
    while writing.get_write_buffer_size() and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)


async def _wait_for_any(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


@asynccontextmanager
async def _take_over_streams(stdin: int, stdout: int) -> AsyncIterator[tuple[int, int]]:
    """Private descriptors for our lines; meanwhile the standard ones are redirected."""
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
