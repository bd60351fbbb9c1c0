"""One call from its start to its answer: in time, cancelled, parked for input, or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from moot.errors import McpError
from moot.mcp.eras import INPUT_METHODS, NOBODY, TIMED_OUT, CallerInfo, JsonObject, at_least, with_caller
from moot.mcp.upstream.connection import Listener, PendingExchange, RpcConnection
from moot.mcp.upstream.negotiation import ServerInfo
from moot.mcp.upstream.server_settings import UpstreamLimits
from moot.mcp.upstream.suspended_calls import SuspendedCalls


class OutgoingCall(NamedTuple):
    """A request as its caller made it, without the keys that say who that is."""

    method: str
    params: JsonObject
    caller: CallerInfo = NOBODY
    owner: str = ""
    listener: Listener | None = None
    seconds: float | None = None


@dataclass(slots=True)
class CallCounts:
    """What happened since the start."""

    calls: int = 0
    timeouts: int = 0
    starts: int = 0
    junk: int = 0
    log_messages_unheard: int = 0


class _Deadline:
    """When a call has taken too long: some seconds after its last sign of progress, never beyond `most`.

    A timer of the loop and no `asyncio.timeout`: every call has one, and it costs 8 µs against 1.4.
    """

    __slots__ = ("_at", "_exchange", "_last", "_loop", "_seconds", "_timer")

    def __init__(self, seconds: float, most: float) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._seconds = seconds
        self._at = now + seconds
        self._last = now + most
        self._exchange: PendingExchange | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, exchange: PendingExchange) -> None:
        """From now on whoever waits for the exchange hears when time is up, as TimeoutError."""
        self._exchange = exchange
        exchange.stir = self._stir
        self._timer = self._loop.call_at(self._at, self._ring)

    def end(self) -> None:
        if self._exchange is not None and self._timer is not None:
            self._exchange.stir = None
            self._timer.cancel()

    def check(self) -> None:
        """Raises TimeoutError when time is up."""
        if self._at <= self._loop.time():
            raise TimeoutError

    def _stir(self) -> None:
        self.end()
        self._at = min(self._loop.time() + self._seconds, self._last)
        if self._exchange is not None:
            self.begin(self._exchange)

    def _ring(self) -> None:
        if self._exchange is not None:
            self._exchange.fail(TimeoutError())


class CallRunner:
    """Carries calls out over a connection."""

    def __init__(
        self,
        limits: UpstreamLimits,
        asking: SuspendedCalls,
        counts: CallCounts,
        *,
        client_info: JsonObject,
        capabilities: JsonObject,
        suspect: Callable[[RpcConnection], None],
    ) -> None:
        self._limits = limits
        self._asking = asking
        self._counts = counts
        self._client_info = client_info
        self._capabilities = capabilities
        # Told when a connection let a call time out.
        self._suspect = suspect
        self._log_level: str | None = None

    def caller(self, greeting: ServerInfo, caller: CallerInfo = NOBODY) -> CallerInfo:
        """Who we are to a stateless server on behalf of a caller."""
        capabilities = self._capabilities if caller.capabilities is None else caller.capabilities
        return CallerInfo(greeting.version, self._client_info, capabilities, caller.log_level)

    def begin(self) -> None:
        """A new life of the server: it has forgotten which log messages were wanted."""
        self._log_level = None

    async def call(self, connection: RpcConnection, greeting: ServerInfo, call: OutgoingCall) -> JsonObject:
        """The result, or McpError. Cancelling is told to the server."""
        seconds = self._limits.call_seconds if call.seconds is None else call.seconds
        deadline = _Deadline(seconds, max(seconds, self._limits.call_seconds_at_most))
        turn = self._asking.turn(call.method)
        try:
            if turn is None:
                return await self._carried_out(connection, greeting, call, deadline)
            async with asyncio.timeout(seconds):
                await turn.acquire()
            try:
                return await self._carried_out(connection, greeting, call, deadline)
            finally:
                turn.release()
        except TimeoutError:
            self._counts.timeouts += 1
            text = (
                f"the MCP server did not answer {call.method} within {seconds:.3g} s; the call was cancelled"
            )
            raise McpError(TIMED_OUT, text) from None

    async def _carried_out(
        self, connection: RpcConnection, greeting: ServerInfo, call: OutgoingCall, deadline: _Deadline
    ) -> JsonObject:
        """The result, McpError or TimeoutError."""
        resumed = None
        if greeting.era == "handshake" and call.method in INPUT_METHODS:
            resumed = self._asking.resume(call.owner, call.method, call.params)
        if resumed is not None:
            connection, exchange = resumed
        else:
            exchange = self._start(connection, greeting, call)
        deadline.begin(exchange)
        try:
            outcome = await exchange.outcome
            while outcome is None and not exchange.asks:
                # What was asked was taken back before anyone could be told.
                deadline.check()
                outcome = await exchange.wait_on()
        except TimeoutError:
            connection.abandon(exchange, "timed out")
            self._suspect(connection)
            raise
        except asyncio.CancelledError:
            connection.abandon(exchange, "cancelled by the caller")
            raise
        finally:
            deadline.end()
        if outcome is None:
            return self._asking.park(connection, exchange, call.params)
        return outcome

    def hear_log(self, connection: RpcConnection | None, params: JsonObject) -> None:
        """Hand on a log message; the wire does not say whose call it is about, so all who asked hear it."""
        heard = False
        level = str(params.get("level"))
        for exchange in list(connection.exchanges.values()) if connection is not None else ():
            if exchange.log_level is None or exchange.listener is None:
                continue
            if at_least(level, exchange.log_level):
                exchange.listener("notifications/message", params)
                heard = True
        self._counts.log_messages_unheard += not heard

    def _start(self, connection: RpcConnection, greeting: ServerInfo, call: OutgoingCall) -> PendingExchange:
        wanted = call.caller.log_level
        if greeting.era == "stateless":
            params = with_caller(call.params, self.caller(greeting, call.caller))
        else:
            params = call.params
            if wanted is not None and greeting.offers("logging"):
                self._lower_log_level(connection, wanted)
        exchange = connection.start(call.method, params, owner=call.owner, listener=call.listener)
        exchange.capabilities = call.caller.capabilities
        exchange.log_level = wanted
        return exchange

    def _lower_log_level(self, connection: RpcConnection, wanted: str) -> None:
        # A handshake server has one level for everybody: the most talkative that anyone asked for.
        if self._log_level is None or not at_least(wanted, self._log_level):
            self._log_level = wanted
            connection.start("logging/setLevel", {"level": wanted})
