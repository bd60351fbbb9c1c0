"""The wrapped MCP servers of an adapter: opened, looked after, and closed, together or one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from moot.adapter.config.adapter_settings import AdapterLimits
from moot.adapter.config.source_settings import McpSource
from moot.adapter.inbound.contract_refresh import Refresher
from moot.adapter.inbound.contract_registry import ContractRegistry, RegistryUpdate
from moot.adapter.inbound.mcp_source import McpServerSource, SourceEvents
from moot.adapter.inbound.resource_subscriptions import ResourceSubscriptions
from moot.adapter.operations.adapter_metrics import AdapterMetrics
from moot.errors import UsageError

log = logging.getLogger(__name__)


class SourceSet:
    """All sources by name. What they publish is the registry's, and who follows them the subscriptions'."""

    def __init__(
        self,
        limits: AdapterLimits,
        *,
        registry: ContractRegistry,
        environ: Mapping[str, str],
        store: Path,
        measures: AdapterMetrics,
        on_change: Callable[[], None],
    ) -> None:
        self.sources: dict[str, McpServerSource] = {}
        self.limits = limits
        self.refresher = Refresher(registry, self.sources, limits, on_change=self._published)
        self._registry = registry
        self._environ = environ
        self._store = store
        self._measures = measures
        self._on_change = on_change
        self._subscriptions: ResourceSubscriptions | None = None

    def attach(self, subscriptions: ResourceSubscriptions) -> None:
        """Who hears of resources that change."""
        self._subscriptions = subscriptions

    async def open(self, settings: McpSource) -> None:
        """Start a source and look after it; raises UsageError for settings that cannot work."""
        events = SourceEvents(came_up=self._came_up, changed=self.refresher.want, updated=self._updated)
        source = McpServerSource(
            settings, self.limits, environ=self._environ, store=self._store, events=events
        )
        self.sources[settings.name] = source
        await self.refresher.made_room(settings.namespace)
        await source.open()
        self.refresher.follow(source)

    async def try_open(self, settings: McpSource) -> None:
        """`open` while others run already, which go on whatever is wrong with this one."""
        try:
            await self.open(settings)
        except UsageError as fault:
            self.sources.pop(settings.name, None)
            log.error("a source cannot be opened", extra={"source": settings.name, "reason": str(fault)})

    async def change(self, settings: McpSource) -> None:
        """Other words about a source whose server goes on as it is; they count when this returns."""
        source = self.sources[settings.name]
        source.settings = settings
        await self.refresher.settings_changed(source)

    async def close(self, name: str) -> None:
        """End a source; what it published is gone, and whoever followed it hears nothing more."""
        await self.refresher.ended(name)
        if self._subscriptions is not None:
            self._subscriptions.drop_source(name)
        taken = await self._registry.drop(name)
        await self.sources.pop(name).close()
        if taken is not None:
            self._on_change()
        self._measures.forget(name)

    async def close_all(self) -> None:
        await self.refresher.close()
        await asyncio.gather(*(source.close() for source in self.sources.values()))

    @property
    def rates(self) -> dict[str, int | None]:
        """XP 8.4: requests of one key in a minute, by source."""
        return {name: source.settings.requests_per_minute for name, source in self.sources.items()}

    @property
    def up(self) -> int:
        return sum(source.state == "up" for source in self.sources.values())

    def accept(self, name: str, tools: list[str] | None) -> list[str]:
        """The operator consents to tools that changed (D-87); which ones. Raises UsageError."""
        pins = self.sources[name].pins
        if pins is None:
            raise UsageError(f"{name} has nothing to accept: pin is off there, so changes are published")
        accepted = pins.accept(tools)
        self.refresher.want(name)
        return accepted

    def _came_up(self, name: str) -> None:
        self.refresher.want(name)
        if self._subscriptions is not None:
            self._subscriptions.came_up(name)

    def _updated(self, name: str, uri: str) -> None:
        if self._subscriptions is not None:
            self._subscriptions.updated(name, uri)

    def _published(self, name: str, _taken: RegistryUpdate) -> None:
        if self._subscriptions is not None:
            self._subscriptions.published(name, self._registry.route)
        self._on_change()
