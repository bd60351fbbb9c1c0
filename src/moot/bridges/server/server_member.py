"""An MCP server as a member of a space.

It answers requests that name it, and lists that are requested from everybody (D-81); a proposal never runs
here (MEW 7.1). The space uses the stateless shape of MCP, the server either era: results come back as the
server gave them, with every field. A server that misbehaves affects only its callers: they get errors that
say what happened, and the member stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from moot.bridges.server.box_reports import BoxReports
from moot.bridges.server.call_identity import owner_of, with_identity
from moot.bridges.server.call_previews import PREVIEW_METHODS, CallPreviews
from moot.bridges.server.call_secrets import check_use
from moot.bridges.server.offer_screen import (
    OfferScreen,
    only_reads,
    readable_error,
    withheld_error,
)
from moot.bridges.server.overlay_previews import OverlayPreviews
from moot.bridges.server.personal_calls import PersonalCalls
from moot.bridges.server.pin_reports import report_changes
from moot.bridges.server.server_messages import ServerMessages
from moot.bridges.server.server_plans import ServerPlans, plan_tool_of
from moot.bridges.server.server_sign_in import ServerSignIn
from moot.bridges.server.sign_in_requests import SIGN_IN_METHODS
from moot.errors import McpError
from moot.mcp.eras import (
    FEATURES,
    HANDSHAKE_VERSION,
    HANDSHAKE_VERSIONS,
    LIST_CHANGED,
    LISTS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    SERVER_REQUESTS,
    UNREACHABLE,
    JsonObject,
    to_initialize_result,
    wants_notifications,
)
from moot.mcp.tool_pins import PinChange, Pins
from moot.mcp.upstream import Server, ServerInfo, Upstream, UpstreamCallbacks
from moot.participant import IncomingRequest, JoinedSpace, PresenceEvent
from moot.protocol.answer_marks import mark_result
from moot.protocol.hidden_text import MAX_NAME_CHARS, is_visible_name, readable, show_hidden, show_hidden_in
from moot.protocol.kinds import WIDEN_BOX
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS, METHOD_NOT_FOUND

log = logging.getLogger(__name__)

# They belong to an MCP session, and sessions end at the bridge; the SDK handles cancelling.
_SESSION_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/message",
        "notifications/progress",
        "notifications/resources/updated",
        "notifications/roots/list_changed",
    }
)
# Between two checks of a list that keeps changing.
_CHECK_SECONDS: Final = 1.0


class ServerMember:
    """A member that forwards requests to an MCP server. Made by `bridged`."""

    def __init__(
        self,
        server: Server,
        pins: Pins,
        *,
        accept_changes: bool = False,
        sign_in: ServerSignIn | None = None,
        box_reports: BoxReports | None = None,
        has_secrets: bool = False,
        overlay: OverlayPreviews | None = None,
        plans: bool = False,
    ) -> None:
        """`sign_in`: how members sign in at a server that asks for it. `plans`: ask it for those of calls."""
        self._has_secrets = has_secrets
        self.server = server
        self.pins = pins
        self.sign_in = sign_in
        self._box_reports = box_reports
        self._overlay = overlay
        self._previews: CallPreviews | None = None
        # By tool, the one that plans it; None: nobody is to ask.
        self._planned: dict[str, str] | None = {} if plans else None
        if sign_in is not None:
            sign_in.on_signed_in = self._on_signed_in
        self._accept_changes = accept_changes
        self._upstream: Upstream | None = None
        self._space: JoinedSpace | None = None
        self._messages = ServerMessages(self._announce)
        self._screen = OfferScreen(server.label)
        self._log_levels: dict[str, str] = {}
        # Tools that the server listed in its present run; None before it did.
        self._tools: frozenset[str] | None = None
        self._reading: set[str] = set()  # say of themselves that they only read
        # Set while the server's present tools have been compared with their pins.
        self._checked = asyncio.Event()
        self._check_needed = asyncio.Event()
        # Set when the server was started again: calls wait for the check of its tools.
        self._check_at_once = asyncio.Event()

    # For its owner

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
    def changes(self) -> Mapping[str, PinChange]:
        """Tools that changed and wait for consent."""
        return self.pins.changes

    def accept(self, tools: list[str] | None = None) -> list[str]:
        """Accept changed tools, all or those named; they are offered again."""
        accepted = self.pins.accept(tools)
        if accepted:
            self._messages.add_list_change("tools")
        return accepted

    def callbacks(self) -> UpstreamCallbacks:
        """What to call on the events of the server."""
        return UpstreamCallbacks(
            on_up=self._on_up,
            on_down=self._on_down,
            on_list_changed=self._on_list_changed,
            on_resource_updated=self._messages.add_resource_update,
        )

    def attach(self, upstream: Upstream, space: JoinedSpace) -> None:
        """Start to answer requests."""
        self._upstream, self._space = upstream, space
        space.server.use_handler(self.handle, notifications=self.handle_notification, can_run=self.can_run)
        space.roster.on_change(self._presence)
        if self._overlay is not None:
            self._overlay.attach(upstream)
        plans = None
        if self._planned is not None:
            plans = ServerPlans(space, self._read_by, self._planned.get, self._wait_for_tools)
        if self._overlay is not None or plans is not None:
            is_reading = self._reading.__contains__
            self._previews = CallPreviews(space, self._overlay, plans, is_reading)

    async def run(self) -> None:
        """Report changes to the space, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._messages.run())
            group.create_task(self._check_tools())
            if self.sign_in is not None:
                group.create_task(self.sign_in.notice.run(self.space))
            if self._box_reports is not None:
                group.create_task(self._box_reports.run(self.space))
            if self._previews is not None:
                group.create_task(self._previews.run())

    # Requests of members

    async def handle(self, request: IncomingRequest) -> JsonObject | None:
        """The result of one request; None leaves a request to everybody to the others."""
        try:
            return await self._handle(request)
        except McpError as fault:
            raise readable_error(fault) from None

    async def _handle(self, request: IncomingRequest) -> JsonObject | None:
        method = request.method
        if method == "tools/call":
            return await self._call_tool(request)
        if self._previews is not None and method in PREVIEW_METHODS:
            return await self._previews.handle(request)
        if method == "prompts/get" and not is_visible_name(request.params.get("name")):
            raise McpError(INVALID_PARAMS, "no prompt of that name is listed")
        if method in LISTS:
            return await self._list(request)
        if method == "ping":
            return {}
        if method in SIGN_IN_METHODS:
            if self.sign_in is None:
                raise McpError(METHOD_NOT_FOUND, "nobody signs in at this server")
            return await self.sign_in.handle(request, self.space)
        if method == "server/discover":
            return self._about(await self.upstream.wait_for_info())
        if method == "initialize":
            wanted = request.params.get("protocolVersion")
            version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSION
            return to_initialize_result(self._about(await self.upstream.wait_for_info()), version)
        if method == "logging/setLevel":
            return self._set_level(request)
        if method in ("resources/subscribe", "resources/unsubscribe"):
            return await self._watch(request)
        if method in SERVER_REQUESTS or method == "subscriptions/listen":
            raise McpError(METHOD_NOT_FOUND, f"{method} is not for a tool server in a space")
        return await self._forward(request)

    async def _call_tool(self, request: IncomingRequest) -> JsonObject:
        if self._box_reports is not None and request.params.get("name") == WIDEN_BOX:
            return self._box_reports.widen(request, self.space, self.upstream.restart)
        await self._check_listed(request.params.get("name"))
        if self._has_secrets:
            check_use(request.params, self.space.roster.get(request.sender), self.space.name)
        if self._previews is None:
            return await self._forward(request)
        return await self._previews.carry_out(request, self._forward)

    async def _read_by(self, tool: str, params: JsonObject) -> JsonObject:
        """Call a tool that only reads for ourselves; raises McpError for any other."""
        await self._check_listed(tool)
        if tool not in self._reading:
            raise McpError(INVALID_PARAMS, f"{tool} does not say that it only reads")
        return await self.upstream.request("tools/call", params)

    @property
    def _personal(self) -> PersonalCalls | None:
        return None if self.sign_in is None else self.sign_in.personal

    async def _forward(self, request: IncomingRequest) -> JsonObject:
        if self._personal is not None:
            return await self._personal.run(request, self.space, self._send)
        reports = self._box_reports
        before = 0 if reports is None else reports.count
        try:
            result = with_identity(await self._send(self.upstream, request), None)
        except McpError as fault:
            raise fault if reports is None else reports.with_connections_of_error(fault, before) from None
        return result if reports is None else reports.with_connections(result, before)

    async def _send(self, upstream: Upstream, request: IncomingRequest) -> JsonObject:
        method, params, owner = request.method, self._params(request), owner_of(request, self.space)
        if not wants_notifications(params):
            return await upstream.request(method, params, owner=owner)
        relay = self._messages.relay(request)
        try:
            return await upstream.request(method, params, owner=owner, listener=relay.add)
        finally:
            await relay.finish()

    def can_run(self, method: str, params: Mapping[str, Json]) -> bool:
        """Whether a proposal for us could ever run: not if it is for a tool that the server does not have."""
        if method != "tools/call":
            return method not in SERVER_REQUESTS
        name = params.get("name")
        if name == WIDEN_BOX and self._box_reports is not None:
            return True
        return is_visible_name(name) and (self._tools is None or name in self._tools)

    async def handle_notification(self, request: IncomingRequest) -> None:
        """A notification to this member: MCP's own are about sessions, others are forwarded."""
        # Where members have accounts of their own, it would be sent with that of the bridge.
        if request.is_broadcast or self._personal is not None:
            return
        if request.method in _SESSION_NOTIFICATIONS or request.method in LIST_CHANGED:
            return
        try:
            await self.upstream.notify(request.method, request.params)
        except McpError as fault:
            log.debug("notification not forwarded", extra={"reason": fault.message})

    async def _list(self, request: IncomingRequest) -> JsonObject | None:
        method = request.method
        if request.is_broadcast and self.upstream.state != "up":
            # Nobody waits for this server in particular.
            return None
        info = await self.upstream.wait_for_info()
        nothing: JsonObject | None = None if request.is_broadcast else mark_result({LISTS[method]: []})
        # A server without this feature: an empty list for who asks this server, no answer to everybody.
        # A server that declares no capabilities at all may still have it.
        if info.capabilities and not info.offers(FEATURES[method.partition("/")[0]]):
            return nothing
        try:
            result = await self.upstream.request(method, self._params(request), owner=request.sender)
        except McpError as fault:
            if fault.code == METHOD_NOT_FOUND or request.is_broadcast:
                return nothing
            raise
        entries = result.get(LISTS[method])
        shown = self._screen.withhold(LISTS[method], entries if isinstance(entries, list) else [])
        if method == "tools/list":
            check = self.pins.check(shown)
            await report_changes(check.changes, self.pins, self.server.label, self.space)
            shown = check.shown
            if self._tools is not None:
                # A page of a list that may have grown since.
                self._tools |= {tool["name"] for tool in shown}
        return result | {LISTS[method]: readable(shown)}

    async def _watch(self, request: IncomingRequest) -> JsonObject:
        uri = request.params.get("uri")
        if not isinstance(uri, str):
            raise McpError(INVALID_PARAMS, f"{request.method} needs params.uri, a string")
        if self._personal is not None or not await self.upstream.can_watch():
            raise McpError(METHOD_NOT_FOUND, "this server does not support subscriptions")
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

    async def _check_listed(self, name: Json) -> None:
        """Raises McpError for a tool that is not listed, or withheld. Nobody can have decided about it."""
        tools = await self._wait_for_tools()
        if not is_visible_name(name) or name not in tools:
            shown = show_hidden(str(name))[:MAX_NAME_CHARS]
            if self._screen.has_withheld("tools", name):
                text = f"the tool {shown!r} is withheld: its name or its arguments have hidden characters"
                raise McpError(INVALID_PARAMS, text)
            raise McpError(INVALID_PARAMS, f"this server lists no tool {shown!r}: see tools/list")
        if self.pins.withholds(name):
            raise withheld_error(name)

    async def _wait_for_tools(self) -> frozenset[str]:
        """Those that are listed, once that is known; raises McpError."""
        # Waits while the server is being restarted: what comes up then may be something else.
        await self.upstream.wait_for_info()
        while not self._checked.is_set():
            await self._wait_until_checked()
            await self.upstream.wait_for_info()
        if self._tools is None:
            self._check_needed.set()  # for whoever tries again
            raise McpError(UNREACHABLE, "the MCP server does not list its tools, so none can be called")
        return self._tools

    async def _wait_until_checked(self) -> None:
        """Wait for the pin check of a server that just came up: listing its tools is part of its start."""
        try:
            async with asyncio.timeout(self.upstream.limits.start_seconds):
                await self._checked.wait()
        except TimeoutError:
            log.warning("tools could not be checked", extra={"server": self.server.label})
            raise McpError(
                UNREACHABLE, "the tools of the MCP server could not be checked; try later"
            ) from None

    def _about(self, info: ServerInfo) -> JsonObject:
        """What the server says about itself, to be read by people."""
        return {name: show_hidden_in(value) for name, value in info.discover_result.items()}

    # Events of the server

    def _on_down(self, _reason: str) -> None:
        self._checked.clear()
        self._tools = None

    def _on_up(self, info: ServerInfo) -> None:
        self._checked.clear()
        self._tools = None
        if info.offers("tools") or not info.capabilities:
            self._check_needed.set()
            self._check_at_once.set()
        else:
            self._checked.set()

    def _on_signed_in(self) -> None:
        # Tools that were asked for meanwhile were not listed.
        if self._upstream is not None and self._upstream.server_info is not None:
            self._on_up(self._upstream.server_info)

    def _on_list_changed(self, feature: str) -> None:
        if feature == "tools":
            self._check_needed.set()
        else:
            self._messages.add_list_change(feature)

    async def _check_tools(self) -> None:
        """Compare the tools with their pins whenever they may have changed; report changes."""
        first = True
        while True:
            await self._check_needed.wait()
            self._check_needed.clear()
            self._check_at_once.clear()
            try:
                tools = await self.upstream.list_all("tools/list")
            except McpError as fault:
                log.info("tools not listed", extra={"server": self.server.label, "reason": fault.message})
            else:
                visible = self._screen.withhold("tools", tools)
                check = self.pins.check(visible)
                # Those that are withheld too: a call of one is told why. Not what cannot be pinned.
                callable_names = {tool["name"] for tool in check.shown} | set(self.pins.changes)
                self._tools = frozenset(tool["name"] for tool in visible) & callable_names
                self._reading.clear()
                self._reading |= {tool["name"] for tool in visible if only_reads(tool)}
                if self._planned is not None:
                    self._planned.clear()
                    self._planned |= {tool["name"]: by for tool in visible if (by := plan_tool_of(tool))}
                if first and self._accept_changes:
                    log.warning("changes accepted", extra={"tools": ", ".join(self.pins.accept())})
                else:
                    await report_changes(check.changes, self.pins, self.server.label, self.space)
                first = False
            self._checked.set()
            self._messages.add_list_change("tools")
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._check_at_once.wait()

    async def _announce(self, method: str, params: JsonObject | None, to: tuple[str, ...]) -> bool:
        if self._space is None:
            return False
        return await self._space.notify(method, params, to=to)

    # Members join and leave

    async def _presence(self, event: PresenceEvent) -> None:
        if event.event == "leave" and event.member is not None:
            await self._forget(event.member.id)
        elif event.event == "refreshed":
            # Some may have left while the connection was down.
            for name in {*self._log_levels, *self.upstream.owners}:
                if name not in self.space.roster:
                    await self._forget(name)

    async def _forget(self, member: str) -> None:
        self._log_levels.pop(member, None)
        await self.upstream.forget(member)
