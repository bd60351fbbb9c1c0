"""The wrapped MCP servers of an adapter: opened, refreshed and closed, together or one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from moot.errors import UsageError
from moot.xprotocol.adapter.config.adapter_settings import AdapterLimits
from moot.xprotocol.adapter.config.source_settings import McpSource
from moot.xprotocol.adapter.inbound.contract_refresh import Refresher
from moot.xprotocol.adapter.inbound.contract_registry import ContractRegistry, RegistryUpdate
from moot.xprotocol.adapter.inbound.mcp_source import McpServerSource, SourceEvents
from moot.xprotocol.adapter.inbound.resource_subscriptions import ResourceSubscriptions
from moot.xprotocol.adapter.telemetry.adapter_metrics import AdapterMetrics

log = logging.getLogger(__name__)


class SourceSet:
    """All sources by name. Their contracts are in the registry, their followers in the subscriptions."""

    def __init__(
        self,
        limits: AdapterLimits,
        *,
        registry: ContractRegistry,
        subscriptions: ResourceSubscriptions,
        environ: Mapping[str, str],
        store: Path,
        metrics: AdapterMetrics,
        on_change: Callable[[], None],
    ) -> None:
        self.sources: dict[str, McpServerSource] = {}
        self.limits = limits
        self.refresher = Refresher(registry, self.sources, on_change=self._published)
        self._registry = registry
        self._environ = environ
        self._store = store
        self._metrics = metrics
        self._on_change = on_change
        self._subscriptions = subscriptions

    async def open(self, settings: McpSource) -> None:
        """Start a source and keep it refreshed; raises UsageError for settings that cannot work."""
        events = SourceEvents(
            on_up=self._source_up,
            on_list_changed=self.refresher.request_refresh,
            on_resource_updated=self._subscriptions.on_resource_updated,
        )
        source = McpServerSource(
            settings, self.limits, environ=self._environ, store=self._store, events=events
        )
        self.sources[settings.name] = source
        await self.refresher.reclaim_namespace(settings.namespace)
        await source.open()
        self.refresher.add_source(source)

    async def try_open(self, settings: McpSource) -> None:
        """`open`, but a fault is logged: the sources that run already go on."""
        try:
            await self.open(settings)
        except UsageError as fault:
            self.sources.pop(settings.name, None)
            log.error("a source cannot be opened", extra={"source": settings.name, "reason": str(fault)})

    async def update_settings(self, settings: McpSource) -> None:
        """Change the settings of a source whose server goes on as it is; they apply when this returns."""
        source = self.sources[settings.name]
        source.settings = settings
        await self.refresher.republish(source)

    async def close(self, name: str) -> None:
        """End a source, its contracts and the subscriptions to its resources."""
        await self.refresher.remove_source(name)
        self._subscriptions.remove_source(name)
        removed = await self._registry.remove_source(name)
        await self.sources.pop(name).close()
        if removed is not None:
            self._on_change()
        self._metrics.remove_source(name)

    async def close_all(self) -> None:
        await self.refresher.close()
        await asyncio.gather(*(source.close() for source in self.sources.values()))

    @property
    def rate_limits(self) -> dict[str, int | None]:
        """XP 8.4: requests of one key in a minute, by source."""
        return {name: source.settings.requests_per_minute for name, source in self.sources.items()}

    @property
    def up_count(self) -> int:
        return sum(source.state == "up" for source in self.sources.values())

    def accept(self, name: str, tools: list[str] | None) -> list[str]:
        """The operator accepts changed tools (D-87); returns which ones. Raises UsageError."""
        pins = self.sources[name].pins
        if pins is None:
            raise UsageError(f"{name} has nothing to accept: pin is off there, so changes are published")
        accepted = pins.accept(tools)
        self.refresher.request_refresh(name)
        return accepted

    def _source_up(self, name: str) -> None:
        self.refresher.request_refresh(name)
        self._subscriptions.on_source_up(name)

    def _published(self, name: str, _update: RegistryUpdate) -> None:
        self._subscriptions.on_published(name, self._registry.route)
        self._on_change()
