"""The answer of another gateway, to a request for a space that is not served here.

What the request says goes there as it came, and so does the answer come back; how both are framed is each
connection's own, so that ours stays open for the next request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import httptools
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moot.errors import OutcomeUnknown, Refused, Unavailable
from moot.gateway.access import AccessDenied
from moot.gateway.http.http_replies import denied, refused
from moot.net.http_protocol import RELAYED_HEADER
from moot.net.relay_connection import BUFFER_BYTES, RequestHead
from moot.resilience.task_set import end_tasks

if TYPE_CHECKING:
    from moot.gateway.cluster.gateway_relay import GatewayRelay

# Of one connection and not of what it carries (RFC 9110, 7.6.1), or written anew.
_OWN_HEADERS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_NOT_SENT: Final = _OWN_HEADERS | {b"expect", RELAYED_HEADER}
_NOT_ANSWERED: Final = _OWN_HEADERS | {b"date"}
_READ_BYTES: Final = 1 << 16
# Far more than any answer of a gateway has.
_MAX_HEAD_BYTES: Final = 64 << 10


class RelayedResponse(Response):
    """Sent by Starlette as any other one."""

    def __init__(self, relay: GatewayRelay, space: str, local: ASGIApp) -> None:
        """`local` answers if the space is served here by then."""
        super().__init__()
        self._local = local
        self._relay = relay
        self._space = space
        # Of a request that named no space until it was read.
        self.body_read: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.body_read is not None:
            scope, receive = _name_space(scope, self._space, self.body_read), _replay(self.body_read, receive)
        headers = [pair for pair in scope["headers"] if pair[0] not in _NOT_SENT]
        is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        headers.append((b"connection", b"close"))
        if is_chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        length = int(dict(scope["headers"]).get(b"content-length", 0))
        if is_large := is_chunked or length > BUFFER_BYTES:
            # Whoever would refuse it does so before it is sent.
            headers.append((b"expect", b"100-continue"))
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        head = RequestHead(scope["method"], target, headers)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=BUFFER_BYTES, loop=loop)
        try:
            opened = await self._relay.open(
                self._space, head, scope["client"][0], lambda: asyncio.StreamReaderProtocol(reader, loop=loop)
            )
        except Unavailable as refusal:
            await denied(AccessDenied(503, refusal.message, retry_after=1))(scope, receive, send)
            return
        if opened is None:
            await self._local(scope, receive, send)
            return
        transport, protocol = opened
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        answer = _Answer(send, has_body=scope["method"] != "HEAD")
        if not is_large:
            answer.wants_body.set()

        async def send_body() -> None:
            await answer.wants_body.wait()
            await _send_body(receive, writer, is_chunked=is_chunked)

        tasks = [
            asyncio.create_task(send_body()),
            asyncio.create_task(answer.pass_on(reader, self._relay.silence_seconds)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(tasks)
            self._relay.release(transport)
        if answer.fault is not None and not answer.is_started:
            # Of a body that was never asked for nothing was sent.
            unknown = scope["method"] not in ("GET", "HEAD") and answer.wants_body.is_set()
            await _explain(answer.fault, unknown=unknown)(scope, receive, send)


def _name_space(scope: Scope, space: str, body: bytes) -> Scope:
    named = urlencode({"space": space}).encode()
    framing = (b"content-length", b"transfer-encoding")
    headers = [pair for pair in scope["headers"] if pair[0] not in framing]
    headers.append((b"content-length", str(len(body)).encode()))
    query = scope["query_string"] + b"&" + named if scope["query_string"] else named
    return {**scope, "headers": headers, "query_string": query}


def _replay(body: bytes, receive: Receive) -> Receive:
    """What was read, and then what comes: that whoever asked has hung up."""
    left = [body]

    async def read() -> Message:
        return {"type": "http.request", "body": left.pop()} if left else await receive()

    return read


def _explain(fault: Exception, *, unknown: bool) -> Response:
    is_late = isinstance(fault, TimeoutError)
    what = f"the gateway that serves this space {'does not answer' if is_late else 'was lost'}"
    error: Refused = (
        OutcomeUnknown(f"{what}: it may have taken effect") if unknown else Unavailable(f"{what}: try again")
    )
    response = refused(error.code, error.message, {})
    if is_late:
        response.status_code = 504
    return response


async def _send_body(receive: Receive, writer: asyncio.StreamWriter, *, is_chunked: bool) -> None:
    """Done when whoever asked has hung up."""
    is_taken = True
    while (message := await receive())["type"] != "http.disconnect":
        body, more = message.get("body", b""), message.get("more_body", False)
        if is_chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        if body and is_taken:
            try:
                writer.write(body)
                await writer.drain()
            except ConnectionError:
                # It has answered perhaps, without reading everything.
                is_taken = False


class _Answer:
    """Reads what the other gateway answers, and sends it on."""

    def __init__(self, send: Send, *, has_body: bool) -> None:
        self.is_started = False
        # Why it is not whole.
        self.fault: Exception | None = None
        # Set when the body is asked for.
        self.wants_body = asyncio.Event()
        self._send = send
        self._has_body = has_body
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_head_complete = False
        self._is_complete = False
        self._body = b""

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_head_complete:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() == 100:
            return
        self._is_head_complete = True
        self._is_complete = not self._has_body

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._is_complete = self._is_head_complete
        if not self._is_complete:
            # 100: the answer itself is still to come.
            self._headers.clear()
            self.wants_body.set()

    async def pass_on(self, reader: asyncio.StreamReader, silence_seconds: float) -> None:
        """Done when all was sent, or no more comes, or nothing for so long: then there is a fault."""
        read = 0
        try:
            while not self._is_complete:
                async with asyncio.timeout(silence_seconds):
                    data = await reader.read(_READ_BYTES)
                read += len(data)
                if not data or (read > _MAX_HEAD_BYTES and not self._is_head_complete):
                    raise ConnectionResetError("the other gateway ended its answer before it was whole")
                try:
                    self._parser.feed_data(data)
                except httptools.HttpParserError:
                    if not self._is_complete:
                        raise
                await self._send_read()
        except (OSError, httptools.HttpParserError) as fault:
            self.fault = fault

    async def _send_read(self) -> None:
        if not self._is_head_complete:
            return
        if not self.is_started:
            self.is_started = True
            headers = [pair for pair in self._headers if pair[0] not in _NOT_ANSWERED]
            status = self._parser.get_status_code()
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
        body, self._body = self._body, b""
        if body or self._is_complete:
            more = not self._is_complete
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
