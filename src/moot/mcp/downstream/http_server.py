"""MCP over HTTP as an ASGI application: Streamable HTTP at `/mcp` in both eras, HTTP+SSE at `/sse` for old
clients.

    async with McpServer(backend) as server:
        application = McpHttpServer(server, HttpAccessPolicy.of(port))  # for any ASGI server; no lifespan

A POST of the stateless era needs nothing else. In the handshake era the first POST makes a session. The
version header says which era it is, or the body where an old client sends no header.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from moot.errors import McpError
from moot.mcp.downstream import response_streams, rpc, stateless
from moot.mcp.downstream.header_check import VERSION_HEADER, HeaderCheck
from moot.mcp.downstream.http_access import (
    HttpAccessDenied,
    HttpAccessPolicy,
    check_accept,
    check_json,
    read_body,
)
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.response_streams import (
    STATUSES,
    DisconnectWatch,
    EventStream,
    Receive,
    Scope,
    Send,
    respond,
)
from moot.mcp.downstream.rpc import (
    InvalidRpcMessage,
    Message,
    RpcNotification,
    RpcRequest,
    batch_of,
    error_of,
    message_of,
    parse_value,
)
from moot.mcp.downstream.running_requests import RunningRequests
from moot.mcp.downstream.sessions import HttpSession, HttpSessions
from moot.mcp.eras import HANDSHAKE_VERSIONS, JsonObject
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INTERNAL_ERROR

log = logging.getLogger(__name__)

_SESSION: Final = "mcp-session-id"
_UNKNOWN: Final = "what became of the request is not known: look before you try again"
_INTERRUPTED: Final = "this server has just ended, and " + _UNKNOWN
_ID_IN_USE: Final = "this id names a request that is still being answered"
# For a client that finds all sessions at work.
_RETRY_AFTER_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One HTTP request, and where its response goes."""

    scope: Scope
    # Every line, and the last of each name.
    pairs: list[tuple[str, str]]
    headers: dict[str, str]
    receive: Receive
    send: Send

    async def respond(self, status: int, body: JsonObject | None = None) -> None:
        if body is None:
            await respond(self.send, status, b"", ())
        else:
            await respond(self.send, status, strict_json.encode(body))


class McpHttpServer:
    """An MCP server on HTTP. Sessions end with `close`, everything else with its request."""

    def __init__(
        self,
        server: McpServer,
        access: HttpAccessPolicy | None,
        *,
        path: str = "/mcp",
        check: Callable[[Scope, Message], None] | None = None,
    ) -> None:
        """Without `access` whoever passes requests on has checked them. `check` is called with each message
        of Streamable HTTP and the ASGI scope that it came in, before anything happens; it raises
        HttpAccessDenied for what is not allowed."""
        self._server = server
        self._access = access
        self._check = check
        self._path = path
        self._header_check = HeaderCheck(server.backend)
        self.sessions = HttpSessions(server)

    def close(self) -> None:
        self.sessions.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": "MCP is served over HTTP"})
            return
        # RFC 9110: blanks around a value are not part of it, and not every server removes them.
        pairs = [(n.decode("latin-1"), v.decode("latin-1").strip(" \t")) for n, v in scope["headers"]]
        headers = dict(pairs)
        if "accept" in headers:
            # A list may be on several lines.
            headers["accept"] = ", ".join(value for name, value in pairs if name == "accept")
        exchange = _Exchange(scope, pairs, headers, receive, send)
        try:
            if self._access is not None:
                self._access.check(headers)
            await self._route(exchange)
        except HttpAccessDenied as refusal:
            await respond(send, refusal.status, refusal.body, refusal.headers)
        except InvalidRpcMessage as fault:
            await exchange.respond(400, error_of(fault.id, fault))
        except Exception:
            # A request's task: the client gets no detail.
            log.exception("a request could not be handled")
            hidden = McpError(INTERNAL_ERROR, "internal error; the log says why")
            await exchange.respond(500, error_of(None, hidden))

    async def _route(self, exchange: _Exchange) -> None:
        method, path = exchange.scope["method"], exchange.scope["path"].rstrip("/")
        if path == self._path:
            match method:
                case "POST":
                    await self._post(exchange)
                case "GET":
                    await self._get(exchange)
                case "DELETE":
                    self._check_era(exchange.headers)
                    self.sessions.end(self._session(exchange.headers))
                    await exchange.respond(200)
                case _:
                    raise HttpAccessDenied(405, "POST, GET or DELETE", (b"allow", b"POST, GET, DELETE"))
        elif path == "/sse" and method == "GET":
            await self._open_sse(exchange)
        elif path == "/messages" and method == "POST":
            await self._post_to_sse(exchange)
        else:
            raise HttpAccessDenied(404, f"MCP is served at {self._path}, for old clients at /sse")

    # Streamable HTTP

    async def _post(self, exchange: _Exchange) -> None:
        headers = exchange.headers
        check_json(headers)
        check_accept(headers, "application/json", "text/event-stream")
        value = parse_value(await read_body(exchange.receive, headers, rpc.MESSAGE_BYTES))
        version = headers.get(VERSION_HEADER)
        newer = version is not None and version not in HANDSHAKE_VERSIONS
        if value.__class__ is list and not newer:
            await self._batch(value, exchange)
            return
        message = message_of(value)
        if self._check is not None:
            self._check(exchange.scope, message)
        has_stateless_keys = (
            isinstance(message, RpcRequest)
            and message.method != "initialize"
            and stateless.is_stateless(message.params)
        )
        if newer or has_stateless_keys:
            await self._stateless(message, exchange)
        else:
            await self._handshake(message, exchange)

    async def _stateless(self, message: Message, exchange: _Exchange) -> None:
        if isinstance(message, RpcNotification):
            # This era cancels by disconnecting; no other notification matters.
            try:
                stateless.check_version(exchange.headers.get(VERSION_HEADER, ""))
            except McpError as fault:
                await exchange.respond(400, error_of(None, fault))
                return
            await exchange.respond(202)
            return
        if not isinstance(message, RpcRequest):
            raise HttpAccessDenied(400, "a client sends requests and notifications, no responses")
        request = message
        stream = EventStream("")
        try:
            # First check the request itself, then whether its headers say the same.
            stateless.client_of(request, _ignore, any_version=True)
            await self._header_check.check(request, exchange.pairs, exchange.headers)
        except McpError as fault:
            await exchange.respond(STATUSES.get(fault.code, 200), error_of(request.id, fault))
            return

        def notify(method: str, params: JsonObject) -> None:
            stream.put({"jsonrpc": "2.0", "method": method, "params": params})

        def reply(answer: JsonObject | None) -> None:
            if answer is None and self._server.is_ending:
                # Not the client's wish: it is told, and must not take silence for an answer.
                answer = error_of(request.id, McpError(INTERNAL_ERROR, _INTERRUPTED))
            if answer is None:
                stream.close()
            else:
                stream.put(answer, last=True)

        running = RunningRequests(self._server.spawn, self._server.counts, max_requests=1)
        running.start(request, stateless.answer(self._server, request, notify), reply)
        try:
            await response_streams.send_response(
                stream,
                exchange.receive,
                exchange.send,
                on_disconnect=lambda: running.cancel(request.id),
                statuses=STATUSES,
            )
        finally:
            running.cancel_all()

    async def _handshake(self, message: Message, exchange: _Exchange) -> None:
        headers = exchange.headers
        opening = isinstance(message, RpcRequest) and message.method == "initialize"
        session = self._open_session() if opening and _SESSION not in headers else self._session(headers)
        if not isinstance(message, RpcRequest):
            session.receive_message(message)
            await exchange.respond(202)
            return
        if message.id in session.pending_ids:
            raise HttpAccessDenied(400, _ID_IN_USE)
        stream = session.open(message.id)
        session.receive_message(message)
        if opening and not session.session.initialized:
            # The handshake failed, so there is nothing to keep.
            self.sessions.end(session)
        await self._respond(session, stream, exchange)

    async def _batch(self, values: list[Json], exchange: _Exchange) -> None:
        """A batch of 2025-03-26: everything in it is allowed, or nothing runs."""
        session = self._session(exchange.headers)
        messages = self._messages_of(values, session)
        if self._check is not None:
            for message in messages:
                self._check(exchange.scope, message)
        ids = [message.id for message in messages if isinstance(message, RpcRequest)]
        if not session.pending_ids.isdisjoint(ids):
            raise HttpAccessDenied(400, _ID_IN_USE)
        stream = session.open(*ids) if ids else None
        for message in messages:
            session.receive_message(message)
        if stream is None:
            await exchange.respond(202)
        else:
            await self._respond(session, stream, exchange)

    def _messages_of(self, value: Json, session: HttpSession) -> list[Message]:
        """One message, or those of a batch where the session's version has batches."""
        if value.__class__ is list and session.session.takes_batches:
            return batch_of(value)
        return [message_of(value)]

    async def _respond(self, session: HttpSession, stream: EventStream, exchange: _Exchange) -> None:
        # A disconnect does not cancel in this era: the client may come back for the rest.
        session.open_responses += 1
        try:
            with stream.open_response():
                await response_streams.send_response(
                    stream,
                    exchange.receive,
                    exchange.send,
                    headers=((_SESSION.encode(), session.id.encode()),),
                    with_ids=True,
                )
        finally:
            session.open_responses -= 1
            session.used_at = asyncio.get_running_loop().time()

    async def _get(self, exchange: _Exchange) -> None:
        headers = exchange.headers
        self._check_era(headers)
        check_accept(headers, "text/event-stream")
        session = self._session(headers)
        stream, after = session.server_stream, session.server_stream_position
        if (last := headers.get("last-event-id")) is not None:
            found = session.find_position(last)
            if found is None:
                # Not 404: that would say that the session has ended.
                raise HttpAccessDenied(400, "nothing is kept from this Last-Event-ID on, and " + _UNKNOWN)
            stream, after = found
        await self._send_stream(session, stream, after, exchange)

    async def _send_stream(
        self, session: HttpSession, stream: EventStream, after: int, exchange: _Exchange, opening: bytes = b""
    ) -> None:
        session.open_responses += 1
        try:
            with stream.open_response():
                async with DisconnectWatch(exchange.receive) as disconnect:
                    await response_streams.send_events(
                        stream,
                        disconnect,
                        exchange.send,
                        after=after,
                        headers=() if opening else ((_SESSION.encode(), session.id.encode()),),
                        with_ids=not opening,
                        opening=opening,
                    )
        finally:
            session.open_responses -= 1
            session.used_at = asyncio.get_running_loop().time()

    def _check_era(self, headers: dict[str, str]) -> None:
        version = headers.get(VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_VERSIONS:
            raise HttpAccessDenied(405, "this version has no sessions: POST only", (b"allow", b"POST"))

    def _open_session(self, *, one_stream: bool = False) -> HttpSession:
        session = self.sessions.open(one_stream=one_stream)
        if session is None:
            raise HttpAccessDenied(
                503,
                f"{self._server.limits.max_sessions} sessions are open, and all are at work: "
                "end one (DELETE), or try again later",
                (b"retry-after", str(_RETRY_AFTER_SECONDS).encode()),
            )
        return session

    def _session(self, headers: dict[str, str]) -> HttpSession:
        id = headers.get(_SESSION)
        if id is None:
            raise HttpAccessDenied(400, "no Mcp-Session-Id: send initialize first, or speak 2026-07-28")
        session = self.sessions.get(id)
        if session is None:
            raise HttpAccessDenied(404, "no such session (any more): send initialize again")
        return session

    # HTTP+SSE (2024-11-05)

    async def _open_sse(self, exchange: _Exchange) -> None:
        check_accept(exchange.headers, "text/event-stream")
        session = self._open_session(one_stream=True)
        opening = f"event: endpoint\ndata: /messages?session_id={session.id}\n\n".encode()
        try:
            await self._send_stream(session, session.server_stream, 0, exchange, opening)
        finally:
            # One connection is the whole session here.
            self.sessions.end(session)

    async def _post_to_sse(self, exchange: _Exchange) -> None:
        check_json(exchange.headers)
        ids = parse_qs(exchange.scope["query_string"].decode("latin-1")).get("session_id", [""])
        session = self.sessions.get(ids[0])
        if session is None:
            raise HttpAccessDenied(404, "no such session: open /sse first")
        body = await read_body(exchange.receive, exchange.headers, rpc.MESSAGE_BYTES)
        value = parse_value(body)
        for message in self._messages_of(value, session):
            session.receive_message(message)
        await exchange.respond(202)


def _ignore(_method: str, _params: JsonObject) -> None:
    return None
