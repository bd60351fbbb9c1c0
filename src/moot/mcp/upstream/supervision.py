"""Keeping one MCP server running: start, greet, serve, end, wait a little, begin again.

How it works. `run` is the one task that owns the way to the server, since what the SDK opens must be closed
in the task that opened it. A *life* of the server goes from its start to its end: `_try` opens the wire,
`_serve` greets and waits for the end. Callers get the connection of the life that is on (`connected`), or
wait up to `patience_seconds` for the next one.

A server that let a call time out is asked whether it lives (`suspect`); new calls wait for the verdict. One
that does not answer in `health_seconds` is ended, and the next life begins.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from moot.errors import McpError, MootError, UsageError
from moot.mcp.eras import UNREACHABLE, CallerInfo, Era, JsonObject, with_caller
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.upstream.call_runner import CallCounts
from moot.mcp.upstream.connection import MessageHandler, RpcConnection
from moot.mcp.upstream.negotiation import NoAgreement, ServerInfo, negotiate
from moot.mcp.upstream.server_settings import HttpServer, Server, StdioServer, UpstreamLimits
from moot.mcp.upstream.transports import TransportClosed, open_wire

if TYPE_CHECKING:
    from moot.mcp.upstream.headers import RequestHeaders

log = logging.getLogger(__name__)

# How long a server that takes no messages is given to say how it ended.
ENDING_SECONDS: Final = 1.0

State = Literal["starting", "up", "down", "stopped"]


class StartFailed(MootError):
    """The server did not come up; `last_words` is the end of its stderr, as it was written."""

    def __init__(self, message: str, last_words: list[str]) -> None:
        super().__init__(message)
        self.last_words = last_words


class LifecycleListener(MessageHandler, Protocol):
    """Who is told of each life of the server, besides what it says."""

    def came_up(
        self, connection: RpcConnection, greeting: ServerInfo, *, again: bool
    ) -> Coroutine[Any, Any, None]:
        """A life begins; what is returned runs as long as it lasts."""

    def went_down(self, why: str) -> None:
        """It is over, or never began."""

    def lost(self, connection: RpcConnection) -> None:
        """Nothing will come from this connection any more."""


class Supervisor:
    """The lives of one server."""

    def __init__(
        self,
        server: Server,
        attendant: LifecycleListener,
        limits: UpstreamLimits,
        counts: CallCounts,
        *,
        client_info: JsonObject,
        capabilities: JsonObject,
    ) -> None:
        self.state: State = "starting"
        self.greeting: ServerInfo | None = None
        self.connection: RpcConnection | None = None
        # Why it is not up, as the end of a sentence about the server.
        self.trouble = "is still starting"
        self.keeper = StderrTail(server.stderr_file if isinstance(server, StdioServer) else None)
        # Only over HTTP.
        self.headers: RequestHeaders | None = None
        self._server = server
        self._attendant = attendant
        self._limits = limits
        self._counts = counts
        self._client_info = client_info
        self._capabilities = capabilities
        self._tasks: asyncio.TaskGroup | None = None
        self._checking = False
        # Whether the end of the present life was told.
        self._told = False
        # Set, and replaced, on every change that callers may wait for.
        self._moved = asyncio.Event()
        # What worked last time.
        self._expected: Era | None = None
        self._sse = isinstance(server, HttpServer) and server.transport == "sse"

    # For callers

    async def connected(self) -> tuple[RpcConnection, ServerInfo]:
        """The connection of the life that is on; raises McpError when there is none in time."""
        if (live := self.live()) is not None:
            return live
        try:
            async with asyncio.timeout(self._limits.patience_seconds):
                while (live := self.live()) is None:
                    if self.state == "stopped":
                        raise McpError(UNREACHABLE, "the MCP server was stopped")
                    await self._moved.wait()
                return live
        except TimeoutError:
            again = "it is being started again, " if self.state == "down" else ""
            raise McpError(UNREACHABLE, f"the MCP server {self.trouble}; {again}try later") from None

    async def ready(self) -> ServerInfo:
        """Wait for the first greeting; raises StartFailed when the first attempt fails."""
        while self.greeting is None and self.state != "down":
            await self._moved.wait()
        if self.greeting is None:
            raise StartFailed(f"the MCP server {self.trouble}", self.keeper.last_lines())
        return self.greeting

    def restart(self) -> None:
        """End this life; the next one begins as after any other."""
        if self.connection is not None:
            self.connection.closed("was restarted")

    def suspect(self, connection: RpcConnection) -> None:
        """A call timed out on this connection: find out whether the server lives."""
        if self._tasks is not None and not self._checking and connection is self.connection:
            self._checking = True
            self._tasks.create_task(self._check_health(connection))

    def live(self) -> tuple[RpcConnection, ServerInfo] | None:
        """What `connected` would give at once, if anything."""
        connection, greeting = self.connection, self.greeting
        # Between its end and the owner's noticing there is a moment. And who asks a server that may have
        # hung waits for the verdict: it takes a moment if the server lives, and saves the call if not.
        if connection is None or greeting is None or connection.ended.done() or self._checking:
            return None
        return connection, greeting

    # The owning task

    async def run(self) -> None:
        """Keep the server up until cancelled."""
        pause = self._limits.backoff_seconds
        loop = asyncio.get_running_loop()
        try:
            while True:
                begun = loop.time()
                why = await self._live_once()
                self._went_down(why)
                if loop.time() - begun > self._limits.steady_seconds:
                    pause = self._limits.backoff_seconds
                # Half to whole, so that many bridges do not start as one.
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
                pause = min(pause * 2, self._limits.backoff_seconds_at_most)
        finally:
            self.state = "stopped"
            self._moved.set()
            self.keeper.close()

    async def _live_once(self) -> str:
        """One life, or the attempt at it; why it ended."""
        self._counts.starts += 1
        self._told = False
        server = self._server
        if not isinstance(server, HttpServer) or server.transport != "auto" or self.greeting is not None:
            return await self._try(sse=self._sse)
        first = server.label.endswith("/sse")
        why = await self._try(sse=first)
        if self.greeting is None:
            other = await self._try(sse=not first)
            # Neither way leads there: what the likelier one said tells more.
            why = why if self.greeting is None else other
        return why

    async def _try(self, *, sse: bool) -> str:
        connection = RpcConnection(self._attendant, self._limits)
        why = "was stopped"
        try:
            async with open_wire(
                self._server, connection, keeper=self.keeper, limits=self._limits, prefer_sse=sse
            ) as wire:
                connection.bind(wire)
                why = await self._serve(connection, sse=sse)
        except (UsageError, TransportClosed) as fault:
            why = str(fault) if isinstance(fault, TransportClosed) else f"cannot be started: {fault}"
        except Exception as fault:
            # The connection's task: whatever breaks in a transport is one life of one server.
            log.exception("connection to an MCP server broke", extra={"server": self._server.label})
            why = f"broke the connection: {type(fault).__name__}"
        finally:
            connection.closed(why)
            self._attendant.lost(connection)
            self.connection = None
        return why

    async def _serve(self, connection: RpcConnection, *, sse: bool) -> str:
        # Never raises but when cancelled: the ways over HTTP would wrap it up in groups.
        self.headers = None
        if connection.over_http:
            from moot.mcp.upstream.headers import RequestHeaders

            self.headers = RequestHeaders()
            connection.headers_of = self.headers.of
        try:
            greeting = await negotiate(
                connection,
                client_info=self._client_info,
                capabilities=self._capabilities,
                limits=self._limits,
                expected="handshake" if sse else self._expected,
            )
            if self.headers is not None:
                self.headers.greeting = greeting
            if greeting.era == "handshake":
                connection.notify("notifications/initialized")
        except TimeoutError:
            return f"did not answer its greeting within {self._limits.start_seconds:.0f} s"
        except NoAgreement as fault:
            self._expected = None
            return f"{fault} ({connection.refusal})" if connection.refusal else str(fault)
        except McpError:
            # It ended at the question of which era it is, or at the era it had last time: ask otherwise.
            self._expected = "handshake" if self._expected is None else None
            # A pipe breaks a moment before its server's exit code is known, and that tells more.
            await asyncio.wait([connection.ended], timeout=ENDING_SECONDS)
            return connection.ended.result() if connection.ended.done() else "does not take messages"
        self._expected, self._sse = greeting.era, sse
        return await self._serve_greeted(connection, greeting)

    async def _serve_greeted(self, connection: RpcConnection, greeting: ServerInfo) -> str:
        again = self.greeting is not None
        self.connection, self.greeting, self.state = connection, greeting, "up"
        log.info(
            "MCP server up",
            extra={"server": self._server.label, "era": greeting.era, "version": greeting.version},
        )
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            attending = group.create_task(self._attendant.came_up(connection, greeting, again=again))
            self._move()
            try:
                # Not awaited itself: cancelling this task would cancel it for everybody.
                await asyncio.wait([connection.ended])
                # Told at once: ending a child that lingers takes seconds.
                self._went_down(connection.ended.result())
            finally:
                self._tasks = None
                attending.cancel()
                connection.closed("was stopped")
        return connection.ended.result()

    def _went_down(self, why: str) -> None:
        if self._told:
            return
        self._told = True
        self.state, self.trouble = "down", why
        log.warning("MCP server down", extra={"server": self._server.label, "reason": why})
        self._move()
        self._attendant.went_down(why)

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _check_health(self, connection: RpcConnection) -> None:
        """One that answers anything at all, an error included, lives."""
        greeting = self.greeting
        try:
            if greeting is None or greeting.era == "handshake":
                exchange = connection.start("ping", {})
            else:
                caller = CallerInfo(greeting.version, self._client_info, self._capabilities)
                exchange = connection.start("server/discover", with_caller({}, caller))
            done, _ = await asyncio.wait([exchange.outcome], timeout=self._limits.health_seconds)
            if not done:
                connection.closed(f"answered nothing for {self._limits.health_seconds:.3g} s and was ended")
        except McpError as fault:
            connection.closed(f"takes no messages and was ended: {fault.message}")
        finally:
            self._checking = False
            self._move()
