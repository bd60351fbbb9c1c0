"""MCP over the stdin and stdout of a child process: one message a line."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from moot.errors import InvalidJson
from moot.mcp import stdio_child
from moot.mcp.eras import JsonObject
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.stdio_child import ChildGone, StdioChild
from moot.mcp.upstream.server_settings import MAX_DEPTH, StdioServer
from moot.mcp.upstream.transport import MessageSink, Transport, TransportClosed, TransportName
from moot.protocol.strict_json import encode, nests_deeper, parse_any_depth
from moot.resilience.child_process import ChildExit

# Where the id of a response is: the Python SDKs write it first, the TypeScript ones last.
_ID_FIRST: Final = re.compile(rb'\A\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,')
_ID_LAST: Final = re.compile(rb'[,{]\s*"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')


@asynccontextmanager
async def open_stdio(server: StdioServer, sink: MessageSink, stderr: StderrTail) -> AsyncIterator[Transport]:
    """Start the server and end it on leaving; raises UsageError when it cannot be started."""
    transport = StdioTransport(sink)
    child = await stdio_child.start(
        server.command,
        on_line=transport.process_line,
        on_oversize=transport.process_oversize,
        stderr=stderr,
        inherited=server.inherited,
    )
    transport.child = child
    try:
        child.ended.add_done_callback(transport.report_end)
        yield transport
    finally:
        child.ended.remove_done_callback(transport.report_end)
        await child.stop()


class StdioTransport:
    """Messages as lines of a child process."""

    name: TransportName = "stdio"
    refusal: str | None = None

    def __init__(self, sink: MessageSink) -> None:
        self._sink = sink

        self.child: StdioChild | None = None

    def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> None:  # noqa: ARG002
        if self.child is None:
            raise TransportClosed("is not running")
        try:
            self.child.send(encode(message))
        except ChildGone as gone:
            raise TransportClosed(f"cannot be written to: {gone}") from None

    def pause_reading(self, seconds: float) -> None:
        if self.child is not None:
            self.child.pause_reading(seconds)

    def process_line(self, line: bytes) -> None:
        # Most of what is no message is a banner or a debug print: not worth the exact parser.
        if line.lstrip()[:1] not in (b"{", b"["):
            self._sink.on_unreadable("a line that is no JSON")
            return
        try:
            value = parse_any_depth(line)
        except InvalidJson as fault:
            self._sink.on_unreadable(str(fault), answer_to=_answered_id(line[:256], line[-256:]))
            return
        if line.count(b"{") + line.count(b"[") > MAX_DEPTH and nests_deeper(value, MAX_DEPTH):
            fault_text = f"nested deeper than {MAX_DEPTH} levels"
            self._sink.on_unreadable(fault_text, answer_to=_answered_id(line[:256], line[-256:]))
            return
        # JSON-RPC batches were part of 2025-03-26.
        for message in value if isinstance(value, list) else (value,):
            if isinstance(message, dict):
                self._sink.on_message(message)
            else:
                self._sink.on_unreadable("a JSON value that is no object")

    def process_oversize(self, head: bytes, tail: bytes, size: int) -> None:
        self._sink.on_unreadable(
            f"a message of {size} bytes",
            answer_to=_answered_id(head, tail),
            too_large=(size, stdio_child.LINE_BYTES),
        )

    def report_end(self, ended: asyncio.Future[ChildExit]) -> None:
        self._sink.close(str(ended.result()))


def _answered_id(head: bytes, tail: bytes) -> int | None:
    """The request that a broken response answers, if its id is in one of the two usual places."""
    found = _ID_FIRST.search(head) or _ID_LAST.search(tail)
    return int(found.group(1)) if found else None
