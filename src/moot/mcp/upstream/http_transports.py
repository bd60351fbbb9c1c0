"""Transports over HTTP, built on the SDK's own: Streamable HTTP, and SSE for older servers.

The SDK's transports use cancel scopes that must be left in the task that entered them. So they are entered
here, in the task that opens the transport, and sending goes through a queue. A failure inside the SDK closes
the transport; its owner opens another.

One HTTP client serves a transport from opening to closing. Building one takes some 50 ms of CPU, most of it
reading certificates, so those are read once for the process.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
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

from moot.errors import InvalidJson
from moot.mcp import stdio_child
from moot.mcp.eras import JsonObject
from moot.mcp.upstream.lost_answers import TOO_LONG, explain_sdk_error, lost_answer
from moot.mcp.upstream.server_settings import MAX_DEPTH, HttpServer, RequestAuth
from moot.mcp.upstream.transport import MessageSink, Transport, TransportClosed, TransportName
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_REQUEST, PARSE_ERROR
from moot.protocol.strict_json import encode, nests_deeper, parse_any_depth

# Messages waiting to be posted over HTTP.
MAX_QUEUED_MESSAGES: Final = 1_024

log = logging.getLogger(__name__)
# They log every request with its whole URL and every fault with a traceback; we log what matters.
for _logger in ("httpx2", "httpcore2", "mcp.client"):
    logging.getLogger(_logger).setLevel(logging.CRITICAL)

# Connecting and sending; how long an answer may take is decided for each call, not here.
_CONNECT_SECONDS: Final = 10.0
_WRITE_SECONDS: Final = 30.0
# A POST that is not accepted for so long blocks everything behind it.
_ACCEPT_SECONDS: Final = 30.0
# For the response to the DELETE that ends a session.
_DELETE_SECONDS: Final = 1.0
# The SDK's transport reports a session that is gone by this text only.
_SESSION_GONE: Final = "Session terminated"
_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that is not read beyond a limit. An event stream is bounded event by event, not here."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > self._limit:
                # The only error that makes the SDK's transport fail this response and not the connection.
                raise httpx2.StreamError(f"{TOO_LONG}{self._limit} bytes")
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
            # The end of a session: closing must not wait for a server that has stopped answering.
            request.extensions["timeout"] = httpx2.Timeout(_DELETE_SECONDS).as_dict()
        response = await super().handle_async_request(request)
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            if request.method == "POST" and may_be_lines(response):
                as_events(request, response, response.stream, self._limit)
            else:
                response.stream = _BoundedBody(response.stream, self._limit)
        return response


class _SignedRequests(httpx2.Auth):
    """Sets the header of each request. Requests do not wait for each other, only for a renewal."""

    def __init__(self, auth: RequestAuth) -> None:
        self._auth = auth

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        sent = await self._auth.authorization()
        if sent is not None:
            request.headers["Authorization"] = sent
        response = yield request
        challenge = response.headers.get("www-authenticate", "")
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            newer = await self._auth.on_unauthorized(sent, challenge)
            if newer is not None:
                request.headers["Authorization"] = newer
                yield request
        elif response.status_code == httpx2.codes.FORBIDDEN:
            self._auth.on_forbidden(challenge)


class HttpTransport:
    """Sends messages through the SDK's transport, by way of a queue."""

    def __init__(self, name: TransportName, sink: MessageSink) -> None:
        self.name: TransportName = name
        self._sink = sink

        self._queue: asyncio.Queue[SessionMessage] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._closed = False
        # The last HTTP error status: the SDK's transport does not pass it on.
        self.refusal: str | None = None
        # Of requests that were answered with a status from 500 on, until the SDK's transport says so.
        self._server_faults: dict[Json, str] = {}

    def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> None:
        if self._closed:
            raise TransportClosed("is not connected")
        metadata = ClientMessageMetadata(headers=dict(headers)) if headers else None
        model = jsonrpc_message_adapter.validate_python(message)
        try:
            self._queue.put_nowait(SessionMessage(model, metadata))
        except asyncio.QueueFull:
            raise TransportClosed(f"accepts no messages: {self._queue.maxsize} are waiting") from None

    def pause_reading(self, seconds: float) -> None:
        """Does nothing: HTTP has its own flow control, and the SDK's stream takes one message at a time."""

    def close(self, reason: str) -> None:
        self._closed = True
        self._sink.close(reason if self.refusal is None else f"{reason} ({self.refusal})")

    async def send_queued(self, stream: Any) -> None:
        """Pass queued messages to the SDK's transport until it is gone or stuck."""
        while True:
            message = await self._queue.get()
            try:
                async with asyncio.timeout(_ACCEPT_SECONDS):
                    await stream.send(message)
            except TimeoutError:
                self.close(f"accepted no message for {_ACCEPT_SECONDS:.0f} s")
                return
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                self.close("closed the connection")
                return

    async def receive_all(self, stream: Any) -> None:
        """Pass what arrives to the sink until the SDK's transport ends."""
        try:
            async for item in stream:
                if isinstance(item, SessionMessage):
                    self._deliver(item.message)
                else:
                    self._sink.on_unreadable(type(item).__name__)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        self.close("closed the connection")

    def _deliver(self, message: Any) -> None:
        if isinstance(message, JSONRPCResponse):
            if nests_deeper(message.result, MAX_DEPTH - 1):
                answer_to = message.id if isinstance(message.id, int) else None
                self._sink.on_unreadable(f"nested deeper than {MAX_DEPTH} levels", answer_to=answer_to)
                return
            self._sink.on_message({"id": message.id, "result": message.result})
        elif isinstance(message, JSONRPCError):
            error = message.error.model_dump(mode="json", exclude_unset=True)
            if error.get("code") == INVALID_REQUEST and error.get("message") == _SESSION_GONE:
                self.close("ended the session")
                return
            explained = explain_sdk_error(error, self._server_faults.pop(message.id, None))
            self._sink.on_message({"id": message.id, "error": explained})
        elif isinstance(message, JSONRPCRequest):
            self._sink.on_message({"id": message.id, "method": message.method, "params": message.params})
        elif isinstance(message, JSONRPCNotification):
            self._sink.on_message({"method": message.method, "params": message.params})

    async def record_refusal(self, response: httpx2.Response) -> None:
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            self.refusal = f"HTTP {response.status_code} {response.reason_phrase}".strip()
        if response.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR and response.request.method == "POST":
            asked = parse_any_depth(response.request.content)
            if isinstance(asked, dict) and isinstance(asked.get("id"), int) and "method" in asked:
                self._server_faults[asked["id"]] = self.refusal or ""


@asynccontextmanager
async def open_http(server: HttpServer, sink: MessageSink) -> AsyncIterator[Transport]:
    """Streamable HTTP; nothing is sent before the first message."""
    transport = HttpTransport("http", sink)
    event_bytes = stdio_child.LINE_BYTES
    async with _client(server, transport, event_bytes) as client:
        opened = streamable_http_client(server.url, http_client=client, max_sse_event_size=event_bytes)
        async with _close_on_fault(transport), opened as streams, _pumps(transport, streams):
            yield transport


@asynccontextmanager
async def open_sse(server: HttpServer, sink: MessageSink) -> AsyncIterator[Transport]:
    """HTTP with SSE, as before 2025-03-26; raises TransportClosed when there is no such stream."""
    transport = HttpTransport("sse", sink)

    def client(
        headers: dict[str, Any] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        del headers, timeout, auth
        return _client(server, transport, stdio_child.LINE_BYTES)

    opened = sse_client(server.url, httpx_client_factory=client)
    async with _close_on_fault(transport), opened as streams, _pumps(transport, streams):
        yield transport


def _client(server: HttpServer, transport: HttpTransport, limit: int) -> httpx2.AsyncClient:
    # No limit on reading: an event stream is silent for as long as nothing happens.
    return httpx2.AsyncClient(
        headers=dict(server.headers),
        auth=None if server.auth is None else _SignedRequests(server.auth),
        timeout=httpx2.Timeout(_CONNECT_SECONDS, write=_WRITE_SECONDS, read=None),
        transport=_BoundedTransport(
            limit, (server.tls or _certificates()) if server.url.startswith("https:") else False
        ),
        event_hooks={"response": [transport.record_refusal]},
    )


@asynccontextmanager
async def _pumps(transport: HttpTransport, streams: Any) -> AsyncIterator[None]:
    read, write = streams[0], streams[1]
    async with asyncio.TaskGroup() as group:
        pumps = [
            group.create_task(transport.receive_all(read)),
            group.create_task(transport.send_queued(write)),
        ]
        try:
            yield
        finally:
            for pump in pumps:
                pump.cancel()


@asynccontextmanager
async def _close_on_fault(transport: HttpTransport) -> AsyncIterator[None]:
    """Close the transport when something breaks inside the SDK's; raises TransportClosed."""
    try:
        yield
    except* (httpx2.HTTPError, httpx2.SSEError, OSError, anyio.BrokenResourceError) as faults:
        first = _first_of(faults)
        log.debug("HTTP transport ended", extra={"fault": type(first).__name__})
        transport.close(f"cannot be reached: {type(first).__name__}")
        raise TransportClosed(f"cannot be reached: {_text_of(first)}") from None


def _first_of(fault: BaseException) -> BaseException:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


def _text_of(fault: BaseException) -> str:
    if isinstance(fault, httpx2.HTTPStatusError):
        return f"HTTP {fault.response.status_code} {fault.response.reason_phrase}".strip()
    return str(fault) or type(fault).__name__


# HTTP responses that are JSON messages line by line, read as the event stream that MCP wants instead.
#
# Some servers write several messages into one `application/json` response, each on a line, and keep it open
# for more. The SDK's transport waits for the end of such a response, and then cannot read it.


def may_be_lines(response: httpx2.Response) -> bool:
    """Whether a response is JSON of which nobody said how long it is."""
    headers = response.headers
    return (
        response.status_code == httpx2.codes.OK
        and headers.get("content-type", "").lower().startswith("application/json")
        and "content-length" not in headers
        and "content-encoding" not in headers
    )


def as_events(
    request: httpx2.Request, response: httpx2.Response, body: httpx2.AsyncByteStream, max_bytes: int
) -> None:
    """Turn each line into an event as soon as it is there, and a body that is one JSON value into one."""
    response.headers["content-type"] = "text/event-stream"
    response.stream = _JsonLines(request, body, max_bytes)


class _JsonLines(httpx2.AsyncByteStream):
    def __init__(self, request: httpx2.Request, body: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._request = request
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = b""
        # False once a line was no JSON by itself: the whole body is one value then, on many lines.
        by_line = True
        async for chunk in self._body:
            held += chunk
            while by_line and b"\n" in held:
                line, _, rest = held.partition(b"\n")
                if line.strip():
                    by_line = _is_json(line)
                    if not by_line:
                        break
                    yield _event(line)
                held = rest
            if len(held) > self._max_bytes:
                yield _event(self._refusal())
                return
        if held.strip():
            yield _event(held)

    async def aclose(self) -> None:
        await self._body.aclose()

    def _refusal(self) -> bytes:
        """The answer to the request instead of one that is too long."""
        message = parse_any_depth(self._request.content)
        error = lost_answer(PARSE_ERROR, f"{TOO_LONG}{self._max_bytes} bytes")
        fields = {"code": error.code, "message": error.message, "data": error.data}
        return encode({"jsonrpc": "2.0", "id": message.get("id"), "error": fields})


def _is_json(line: bytes) -> bool:
    try:
        parse_any_depth(line)
    except InvalidJson:
        return False
    return True


def _event(text: bytes) -> bytes:
    # A JSON text has line breaks between its parts only, where a blank means the same.
    return b"data: " + text.translate(_BREAKS) + b"\n\n"
