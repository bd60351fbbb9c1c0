"""JSON-RPC over one wire: which answer belongs to which request, and what the server says unasked.

A `Connection` lives as long as its wire. It knows nothing of MCP's lifecycle and decides nothing: answers
go to the `Exchange` that waits for them, progress and streams to the exchange they name, everything else
to `Hearing`. Ids are ours and count up, so two callers never meet; a caller's progress token is replaced
by our id on the way out and put back on the way in.

Nothing here awaits. A server that talks unasked pays from a budget; when it is spent, reading stops for
a moment, so that a flood costs the server its own time and not ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from moot.errors import McpError
from moot.mcp.eras import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    SUBSCRIPTION_ID_KEY,
    UNREACHABLE,
    JsonObject,
    progress_token,
    with_progress_token,
)
from moot.mcp.upstream.server_settings import UpstreamLimits
from moot.mcp.upstream.transports import Transport, TransportClosed
from moot.protocol.operation import Json
from moot.resilience.token_bucket import TokenBucket

# Told of what happens during one call: a method and its params. Never waits, never raises.
Listener = Callable[[str, JsonObject], None]

# Longest pause for a server that talks too much; its answers wait behind its talk.
_HOLD_SECONDS: Final = 1.0


class PendingExchange:
    """One request on the wire. `outcome` is done when the answer is there or the server asks something."""

    __slots__ = (
        "asked",
        "asks",
        "capabilities",
        "id",
        "listener",
        "log_level",
        "method",
        "outcome",
        "owner",
        "parked",
        "stir",
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
        # What the caller can be asked; None: it did not say.
        self.capabilities: JsonObject | None = None
        # From which level on the caller wants to hear log messages; None: not at all.
        self.log_level: str | None = None
        # None: the server asked something; it stands in `asks`.
        self.outcome: asyncio.Future[JsonObject | None] = loop.create_future()
        self.asks: dict[str, ServerRequest] = {}
        self.asked = 0
        self.parked = False
        # Called on every sign of progress.
        self.stir: Callable[[], None] | None = None

    def wait_on(self) -> asyncio.Future[JsonObject | None]:
        """Wait for what comes after a question."""
        self.outcome = self.outcome.get_loop().create_future()
        return self.outcome

    def settle(self, result: JsonObject) -> None:
        if not self.outcome.done():
            self.outcome.set_result(result)

    def fail(self, error: McpError | TimeoutError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            # Whoever waited may be gone; then nobody has to hear of it.
            self.outcome.exception()


class ServerRequest:
    """A request of the server to its client."""

    __slots__ = ("id", "method", "params")

    def __init__(self, id: Json, method: str, params: JsonObject) -> None:
        self.id = id
        self.method = method
        self.params = params

    @property
    def request(self) -> JsonObject:
        """As it stands in `inputRequests`."""
        return {"method": self.method, "params": self.params}


class MessageHandler(Protocol):
    """Who is told what no exchange waits for."""

    def asked(self, connection: RpcConnection, ask: ServerRequest) -> None: ...

    def withdrawn(self, ask_id: Json) -> None: ...

    def noticed(self, method: str, params: JsonObject) -> None: ...

    def junk(self, fault: str) -> None: ...


class RpcConnection:
    """Requests, answers and notifications over one wire."""

    def __init__(self, hearing: MessageHandler, limits: UpstreamLimits) -> None:
        self._hearing = hearing
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._wire: Transport | None = None
        self._last_id = 0
        self.exchanges: dict[int, PendingExchange] = {}
        # A second's worth of talk is always fine.
        rate = limits.unsolicited_per_second
        self._unsolicited = TokenBucket(rate, rate, self._loop.time())
        # Headers of HTTP requests, by method and params.
        self.headers_of: Callable[[str, JsonObject], Mapping[str, str]] | None = None
        self.ended: asyncio.Future[str] = self._loop.create_future()

    def bind(self, wire: Transport) -> None:
        """Use this wire from now on."""
        self._wire = wire

    @property
    def over_http(self) -> bool:
        return self._wire is not None and self._wire.name == "http"

    @property
    def refusal(self) -> str | None:
        """What stood in the way last, where the server itself was not reached."""
        return self._wire.refusal if self._wire is not None else None

    # To the server

    def start(
        self, method: str, params: JsonObject, *, owner: str = "", listener: Listener | None = None
    ) -> PendingExchange:
        """Send a request; the exchange settles later. Raises McpError when nothing can be sent."""
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

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification; raises McpError when nothing can be sent."""
        message: JsonObject = {"jsonrpc": "2.0", "method": method}
        self._send(message if params is None else message | {"params": params})

    def answer(self, ask: ServerRequest, result: JsonObject) -> None:
        """Answer what the server asked; a server that is gone needs no answer."""
        self._reply({"jsonrpc": "2.0", "id": ask.id, "result": result})

    def refuse(self, ask: ServerRequest, code: int, message: str) -> None:
        """Answer with an error."""
        self._reply({"jsonrpc": "2.0", "id": ask.id, "error": {"code": code, "message": message}})

    def abandon(self, exchange: PendingExchange, reason: str) -> None:
        """Wait no more for an answer, and tell the server so."""
        if self.exchanges.pop(exchange.id, None) is None:
            return
        for ask in exchange.asks.values():
            self.refuse(ask, UNREACHABLE, "the call was given up")
        exchange.asks.clear()
        self._reply(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": exchange.id, "reason": reason},
            }
        )

    # From the server (Sink)

    def message(self, message: JsonObject) -> None:
        method = message.get("method")
        if isinstance(method, str):
            self._spend()
            params = message.get("params")
            body: JsonObject = params if isinstance(params, dict) else {}
            if message.get("id") is None:
                self._notified(method, body)
            else:
                self._asked(ServerRequest(message["id"], method, body))
        else:
            self._answered(message)

    def unreadable(self, fault: str, *, answer_to: int | None = None) -> None:
        self._spend()
        exchange = self.exchanges.pop(answer_to, None) if answer_to is not None else None
        if exchange is None:
            self._hearing.junk(fault)
            return
        exchange.fail(McpError(PARSE_ERROR, f"the MCP server gave an answer that cannot be read: {fault}"))

    def closed(self, why: str) -> None:
        if self.ended.done():
            return
        self.ended.set_result(why)
        waiting, self.exchanges = list(self.exchanges.values()), {}
        for exchange in waiting:
            text = f"the MCP server {why} before it answered; whether the call had any effect is not known"
            exchange.fail(McpError(UNREACHABLE, text))

    # Inside

    def _send(self, message: JsonObject) -> None:
        if self._wire is None or self.ended.done():
            raise McpError(UNREACHABLE, "the MCP server is not running")
        method = message.get("method")
        headers = None
        if self.headers_of is not None and isinstance(method, str):
            headers = self.headers_of(method, message.get("params") or {})
        try:
            self._wire.send(message, headers)
        except TransportClosed as closed:
            raise McpError(UNREACHABLE, f"the MCP server {closed}") from None

    def _reply(self, message: JsonObject) -> None:
        try:
            self._send(message)
        except McpError as gone:
            self._hearing.junk(str(gone))

    def _answered(self, message: JsonObject) -> None:
        id = message.get("id")
        exchange = self.exchanges.pop(id, None) if isinstance(id, int) and not isinstance(id, bool) else None
        if exchange is None:
            self._spend()
            self._hearing.junk("an answer to nothing that was asked")
            return
        result = message.get("result")
        if isinstance(result, dict) and "error" not in message:
            exchange.settle(result)
        else:
            exchange.fail(_error_of(message))

    def _asked(self, ask: ServerRequest) -> None:
        if not isinstance(ask.id, str | int):
            self._hearing.junk("a request whose id is neither text nor number")
        elif ask.method == "ping":
            self.answer(ask, {})
        else:
            self._hearing.asked(self, ask)

    def _notified(self, method: str, params: JsonObject) -> None:
        if method == "notifications/progress":
            exchange = self.exchanges.get(_as_id(params.get("progressToken")))
            if exchange is None or exchange.token is None:
                return
            if exchange.stir is not None:
                exchange.stir()
            if exchange.listener is not None:
                exchange.listener(method, {**params, "progressToken": exchange.token})
            return
        if method == "notifications/cancelled":
            # A stateless server ends a stream so; a handshake server takes a question back.
            exchange = self.exchanges.get(_as_id(params.get("requestId")))
            if exchange is not None and exchange.method == "subscriptions/listen":
                del self.exchanges[exchange.id]
                exchange.fail(McpError(UNREACHABLE, "the MCP server ended the subscription"))
            else:
                self._hearing.withdrawn(params.get("requestId"))
            return
        meta = params.get("_meta")
        if isinstance(meta, dict) and SUBSCRIPTION_ID_KEY in meta:
            exchange = self.exchanges.get(_as_id(meta[SUBSCRIPTION_ID_KEY]))
            if exchange is not None and exchange.listener is not None:
                exchange.listener(method, params)
            return
        self._hearing.noticed(method, params)

    def _spend(self) -> None:
        # A debt beyond one pause is forgiven: what was read was read.
        debt_seconds = self._unsolicited.take_anyway(self._loop.time(), max_debt_seconds=_HOLD_SECONDS)
        if debt_seconds and self._wire is not None:
            self._wire.hold(debt_seconds + 0.01)


def _as_id(value: Json) -> int:
    # `True` is a number to Python, and some servers give our number back as text.
    if isinstance(value, str) and value.isdecimal() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _error_of(message: JsonObject) -> McpError:
    error: Any = message.get("error")
    if isinstance(error, dict):
        code, text = error.get("code"), error.get("message")
        if isinstance(code, int) and not isinstance(code, bool) and isinstance(text, str):
            return McpError(code, text, error.get("data"))
        return McpError(INTERNAL_ERROR, "the MCP server answered with an error that cannot be read", error)
    return McpError(INTERNAL_ERROR, "the MCP server answered with neither a result object nor an error")
