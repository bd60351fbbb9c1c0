"""One MCP server as something to ask, whatever it does.

Callers never touch the wire: a call hands a message to the connection of the server's present life and waits
for its own future. So a call can be cancelled, time out or fail without anyone else noticing, and a server
that dies takes only the calls with it that it was working on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from moot import __version__
from moot.errors import McpError
from moot.mcp.eras import HEADER_MISMATCH, LISTS, METHOD_NOT_FOUND, UNREACHABLE, JsonObject, caller_of
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.upstream.call_runner import CallCounts, CallRunner, OutgoingCall
from moot.mcp.upstream.change_watch import ChangeWatch
from moot.mcp.upstream.connection import Listener, RpcConnection, ServerRequest
from moot.mcp.upstream.negotiation import ServerInfo
from moot.mcp.upstream.server_settings import ALL_CAPABILITIES, Server, UpstreamLimits
from moot.mcp.upstream.supervision import State, Supervisor
from moot.mcp.upstream.suspended_calls import SuspendedCalls
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.mcp.upstream.headers import RequestHeaders

log = logging.getLogger(__name__)

CLIENT_INFO: Final[JsonObject] = {"name": "moot", "version": __version__}


def _ignore(*_: object) -> None:
    """For whoever does not want to hear of something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Who hears what happens besides calls. Called on the loop; must neither wait nor raise."""

    # Up, with what the server said of itself; again after every restart.
    came_up: Callable[[ServerInfo], None] = _ignore
    # Down, and why.
    went_down: Callable[[str], None] = _ignore
    # A list may have changed: `tools`, `resources` or `prompts`.
    changed: Callable[[str], None] = _ignore
    # A watched resource changed: the notification's params, and who watches it.
    updated: Callable[[JsonObject, tuple[str, ...]], None] = _ignore
    # Any other notification: method and params.
    noticed: Callable[[str, JsonObject], None] = _ignore


class Upstream:
    """One MCP server. Make it with `open_upstream`."""

    def __init__(
        self,
        server: Server,
        *,
        events: Events,
        limits: UpstreamLimits,
        client_info: JsonObject,
        capabilities: JsonObject,
        roots: tuple[JsonObject, ...],
    ) -> None:
        self.server = server
        self.limits = limits
        self.counts = CallCounts()
        self._events = events
        self._lives = Supervisor(
            server, self, limits, self.counts, client_info=client_info, capabilities=capabilities
        )
        self._asking = SuspendedCalls(limits, lambda: secrets.token_urlsafe(24), roots)
        self._watching = ChangeWatch(limits, changed=events.changed, updated=events.updated)
        self._calling = CallRunner(
            limits,
            self._asking,
            self.counts,
            client_info=client_info,
            capabilities=capabilities,
            suspect=self._lives.suspect,
        )
        self._running = 0

    # How it stands

    @property
    def state(self) -> State:
        """Of the server."""
        return self._lives.state

    @property
    def trouble(self) -> str:
        """Why it is not up, as the end of a sentence about the server."""
        return self._lives.trouble

    @property
    def greeting(self) -> ServerInfo | None:
        """What the server said of itself last; None before it did."""
        return self._lives.greeting

    @property
    def keeper(self) -> StderrTail:
        """What it said on stderr."""
        return self._lives.keeper

    async def ready(self) -> ServerInfo:
        """Wait for the first greeting; raises StartFailed when the first attempt fails."""
        return await self._lives.ready()

    async def greeted(self) -> ServerInfo:
        """What the server said of itself; waits as a call does, and raises McpError as one does."""
        return (await self._lives.connected())[1]

    def restart(self) -> None:
        """End the server; it is started again like one that ended by itself. Its calls fail."""
        self._lives.restart()

    async def run(self) -> None:
        """Keep the server up until cancelled."""
        await self._lives.run()

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
        """Ask the server; the result is what it said, no field lost.

        `params` are in the stateless shape, whatever the server's era; `owner` tells callers apart. A call
        whose server asks for input answers `input_required`. Raises McpError: the server's own, or one that
        says what became of the call. Cancelling is safe and is told to the server.
        """
        connection, greeting = self._lives.live() or await self._lives.connected()
        if self._running >= self.limits.calls:
            raise McpError(UNREACHABLE, f"the MCP server is busy with {self._running} calls; try again later")
        self._running += 1
        self.counts.calls += 1
        bare, caller = caller_of(params or {})
        call = OutgoingCall(method, bare, caller, owner, listener, timeout)
        try:
            if self._lives.headers is None:
                return await self._calling.call(connection, greeting, call)
            return await self._call_with_headers(connection, greeting, call, self._lives.headers)
        finally:
            self._running -= 1

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification; raises McpError when the server is not there."""
        connection, _ = await self._lives.connected()
        connection.notify(method, params)

    async def list_all(self, method: str) -> list[JsonObject]:
        """Every page of a list. Raises McpError; stops at `pages`."""
        found: list[JsonObject] = []
        params: JsonObject = {}
        for _ in range(self.limits.pages):
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
        """Have `owner` hear when a resource changes. Raises McpError when the server does not take it."""
        connection, greeting = await self._lives.connected()
        self._watching.check_room(uri)
        first = self._watching.add(uri, owner)
        try:
            if greeting.era == "stateless":
                await self._watching.covered(uri, self.limits.health_seconds)
            elif first:
                await self._plain(connection, greeting, "resources/subscribe", uri)
        except BaseException:
            self._watching.remove(uri, owner)
            raise

    async def unwatch(self, uri: str, owner: str) -> None:
        """No longer; nothing happens to whoever did not watch."""
        if not self._watching.remove(uri, owner):
            return
        connection, greeting = await self._lives.connected()
        if greeting.era == "stateless":
            self._watching.stir()
        else:
            await self._plain(connection, greeting, "resources/unsubscribe", uri)

    @property
    def owners(self) -> frozenset[str]:
        """Callers for whom something is kept: a call that waits for them, or a resource that they watch."""
        return self._asking.owners | self._watching.owners

    async def forget(self, owner: str) -> None:
        """A caller is gone: give up what waits for it, and what it watched."""
        self._asking.forget(owner)
        for uri in self._watching.of(owner):
            try:
                await self.unwatch(uri, owner)
            except McpError as fault:
                log.debug("not unsubscribed", extra={"reason": fault.message})

    # Hearing: what a connection tells

    def asked(self, connection: RpcConnection, ask: ServerRequest) -> None:
        if self.greeting is not None and self.greeting.era == "stateless":
            connection.refuse(ask, METHOD_NOT_FOUND, "a server sends no requests in this version of MCP")
        else:
            self._asking.asked(connection, ask)

    def withdrawn(self, ask_id: Json) -> None:
        if self._lives.connection is not None:
            self._asking.withdrawn(self._lives.connection.exchanges, ask_id)

    def noticed(self, method: str, params: JsonObject) -> None:
        if method == "notifications/message":
            self._calling.hear_log(self._lives.connection, params)
        elif not self._watching.noticed(method, params):
            self._events.noticed(method, params)

    def junk(self, fault: str) -> None:
        self.counts.junk += 1
        level = logging.WARNING if self.counts.junk == 1 else logging.DEBUG
        log.log(level, "not a message of MCP", extra={"server": self.server.label, "fault": fault})

    # Attending: what its supervisor tells

    def came_up(
        self, connection: RpcConnection, greeting: ServerInfo, *, again: bool
    ) -> Coroutine[Any, Any, None]:
        self._calling.begin()
        self._asking.begin()
        # Taken before anyone can watch more: those are asked for by whoever does.
        watched = self._watching.uris
        self._events.came_up(greeting)
        if again:
            # Another life may have other tools.
            for feature in ("tools", "resources", "prompts"):
                if greeting.offers(feature):
                    self._events.changed(feature)
        return self._keep_watching(connection, greeting, watched)

    def went_down(self, why: str) -> None:
        self._events.went_down(why)

    def lost(self, connection: RpcConnection) -> None:
        self._asking.lost(connection)

    # Inside

    async def _keep_watching(
        self, connection: RpcConnection, greeting: ServerInfo, watched: list[str]
    ) -> None:
        try:
            if greeting.era == "stateless":
                await self._watching.listen(connection, greeting, self._calling.caller(greeting))
                return
            for uri in watched:
                await self._plain(connection, greeting, "resources/subscribe", uri)
        except McpError as fault:
            log.warning("not watched any more", extra={"server": self.server.label, "reason": fault.message})

    async def _call_with_headers(
        self, connection: RpcConnection, greeting: ServerInfo, call: OutgoingCall, headers: RequestHeaders
    ) -> JsonObject:
        # Which arguments are repeated in headers stands in the tool's definition.
        if call.method == "tools/call" and not headers.knows(call.params.get("name")):
            await self.list_all("tools/list")
        try:
            result = await self._calling.call(connection, greeting, call)
        except McpError as fault:
            if fault.code != HEADER_MISMATCH or call.method != "tools/call":
                raise
            await self.list_all("tools/list")
            return await self._calling.call(connection, greeting, call)
        if call.method == "tools/list":
            headers.learn(result.get("tools"))
        return result

    async def _plain(
        self, connection: RpcConnection, greeting: ServerInfo, method: str, uri: str
    ) -> JsonObject:
        """A request of our own about a resource."""
        call = OutgoingCall(method, {"uri": uri}, seconds=self.limits.health_seconds)
        return await self._calling.call(connection, greeting, call)


@asynccontextmanager
async def open_upstream(
    server: Server,
    *,
    events: Events | None = None,
    limits: UpstreamLimits | None = None,
    client_info: JsonObject = CLIENT_INFO,
    capabilities: JsonObject = ALL_CAPABILITIES,
    roots: tuple[JsonObject, ...] = (),
) -> AsyncIterator[Upstream]:
    """An MCP server for the length of the block: started at once, restarted as needed, ended on leaving.

    Entering does not wait for the server: `ready` does. `roots` is what a server hears that asks for roots
    outside of any call; inside one, its caller is asked, unless there are some.
    """
    upstream = Upstream(
        server,
        events=events or Events(),
        limits=limits or UpstreamLimits(),
        client_info=client_info,
        capabilities=capabilities,
        roots=roots,
    )
    # Not a TaskGroup: it would wrap up what the caller raises inside the block.
    owner = asyncio.create_task(upstream.run())
    try:
        yield upstream
    finally:
        owner.cancel()
        await asyncio.wait([owner])
