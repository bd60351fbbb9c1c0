"""Direction 2 as a whole: XProtocol endpoints become MCP tools, resources and prompts (XP 4.2, 5.2).

async with Outward(settings.xprotocol_sources, identity, relays) as outward:
    async with Face(outward.backend) as face: ...

Sources come and go at run time (`replace_sources`); each is kept by a task of its own, so that one that
hangs or lies holds up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

from moot.adapter.config.adapter_settings import AdapterLimits
from moot.adapter.config.source_settings import XProtocolSource
from moot.adapter.outbound.call_proofs import credentials_of
from moot.adapter.outbound.endpoints_backend import AuditedCall, EndpointsBackend
from moot.adapter.outbound.outbound_source import OutboundSource, SourceContext
from moot.adapter.outbound.relay_pool import RelayPool
from moot.endpoint.dns_records import Lookup, dns_lookup
from moot.endpoint.document_fetch import FetchPolicy
from moot.endpoint.endpoint_caller import EndpointCaller
from moot.endpoint.known_endpoints import FILE_NAME, KnownEndpoints
from moot.endpoint.relay_client import RelayClient
from moot.endpoint.relay_settings import RelaysSettings
from moot.errors import UsageError
from moot.identity.keys import Identity
from moot.protocol.operation import Json
from moot.xprotocol.announcement import MirroredSource
from moot.xprotocol.events import DEFAULT_TTL_SECONDS

log = logging.getLogger(__name__)

# A source that was asked to refresh, with discovery, a relay and a catalog of several pages.
REFRESH_SECONDS: Final = 60.0
# What a client's first list waits for sources that are still being found; later ones are told as a change.
SETTLE_SECONDS: Final = 10.0
DEFAULT_LIMITS: Final = AdapterLimits()


class Outbound:
    """Within `async with`. `relays` are the adapter's own and stay whoever's they are."""

    def __init__(
        self,
        sources: Sequence[XProtocolSource],
        identity: Identity,
        relays: RelayClient,
        *,
        limits: AdapterLimits = DEFAULT_LIMITS,
        ttl: int = DEFAULT_TTL_SECONDS,
        store: Path | None = None,
        hears_home: bool = True,
        display_name: str = "",
        is_revoked: Callable[[str, float], bool] = lambda _key, _now: False,
        on_change: Callable[[], None] = lambda: None,
        on_call: Callable[[AuditedCall], None] = lambda _asked: None,
        relay_settings: RelaysSettings | None = None,
        lookup: Lookup | None = None,
        reach: FetchPolicy | None = None,
    ) -> None:
        """`hears_home` False: the endpoint on these relays hands answers over (`caller.expects`, `.take`).

        `store` keeps the keys of endpoints and pins of their contracts; None keeps them until the end.
        `on_change` is told when what is offered differs: the announce names it (XP 6.3). `on_call` is told of
        every call when it is over, for audit and metrics.
        """
        self.identity = identity
        self.caller = EndpointCaller(identity, ttl=ttl, most=limits.outward_calls, is_revoked=is_revoked)
        self._wanted = tuple(sources)
        self._on_change = on_change
        self._told: list[MirroredSource] = []
        self._sources: dict[str, OutboundSource] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lines = RelayPool(identity, self.caller, relays, hears_home=hears_home, settings=relay_settings)
        self.backend = EndpointsBackend(
            self._listed, settle_seconds=SETTLE_SECONDS, display_name=display_name, on_call=on_call
        )
        self._around = SourceContext(
            caller=self.caller,
            lines=self._lines,
            known=KnownEndpoints(None if store is None else store / FILE_NAME),
            lookup=lookup or dns_lookup(),
            reach=reach or FetchPolicy(seconds=limits.discovery_seconds, bytes=limits.discovery_bytes),
            store=store,
            tools_most=limits.tools_per_endpoint,
            on_change=self._changed,
            on_announce=self.backend.announced,
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.caller)
        await self._stack.enter_async_context(self._lines)
        await self._stack.enter_async_context(self.backend)
        try:
            await self.replace_sources(self._wanted)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end(list(self._sources))
        await self._stack.aclose()

    @property
    def sources(self) -> Sequence[OutboundSource]:
        """In the order of the configuration."""
        return list(self._sources.values())

    async def replace_sources(self, sources: Sequence[XProtocolSource]) -> None:
        """Other sources from now on; those that did not change go on. Raises UsageError and changes nothing.

        Files of proofs and delegations are read again.
        """
        own = self.identity.key.text
        wanted = {source.name: (source, credentials_of(source, own)) for source in sources}
        if len(wanted) != len(sources):
            raise UsageError("two xprotocol_sources have the same name")
        if any(source.key == own for source in sources):
            raise UsageError("an adapter cannot be a source of its own: its calls would go round in circles")
        gone = [
            name
            for name, source in self._sources.items()
            if name not in wanted or wanted[name] != (source.settings, source.credentials)
        ]
        await self._end(gone)
        kept, self._sources = self._sources, {}
        for name, (source, credentials) in wanted.items():
            if name in kept:
                self._sources[name] = kept[name]
                continue
            made = self._sources[name] = OutboundSource(source, credentials, self._around)
            self._tasks[name] = asyncio.create_task(made.keep())
        self._changed()

    async def refresh(self, name: str | None = None, *, within: float = REFRESH_SECONDS) -> None:
        """Fetch catalogs anew, of one source or of all; raises what is wrong with it, TimeoutError."""
        if name is not None:
            if name not in self._sources:
                raise UsageError(f"no xprotocol_source is called {name!r}")
            await self._sources[name].refresh(within)
            return
        await asyncio.gather(
            *(source.refresh(within) for source in self._sources.values()), return_exceptions=True
        )

    async def settled(self, within: float) -> None:
        """Wait until every source has been tried once; raises TimeoutError."""
        async with asyncio.timeout(within):
            for source in self.sources:
                await source.settled.wait()

    def mirrored(self) -> list[MirroredSource]:
        """XP 6.3: what the announce says of these sources."""
        return [
            MirroredSource(source.name, source.settings.address, len(source.offered.tools))
            for source in self._sources.values()
        ]

    def health(self) -> list[dict[str, Json]]:
        """How each source is; no secrets."""
        return [source.health() for source in self._sources.values()]

    def accept(self, name: str, contracts: list[str] | None = None) -> list[str]:
        """The operator consents to contracts that changed under their version; which ones."""
        if name not in self._sources:
            raise UsageError(f"no xprotocol_source is called {name!r}")
        return self._sources[name].accept(contracts)

    def _listed(self) -> Sequence[OutboundSource]:
        return self.sources

    def _changed(self, _source: OutboundSource | None = None) -> None:
        self.backend.sources_changed()
        before, self._told = self._told, self.mirrored()
        if before != self._told:
            self._on_change()

    async def _end(self, names: list[str]) -> None:
        tasks = [self._tasks.pop(name) for name in names if name in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in names:
            self._sources.pop(name, None)
