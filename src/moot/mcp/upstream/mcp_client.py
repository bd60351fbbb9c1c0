"""One MCP server as callers use it, whatever it does.

Callers never touch the transport: a call gives a message to the connection of the server's present run and
waits for its own future. So a call can be cancelled, time out or fail without affecting others, and a server
that dies fails only the calls that it was working on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from moot.errors import McpError
from moot.mcp.eras import HEADER_MISMATCH, LISTS, METHOD_NOT_FOUND, UNREACHABLE, JsonObject, caller_of
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.upstream.call_runner import CallCounts, CallRunner, OutgoingCall
from moot.mcp.upstream.change_watch import ChangeWatch
from moot.mcp.upstream.connection import Listener, RpcConnection, ServerRequest
from moot.mcp.upstream.server_info import ServerInfo
from moot.mcp.upstream.server_session import ServerSession
from moot.mcp.upstream.server_settings import DEFAULT_OPTIONS, Server, UpstreamOptions
from moot.mcp.upstream.supervision import State, Supervisor
from moot.mcp.upstream.suspended_calls import SuspendedCalls
from moot.protocol.operation import Json

log = logging.getLogger(__name__)


def _ignore(*_: object) -> None:
    """The default of every callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamCallbacks:
    """Called for what happens besides calls, on the event loop; they must neither wait nor raise."""

    # The server is up, with what it said about itself; again after every restart.
    on_up: Callable[[ServerInfo], None] = _ignore
    # It is down, and why.
    on_down: Callable[[str], None] = _ignore
    # A list may have changed: `tools`, `resources` or `prompts`.
    on_list_changed: Callable[[str], None] = _ignore
    # A watched resource changed: the notification's params, and the callers that watch it.
    on_resource_updated: Callable[[JsonObject, tuple[str, ...]], None] = _ignore
    # Any other notification: method and params.
    on_notification: Callable[[str, JsonObject], None] = _ignore


NO_CALLBACKS: Final = UpstreamCallbacks()


class Upstream:
    """One MCP server. Make it with `open_upstream`."""

    def __init__(self, server: Server, options: UpstreamOptions, callbacks: UpstreamCallbacks) -> None:
        self.server = server
        self.limits = options.limits
        self.counts = CallCounts()
        self._callbacks = callbacks
        self._supervisor = Supervisor(server, options, self, self.counts)
        self._suspended = SuspendedCalls(options)
        self._changes = ChangeWatch(
            options.limits,
            on_list_changed=callbacks.on_list_changed,
            on_resource_updated=callbacks.on_resource_updated,
        )
        self._calls = CallRunner(
            options, self._suspended, self.counts, on_timeout=self._supervisor.check_health
        )
        self._running_calls = 0

    # Its state

    @property
    def state(self) -> State:
        """Of the server."""
        return self._supervisor.state

    @property
    def down_reason(self) -> str:
        """Why it is not up, as the end of a sentence about the server."""
        return self._supervisor.down_reason

    @property
    def server_info(self) -> ServerInfo | None:
        """What the server last said about itself; None before it did."""
        return self._supervisor.server_info

    @property
    def stderr(self) -> StderrTail:
        """What it wrote to stderr."""
        return self._supervisor.stderr

    async def wait_until_ready(self) -> ServerInfo:
        """Wait until the server is up; raises StartFailed when the first attempt fails."""
        return await self._supervisor.wait_until_ready()

    async def wait_for_info(self) -> ServerInfo:
        """What the server says about itself; waits as a call does, and raises McpError as one does."""
        return (await self._supervisor.wait_for_session()).info

    def restart(self) -> None:
        """End the server; it is started again like one that ended by itself. Its calls fail."""
        self._supervisor.restart()

    async def run(self) -> None:
        """Keep the server up until cancelled."""
        await self._supervisor.run()

    # Calls

    async def request(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        owner: str = "",
        listener: Listener | None = None,
        timeout: float | None = None,
    ) -> JsonObject:
        """Send a request; returns the server's result with every field.

        `params` are in the stateless shape, whatever the server's era; `owner` tells callers apart. A call
        whose server requests input returns `input_required`. Raises McpError: the server's own, or one that
        says what became of the call. Cancelling is safe and cancels the call at the server.
        """
        session = self._supervisor.usable_session() or await self._supervisor.wait_for_session()
        if self._running_calls >= self.limits.max_calls:
            text = f"the MCP server is busy with {self._running_calls} calls; try again later"
            raise McpError(UNREACHABLE, text)
        self._running_calls += 1
        self.counts.calls += 1
        bare, caller = caller_of(params or {})
        call = OutgoingCall(method, bare, caller, owner, listener, timeout)
        try:
            if session.headers is None:
                return await self._calls.run(session, call)
            return await self._call_with_headers(session, call)
        finally:
            self._running_calls -= 1

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification; raises McpError when the server is not there."""
        (await self._supervisor.wait_for_session()).connection.notify(method, params)

    async def list_all(self, method: str) -> list[JsonObject]:
        """Every page of a list. Raises McpError; stops at `max_pages`."""
        found: list[JsonObject] = []
        params: JsonObject = {}
        for _ in range(self.limits.max_pages):
            result = await self.request(method, params)
            items = result.get(LISTS[method])
            found += [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor == params.get("cursor"):
                break
            params = {"cursor": cursor}
        return found

    # Watching resources

    async def watch(self, uri: str, owner: str) -> None:
        """Report changes of a resource to `owner`; raises McpError when the server does not accept that."""
        session = await self._supervisor.wait_for_session()
        self._changes.check_capacity(uri)
        first = self._changes.add(uri, owner)
        try:
            if session.info.era == "stateless":
                await self._changes.wait_until_covered(uri, self.limits.health_seconds)
            elif first:
                await self._request_about(session, "resources/subscribe", uri)
        except BaseException:
            self._changes.remove(uri, owner)
            raise

    async def unwatch(self, uri: str, owner: str) -> None:
        """Stop reporting; does nothing for an owner that does not watch this resource."""
        if not self._changes.remove(uri, owner):
            return
        session = await self._supervisor.wait_for_session()
        if session.info.era == "stateless":
            self._changes.refresh()
        else:
            await self._request_about(session, "resources/unsubscribe", uri)

    @property
    def owners(self) -> frozenset[str]:
        """Callers with a suspended call or a watched resource."""
        return self._suspended.owners | self._changes.owners

    async def forget(self, owner: str) -> None:
        """A caller is gone: give up its suspended calls and watched resources."""
        self._suspended.forget(owner)
        for uri in self._changes.uris_of(owner):
            try:
                await self.unwatch(uri, owner)
            except McpError as fault:
                log.debug("not unsubscribed", extra={"reason": fault.message})

    # From the connection (MessageHandler)

    def on_request(self, connection: RpcConnection, request: ServerRequest) -> None:
        if self.server_info is not None and self.server_info.era == "stateless":
            connection.refuse(request, METHOD_NOT_FOUND, "a server sends no requests in this version of MCP")
        else:
            self._suspended.on_request(connection, request)

    def on_request_cancelled(self, request_id: Json) -> None:
        if self._supervisor.session is not None:
            self._suspended.on_request_cancelled(self._supervisor.session.connection.exchanges, request_id)

    def on_notification(self, method: str, params: JsonObject) -> None:
        if method == "notifications/message":
            session = self._supervisor.session
            self._calls.forward_log_message(None if session is None else session.connection, params)
        elif not self._changes.process_notification(method, params):
            self._callbacks.on_notification(method, params)

    def on_invalid_message(self, fault: str) -> None:
        self.counts.invalid_messages += 1
        level = logging.WARNING if self.counts.invalid_messages == 1 else logging.DEBUG
        log.log(level, "not an MCP message", extra={"server": self.server.label, "fault": fault})

    # From the supervisor (LifecycleListener)

    def on_up(self, session: ServerSession, *, again: bool) -> Coroutine[Any, Any, None]:
        self._calls.reset()
        self._suspended.begin()
        # Read before anyone can watch more: `watch` itself subscribes to those.
        watched = self._changes.uris
        self._callbacks.on_up(session.info)
        if again:
            # The server may have other tools after a restart.
            for feature in ("tools", "resources", "prompts"):
                if session.info.offers(feature):
                    self._callbacks.on_list_changed(feature)
        return self._subscribe_again(session, watched)

    def on_down(self, reason: str) -> None:
        self._callbacks.on_down(reason)

    def on_connection_lost(self, connection: RpcConnection) -> None:
        self._suspended.on_connection_lost(connection)

    # Inside

    async def _subscribe_again(self, session: ServerSession, watched: list[str]) -> None:
        try:
            if session.info.era == "stateless":
                await self._changes.listen(session, self._calls.caller_info(session.info))
                return
            for uri in watched:
                await self._request_about(session, "resources/subscribe", uri)
        except McpError as fault:
            log.warning(
                "watched resources lost", extra={"server": self.server.label, "reason": fault.message}
            )

    async def _call_with_headers(self, session: ServerSession, call: OutgoingCall) -> JsonObject:
        headers = session.headers
        assert headers is not None  # noqa: S101  # the caller has looked
        # A tool's definition says which arguments are repeated in headers.
        if call.method == "tools/call" and not headers.knows(call.params.get("name")):
            await self.list_all("tools/list")
        try:
            result = await self._calls.run(session, call)
        except McpError as fault:
            if fault.code != HEADER_MISMATCH or call.method != "tools/call":
                raise
            await self.list_all("tools/list")
            return await self._calls.run(session, call)
        if call.method == "tools/list":
            headers.learn(result.get("tools"))
        return result

    async def _request_about(self, session: ServerSession, method: str, uri: str) -> JsonObject:
        """A request of our own about a resource."""
        call = OutgoingCall(method, {"uri": uri}, seconds=self.limits.health_seconds)
        return await self._calls.run(session, call)


@asynccontextmanager
async def open_upstream(
    server: Server,
    options: UpstreamOptions = DEFAULT_OPTIONS,
    callbacks: UpstreamCallbacks = NO_CALLBACKS,
) -> AsyncIterator[Upstream]:
    """An MCP server for the length of the block: started at once, restarted as needed, ended on leaving.

    Entering does not wait for the server: `wait_until_ready` does.
    """
    upstream = Upstream(server, options, callbacks)
    # Not a TaskGroup: it would wrap up what the caller raises inside the block.
    owner = asyncio.create_task(upstream.run())
    try:
        yield upstream
    finally:
        owner.cancel()
        await asyncio.wait([owner])
