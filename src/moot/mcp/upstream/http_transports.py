"""The ways over HTTP, carried by the SDK's client transports: Streamable HTTP, and SSE for older servers.

The SDK's transports live inside cancel scopes that must be left in the task that entered them, so they are
entered here, in the task of whoever opened the wire; sending goes through a queue. What fails inside the
SDK ends the wire and is told as such: the owner opens another.

One HTTP client serves a wire for its whole life. Building one takes some 50 ms of CPU, most of it reading
certificates, which is why those are read once for the process.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from moot.mcp.eras import INVALID_REQUEST, JsonObject
from moot.mcp.upstream.server_settings import HttpServer, UpstreamLimits
from moot.mcp.upstream.transports import MessageSink, Transport, TransportClosed, WireName
from moot.protocol.strict_json import nests_deeper

log = logging.getLogger(__name__)
# They tell of every request with its whole URL, of every fault with a traceback; what matters we tell.
for _talkative in ("httpx2", "httpcore2", "mcp.client"):
    logging.getLogger(_talkative).setLevel(logging.CRITICAL)

# Connecting and sending; how long an answer may take is decided a call at a time, not here.
_CONNECT_SECONDS: Final = 10.0
_WRITE_SECONDS: Final = 30.0
# A POST that is not taken for so long holds up everything behind it.
_TAKE_SECONDS: Final = 30.0
# For the answer to a goodbye.
_GOODBYE_SECONDS: Final = 1.0
# What the SDK's transport says when a session is gone; it has no other way to tell.
_SESSION_GONE: Final = "Session terminated"


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that is not read beyond a limit. A stream of events is bounded event by event, not here."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > self._limit:
                # The one class of faults that costs the SDK's transport this answer and not the connection.
                raise httpx2.StreamError(f"an answer of more than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """HTTP whose answers are bounded: the SDK's transport reads a JSON body of any size into memory."""

    def __init__(self, limit: int, verify: ssl.SSLContext | bool) -> None:
        super().__init__(verify=verify)
        self._limit = limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            # The end of a session. Nobody who leaves waits for a server that has stopped answering.
            request.extensions["timeout"] = httpx2.Timeout(_GOODBYE_SECONDS).as_dict()
        response = await super().handle_async_request(request)
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedBody(response.stream, self._limit)
        return response


class HttpTransport:
    """Messages into the SDK's transport, through a queue."""

    def __init__(self, name: WireName, sink: MessageSink, limits: UpstreamLimits) -> None:
        self.name: WireName = name
        self._sink = sink
        self._depth = limits.depth
        self._queue: asyncio.Queue[SessionMessage] = asyncio.Queue(limits.queued)
        self._closed = False
        # The last refusal of the HTTP server itself: the SDK's transport does not hand it on.
        self.refusal: str | None = None

    def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> None:
        if self._closed:
            raise TransportClosed("is not connected")
        metadata = ClientMessageMetadata(headers=dict(headers)) if headers else None
        model = jsonrpc_message_adapter.validate_python(message)
        try:
            self._queue.put_nowait(SessionMessage(model, metadata))
        except asyncio.QueueFull:
            raise TransportClosed(f"takes no messages: {self._queue.maxsize} are waiting") from None

    def hold(self, seconds: float) -> None:
        """Nothing to hold: HTTP has flow control of its own, and the SDK's stream takes one at a time."""

    def close(self, why: str) -> None:
        self._closed = True
        self._sink.closed(why if self.refusal is None else f"{why} ({self.refusal})")

    async def pump_out(self, stream: Any) -> None:
        """Hand queued messages to the transport until it is gone or stuck."""
        while True:
            message = await self._queue.get()
            try:
                async with asyncio.timeout(_TAKE_SECONDS):
                    await stream.send(message)
            except TimeoutError:
                self.close(f"took no message for {_TAKE_SECONDS:.0f} s")
                return
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                self.close("closed the connection")
                return

    async def pump_in(self, stream: Any) -> None:
        """Tell the sink what the transport hands over until it ends."""
        try:
            async for item in stream:
                if isinstance(item, SessionMessage):
                    self._tell(item.message)
                else:
                    self._sink.unreadable(type(item).__name__)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        self.close("closed the connection")

    def _tell(self, message: Any) -> None:
        if isinstance(message, JSONRPCResponse):
            if nests_deeper(message.result, self._depth - 1):
                answer_to = message.id if isinstance(message.id, int) else None
                self._sink.unreadable(f"nested deeper than {self._depth} levels", answer_to=answer_to)
                return
            self._sink.message({"id": message.id, "result": message.result})
        elif isinstance(message, JSONRPCError):
            error = message.error.model_dump(mode="json", exclude_unset=True)
            if error.get("code") == INVALID_REQUEST and error.get("message") == _SESSION_GONE:
                self.close("ended the session")
                return
            self._sink.message({"id": message.id, "error": error})
        elif isinstance(message, JSONRPCRequest):
            self._sink.message({"id": message.id, "method": message.method, "params": message.params})
        elif isinstance(message, JSONRPCNotification):
            self._sink.message({"method": message.method, "params": message.params})

    async def note_refusal(self, response: httpx2.Response) -> None:
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            self.refusal = f"HTTP {response.status_code} {response.reason_phrase}".strip()


@asynccontextmanager
async def open_http(
    server: HttpServer, sink: MessageSink, limits: UpstreamLimits
) -> AsyncIterator[Transport]:
    """Streamable HTTP; nothing is sent before the first message."""
    wire = HttpTransport("http", sink, limits)
    event_bytes = limits.child.line_bytes
    async with _client(server, wire, event_bytes) as client:
        opened = streamable_http_client(server.url, http_client=client, max_sse_event_size=event_bytes)
        async with _faults_end(wire), opened as streams, _pumps(wire, streams):
            yield wire


@asynccontextmanager
async def open_sse(server: HttpServer, sink: MessageSink, limits: UpstreamLimits) -> AsyncIterator[Transport]:
    """HTTP with SSE, as before 2025-03-26; raises WireClosed when there is no such stream."""
    wire = HttpTransport("sse", sink, limits)

    def client(
        headers: dict[str, Any] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        del headers, timeout, auth
        return _client(server, wire, limits.child.line_bytes)

    opened = sse_client(server.url, httpx_client_factory=client)
    async with _faults_end(wire), opened as streams, _pumps(wire, streams):
        yield wire


def _client(server: HttpServer, wire: HttpTransport, limit: int) -> httpx2.AsyncClient:
    # No limit on reading: a stream of events is silent for as long as nothing happens.
    return httpx2.AsyncClient(
        headers=dict(server.headers),
        timeout=httpx2.Timeout(_CONNECT_SECONDS, write=_WRITE_SECONDS, read=None),
        transport=_BoundedTransport(
            limit, (server.tls or _certificates()) if server.url.startswith("https:") else False
        ),
        event_hooks={"response": [wire.note_refusal]},
    )


@asynccontextmanager
async def _pumps(wire: HttpTransport, streams: Any) -> AsyncIterator[None]:
    read, write = streams[0], streams[1]
    async with asyncio.TaskGroup() as group:
        pumps = [group.create_task(wire.pump_in(read)), group.create_task(wire.pump_out(write))]
        try:
            yield
        finally:
            for pump in pumps:
                pump.cancel()


@asynccontextmanager
async def _faults_end(wire: HttpTransport) -> AsyncIterator[None]:
    """Whatever breaks inside the SDK's transport has ended the wire; the body is not asked to know more."""
    try:
        yield
    except* (httpx2.HTTPError, httpx2.SSEError, OSError, anyio.BrokenResourceError) as faults:
        first = _first(faults)
        log.debug("HTTP transport ended", extra={"fault": type(first).__name__})
        wire.close(f"cannot be reached: {type(first).__name__}")
        raise TransportClosed(f"cannot be reached: {_told(first)}") from None


def _first(fault: BaseException) -> BaseException:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


def _told(fault: BaseException) -> str:
    if isinstance(fault, httpx2.HTTPStatusError):
        return f"HTTP {fault.response.status_code} {fault.response.reason_phrase}".strip()
    return str(fault) or type(fault).__name__
