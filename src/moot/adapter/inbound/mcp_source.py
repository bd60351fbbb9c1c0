"""The MCP servers behind the endpoint: each kept running, asked and watched (XP 2.2, 5.1, 8.2).

Whatever a server does ends here: it hangs, dies, answers nonsense or quotes a credential in an error. Callers
get a `Fault` in XProtocol's words, within `limits.upstream_call_seconds`, with no secret in it.
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

from moot.adapter.config.adapter_settings import AdapterLimits
from moot.adapter.config.source_settings import ApiKeyAuth, BearerAuth, CertificateAuth, McpSource
from moot.errors import McpError, MootError
from moot.mcp.eras import (
    CLIENT_CAPABILITIES_KEY,
    METHOD_NOT_FOUND,
    TIMED_OUT,
    UNREACHABLE,
    JsonObject,
)
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
from moot.xprotocol.faults import Fault, fault_of_mcp, scrub, unavailable
from moot.xprotocol.publication import ServerOffer

log = logging.getLogger(__name__)

PINS_FILE: Final = "pins.json"
# Nobody sits behind a call that came as an event: a server that asks for input is told so at once.
_ASK_NOBODY: Final[JsonObject] = {CLIENT_CAPABILITIES_KEY: {}}
_SECRET_NAME: Final = re.compile(r"token|secret|passw|credential|api_?key|_key$|auth|cookie", re.IGNORECASE)
# Entries of one list of a server: the largest servers there are have some hundreds. Each tool takes
# milliseconds to translate, and everybody fetches all of them.
MAX_LISTED: Final = 2_000
# Shown of what a server wrote before it failed: a screen, as `moot bridge` and `test-mcp` show it.
STDERR_LINES: Final = 20
# What is shorter than that would blot out ordinary words.
_SHORTEST_SECRET: Final = 6
# How every message of our own about a server begins; a server's own -32000 says something else.
_OURS: Final = "the MCP server "


class SourceFault(MootError):
    """A server could not do what it was asked; `fault` may be told to the caller."""

    def __init__(self, fault: Fault, last_words: tuple[str, ...] = ()) -> None:
        super().__init__(fault.message)
        self.fault = fault
        # The end of its stderr, for the operator alone: nothing is taken out of it.
        self.last_words = last_words


def _ignore(*_: object) -> None:
    """For whoever does not want to hear of something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvents:
    """Who hears what happens at a source. Called on the loop; must neither wait nor raise."""

    # It is up, again or for the first time: source.
    came_up: Callable[[str], None] = _ignore
    went_down: Callable[[str], None] = _ignore
    # One of its lists may have changed: source.
    changed: Callable[[str], None] = _ignore
    # A watched resource changed: source and URI.
    updated: Callable[[str, str], None] = _ignore


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
        self.pins: Pins | None = None
        if settings.pin:
            self.pins = Pins(self._server.label, None if store is None else store / PINS_FILE)

    async def open(self) -> None:
        limits = UpstreamLimits(
            start_seconds=self._limits.upstream_start_seconds,
            call_seconds=self._limits.upstream_call_seconds,
            max_call_seconds=self._limits.upstream_call_seconds,
            reconnect_wait_seconds=min(10.0, self._limits.upstream_call_seconds),
            max_calls=self._limits.calls,
            max_watched_resources=self._limits.subscriptions,
        )
        callbacks = UpstreamCallbacks(
            on_up=self._came_up,
            on_down=self._went_down,
            on_list_changed=self._changed,
            on_resource_updated=self._updated,
        )
        self._upstream = await self._stack.enter_async_context(
            open_upstream(self._server, UpstreamOptions(limits=limits, capabilities={}), callbacks)
        )

    async def close(self) -> None:
        await self._stack.aclose()

    # How it stands

    @property
    def state(self) -> str:
        """starting, up, down or stopped."""
        return "stopped" if self._upstream is None else self._upstream.state

    @property
    def trouble(self) -> str:
        """Why it is not up; nothing secret."""
        return (
            "" if self._upstream is None or self.state == "up" else self._scrubbed(self._upstream.down_reason)
        )

    @property
    def stderr_lines(self) -> list[str]:
        """The end of what it wrote to stderr, while it is not up; for the operator of this machine alone.

        No credential of its settings is in it, but whatever else the server chose to write is.
        """
        if self._upstream is None or self.state == "up":
            return []
        lines = map(self._scrubbed, self._upstream.stderr.last_lines(STDERR_LINES))
        return [line for line in lines if line]

    @property
    def greeting(self) -> ServerInfo | None:
        return None if self._upstream is None else self._upstream.server_info

    @property
    def starts(self) -> int:
        return 0 if self._upstream is None else self._upstream.counts.starts

    async def ready(self) -> None:
        """Wait for its first greeting; raises SourceFault when its first attempt fails."""
        try:
            await self._opened.wait_until_ready()
        except StartFailed as fault:
            words = Fault("ENDPOINT_UNAVAILABLE", self._scrubbed(str(fault)))
            raise SourceFault(words, tuple(fault.stderr_lines)) from None
        except McpError as fault:
            raise SourceFault(self._fault_of(fault)) from None

    # Asking

    async def offer(self) -> ServerOffer:
        """What it lists now; raises SourceFault."""
        try:
            greeting = await self._opened.wait_for_info()
            exposed = self.settings.translation.expose
            self._last_offer = ServerOffer(
                tools=await self._listed(greeting, "tools", "tools/list", exposed),
                prompts=await self._listed(greeting, "prompts", "prompts/list", exposed),
                resources=await self._listed(greeting, "resources", "resources/list", exposed),
                resource_templates=await self._listed(
                    greeting, "resources", "resources/templates/list", exposed
                ),
            )
        except McpError as fault:
            raise SourceFault(self._fault_of(fault)) from None
        return self._allowed(self._last_offer)

    @property
    def last_offer(self) -> ServerOffer | None:
        """What it listed last, within the settings of now; None: it never did."""
        return None if self._last_offer is None else self._allowed(self._last_offer)

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Ask the server for a caller; raises SourceFault. Cancelling is safe and is told to the server."""
        upstream = self._opened
        params["_meta"] = _ASK_NOBODY
        try:
            return await upstream.request(method, params)
        except McpError as fault:
            raise SourceFault(self._fault_of(fault)) from None

    async def watch(self, uri: str) -> bool:
        """Have `events.updated` told of a resource; False: this server cannot tell. Raises SourceFault."""
        greeting = self.greeting
        if greeting is not None and not greeting.declares("resources", "subscribe"):
            return False
        try:
            await self._opened.watch(uri, self.name)
        except McpError as fault:
            if fault.code == METHOD_NOT_FOUND:
                return False
            raise SourceFault(self._fault_of(fault)) from None
        return True

    async def unwatch(self, uri: str) -> None:
        """No longer; whatever the server says to it."""
        try:
            await self._opened.unwatch(uri, self.name)
        except McpError as fault:
            log.debug(
                "not unsubscribed", extra={"source": self.name, "reason": self._scrubbed(fault.message)}
            )

    # Inside

    @property
    def _opened(self) -> Upstream:
        if self._upstream is None:
            raise McpError(UNREACHABLE, "the MCP server was not started")
        return self._upstream

    async def _listed(
        self, greeting: ServerInfo, feature: str, method: str, exposed: tuple[str, ...]
    ) -> list[JsonObject]:
        if feature not in exposed or not greeting.offers(feature):
            return []
        try:
            found = await self._opened.list_all(method)
        except McpError as fault:
            if fault.code == METHOD_NOT_FOUND:
                # Some declare resources and know no templates.
                return []
            raise
        if len(found) > MAX_LISTED:
            log.warning(
                "a list is too long: the rest of it is left",
                extra={"source": self.name, "list": method, "entries": len(found), "most": MAX_LISTED},
            )
        return found[:MAX_LISTED]

    def _allowed(self, listed: ServerOffer) -> ServerOffer:
        return replace(listed, tools=self._pinned(self.settings.exposed(listed.tools)))

    def _pinned(self, tools: list[Json]) -> list[Json]:
        if self.pins is None:
            return tools
        verdict = self.pins.check(tools)
        for change in verdict.changes:
            log.warning(
                "tool withheld until its change is accepted", extra={"source": self.name, "tool": change.tool}
            )
        return list(verdict.shown)

    def _fault_of(self, fault: McpError) -> Fault:
        """D-69."""
        if fault.code in (UNREACHABLE, TIMED_OUT) and fault.message.startswith(_OURS):
            # What is wrong with it is the operator's business.
            log.info(
                "source cannot answer", extra={"source": self.name, "reason": self._scrubbed(fault.message)}
            )
            return unavailable()
        return fault_of_mcp(fault.code, fault.message, secrets=self._secrets)

    def _scrubbed(self, text: str) -> str:
        return scrub(text, self._secrets)

    def _came_up(self, _greeting: ServerInfo) -> None:
        self._events.came_up(self.name)

    def _went_down(self, _why: str) -> None:
        self._events.went_down(self.name)

    def _changed(self, _list: str) -> None:
        self._events.changed(self.name)

    def _updated(self, params: JsonObject, _owners: tuple[str, ...]) -> None:
        uri = params.get("uri")
        if isinstance(uri, str):
            self._events.updated(self.name, uri)


def secrets_of(settings: McpSource) -> tuple[str, ...]:
    """Everything in a source's settings that must not be said to anybody."""
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
    found += [value for name, value in settings.env.items() if _SECRET_NAME.search(name)]
    if settings.url is not None:
        parts = urlsplit(settings.url)
        found += [word for word in (parts.username, parts.password) if word]
        found += [value for name, value in parse_qsl(parts.query) if _SECRET_NAME.search(name)]
    return tuple(dict.fromkeys(secret for secret in found if len(secret) >= _SHORTEST_SECRET))
