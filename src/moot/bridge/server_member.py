"""An MCP server as a member of a space.

It answers what is asked of it by name, and lists that are asked of everybody (D-81); a proposal never runs
here (MEW 7.1). The space speaks the stateless shape of MCP, the server what it likes: results come back as
the server gave them, no field lost. What the server does wrong ends at the bridge: its callers get errors
that say what happened, and the member stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Literal

from moot.bridge.server_messages import ServerMessages
from moot.errors import McpError, MootError
from moot.mcp.eras import (
    ASKS,
    FEATURES,
    HANDSHAKE_VERSION,
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    LIST_CHANGED,
    LISTS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    METHOD_NOT_FOUND,
    JsonObject,
    initialized,
    wants_news,
)
from moot.mcp.tool_pins import PinChange, Pins
from moot.mcp.upstream import Events, Server, ServerInfo, Upstream
from moot.participant import Control, Controls, IncomingRequest, JoinedSpace, PresenceEvent
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# Said within a session, and sessions end at the bridge; cancelling is done by the SDK.
_SESSION_NOTICES: Final = frozenset(
    {
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/message",
        "notifications/progress",
        "notifications/resources/updated",
        "notifications/roots/list_changed",
    }
)
# Between two looks at a list that keeps changing.
_CHECK_SECONDS: Final = 1.0
# How many fields of a change are told in a chat; the log has all.
_LINES_TOLD: Final = 5


class ServerControls(Controls):
    """What controls mean to a member whose mind is an MCP server: a restart starts the server anew."""

    def __init__(self, member: ServerMember) -> None:
        self._member = member

    async def on_restart(self, control: Control) -> None:  # noqa: ARG002
        self._member.upstream.restart()


class ServerMember:
    """What a member does whose mind is an MCP server. Made by `bridged`."""

    def __init__(self, server: Server, pins: Pins, *, accept_changes: bool = False) -> None:
        self.server = server
        self.pins = pins
        self._accept_changes = accept_changes
        self._upstream: Upstream | None = None
        self._space: JoinedSpace | None = None
        self._announcements = ServerMessages(self._announce)
        self._log_levels: dict[str, str] = {}
        # Tools that the server listed last; None before it did.
        self._tools: frozenset[str] | None = None
        # Set while the tools that the server offers now are known to be pinned.
        self._checked = asyncio.Event()
        self._unchecked = asyncio.Event()
        # Set when a new life of the server begins: calls wait for the look at its tools.
        self._urgent = asyncio.Event()

    # For whoever looks after it

    @property
    def upstream(self) -> Upstream:
        """The server behind it; raises while it is not there yet."""
        assert self._upstream is not None  # noqa: S101  # `bridged` gives out no member without
        return self._upstream

    @property
    def space(self) -> JoinedSpace:
        assert self._space is not None  # noqa: S101  # `bridged` gives out no member without
        return self._space

    @property
    def state(self) -> Literal["starting", "up", "down", "stopped"]:
        """Of the server; the member itself is there in any case."""
        return self.upstream.state

    @property
    def trouble(self) -> str:
        """Why the server is down, as the end of a sentence about it."""
        return self.upstream.trouble

    @property
    def changes(self) -> Mapping[str, PinChange]:
        """Tools that changed and wait for consent."""
        return self.pins.changes

    def accept(self, tools: list[str] | None = None) -> list[str]:
        """Consent to changed tools, all or those named; they are offered again."""
        accepted = self.pins.accept(tools)
        if accepted:
            self._announcements.changed("tools")
        return accepted

    def events(self) -> Events:
        """What the server tells goes here."""
        return Events(came_up=self._came_up, changed=self._changed, updated=self._announcements.updated)

    def attach(self, upstream: Upstream, space: JoinedSpace) -> None:
        """Begin to answer."""
        self._upstream, self._space = upstream, space
        space.host(self.handle, notifications=self.notified, can_run=self.can_run)
        space.roster.on_change(self._presence)

    async def run(self) -> None:
        """Tell the space what changes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._announcements.run())
            group.create_task(self._keep_checking())

    # Requests of members

    async def handle(self, request: IncomingRequest) -> JsonObject | None:
        """The answer to one request; None leaves a question to everybody to the others."""
        method = request.method
        if method == "tools/call":
            if not self._checked.is_set():
                await self._first_look()
            if self.pins.withholds(name := request.params.get("name")):
                raise _withheld(name)
            return await self._handed_on(request)
        if method in LISTS:
            return await self._list(request)
        if method == "ping":
            return {}
        if method == "server/discover":
            return (await self.upstream.greeted()).discovered
        if method == "initialize":
            wished = request.params.get("protocolVersion")
            version = wished if wished in HANDSHAKE_VERSIONS else HANDSHAKE_VERSION
            return initialized((await self.upstream.greeted()).discovered, version)
        if method == "logging/setLevel":
            return self._set_level(request)
        if method in ("resources/subscribe", "resources/unsubscribe"):
            return await self._watch(request)
        if method in ASKS or method == "subscriptions/listen":
            raise McpError(METHOD_NOT_FOUND, f"{method} is not asked of a tool host in a space")
        return await self._handed_on(request)

    async def _handed_on(self, request: IncomingRequest) -> JsonObject:
        method, params, owner = request.method, self._params(request), request.sender
        if not wants_news(params):
            return await self.upstream.request(method, params, owner=owner)
        relay = self._announcements.relay(request)
        try:
            return await self.upstream.request(method, params, owner=owner, listener=relay.heard)
        finally:
            await relay.finish()

    def can_run(self, method: str, params: Mapping[str, Json]) -> bool:
        """Whether a proposal for us could ever run: not if it is for a tool that the server does not have."""
        return method != "tools/call" or self._tools is None or params.get("name") in self._tools

    async def notified(self, request: IncomingRequest) -> None:
        """A notification that names us: MCP's own are about sessions, the rest is handed on."""
        if request.is_broadcast or request.method in _SESSION_NOTICES or request.method in LIST_CHANGED:
            return
        try:
            await self.upstream.notify(request.method, request.params)
        except McpError as fault:
            log.debug("notification not handed on", extra={"reason": fault.message})

    async def _list(self, request: IncomingRequest) -> JsonObject | None:
        method = request.method
        if request.is_broadcast and self.upstream.state != "up":
            # Nobody waits for us in particular.
            return None
        greeting = await self.upstream.greeted()
        nothing: JsonObject | None = None if request.is_broadcast else {LISTS[method]: []}
        # Nothing of the kind: to one who asks us that is an empty list, to everybody it is no news.
        # One that declares nothing at all may still have something.
        if greeting.capabilities and not greeting.offers(FEATURES[method.partition("/")[0]]):
            return nothing
        try:
            result = await self.upstream.request(method, self._params(request), owner=request.sender)
        except McpError as fault:
            if fault.code == METHOD_NOT_FOUND or request.is_broadcast:
                return nothing
            raise
        if method != "tools/list" or not isinstance(result.get("tools"), list):
            return result
        verdict = self.pins.check(result["tools"])
        await self._tell(verdict.changes)
        return result if len(verdict.shown) == len(result["tools"]) else result | {"tools": verdict.shown}

    async def _watch(self, request: IncomingRequest) -> JsonObject:
        uri = request.params.get("uri")
        if not isinstance(uri, str):
            raise McpError(INVALID_PARAMS, f"{request.method} needs params.uri, a text")
        if not (await self.upstream.greeted()).tells("resources", "subscribe"):
            raise McpError(METHOD_NOT_FOUND, "this server does not tell when its resources change")
        if request.method == "resources/subscribe":
            await self.upstream.watch(uri, request.sender)
        else:
            await self.upstream.unwatch(uri, request.sender)
        return {}

    def _set_level(self, request: IncomingRequest) -> JsonObject:
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise McpError(INVALID_PARAMS, f"params.level is one of {', '.join(LOG_LEVELS)}")
        self._log_levels[request.sender] = level
        return {}

    def _params(self, request: IncomingRequest) -> JsonObject:
        level = self._log_levels.get(request.sender)
        if level is None or LOG_LEVEL_KEY in request.meta:
            return request.params
        return {**request.params, "_meta": {**request.meta, LOG_LEVEL_KEY: level}}

    async def _first_look(self) -> None:
        """At the tools of a server that just came up: it takes no longer than the server's own list."""
        if self.upstream.state != "up":
            return
        try:
            async with asyncio.timeout(self.upstream.limits.health_seconds):
                await self._checked.wait()
        except TimeoutError:
            log.warning("tools could not be checked", extra={"server": self.server.label})

    # What the server tells

    def _came_up(self, greeting: ServerInfo) -> None:
        self._checked.clear()
        if greeting.offers("tools") or not greeting.capabilities:
            self._unchecked.set()
            self._urgent.set()
        else:
            self._checked.set()

    def _changed(self, feature: str) -> None:
        if feature == "tools":
            self._unchecked.set()
        else:
            self._announcements.changed(feature)

    async def _keep_checking(self) -> None:
        """Look at the tools whenever they may have changed, and say so if they did."""
        first = True
        while True:
            await self._unchecked.wait()
            self._unchecked.clear()
            self._urgent.clear()
            try:
                tools = await self.upstream.list_all("tools/list")
            except McpError as fault:
                log.info("tools not listed", extra={"server": self.server.label, "reason": fault.message})
            else:
                self._tools = frozenset(tool["name"] for tool in tools if isinstance(tool.get("name"), str))
                verdict = self.pins.check(tools)
                if first and self._accept_changes:
                    log.warning("changes accepted", extra={"tools": ", ".join(self.pins.accept())})
                else:
                    await self._tell(verdict.changes)
                first = False
            self._checked.set()
            self._announcements.changed("tools")
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._urgent.wait()

    async def _tell(self, changes: tuple[PinChange, ...]) -> None:
        """D-87: a change is shown, to the operator in the log and to the space where the member may speak."""
        for change in changes:
            lines = change.lines()
            log.warning(
                "a tool changed", extra={"server": self.server.label, "tool": change.tool, "fields": lines}
            )
            withheld = self.pins.withholds(change.tool)
            end = "withheld until the operator of this bridge accepts it" if withheld else "still offered"
            said = f"The tool {change.tool!r} has changed since it was first seen; it is {end}."
            text = "\n".join([said, *lines[:_LINES_TOLD]])
            try:
                if self.space.may("chat", {"text": text}):
                    await self.space.send("chat", {"text": text})
            except MootError as fault:
                log.debug("change not told", extra={"reason": type(fault).__name__})

    async def _announce(self, method: str, params: JsonObject | None, to: tuple[str, ...]) -> bool:
        if self._space is None:
            return False
        return await self._space.notify(method, params, to=to)

    # Members come and go

    async def _presence(self, event: PresenceEvent) -> None:
        if event.event == "leave" and event.member is not None:
            await self._forget(event.member.id)
        elif event.event == "refreshed":
            # Whoever left while we were away has left.
            for name in {*self._log_levels, *self.upstream.owners}:
                if name not in self.space.roster:
                    await self._forget(name)

    async def _forget(self, member: str) -> None:
        self._log_levels.pop(member, None)
        await self.upstream.forget(member)


def _withheld(name: object) -> McpError:
    text = f"the tool {name} is not what it was when it was first seen, so it is withheld"
    return McpError(INVALID_PARAMS, f"{text} until the operator of this bridge accepts the change")
