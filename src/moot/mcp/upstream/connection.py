"""JSON-RPC over one transport: matches responses to requests, and passes on what the server sends unasked.

An `RpcConnection` lasts as long as its transport. It knows nothing of MCP's lifecycle: responses go to the
`PendingExchange` that waits for them, progress and streams to the exchange that they name, everything else
to a `MessageHandler`. Ids are ours and count up, so two callers never collide; a caller's progress token is
replaced by our id on the way out and put back on the way in.

Nothing here awaits. Messages that nobody asked for have a budget; when it is spent, reading pauses for a
moment, so that a flood costs the server its own time and not ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from moot.errors import McpError
from moot.mcp.eras import SUBSCRIPTION_ID_KEY, UNREACHABLE, JsonObject, progress_token, with_progress_token
from moot.mcp.upstream.lost_answers import lost_answer
from moot.mcp.upstream.transport import Transport, TransportClosed
from moot.protocol.large_content import too_large_result
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INTERNAL_ERROR, PARSE_ERROR
from moot.resilience.rate_limits import TokenBucket

# Messages that nobody asked for, in a second, before reading from the server pauses.
UNSOLICITED_PER_SECOND: Final = 500.0

# Called with notifications during one call: a method and its params. Never waits, never raises.
Listener = Callable[[str, JsonObject], None]

# Longest pause for a server that sends too much unasked; its responses wait behind that.
_MAX_PAUSE_SECONDS: Final = 1.0


class PendingExchange:
    """One request under way. `outcome` is done on a response, and when the server requests input."""

    __slots__ = (
        "capabilities",
        "id",
        "listener",
        "log_level",
        "method",
        "on_progress",
        "outcome",
        "owner",
        "progress_id",
        "request_count",
        "server_requests",
        "suspended",
        "token",
    )

    def __init__(
        self, id: int, method: str, owner: str, listener: Listener | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.id = id
        self.method = method
        self.owner = owner
        self.listener = listener
        # The caller's own progress token.
        self.token: Json = None
        # The caller's own client capabilities; None: it declared none.
        self.capabilities: JsonObject | None = None
        # The lowest level of log messages that the caller wants; None: no log messages.
        self.log_level: str | None = None
        # None: the server has requested input, see `server_requests`.
        self.outcome: asyncio.Future[JsonObject | None] = loop.create_future()
        self.server_requests: dict[str, ServerRequest] = {}
        self.request_count = 0
        self.suspended = False
        # The request that made the task whose result this one waits for, if progress names that one.
        self.progress_id: int | None = None
        # Called on every progress notification.
        self.on_progress: Callable[[], None] | None = None

    def reopen(self) -> asyncio.Future[JsonObject | None]:
        """A new outcome, for what comes after a request of the server."""
        self.outcome = self.outcome.get_loop().create_future()
        return self.outcome

    def settle(self, result: JsonObject) -> None:
        if not self.outcome.done():
            self.outcome.set_result(result)

    def fail(self, error: McpError | TimeoutError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            # Whoever waited may be gone: asyncio need not warn about an exception that nobody retrieved.
            self.outcome.exception()


class ServerRequest:
    """A request from the server to its client."""

    __slots__ = ("id", "method", "params")

    def __init__(self, id: Json, method: str, params: JsonObject) -> None:
        self.id = id
        self.method = method
        self.params = params

    @property
    def input_request(self) -> JsonObject:
        """Its form in `inputRequests`."""
        return {"method": self.method, "params": self.params}


class TaskProgress:
    """Progress of a task names the request that made it, also while another one waits for the result."""

    __slots__ = ("id", "token")

    def __init__(self) -> None:
        # Of the request that made the task; 0 until it is sent.
        self.id = 0
        self.token: Json = None


class MessageHandler(Protocol):
    """Takes what belongs to no exchange."""

    def on_request(self, connection: RpcConnection, request: ServerRequest) -> None: ...

    def on_request_cancelled(self, request_id: Json) -> None: ...

    def on_notification(self, method: str, params: JsonObject) -> None: ...

    def on_invalid_message(self, fault: str) -> None: ...


class RpcConnection:
    """Requests, responses and notifications over one transport."""

    def __init__(self, handler: MessageHandler) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._transport: Transport | None = None
        self._last_id = 0
        self.exchanges: dict[int, PendingExchange] = {}
        # By the id that progress of a task names: the exchange that waits for it now.
        self._task_progress: dict[int, PendingExchange] = {}
        # One second's worth is always allowed.
        rate = UNSOLICITED_PER_SECOND
        self._unsolicited = TokenBucket(rate, rate, self._loop.time())
        # Headers of HTTP requests, by method and params.
        self.headers_of: Callable[[str, JsonObject], Mapping[str, str]] | None = None
        self.ended: asyncio.Future[str] = self._loop.create_future()

    def bind(self, transport: Transport) -> None:
        """Use this transport from now on."""
        self._transport = transport

    @property
    def over_http(self) -> bool:
        return self._transport is not None and self._transport.name == "http"

    @property
    def refusal(self) -> str | None:
        """The last refusal by something in front of the server, such as an HTTP status."""
        return self._transport.refusal if self._transport is not None else None

    # To the server

    def start(
        self, method: str, params: JsonObject, *, owner: str = "", listener: Listener | None = None
    ) -> PendingExchange:
        """Send a request without waiting for its response; raises McpError when nothing can be sent."""
        self._last_id += 1
        exchange = PendingExchange(self._last_id, method, owner, listener, self._loop)
        exchange.token = progress_token(params)
        if exchange.token is not None:
            params = with_progress_token(params, exchange.id)
        self.exchanges[exchange.id] = exchange
        try:
            self._send({"jsonrpc": "2.0", "id": exchange.id, "method": method, "params": params})
        except McpError:
            del self.exchanges[exchange.id]
            raise
        return exchange

    def keep_progress(self, task: TaskProgress, exchange: PendingExchange) -> None:
        """Pass progress of a task on to this exchange: the one that makes it, then the one that waits."""
        if not task.id:
            task.id, task.token = exchange.id, exchange.token
        else:
            exchange.token, exchange.progress_id = task.token, task.id
        if task.token is not None:
            self._task_progress[task.id] = exchange

    def end_progress(self, task: TaskProgress) -> None:
        """There is no task: nothing more is passed on."""
        self._task_progress.pop(task.id, None)

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification; raises McpError when nothing can be sent."""
        message: JsonObject = {"jsonrpc": "2.0", "method": method}
        self._send(message if params is None else message | {"params": params})

    def answer(self, request: ServerRequest, result: JsonObject) -> None:
        """Answer a request of the server; a server that is gone needs no answer."""
        self._try_send({"jsonrpc": "2.0", "id": request.id, "result": result})

    def refuse(self, request: ServerRequest, code: int, message: str) -> None:
        """Answer a request of the server with an error."""
        self._try_send({"jsonrpc": "2.0", "id": request.id, "error": {"code": code, "message": message}})

    def abandon(self, exchange: PendingExchange, reason: str) -> None:
        """Give up waiting for a response, and cancel the request at the server."""
        if self.exchanges.pop(exchange.id, None) is None:
            return
        self._forget_progress(exchange)
        for request in exchange.server_requests.values():
            self.refuse(request, UNREACHABLE, "the call was given up")
        exchange.server_requests.clear()
        self._try_send(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": exchange.id, "reason": reason},
            }
        )

    # From the server (MessageSink)

    def on_message(self, message: JsonObject) -> None:
        method = message.get("method")
        if isinstance(method, str):
            self._spend_budget()
            params = message.get("params")
            body: JsonObject = params if isinstance(params, dict) else {}
            if message.get("id") is None:
                self._process_notification(method, body)
            else:
                self._process_request(ServerRequest(_own_id(message["id"]), method, body))
        else:
            self._process_response(message)

    def on_unreadable(
        self, fault: str, *, answer_to: int | None = None, too_large: tuple[int, int] | None = None
    ) -> None:
        self._spend_budget()
        exchange = self.exchanges.pop(answer_to, None) if answer_to is not None else None
        if exchange is None:
            self._handler.on_invalid_message(fault)
            return
        self._forget_progress(exchange)
        if too_large is not None and exchange.method == "tools/call":
            # It has answered, so it was carried out.
            exchange.settle(too_large_result(*too_large))
            return
        exchange.fail(
            lost_answer(PARSE_ERROR, f"the MCP server sent a response that cannot be read: {fault}")
        )

    def close(self, reason: str) -> None:
        if self.ended.done():
            return
        self.ended.set_result(reason)
        waiting, self.exchanges = list(self.exchanges.values()), {}
        self._task_progress.clear()
        for exchange in waiting:
            text = f"the MCP server {reason} before it answered; whether the call had any effect is not known"
            exchange.fail(lost_answer(UNREACHABLE, text))

    # Inside

    def _send(self, message: JsonObject) -> None:
        if self._transport is None or self.ended.done():
            raise McpError(UNREACHABLE, "the MCP server is not running")
        method = message.get("method")
        headers = None
        if self.headers_of is not None and isinstance(method, str):
            headers = self.headers_of(method, message.get("params") or {})
        try:
            self._transport.send(message, headers)
        except TransportClosed as closed:
            raise McpError(UNREACHABLE, f"the MCP server {closed}") from None

    def _try_send(self, message: JsonObject) -> None:
        try:
            self._send(message)
        except McpError as gone:
            self._handler.on_invalid_message(str(gone))

    def _process_response(self, message: JsonObject) -> None:
        exchange = self.exchanges.pop(_as_id(message.get("id")), None)
        if exchange is None:
            self._spend_budget()
            self._handler.on_invalid_message("a response to no request")
            return
        self._forget_progress(exchange)
        result = message.get("result")
        # Some servers write both members, the one that does not apply as null.
        if isinstance(result, dict) and message.get("error") is None:
            exchange.settle(result)
        else:
            exchange.fail(_error_of(message))

    def _forget_progress(self, exchange: PendingExchange) -> None:
        if exchange.progress_id is not None:
            self._task_progress.pop(exchange.progress_id, None)

    def _process_request(self, request: ServerRequest) -> None:
        if not isinstance(request.id, str | int) or isinstance(request.id, bool):
            self._handler.on_invalid_message("a request whose id is neither a string nor a number")
        elif request.method == "ping":
            self.answer(request, {})
        else:
            self._handler.on_request(self, request)

    def _process_notification(self, method: str, params: JsonObject) -> None:
        if method == "notifications/progress":
            id = _as_id(params.get("progressToken"))
            exchange = self._task_progress.get(id) or self.exchanges.get(id)
            if exchange is None or exchange.token is None:
                return
            if exchange.on_progress is not None:
                exchange.on_progress()
            if exchange.listener is not None:
                exchange.listener(method, {**params, "progressToken": exchange.token})
            return
        if method == "notifications/cancelled":
            # A stateless server ends a stream this way; a handshake server cancels a request of its own.
            exchange = self.exchanges.get(_as_id(params.get("requestId")))
            if exchange is not None and exchange.method == "subscriptions/listen":
                del self.exchanges[exchange.id]
                exchange.fail(McpError(UNREACHABLE, "the MCP server ended the subscription"))
            else:
                self._handler.on_request_cancelled(_own_id(params.get("requestId")))
            return
        meta = params.get("_meta")
        if isinstance(meta, dict) and SUBSCRIPTION_ID_KEY in meta:
            exchange = self.exchanges.get(_as_id(meta[SUBSCRIPTION_ID_KEY]))
            if exchange is not None and exchange.listener is not None:
                exchange.listener(method, params)
            return
        self._handler.on_notification(method, params)

    def _spend_budget(self) -> None:
        # A debt beyond one pause is forgiven: what was read cannot be unread.
        debt_seconds = self._unsolicited.take_anyway(self._loop.time(), max_debt_seconds=_MAX_PAUSE_SECONDS)
        if debt_seconds and self._transport is not None:
            self._transport.pause_reading(debt_seconds + 0.01)


def _as_id(value: Json) -> int:
    # `True` is an int to Python, and some servers return our number as a string, or as 7.0.
    if isinstance(value, str) and value.isdecimal() and len(value) < 16:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _own_id(value: Json) -> Json:
    """The server's id of its own request: 7.0 is the number 7, whichever it writes next."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _error_of(message: JsonObject) -> McpError:
    error: Any = message.get("error")
    if isinstance(error, dict):
        code, text = error.get("code"), error.get("message")
        if isinstance(code, int) and not isinstance(code, bool) and isinstance(text, str):
            return McpError(code, text, error.get("data"))
        return McpError(INTERNAL_ERROR, "the MCP server answered with an error that cannot be read", error)
    return lost_answer(INTERNAL_ERROR, "the MCP server answered with neither a result object nor an error")
