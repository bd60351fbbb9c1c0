"""What a handshake server asks in the middle of a call, as answers and repetitions of that call.

How it works. A handshake server that needs input (elicitation, sampling, roots) sends a request of its own
and waits, the call still running. A caller in the stateless era knows no such requests: its call *answers*
`input_required`, and it repeats the call with `inputResponses`. So the running call is parked under a
`requestState` of ours; the repetition finds it, hands the answers to the server and waits on.

Whose call is it? The wire does not say. With one call running there is no doubt. With several there is,
and asking the wrong caller would let one person confirm what another one started. So a question that
cannot be told apart is refused, and from the first question on such a server gets one call at a time;
a parked call counts as not running, since the server waits for us. A caller's answer is only taken from
that caller and for that call: owner, method and params must be the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from moot.errors import McpError
from moot.mcp.eras import (
    ASKS,
    INPUT_METHODS,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    TIMED_OUT,
    JsonObject,
    input_required,
)
from moot.mcp.upstream.connection import PendingExchange, RpcConnection, ServerRequest
from moot.mcp.upstream.server_settings import UpstreamLimits
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode

# Which client capability stands for which question.
_CAPABILITY: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
# Servers look for roots right after the greeting; that belongs to no call, though one may be running.
_SETTLING_SECONDS: Final = 2.0
# What may differ between a call and its repetition.
_VARYING: Final = frozenset({"inputResponses", "requestState", "_meta"})


@dataclass(slots=True)
class SuspendedCall:
    """A call that waits for its caller."""

    connection: RpcConnection
    exchange: PendingExchange
    fingerprint: bytes
    expiry: asyncio.TimerHandle


class SuspendedCalls:
    """The questions of one server, and the calls that wait for answers."""

    def __init__(
        self, limits: UpstreamLimits, mint: Callable[[], str], roots: tuple[JsonObject, ...] = ()
    ) -> None:
        self._limits = limits
        self._mint = mint
        self._roots = list(roots)
        self._parked: dict[str, SuspendedCall] = {}
        # Set from the first question on.
        self._one_at_a_time = False
        self._turn = asyncio.Lock()
        self._settled = 0.0

    def begin(self) -> None:
        """A new life of the server."""
        self._settled = asyncio.get_running_loop().time() + _SETTLING_SECONDS

    def turn(self, method: str) -> asyncio.Lock | None:
        """What a call has to hold while it runs: nothing, unless the server asks questions."""
        return self._turn if self._one_at_a_time and method in INPUT_METHODS else None

    def asked(self, connection: RpcConnection, ask: ServerRequest) -> None:
        """The server asks: find out whom, or refuse."""
        if ask.method not in ASKS:
            connection.refuse(ask, METHOD_NOT_FOUND, f"no such method: {ask.method}")
            return
        running = [each for each in connection.exchanges.values() if each.method in INPUT_METHODS]
        settling = asyncio.get_running_loop().time() < self._settled
        if ask.method == "roots/list" and (self._roots or settling or not running):
            connection.answer(ask, {"roots": self._roots})
            return
        # One that waits for us already asks nothing more, unless it is the only one.
        candidates = [each for each in running if not each.parked] or running
        if len(candidates) != 1:
            self._one_at_a_time = self._one_at_a_time or bool(candidates)
            why = "several calls are running" if candidates else "no call is running"
            connection.refuse(ask, INVALID_REQUEST, f"{why}, so nobody knows whom to ask")
            return
        self._one_at_a_time = True
        self._ask(connection, ask, candidates[0])

    def withdrawn(self, exchanges: dict[int, PendingExchange], ask_id: Json) -> None:
        """The server takes a question back."""
        for exchange in exchanges.values():
            for key, ask in list(exchange.asks.items()):
                if ask.id == ask_id:
                    del exchange.asks[key]

    def park(self, connection: RpcConnection, exchange: PendingExchange, params: JsonObject) -> JsonObject:
        """What a call answers whose server has asked something."""
        state = self._mint()
        exchange.parked = True
        exchange.wait_on()
        expiry = asyncio.get_running_loop().call_later(self._limits.input_seconds, self._expire, state)
        fingerprint = _fingerprint(exchange.owner, exchange.method, params)
        self._parked[state] = SuspendedCall(connection, exchange, fingerprint, expiry)
        return input_required({key: ask.request for key, ask in exchange.asks.items()}, state)

    def resume(
        self, owner: str, method: str, params: JsonObject
    ) -> tuple[RpcConnection, PendingExchange] | None:
        """The parked call that this request goes on with, answers handed over; None if it is a new call.

        Raises McpError when the state is unknown, another's, or of another call.
        """
        state = params.get("requestState")
        if state is None:
            return None
        parked = self._parked.get(state) if isinstance(state, str) else None
        if parked is None or parked.fingerprint != _fingerprint(owner, method, params):
            text = "no call waits under this requestState: it took too long, or belongs to another; call anew"
            raise McpError(INVALID_PARAMS, text)
        answers = params.get("inputResponses")
        if answers is not None and not isinstance(answers, dict):
            raise McpError(
                INVALID_PARAMS, "inputResponses has to be an object: key of a request → its answer"
            )
        self._drop(state)
        connection, exchange = parked.connection, parked.exchange
        for key, answer in (answers or {}).items():
            ask = exchange.asks.get(key)
            if ask is None:
                continue
            del exchange.asks[key]
            if isinstance(answer, dict):
                connection.answer(ask, answer)
            else:
                connection.refuse(ask, INVALID_PARAMS, "the caller's answer is no object")
        exchange.parked = False
        if exchange.asks and not exchange.outcome.done():
            # Not everything was answered, or more was asked meanwhile.
            exchange.outcome.set_result(None)
        return connection, exchange

    def forget(self, owner: str) -> None:
        """A caller is gone: what waits for it is given up."""
        for state, parked in list(self._parked.items()):
            if parked.exchange.owner == owner:
                self._drop(state)
                self._decline(parked, "the caller is gone")

    def lost(self, connection: RpcConnection) -> None:
        """A connection has ended; repetitions are told what happened to their call."""
        for parked in self._parked.values():
            if parked.connection is connection:
                parked.exchange.asks.clear()

    @property
    def owners(self) -> frozenset[str]:
        """Whose calls are parked."""
        return frozenset(parked.exchange.owner for parked in self._parked.values())

    # Inside

    def _ask(self, connection: RpcConnection, ask: ServerRequest, exchange: PendingExchange) -> None:
        capability = _CAPABILITY[ask.method]
        if exchange.capabilities is not None and capability not in exchange.capabilities:
            connection.refuse(
                ask, INVALID_REQUEST, f"the caller of {exchange.method} does not take {capability}"
            )
        elif exchange.asked >= self._limits.asks_per_call or len(self._parked) >= self._limits.parked:
            connection.refuse(ask, INVALID_REQUEST, "too many questions are waiting for an answer")
        else:
            exchange.asked += 1
            exchange.asks[f"{capability}-{exchange.asked}"] = ask
            if not exchange.parked and not exchange.outcome.done():
                exchange.outcome.set_result(None)

    def _expire(self, state: str) -> None:
        parked = self._parked.pop(state, None)
        if parked is not None:
            self._decline(parked, f"no answer within {self._limits.input_seconds:.0f} s")

    def _decline(self, parked: SuspendedCall, why: str) -> None:
        for ask in parked.exchange.asks.values():
            if ask.method == "elicitation/create":
                parked.connection.answer(ask, {"action": "cancel"})
            else:
                parked.connection.refuse(ask, TIMED_OUT, why)
        parked.exchange.asks.clear()
        parked.connection.abandon(parked.exchange, why)

    def _drop(self, state: str) -> None:
        self._parked.pop(state).expiry.cancel()


def _fingerprint(owner: str, method: str, params: JsonObject) -> bytes:
    same = {key: params[key] for key in sorted(params) if key not in _VARYING}
    return sha256(encode([owner, method, same])).digest()
