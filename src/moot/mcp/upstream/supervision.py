"""Keeps one MCP server running: start it, negotiate, serve, and after its end wait a little and start again.

How it works. `run` is the one task that owns the transport, since what the SDK opens must be closed in the
task that opened it. A *run* of the server goes from its start to its end: `_run_transport` opens the
transport, `_negotiate` agrees on an era, `_serve` waits for the end. Callers get the session of the present
run (`wait_for_session`), or wait up to `reconnect_wait_seconds` for the next one (for the first one, up to
`start_seconds`).

After a call has timed out the server is checked (`check_health`); new calls wait for the result. A server
that does not answer in `health_seconds` is ended, and the next run begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, Protocol

from moot.errors import McpError, MootError, UsageError
from moot.mcp.eras import UNREACHABLE, CallerInfo, Era, with_caller
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.upstream.call_runner import CallCounts
from moot.mcp.upstream.connection import MessageHandler, RpcConnection
from moot.mcp.upstream.negotiation import NoAgreement, negotiate
from moot.mcp.upstream.server_session import ServerInfo, ServerSession
from moot.mcp.upstream.server_settings import HttpServer, Server, StdioServer, UpstreamOptions
from moot.mcp.upstream.stdio_transport import open_stdio
from moot.mcp.upstream.transport import Transport, TransportClosed
from moot.resilience.restart_loop import keep_running
from moot.resilience.task_set import check_cancelled

log = logging.getLogger(__name__)

# How long to wait for the exit code of a server that accepts no messages any more.
EXIT_CODE_SECONDS: Final = 1.0
# Why a run ended that somebody wanted to end.
RESTARTED: Final = "was restarted"

State = Literal["starting", "up", "down", "stopped"]


class StartFailed(MootError):
    """The server did not come up; `stderr_lines` is the end of its stderr, as it was written."""

    def __init__(self, message: str, stderr_lines: list[str]) -> None:
        super().__init__(message)
        self.stderr_lines = stderr_lines


class LifecycleListener(MessageHandler, Protocol):
    """Takes the messages of the server, and the start and end of each of its runs."""

    def on_up(self, session: ServerSession, *, again: bool) -> Coroutine[Any, Any, None]:
        """A run begins; the returned coroutine runs as long as it lasts."""

    def on_down(self, reason: str) -> None:
        """The run is over, or never began."""

    def on_connection_lost(self, connection: RpcConnection) -> None:
        """Nothing will arrive on this connection any more."""


class Supervisor:
    """Runs one server again and again."""

    def __init__(
        self,
        server: Server,
        options: UpstreamOptions,
        listener: LifecycleListener,
        counts: CallCounts,
        *,
        only_era: Era | None = None,
    ) -> None:
        """With `only_era`, a server that refuses this era is not tried again."""
        self.state: State = "starting"
        # The server as it last described itself; stays after its end.
        self.server_info: ServerInfo | None = None
        self.session: ServerSession | None = None
        # Why it is not up, as the end of a sentence about the server.
        self.down_reason = "is still starting"
        self.stderr = StderrTail()
        if isinstance(server, StdioServer):
            self.stderr = StderrTail(server.stderr_file, mask=server.mask_stderr)
        self._server = server
        self._options = options
        self._limits = options.limits
        self._listener = listener
        self._counts = counts
        self._tasks: asyncio.TaskGroup | None = None
        self._checking = False
        # Whether the end of the present run was reported.
        self._down_reported = False
        # Set, and replaced, on every change that callers may wait for.
        self._changed = asyncio.Event()
        self._only_era = only_era
        # Set when the server has refused the only era.
        self._refused = False
        # Set when somebody wants it to start again.
        self._is_wanted = False
        # What worked last time.
        self._expected_era: Era | None = only_era
        self._first_era: Era = "handshake" if isinstance(server, StdioServer) else "stateless"
        self._sse = isinstance(server, HttpServer) and server.transport == "sse"
        self._auth = server.auth if isinstance(server, HttpServer) else None

    # For callers

    async def wait_for_session(self) -> ServerSession:
        """The session of the present run; raises McpError when there is none in time, or nobody signed in."""
        self.check_signed_in()
        if (session := self.usable_session()) is not None:
            return session
        limits = self._limits
        starts = self.state == "starting"
        try:
            async with asyncio.timeout(limits.start_seconds if starts else limits.reconnect_wait_seconds):
                while (session := self.usable_session()) is None:
                    if self.state == "stopped":
                        raise McpError(UNREACHABLE, "the MCP server was stopped")
                    await self._changed.wait()
                    self.check_signed_in()
                return session
        except TimeoutError:
            again = "it is being restarted, " if self.state == "down" else ""
            raise McpError(UNREACHABLE, f"the MCP server {self.down_reason}; {again}try later") from None

    def check_signed_in(self) -> None:
        """Raises McpError while the server waits for a sign-in: that takes longer than callers wait."""
        if self._auth is not None and self._auth.waits_for is not None:
            raise McpError(UNREACHABLE, f"the MCP server waits for {self._auth.waits_for}")

    async def wait_until_ready(self) -> ServerInfo:
        """Wait for the first session; raises StartFailed when the first attempt fails, or was stopped."""
        while self.server_info is None and self.state not in ("down", "stopped"):
            await self._changed.wait()
        if self.server_info is None:
            was_stopped = self.state == "stopped" and not self._refused
            reason = "was stopped" if was_stopped else self.down_reason
            raise StartFailed(f"the MCP server {reason}", self.stderr.last_lines())
        return self.server_info

    def restart(self) -> None:
        """End this run; the next one begins at once."""
        self._is_wanted = True
        if self.session is not None:
            self.session.connection.close(RESTARTED)

    def check_health(self, connection: RpcConnection) -> None:
        """A call timed out on this connection: find out whether the server still answers."""
        session = self.session
        if self._tasks is None or self._checking or session is None or connection is not session.connection:
            return
        self._checking = True
        self._tasks.create_task(self._check_health(session))

    def usable_session(self) -> ServerSession | None:
        """The session of the present run if calls can use it at once."""
        # A server that may hang gets no call until the health check is over: that is quick if it answers,
        # and saves the call if it does not. The second condition is the moment before its end is handled.
        if self._checking or self.session is None or self.session.connection.ended.done():
            return None
        return self.session

    # The owning task

    async def run(self) -> None:
        """Keep the server up until cancelled."""
        try:
            await keep_running(
                self._run_once,
                should_restart=lambda _: not self._refused,
                on_delay=lambda reason, _: self._report_down(reason),
                at_once=lambda _: self._is_wanted,
            )
        finally:
            self.state = "stopped"
            self._changed.set()
            self.stderr.close()

    async def _run_once(self) -> str:
        """One run, or the attempt at it; why it ended."""
        if self._auth is not None:
            await self._auth.wait_until_ready()
        self._is_wanted = False
        self._counts.starts += 1
        self._down_reported = False
        server = self._server
        if not isinstance(server, HttpServer) or server.transport != "auto" or self.server_info is not None:
            return await self._run_transport(sse=self._sse)
        first = server.label.endswith("/sse")
        reason = await self._run_transport(sse=first)
        is_waiting = self._auth is not None and self._auth.waits_for is not None
        if self.server_info is None and not is_waiting:
            other = await self._run_transport(sse=not first)
            # Neither works: the error of the likelier one says more.
            reason = reason if self.server_info is None else other
        return reason

    async def _run_transport(self, *, sse: bool) -> str:
        connection = RpcConnection(self._listener)
        reason = "was stopped"
        try:
            async with self._open_transport(connection, sse=sse) as transport:
                connection.bind(transport)
                reason = await self._negotiate(connection, sse=sse)
        except (UsageError, TransportClosed) as fault:
            reason = str(fault) if isinstance(fault, TransportClosed) else f"cannot be started: {fault}"
        except Exception as fault:
            # The connection's task: whatever breaks in a transport ends one run of one server.
            log.exception("connection to an MCP server broke", extra={"server": self._server.label})
            reason = f"broke the connection: {type(fault).__name__}"
        finally:
            connection.close(reason)
            self._listener.on_connection_lost(connection)
            self.session = None
        return reason

    @asynccontextmanager
    async def _open_transport(self, connection: RpcConnection, *, sse: bool) -> AsyncIterator[Transport]:
        """Raises UsageError or TransportClosed when the server cannot be reached."""
        if isinstance(self._server, StdioServer):
            async with open_stdio(self._server, connection, self.stderr) as transport:
                yield transport
            return
        # Imported only where HTTP is used: half a second, and thirty packages.
        from moot.mcp.upstream.http_transports import open_http, open_sse

        async with (open_sse if sse else open_http)(self._server, connection) as transport:
            yield transport

    async def _negotiate(self, connection: RpcConnection, *, sse: bool) -> str:
        # Raises nothing but CancelledError: the HTTP transports would wrap it up in exception groups.
        headers = None
        if connection.over_http:
            from moot.mcp.upstream.headers import RequestHeaders

            headers = RequestHeaders()
            connection.headers_of = headers.of
        try:
            expected = "handshake" if sse else self._expected_era
            info = await negotiate(connection, self._options, expected=expected, first=self._first_era)
            if headers is not None:
                headers.server_info = info
            if info.era == "handshake":
                connection.notify("notifications/initialized")
        except TimeoutError:
            return f"did not finish the handshake within {self._limits.start_seconds:.0f} s"
        except NoAgreement as fault:
            self._expected_era = self._only_era
            self._refused = self._only_era is not None
            reason = f"{fault} ({connection.refusal})" if connection.refusal else str(fault)
            if self._refused:
                self.down_reason = reason
            return reason
        except McpError:
            # It exited on the first request, or on the era that worked last time: try the other one next.
            other: Era = "stateless" if self._first_era == "handshake" else "handshake"
            self._expected_era = self._only_era or (other if self._expected_era is None else None)
            # A pipe breaks a moment before the exit code of its process is known, and that says more.
            await asyncio.wait([connection.ended], timeout=EXIT_CODE_SECONDS)
            return connection.ended.result() if connection.ended.done() else "does not accept messages"
        self._expected_era, self._sse = info.era, sse
        return await self._serve(ServerSession(connection, info, headers))

    async def _serve(self, session: ServerSession) -> str:
        check_cancelled()
        again = self.server_info is not None
        connection, info = session.connection, session.info
        self.session, self.server_info, self.state = session, info, "up"
        log.info(
            "MCP server up",
            extra={"server": self._server.label, "era": info.era, "version": info.version},
        )
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            listening = group.create_task(self._listener.on_up(session, again=again))
            self._wake_waiters()
            try:
                # Not awaited itself: cancelling this task would cancel the future for everybody.
                await asyncio.wait([connection.ended])
                # Reported at once: ending a child that lingers takes seconds.
                self._report_down(connection.ended.result())
            finally:
                self._tasks = None
                listening.cancel()
                connection.close("was stopped")
        return connection.ended.result()

    def _report_down(self, reason: str) -> None:
        if self._down_reported:
            return
        self._down_reported = True
        if self._auth is not None:
            waits_for, problem = self._auth.waits_for, self._auth.problem
            reason = f"waits for {waits_for}" if waits_for else f"{reason}: {problem}" if problem else reason
        self.state, self.down_reason = "down", reason
        log.warning("MCP server down", extra={"server": self._server.label, "reason": reason})
        self._wake_waiters()
        self._listener.on_down(reason)

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _check_health(self, session: ServerSession) -> None:
        """Any response counts as healthy, an error too."""
        connection, info = session.connection, session.info
        try:
            if info.era == "handshake":
                exchange = connection.start("ping", {})
            else:
                caller = CallerInfo(info.version, self._options.client_info, self._options.capabilities)
                exchange = connection.start("server/discover", with_caller({}, caller))
            done, _ = await asyncio.wait([exchange.outcome], timeout=self._limits.health_seconds)
            if not done:
                connection.close(f"answered nothing for {self._limits.health_seconds:.3g} s and was ended")
        except McpError as fault:
            connection.close(f"accepts no messages and was ended: {fault.message}")
        finally:
            self._checking = False
            self._wake_waiters()
