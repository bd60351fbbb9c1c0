"""Requests for input in the middle of a call, translated from the handshake era to the stateless one.

How it works. A handshake server that needs input (elicitation, sampling, roots) sends a request of its own
and waits, the call still running. A caller in the stateless era knows no such requests: its call *answers*
`input_required`, and it repeats the call with `inputResponses`. So the running call is suspended under a
`requestState` of ours; the repetition resumes it, passes the answers to the server and keeps waiting.

Which call does a request belong to? The messages do not say. With one call running there is no doubt. With
several there is, and asking the wrong caller would let one person confirm what another one started. So an
ambiguous request is refused, and after its first request such a server gets one call at a time; a suspended
call counts as not running, since the server waits for us. An answer is accepted only from the same caller
and for the same call: owner, method and params must be equal.
"""

from __future__ import annotations

import asyncio
import secrets
from hashlib import sha256
from typing import Final

import msgspec

from moot.errors import McpError
from moot.mcp.eras import INPUT_METHODS, SERVER_REQUESTS, TIMED_OUT, JsonObject, input_required
from moot.mcp.upstream.connection import PendingExchange, RpcConnection, ServerRequest
from moot.mcp.upstream.server_settings import UpstreamOptions
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from moot.protocol.strict_json import encode

# Calls suspended until their caller gives input, and for how long: a person reads and types.
MAX_SUSPENDED_CALLS: Final = 64
INPUT_SECONDS: Final = 300.0
# Requests for input during one call; the SDKs give up after ten rounds.
MAX_REQUESTS_PER_CALL: Final = 32

# Server request → the client capability that it needs.
_CAPABILITY: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
# Servers ask for roots right after the handshake; that belongs to no call, though one may be running.
_STARTUP_SECONDS: Final = 2.0
# Params that may differ between a call and its repetition.
_VARYING: Final = frozenset({"inputResponses", "requestState", "_meta"})


class SuspendedCall(msgspec.Struct):
    """A call that waits for input from its caller."""

    connection: RpcConnection
    exchange: PendingExchange
    fingerprint: bytes
    expiry: asyncio.TimerHandle


class SuspendedCalls:
    """The calls of one server that wait for input."""

    def __init__(self, options: UpstreamOptions) -> None:
        self._roots = list(options.roots)
        self._suspended: dict[str, SuspendedCall] = {}
        # Marks our request states: a server may have two connections, and states of its own.
        self._prefix = f"{secrets.token_urlsafe(6)}:"
        # Set after the server's first request.
        self._one_at_a_time = False
        self._lock = asyncio.Lock()
        self._startup_end = 0.0

    def begin(self) -> None:
        """The server was started again."""
        self._startup_end = asyncio.get_running_loop().time() + _STARTUP_SECONDS

    def lock_for(self, method: str) -> asyncio.Lock | None:
        """The lock that a call holds while it runs; None unless the server requests input."""
        return self._lock if self._one_at_a_time and method in INPUT_METHODS else None

    def on_request(self, connection: RpcConnection, request: ServerRequest) -> None:
        """Find out which caller a request of the server is for, or refuse it."""
        if request.method not in SERVER_REQUESTS:
            connection.refuse(request, METHOD_NOT_FOUND, f"no such method: {request.method}")
            return
        running = [each for each in connection.exchanges.values() if each.method in INPUT_METHODS]
        starting = asyncio.get_running_loop().time() < self._startup_end
        if request.method == "roots/list" and (self._roots or starting or not running):
            connection.answer(request, {"roots": self._roots})
            return
        # A suspended call waits for us and requests nothing more, unless it is the only one.
        candidates = [each for each in running if not each.suspended] or running
        if len(candidates) != 1:
            self._one_at_a_time = self._one_at_a_time or bool(candidates)
            why = "several calls are running" if candidates else "no call is running"
            connection.refuse(request, INVALID_REQUEST, f"{why}, so it is unknown which caller to ask")
            return
        self._one_at_a_time = True
        self._add_request(connection, request, candidates[0])

    def on_request_cancelled(self, exchanges: dict[int, PendingExchange], request_id: Json) -> None:
        """The server cancels a request of its own."""
        for exchange in exchanges.values():
            for key, request in list(exchange.server_requests.items()):
                if request.id == request_id:
                    del exchange.server_requests[key]

    def suspend(self, connection: RpcConnection, exchange: PendingExchange, params: JsonObject) -> JsonObject:
        """Suspend a call whose server has requested input; returns its `input_required` result."""
        state = self._prefix + secrets.token_urlsafe(24)
        exchange.suspended = True
        exchange.reopen()
        expiry = asyncio.get_running_loop().call_later(INPUT_SECONDS, self._expire, state)
        fingerprint = _fingerprint(exchange.owner, exchange.method, params)
        self._suspended[state] = SuspendedCall(connection, exchange, fingerprint, expiry)
        requests = {key: request.input_request for key, request in exchange.server_requests.items()}
        return input_required(requests, state)

    def owns(self, state: Json) -> bool:
        """Whether a request state was given out here."""
        return isinstance(state, str) and state.startswith(self._prefix)

    def resume(
        self, owner: str, method: str, params: JsonObject
    ) -> tuple[RpcConnection, PendingExchange] | None:
        """The suspended call that this request continues, its answers passed on; None if it is a new call.

        Raises McpError when the state is unknown, another owner's, or of another call.
        """
        state = params.get("requestState")
        if state is None:
            return None
        call = self._suspended.get(state) if isinstance(state, str) else None
        if call is None or call.fingerprint != _fingerprint(owner, method, params):
            text = "no call waits under this requestState: it expired, or is another caller's; call again"
            raise McpError(INVALID_PARAMS, text)
        answers = params.get("inputResponses")
        if answers is not None and not isinstance(answers, dict):
            raise McpError(INVALID_PARAMS, "inputResponses must be an object: key of a request → its answer")
        self._drop(state)
        connection, exchange = call.connection, call.exchange
        for key, answer in (answers or {}).items():
            request = exchange.server_requests.get(key)
            if request is None:
                continue
            del exchange.server_requests[key]
            if isinstance(answer, dict):
                connection.answer(request, answer)
            elif answer is None:
                connection.refuse(request, INVALID_REQUEST, "the caller refused it, or cannot be asked")
            else:
                connection.refuse(request, INVALID_PARAMS, "the caller's answer is not an object")
        exchange.suspended = False
        if exchange.server_requests and not exchange.outcome.done():
            # Not everything was answered, or more was requested meanwhile.
            exchange.outcome.set_result(None)
        return connection, exchange

    def forget(self, owner: str) -> None:
        """A caller is gone: give up the calls that wait for it."""
        for state, call in list(self._suspended.items()):
            if call.exchange.owner == owner:
                self._drop(state)
                self._decline(call, "the caller is gone")

    def on_connection_lost(self, connection: RpcConnection) -> None:
        """A connection has ended; a repetition gets the error of its call."""
        for call in self._suspended.values():
            if call.connection is connection:
                call.exchange.server_requests.clear()

    @property
    def owners(self) -> frozenset[str]:
        """The callers whose calls are suspended."""
        return frozenset(call.exchange.owner for call in self._suspended.values())

    # Inside

    def _add_request(
        self, connection: RpcConnection, request: ServerRequest, exchange: PendingExchange
    ) -> None:
        capability = _CAPABILITY[request.method]
        if exchange.capabilities is not None and capability not in exchange.capabilities:
            connection.refuse(
                request, INVALID_REQUEST, f"the caller of {exchange.method} does not support {capability}"
            )
        elif exchange.request_count >= MAX_REQUESTS_PER_CALL or len(self._suspended) >= MAX_SUSPENDED_CALLS:
            connection.refuse(request, INVALID_REQUEST, "too many requests for input wait for an answer")
        else:
            exchange.request_count += 1
            exchange.server_requests[f"{capability}-{exchange.request_count}"] = request
            if not exchange.suspended and not exchange.outcome.done():
                exchange.outcome.set_result(None)

    def _expire(self, state: str) -> None:
        call = self._suspended.pop(state, None)
        if call is not None:
            self._decline(call, f"no answer within {INPUT_SECONDS:.0f} s")

    def _decline(self, call: SuspendedCall, why: str) -> None:
        for request in call.exchange.server_requests.values():
            if request.method == "elicitation/create":
                call.connection.answer(request, {"action": "cancel"})
            else:
                call.connection.refuse(request, TIMED_OUT, why)
        call.exchange.server_requests.clear()
        call.connection.abandon(call.exchange, why)

    def _drop(self, state: str) -> None:
        self._suspended.pop(state).expiry.cancel()


def _fingerprint(owner: str, method: str, params: JsonObject) -> bytes:
    same = {key: params[key] for key in sorted(params) if key not in _VARYING}
    return sha256(encode([owner, method, same])).digest()
