"""One wrapped MCP server: kept running, called and watched (XP 2.2, 5.1, 8.2).

A server may hang, crash, send nonsense or quote a credential in an error. Callers get an XProtocol `Fault`,
within `limits.upstream_call_seconds`, with no secret in it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from moot.errors import McpError, MootError
from moot.mcp.eras import CLIENT_CAPABILITIES_KEY, TIMED_OUT, UNREACHABLE, JsonObject
from moot.mcp.tool_pins import Pins
from moot.mcp.upstream import (
    ServerInfo,
    StartFailed,
    Upstream,
    UpstreamCallbacks,
    UpstreamLimits,
    UpstreamOptions,
    open_upstream,
)
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import METHOD_NOT_FOUND
from moot.xprotocol.adapter.config.adapter_settings import AdapterLimits
from moot.xprotocol.adapter.config.source_settings import ApiKeyAuth, BearerAuth, CertificateAuth, McpSource
from moot.xprotocol.events.faults import Fault, fault_of_mcp, scrub, unavailable
from moot.xprotocol.translation.publication import ServerOffer

# Entries of each list of one MCP server: tools, prompts, resources. Each tool takes milliseconds to
# translate, and everybody fetches all of them. `status` says how many are left out.
MAX_LISTED: Final = 2_000

log = logging.getLogger(__name__)

PINS_FILE: Final = "pins.json"
# No person is behind a call that came as an event: the server must not ask for input.
_NO_CLIENT_CAPABILITIES: Final[JsonObject] = {CLIENT_CAPABILITIES_KEY: {}}
_SECRET_NAME: Final = re.compile(r"token|secret|passw|credential|api_?key|_key$|auth|cookie", re.IGNORECASE)
# Lines of stderr shown after a failure: a screen, as in `moot bridge` and `test-mcp`.
STDERR_LINES: Final = 20
# Masking shorter values would hide ordinary words.
_MIN_SECRET_CHARS: Final = 6
# How our own messages about a server begin; a server may use the code -32000 itself.
_OWN_MESSAGE_PREFIX: Final = "the MCP server "


class SourceFault(MootError):
    """A server could not do what was requested; `fault` may be sent to the caller."""

    def __init__(self, fault: Fault, stderr_tail: tuple[str, ...] = ()) -> None:
        super().__init__(fault.message)
        self.fault = fault
        # The end of its stderr, for the operator only: it is not scrubbed.
        self.stderr_tail = stderr_tail


def _do_nothing(*_: object) -> None:
    """The default of every callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvents:
    """Callbacks for events of a source. Called on the loop; they must neither block nor raise."""

    # The server is up, again or for the first time: source.
    on_up: Callable[[str], None] = _do_nothing
    on_down: Callable[[str], None] = _do_nothing
    # One of its lists may have changed: source.
    on_list_changed: Callable[[str], None] = _do_nothing
    # A watched resource changed: source and URI.
    on_resource_updated: Callable[[str, str], None] = _do_nothing


class McpServerSource:
    """One MCP server. `open` starts it and does not wait for it; `close` ends it."""

    def __init__(
        self,
        settings: McpSource,
        limits: AdapterLimits,
        *,
        environ: Mapping[str, str],
        store: Path | None = None,
        events: SourceEvents | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self._limits = limits
        self._events = events or SourceEvents()
        self._secrets = secrets_of(settings)
        self._server = settings.server(environ)
        self._upstream: Upstream | None = None
        self._stack = AsyncExitStack()
        self._last_offer: ServerOffer | None = None
        # Of each list, how many entries are beyond MAX_LISTED.
        self.left_out: dict[str, int] = {}
        self.pins: Pins | None = None
        if settings.pin:
            self.pins = Pins(self._server.label, None if store is None else store / PINS_FILE)

    async def open(self) -> None:
        limits = UpstreamLimits(
            start_seconds=self._limits.upstream_start_seconds,
            call_seconds=self._limits.upstream_call_seconds,
            max_call_seconds=self._limits.upstream_call_seconds,
            reconnect_wait_seconds=min(10.0, self._limits.upstream_call_seconds),
            max_calls=self._limits.max_calls,
        )
        callbacks = UpstreamCallbacks(
            on_up=self._on_up,
            on_down=self._on_down,
            on_list_changed=self._on_list_changed,
            on_resource_updated=self._on_resource_updated,
        )
        self._upstream = await self._stack.enter_async_context(
            open_upstream(self._server, UpstreamOptions(limits=limits, capabilities={}), callbacks)
        )

    async def close(self) -> None:
        await self._stack.aclose()

    # State

    @property
    def state(self) -> str:
        """starting, up, down or stopped."""
        return "stopped" if self._upstream is None else self._upstream.state

    @property
    def trouble(self) -> str:
        """Why it is not up, without secrets."""
        return "" if self._upstream is None or self.state == "up" else self._scrub(self._upstream.down_reason)

    @property
    def stderr_lines(self) -> list[str]:
        """The end of what it wrote to stderr, while it is not up; for the operator of this machine alone.

        No credential of its settings is in it, but whatever else the server chose to write is.
        """
        if self._upstream is None or self.state == "up":
            return []
        lines = map(self._scrub, self._upstream.stderr.last_lines(STDERR_LINES))
        return [line for line in lines if line]

    @property
    def server_info(self) -> ServerInfo | None:
        return None if self._upstream is None else self._upstream.server_info

    @property
    def starts(self) -> int:
        return 0 if self._upstream is None else self._upstream.counts.starts

    async def ready(self) -> None:
        """Wait until it has started; raises SourceFault when the first attempt fails."""
        try:
            await self._running.wait_until_ready()
        except StartFailed as fault:
            details = Fault("ENDPOINT_UNAVAILABLE", self._scrub(str(fault)))
            raise SourceFault(details, tuple(fault.stderr_lines)) from None
        except McpError as fault:
            raise SourceFault(self._to_fault(fault)) from None

    # Requests

    async def offer(self) -> ServerOffer:
        """What it lists now; raises SourceFault."""
        try:
            server_info = await self._running.wait_for_info()
            exposed = self.settings.expose
            self._last_offer = ServerOffer(
                tools=await self._list(server_info, "tools", "tools/list", exposed),
                prompts=await self._list(server_info, "prompts", "prompts/list", exposed),
                resources=await self._list(server_info, "resources", "resources/list", exposed),
                resource_templates=await self._list(
                    server_info, "resources", "resources/templates/list", exposed
                ),
            )
        except McpError as fault:
            raise SourceFault(self._to_fault(fault)) from None
        return self._filter(self._last_offer)

    @property
    def last_offer(self) -> ServerOffer | None:
        """Its last lists, filtered by the current settings; None: it never sent any."""
        return None if self._last_offer is None else self._filter(self._last_offer)

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request; raises SourceFault. Cancelling is safe and is passed on to the server."""
        upstream = self._running
        params["_meta"] = _NO_CLIENT_CAPABILITIES
        try:
            return await upstream.request(method, params)
        except McpError as fault:
            raise SourceFault(self._to_fault(fault)) from None

    async def watch(self, uri: str) -> bool:
        """Subscribe to a resource's updates; False: this server has no subscriptions. Raises SourceFault."""
        server_info = self.server_info
        if server_info is not None and not server_info.declares("resources", "subscribe"):
            return False
        try:
            await self._running.watch(uri, self.name)
        except McpError as fault:
            if fault.code == METHOD_NOT_FOUND:
                return False
            raise SourceFault(self._to_fault(fault)) from None
        return True

    async def unwatch(self, uri: str) -> None:
        """Unsubscribe; errors of the server are ignored."""
        try:
            await self._running.unwatch(uri, self.name)
        except McpError as fault:
            log.debug("not unsubscribed", extra={"source": self.name, "reason": self._scrub(fault.message)})

    # Inside

    @property
    def _running(self) -> Upstream:
        if self._upstream is None:
            raise McpError(UNREACHABLE, "the MCP server was not started")
        return self._upstream

    async def _list(
        self, server_info: ServerInfo, feature: str, method: str, exposed: tuple[str, ...]
    ) -> list[JsonObject]:
        if feature not in exposed or not server_info.offers(feature):
            return []
        try:
            found = await self._running.list_all(method)
        except McpError as fault:
            if fault.code == METHOD_NOT_FOUND:
                # Some declare resources and know no templates.
                return []
            raise
        most = MAX_LISTED
        self.left_out.pop(method, None)
        if len(found) > most:
            self.left_out[method] = len(found) - most
            log.warning(
                "a list is too long: the rest of it is ignored",
                extra={"source": self.name, "list": method, "entries": len(found), "max": most},
            )
        return found[:most]

    def _filter(self, listed: ServerOffer) -> ServerOffer:
        return replace(listed, tools=self._check_pins(self.settings.remove_denied(listed.tools)))

    def _check_pins(self, tools: list[Json]) -> list[Json]:
        if self.pins is None:
            return tools
        verdict = self.pins.check(tools)
        for change in verdict.changes:
            log.warning(
                "tool withheld until its change is accepted", extra={"source": self.name, "tool": change.tool}
            )
        return list(verdict.shown)

    def _to_fault(self, fault: McpError) -> Fault:
        """D-69."""
        if fault.code in (UNREACHABLE, TIMED_OUT) and fault.message.startswith(_OWN_MESSAGE_PREFIX):
            # The details are for the operator only.
            log.info("source unavailable", extra={"source": self.name, "reason": self._scrub(fault.message)})
            return unavailable()
        return fault_of_mcp(fault.code, fault.message, secrets=self._secrets)

    def _scrub(self, text: str) -> str:
        return scrub(text, self._secrets)

    def _on_up(self, _info: ServerInfo) -> None:
        self._events.on_up(self.name)

    def _on_down(self, _why: str) -> None:
        self._events.on_down(self.name)

    def _on_list_changed(self, _list: str) -> None:
        self._events.on_list_changed(self.name)

    def _on_resource_updated(self, params: JsonObject, _owners: tuple[str, ...]) -> None:
        uri = params.get("uri")
        if isinstance(uri, str):
            self._events.on_resource_updated(self.name, uri)


def secrets_of(settings: McpSource) -> tuple[str, ...]:
    """The secrets in a source's settings, which no message may contain."""
    found: list[str] = []
    match settings.auth:
        case BearerAuth(token=token):
            found.append(token.reveal())
        case ApiKeyAuth(key=key):
            found.append(key.reveal())
        case CertificateAuth(password=password) if password is not None:
            found.append(password.reveal())
        case _:
            pass
    found += [value for name, value in settings.variables.items() if _SECRET_NAME.search(name)]
    if settings.url is not None:
        parts = urlsplit(settings.url)
        found += [word for word in (parts.username, parts.password) if word]
        found += [value for name, value in parse_qsl(parts.query) if _SECRET_NAME.search(name)]
    return tuple(dict.fromkeys(secret for secret in found if len(secret) >= _MIN_SECRET_CHARS))
