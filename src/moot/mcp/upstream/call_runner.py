"""Runs one call from its request to its result: it may time out, be cancelled, or be suspended for input."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from moot.errors import McpError
from moot.mcp.eras import (
    INPUT_METHODS,
    TIMED_OUT,
    UNKNOWN_CALLER,
    CallerInfo,
    JsonObject,
    at_least,
    with_caller,
)
from moot.mcp.upstream.connection import Listener, PendingExchange, RpcConnection, TaskProgress
from moot.mcp.upstream.lost_answers import lost_answer
from moot.mcp.upstream.server_session import ServerInfo, ServerSession
from moot.mcp.upstream.server_settings import UpstreamOptions
from moot.mcp.upstream.suspended_calls import SuspendedCalls
from moot.protocol.rpc_codes import INVALID_PARAMS


class OutgoingCall(NamedTuple):
    """A request as its caller made it, without the keys that describe the caller."""

    method: str
    params: JsonObject
    caller: CallerInfo = UNKNOWN_CALLER
    owner: str = ""
    listener: Listener | None = None
    seconds: float | None = None
    # The params of the tool call whose result this request waits for: it counts as that call.
    tool_call: JsonObject | None = None
    # Of the task that this request makes, or waits for.
    task_progress: TaskProgress | None = None


class CallCounts(msgspec.Struct):
    """Counts since the start."""

    calls: int = 0
    starts: int = 0
    invalid_messages: int = 0
    log_messages_dropped: int = 0


class _Deadline:
    """When a call has taken too long: `seconds` after its last progress, at most `max_seconds` in all.

    It is a timer of the loop, not `asyncio.timeout`: every call has one, and that would cost 8 µs, not 1.4.
    """

    __slots__ = ("_at", "_exchange", "_last", "_loop", "_seconds", "_timer")

    def __init__(self, seconds: float, max_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._seconds = seconds
        self._at = now + seconds
        self._last = now + max_seconds
        self._exchange: PendingExchange | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, exchange: PendingExchange) -> None:
        """From now on the exchange fails with TimeoutError when time is up."""
        self._exchange = exchange
        exchange.on_progress = self._extend
        self._timer = self._loop.call_at(self._at, self._expire)

    def stop(self) -> None:
        if self._exchange is not None and self._timer is not None:
            self._exchange.on_progress = None
            self._timer.cancel()

    def check(self) -> None:
        """Raises TimeoutError when time is up."""
        if self._at <= self._loop.time():
            raise TimeoutError

    def _extend(self) -> None:
        self.stop()
        self._at = min(self._loop.time() + self._seconds, self._last)
        if self._exchange is not None:
            self.start(self._exchange)

    def _expire(self) -> None:
        if self._exchange is not None:
            self._exchange.fail(TimeoutError())


class CallRunner:
    """Runs calls over the connection of a session."""

    def __init__(
        self,
        options: UpstreamOptions,
        suspended: SuspendedCalls,
        counts: CallCounts,
        *,
        on_timeout: Callable[[RpcConnection], None],
    ) -> None:
        self._options = options
        self._suspended = suspended
        self._counts = counts
        # Called when a call timed out on a connection.
        self._on_timeout = on_timeout
        self._log_level: str | None = None

    def caller_info(self, info: ServerInfo, caller: CallerInfo = UNKNOWN_CALLER) -> CallerInfo:
        """What a stateless server is told about us when we call on behalf of a caller."""
        options = self._options
        capabilities = options.capabilities if caller.capabilities is None else caller.capabilities
        return CallerInfo(info.version, options.client_info, capabilities, caller.log_level)

    def reset(self) -> None:
        """The server was started again: it has forgotten which log messages were wanted."""
        self._log_level = None

    async def run(self, session: ServerSession, call: OutgoingCall) -> JsonObject:
        """The result; raises McpError. Cancelling also cancels the call at the server."""
        limits = self._options.limits
        seconds = limits.call_seconds if call.seconds is None else call.seconds
        deadline = _Deadline(seconds, max(seconds, limits.max_call_seconds))
        lock = self._suspended.lock_for(call.method if call.tool_call is None else "tools/call")
        sent = lock is None
        try:
            if lock is None:
                return await self._run_until(deadline, session, call)
            async with asyncio.timeout(seconds):
                await lock.acquire()
            sent = True
            try:
                return await self._run_until(deadline, session, call)
            finally:
                lock.release()
        except TimeoutError:
            text = (
                f"the MCP server did not answer {call.method} within {seconds:.3g} s; the call was cancelled"
            )
            raise (lost_answer(TIMED_OUT, text) if sent else McpError(TIMED_OUT, text)) from None

    async def _run_until(self, deadline: _Deadline, session: ServerSession, call: OutgoingCall) -> JsonObject:
        """The result; raises McpError or TimeoutError."""
        connection, resumed = session.connection, None
        if session.info.era == "handshake" and call.method in INPUT_METHODS:
            resumed = self._suspended.resume(call.owner, call.method, call.params)
        if resumed is not None:
            connection, exchange = resumed
        else:
            exchange = self._start(session, call)
        deadline.start(exchange)
        try:
            outcome = await exchange.outcome
            while outcome is None and not exchange.server_requests:
                # The server cancelled its request before the caller could be asked.
                deadline.check()
                outcome = await exchange.reopen()
        except TimeoutError:
            connection.abandon(exchange, "timed out")
            self._on_timeout(connection)
            raise
        except asyncio.CancelledError:
            connection.abandon(exchange, "cancelled by the caller")
            raise
        finally:
            deadline.stop()
        if outcome is None:
            params = call.params if call.tool_call is None else call.tool_call
            return self._suspended.suspend(connection, exchange, params)
        return outcome

    def forward_log_message(self, connection: RpcConnection | None, params: JsonObject) -> None:
        """Pass on a log message. It does not say whose call it is about, so all who want logs get it."""
        forwarded = False
        level = str(params.get("level"))
        for exchange in list(connection.exchanges.values()) if connection is not None else ():
            if exchange.log_level is None or exchange.listener is None:
                continue
            if at_least(level, exchange.log_level):
                exchange.listener("notifications/message", params)
                forwarded = True
        self._counts.log_messages_dropped += not forwarded

    def _start(self, session: ServerSession, call: OutgoingCall) -> PendingExchange:
        connection, wanted = session.connection, call.caller.log_level
        if session.info.era == "stateless":
            responses = call.params.get("inputResponses")
            if isinstance(responses, dict) and None in responses.values():
                text = (
                    "a request for input was refused, which this server cannot be told in its version of MCP"
                )
                raise McpError(INVALID_PARAMS, text)
            params = with_caller(call.params, self.caller_info(session.info, call.caller))
        else:
            params = call.params
            if wanted is not None and session.info.offers("logging"):
                self._lower_log_level(connection, wanted)
        exchange = connection.start(call.method, params, owner=call.owner, listener=call.listener)
        if call.task_progress is not None:
            connection.keep_progress(call.task_progress, exchange)
        if call.tool_call is not None:
            exchange.method = "tools/call"
        exchange.capabilities = call.caller.capabilities
        exchange.log_level = wanted
        return exchange

    def _lower_log_level(self, connection: RpcConnection, wanted: str) -> None:
        # A handshake server has one level for all callers: the lowest that anyone asked for.
        if self._log_level is None or not at_least(wanted, self._log_level):
            self._log_level = wanted
            connection.start("logging/setLevel", {"level": wanted})
