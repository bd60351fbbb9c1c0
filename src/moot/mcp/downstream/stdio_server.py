"""MCP over the standard streams of this process: one message a line, and nothing else ever on stdout.

While serving, descriptor 1 leads to stderr and descriptor 0 to nowhere, so that a stray `print`, a library or
a child cannot write between our lines or consume them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from moot.mcp.downstream import rpc, stateless
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
from moot.mcp.stdio_lines import StdioLines
from moot.protocol import strict_json
from moot.protocol.rpc_codes import INVALID_REQUEST
from moot.resilience.task_set import wait_for_any

log = logging.getLogger(__name__)


class StdioConnection:
    """One client at the other end of two pipes; each request may be of either era."""

    def __init__(self, server: McpServer, lines: StdioLines) -> None:
        self._server = server
        server.transport = "pipe"
        self._lines = lines
        self._running = RunningRequests(server.spawn, server.counts)
        self._session = HandshakeSession(server, self._running, self._send)

    def receive_line(self, line: bytes) -> None:
        """Process one line. Whatever is in it, this answers or ignores it and never raises."""
        if not line.strip():
            return
        try:
            value = parse_value(line)
            if value.__class__ is list and self._session.takes_batches:
                messages = batch_of(value)
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
            self._session.receive_message(message)

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
        self._lines.write(strict_json.encode(message))


async def serve(server: McpServer, *, stop: asyncio.Event, stdin: int = 0, stdout: int = 1) -> None:
    """Serve until the client closes its end, or `stop` is set."""
    refusal = InvalidRpcMessage(INVALID_REQUEST, f"a message has at most {rpc.MESSAGE_BYTES} bytes")
    async with _take_over_streams(stdin, stdout) as (source, sink):
        lines = StdioLines(
            lambda line: connection.receive_line(line),
            lambda: lines.write(strict_json.encode(error_of(None, refusal))),
            line_bytes=rpc.MESSAGE_BYTES,
            unread_bytes=rpc.UNREAD_BYTES,
        )
        connection = StdioConnection(server, lines)
        try:
            await lines.open(source, sink)
            await wait_for_any(lines.ended.wait(), stop.wait())
            if not lines.is_read:
                log.error("the client does not read; giving up", extra={"unread_bytes": rpc.UNREAD_BYTES})
            elif not stop.is_set():
                # After a stop, unlike a closed pipe, nobody waits for answers.
                await _finish_requests(connection, server)
        finally:
            connection.close()
            await lines.close()


# A client that closes its end may be a script that pipes its requests in and still reads. Long enough for
# quick calls, short enough for nobody to notice.
_FINISH_SECONDS: Final = 2.0


async def _finish_requests(connection: StdioConnection, server: McpServer) -> None:
    """Let running requests finish, for a moment."""
    end = asyncio.get_running_loop().time() + min(_FINISH_SECONDS, server.limits.decision_seconds)
    while len(connection._running) and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)


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
