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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from moot import tracing
from moot.errors import McpError
from moot.mcp.eras import LIST_CHANGED, UNREACHABLE, Era, JsonObject, caller_of
from moot.mcp.list_pages import list_pages
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.upstream.call_runner import CallCounts, OutgoingCall
from moot.mcp.upstream.change_watch import ChangeWatch
from moot.mcp.upstream.connection import Listener
from moot.mcp.upstream.era_routes import CallKey, EraRoutes, call_key
from moot.mcp.upstream.server_channel import MAX_PAGES, ServerChannel
from moot.mcp.upstream.server_session import ServerInfo, ServerSession
from moot.mcp.upstream.server_settings import (
    DEFAULT_OPTIONS,
    HttpServer,
    SendRequest,
    Server,
    StdioServer,
    UpstreamOptions,
    send_filtered,
)
from moot.mcp.upstream.supervision import State
from moot.resilience.task_set import end_tasks

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
        self._options = options
        self._callbacks = callbacks
        self._main = ServerChannel(server, options, self, only_era=options.era)
        # The handshake connection to a server whose main connection is stateless.
        self._second: ServerChannel | None = None
        self._second_run: asyncio.Task[None] | None = None
        # Set when somebody waited for it in vain, until it is up.
        self._second_overdue = False
        self._routes = EraRoutes()
        self._changes = ChangeWatch(
            options.limits,
            on_list_changed=callbacks.on_list_changed,
            on_resource_updated=callbacks.on_resource_updated,
        )
        self._request: SendRequest = self._send
        if options.call_filter is not None:
            self._request = partial(send_filtered, options.call_filter, self._send)
        self._running_calls = 0
        self._tasks: asyncio.TaskGroup | None = None

    # Its state

    @property
    def counts(self) -> CallCounts:
        return self._main.counts

    @property
    def state(self) -> State:
        """Of the server."""
        return self._main.supervisor.state

    @property
    def down_reason(self) -> str:
        """Why it is not up, as the end of a sentence about the server."""
        return self._main.supervisor.down_reason

    @property
    def server_info(self) -> ServerInfo | None:
        """What the server last said about itself; None before it did."""
        return self._main.supervisor.server_info

    @property
    def stderr(self) -> StderrTail:
        """What it wrote to stderr."""
        return self._main.supervisor.stderr

    async def wait_until_ready(self) -> ServerInfo:
        """Wait until the server is up; raises StartFailed when the first attempt fails."""
        return await self._main.supervisor.wait_until_ready()

    async def wait_for_info(self) -> ServerInfo:
        """What the server says about itself; waits as a call does, and raises McpError as one does."""
        return (await self._main.supervisor.wait_for_session()).info

    def restart(self) -> None:
        """End the server; it is started again like one that ended by itself. Its calls fail."""
        self._main.supervisor.restart()
        if self._second is not None:
            self._second.supervisor.restart()

    async def run(self) -> None:
        """Keep the server up until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            await self._main.run()

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
        if tracing.active is None:
            return await self._request(method, params, owner, listener, timeout)
        info = self.server_info
        with tracing.active.operation(
            "client",
            method,
            params,
            mcp__protocol__version=None if info is None else info.version,
            network__transport="pipe" if isinstance(self.server, StdioServer) else "tcp",
        ) as operation:
            if operation is None:
                return await self._request(method, params, owner, listener, timeout)
            params = tracing.active.with_context(params)
            operation.result = await self._request(method, params, owner, listener, timeout)
            return operation.result

    async def _send(
        self,
        method: str,
        params: JsonObject | None,
        owner: str,
        listener: Listener | None,
        timeout: float | None,
    ) -> JsonObject:
        supervisor = self._main.supervisor
        supervisor.check_signed_in()
        session = supervisor.usable_session() or await supervisor.wait_for_session()
        if self._running_calls >= self.limits.max_calls:
            text = f"the MCP server is busy with {self._running_calls} calls; try again later"
            raise McpError(UNREACHABLE, text)
        self._running_calls += 1
        self.counts.calls += 1
        bare, caller = caller_of(params or {})
        call = OutgoingCall(method, bare, caller, owner, listener, timeout)
        try:
            if self._second is None:
                return await self._run_in_only_era(session, call)
            return await self._run_in_era(session, self._second, call)
        finally:
            self._running_calls -= 1

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification; raises McpError when the server is not there."""
        (await self._main.supervisor.wait_for_session()).connection.notify(method, params)

    async def list_all(self, method: str) -> list[JsonObject]:
        """Every page of a list, each name once. Raises McpError; stops at `max_pages`."""
        return await list_pages(
            lambda params: self.request(method, params),
            method,
            max_pages=MAX_PAGES,
            source=self.server.label,
        )

    # Watching resources

    async def can_watch(self) -> bool:
        """Whether the server reports changes of resources; raises McpError when it is not there."""
        session = await self._main.supervisor.wait_for_session()
        return session.info.declares("resources", "subscribe") or await self._second_watches()

    async def watch(self, uri: str, owner: str) -> None:
        """Report changes of a resource to `owner`; raises McpError when the server does not accept that."""
        session = await self._main.supervisor.wait_for_session()
        self._changes.check_capacity(uri)
        first = self._changes.add(uri, owner)
        try:
            if session.info.era == "handshake":
                if first:
                    await self._main.request_about(session, "resources/subscribe", uri)
            elif not session.info.declares("resources", "subscribe") and await self._second_watches():
                if first:
                    self._changes.subscribed_elsewhere.add(uri)
                    await self._request_second("resources/subscribe", uri)
            else:
                await self._changes.wait_until_covered(uri, self.limits.health_seconds)
        except BaseException:
            self._changes.remove(uri, owner)
            raise

    async def unwatch(self, uri: str, owner: str) -> None:
        """Stop reporting; does nothing for an owner that does not watch this resource."""
        elsewhere = uri in self._changes.subscribed_elsewhere
        if not self._changes.remove(uri, owner):
            return
        session = await self._main.supervisor.wait_for_session()
        if session.info.era == "handshake":
            await self._main.request_about(session, "resources/unsubscribe", uri)
        elif elsewhere:
            await self._request_second("resources/unsubscribe", uri)
        else:
            self._changes.refresh()

    @property
    def owners(self) -> frozenset[str]:
        """Callers with a suspended call or a watched resource."""
        owners = self._main.suspended.owners | self._changes.owners
        return owners if self._second is None else owners | self._second.suspended.owners

    async def forget(self, owner: str) -> None:
        """A caller is gone: give up its suspended calls and watched resources."""
        self._main.suspended.forget(owner)
        if self._second is not None:
            self._second.suspended.forget(owner)
        for uri in self._changes.uris_of(owner):
            try:
                await self.unwatch(uri, owner)
            except McpError as fault:
                log.debug("not unsubscribed", extra={"reason": fault.message})

    # From the channels (ChannelOwner)

    def on_channel_up(
        self, channel: ServerChannel, session: ServerSession, *, again: bool
    ) -> Coroutine[Any, Any, None]:
        if channel is not self._main:
            return self._prepare_second(channel, session)
        # Read before anyone can watch more: `watch` itself subscribes to those.
        watched = self._changes.uris
        self._open_second(session)
        self._callbacks.on_up(session.info)
        if again:
            # The server may have other tools after a restart.
            for feature in ("tools", "resources", "prompts"):
                if session.info.offers(feature):
                    self._callbacks.on_list_changed(feature)
        return self._subscribe_again(session, watched)

    def on_channel_down(self, channel: ServerChannel, reason: str) -> None:
        if channel is self._main:
            self._callbacks.on_down(reason)
        else:
            self._routes.handshake_tools = None

    def on_channel_notification(self, method: str, params: JsonObject) -> None:
        if LIST_CHANGED.get(method) == "tools":
            # Until the tools of the second connection are listed again.
            self._routes.handshake_tools = None
        if not self._changes.process_notification(method, params):
            self._callbacks.on_notification(method, params)

    # Inside

    async def _subscribe_again(self, session: ServerSession, watched: list[str]) -> None:
        try:
            if session.info.era == "stateless":
                await self._changes.listen(session, self._main.calls.caller_info(session.info))
                return
            for uri in watched:
                await self._main.request_about(session, "resources/subscribe", uri)
        except McpError as fault:
            log.warning(
                "watched resources lost", extra={"server": self.server.label, "reason": fault.message}
            )

    # The second connection

    def _open_second(self, session: ServerSession) -> None:
        """Connect to a stateless server in the handshake era as well, where that starts no second process."""
        if not isinstance(self.server, HttpServer) or session.info.era != "stateless":
            return
        if self._options.era is not None:
            return
        if self._tasks is None or (self._second_run is not None and not self._second_run.done()):
            return
        server = replace(self.server, transport="http")
        self._second_overdue = False
        self._second = ServerChannel(server, self._options, self, only_era="handshake")
        self._second_run = self._tasks.create_task(self._second.run())

    async def _prepare_second(self, channel: ServerChannel, session: ServerSession) -> None:
        """Learn what the server offers in the handshake era, and subscribe there to what only it reports."""
        self._second_overdue = False
        try:
            for uri in tuple(self._changes.subscribed_elsewhere):
                await channel.request_about(session, "resources/subscribe", uri)
        except McpError as fault:
            log.warning(
                "watched resources lost", extra={"server": self.server.label, "reason": fault.message}
            )
        try:
            tools = await channel.list_tools(session)
        except McpError as fault:
            log.debug("tools of the handshake era not listed", extra={"reason": fault.message})
        else:
            names = (tool.get("name") for tool in tools)
            self._routes.handshake_tools = frozenset(name for name in names if isinstance(name, str))

    async def _second_session(self, channel: ServerChannel) -> ServerSession | None:
        """Its session, after a wait where it is about to come; None when there is none."""
        supervisor = channel.supervisor
        session = supervisor.usable_session()
        if session is not None or self._second_overdue or supervisor.state == "stopped":
            return session
        try:
            async with asyncio.timeout(self.limits.health_seconds):
                return await supervisor.wait_for_session()
        except (McpError, TimeoutError):
            # The next calls do not wait for it.
            self._second_overdue = True
            return None

    async def _second_watches(self) -> bool:
        if self._second is None:
            return False
        session = await self._second_session(self._second)
        return session is not None and session.info.declares("resources", "subscribe")

    async def _request_second(self, method: str, uri: str) -> None:
        session = None if self._second is None else await self._second_session(self._second)
        if self._second is None or session is None:
            raise McpError(UNREACHABLE, "the MCP server is not connected in the era that has subscriptions")
        await self._second.request_about(session, method, uri)

    async def _run_in_only_era(self, session: ServerSession, call: OutgoingCall) -> JsonObject:
        """Run a call; the error of one that needs the other era says so."""
        key = call_key(call.method, call.params)
        try:
            result = await self._main.run_call(session, call)
        except McpError as fault:
            needed = None if key is None else self._routes.needed_era(key, fault, session.info.era)
            if needed is None:
                raise
            raise McpError(fault.code, f"{fault.message} ({_other_era(needed)})", fault.data) from None
        if key is not None and self._routes.needed_era(key, result, session.info.era) is not None:
            note = {"type": "text", "text": _other_era("handshake")}
            return {**result, "content": [*result["content"], note]}
        return result

    async def _run_in_era(
        self, main_session: ServerSession, second: ServerChannel, call: OutgoingCall
    ) -> JsonObject:
        """Run a call on the connection that it belongs to."""
        key = call_key(call.method, call.params)
        if key is None:
            return await self._main.run_call(main_session, call)
        state = call.params.get("requestState")
        if state is not None:
            use_second = second.suspended.owns(state)
        else:
            use_second = self._routes.use_handshake(key, from_handshake=call.caller.era == "handshake")
        if use_second:
            session = await self._second_session(second)
            if session is not None:
                try:
                    return await second.run_call(session, call)
                except McpError as fault:
                    if self._routes.learn_from_handshake(key, fault):
                        self._report_learned(key, "stateless")
                    raise
            if state is not None or self._routes.needs_handshake(key):
                # In the other era it would fail, perhaps after half of its work.
                text = "the MCP server is not connected in the era that this call needs; try later"
                raise McpError(UNREACHABLE, text)
        try:
            result = await self._main.run_call(main_session, call)
        except McpError as fault:
            if self._routes.learn_from_stateless(key, fault):
                self._report_learned(key, "handshake")
            raise
        if self._routes.learn_from_stateless(key, result):
            self._report_learned(key, "handshake")
        return result

    def _report_learned(self, key: CallKey, era: Era) -> None:
        log.info(
            "a call needs the other era of MCP, and uses it from now on",
            extra={"server": self.server.label, "call": key[1], "era": era},
        )


def _other_era(needed: Era) -> str:
    return f"this seems to need the {needed} era of MCP: `moot bridge --era {needed}` uses that"


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
        await end_tasks([owner])
