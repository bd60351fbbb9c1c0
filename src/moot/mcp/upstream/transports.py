"""A way to a server and back: messages as JSON objects, whatever carries them.

A `Wire` takes messages without waiting; a `Sink` is told what comes. Opening, closing and everything
between happens in the one task that entered `open_wire`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol

from moot.errors import InvalidJson
from moot.mcp import child_process
from moot.mcp.child_process import Child, ChildGone
from moot.mcp.eras import JsonObject
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.upstream.server_settings import HttpServer, Server, StdioServer, UpstreamLimits
from moot.protocol.strict_json import encode, nests_deeper, parse_any_depth

WireName = Literal["stdio", "http", "sse"]

# Where the id of an answer stands: the Python SDKs write it first, the TypeScript ones last.
_ID_FIRST: Final = re.compile(rb'\A\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,')
_ID_LAST: Final = re.compile(rb'[,{]\s*"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')


class TransportClosed(Exception):
    """Nothing can be sent; the text says why, as the end of a sentence about the server."""


class MessageSink(Protocol):
    """Who is told what comes from a server."""

    def message(self, message: JsonObject) -> None:
        """A JSON object came."""

    def unreadable(self, fault: str, *, answer_to: int | None = None) -> None:
        """Something came that is no message; `answer_to` is the request that it seems to answer."""

    def closed(self, why: str) -> None:
        """Nothing will come any more. Told once."""


class Transport(Protocol):
    """The way to a server."""

    @property
    def name(self) -> WireName: ...

    @property
    def refusal(self) -> str | None:
        """The last refusal of what stands before the server: an HTTP status."""

    def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> None:
        """Send one message without waiting; raises WireClosed."""

    def hold(self, seconds: float) -> None:
        """Take nothing from the server for a while, where that is possible."""


@asynccontextmanager
async def open_wire(
    server: Server, sink: MessageSink, *, keeper: StderrTail, limits: UpstreamLimits, prefer_sse: bool = False
) -> AsyncIterator[Transport]:
    """The way to a server, closed on leaving; raises UsageError or WireClosed when there is none."""
    if isinstance(server, StdioServer):
        async with _open_stdio(server, sink, keeper, limits) as wire:
            yield wire
        return
    assert isinstance(server, HttpServer)  # noqa: S101  # the other half of the union
    # Only who needs HTTP pays for importing it: half a second, and thirty packages.
    from moot.mcp.upstream.http_transports import open_http, open_sse

    opened = open_sse if prefer_sse else open_http
    async with opened(server, sink, limits) as wire:
        yield wire


@asynccontextmanager
async def _open_stdio(
    server: StdioServer, sink: MessageSink, keeper: StderrTail, limits: UpstreamLimits
) -> AsyncIterator[Transport]:
    wire = StdioTransport(sink, limits)
    child = await child_process.start(
        server.command,
        on_line=wire.line,
        on_oversize=wire.oversize,
        keeper=keeper,
        inherited=server.inherited,
        limits=limits.child,
    )
    wire.child = child
    try:
        child.ended.add_done_callback(wire.tell_end)
        yield wire
    finally:
        child.ended.remove_done_callback(wire.tell_end)
        await child.stop()


class StdioTransport:
    """Lines of a child as messages."""

    name: WireName = "stdio"
    refusal: str | None = None

    def __init__(self, sink: MessageSink, limits: UpstreamLimits) -> None:
        self._sink = sink
        self._depth = limits.depth
        self.child: Child | None = None

    def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> None:  # noqa: ARG002
        if self.child is None:
            raise TransportClosed("is not running")
        try:
            self.child.send(encode(message))
        except ChildGone as gone:
            raise TransportClosed(f"cannot be written to: {gone}") from None

    def hold(self, seconds: float) -> None:
        if self.child is not None:
            self.child.hold(seconds)

    def line(self, line: bytes) -> None:
        # Most of what is no message is a greeting or a debug print: not worth the exact parser.
        if line.lstrip()[:1] not in (b"{", b"["):
            self._sink.unreadable("a line that is no JSON")
            return
        try:
            value = parse_any_depth(line)
        except InvalidJson as fault:
            self._sink.unreadable(str(fault), answer_to=_answered_by(line[:256], line[-256:]))
            return
        if line.count(b"{") + line.count(b"[") > self._depth and nests_deeper(value, self._depth):
            fault_text = f"nested deeper than {self._depth} levels"
            self._sink.unreadable(fault_text, answer_to=_answered_by(line[:256], line[-256:]))
            return
        # JSON-RPC batches were part of 2025-03-26.
        for message in value if isinstance(value, list) else (value,):
            if isinstance(message, dict):
                self._sink.message(message)
            else:
                self._sink.unreadable("a JSON value that is no object")

    def oversize(self, head: bytes, tail: bytes, size: int) -> None:
        self._sink.unreadable(f"a message of {size} bytes", answer_to=_answered_by(head, tail))

    def tell_end(self, ended: asyncio.Future[child_process.ChildExit]) -> None:
        self._sink.closed(str(ended.result()))


def _answered_by(head: bytes, tail: bytes) -> int | None:
    """The request that a broken answer answers, where it is written in one of the two usual places."""
    found = _ID_FIRST.search(head) or _ID_LAST.search(tail)
    return int(found.group(1)) if found else None
