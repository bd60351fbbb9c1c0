"""The wrapped MCP servers of an adapter: opened, refreshed and closed, together or one by one."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from moot.errors import SenderTooFast, UsageError
from moot.protocol.operation import Json
from moot.resilience.task_set import end_tasks
from moot.xprotocol.adapter.config import adapter_settings
from moot.xprotocol.adapter.config.adapter_settings import AdapterLimits
from moot.xprotocol.adapter.config.source_settings import McpSource
from moot.xprotocol.adapter.inbound.contract_registry import ContractRegistry, RegistryUpdate
from moot.xprotocol.adapter.inbound.mcp_source import McpServerSource, SourceEvents, SourceFault
from moot.xprotocol.adapter.inbound.resource_subscriptions import ResourceSubscriptions
from moot.xprotocol.adapter.telemetry.adapter_metrics import AdapterMetrics
from moot.xprotocol.translation.publication import ServerOffer

# Keeping what is published in step with what the servers offer (XP 7.2).
#
# A source's lists are fetched when it comes up (at the start, too), every
# `schema_refresh_interval_seconds`, on `xp.schema.refresh`, and when the server says that a list changed:
# at once, but no more often than every ANNOUNCE_DEBOUNCE_SECONDS, since a server can say so a thousand
# times. A source that cannot be reached keeps its published contracts: its calls fail until it is back, but
# nobody has to fetch the contracts again.

# Between two refreshes by `xp.schema.refresh`: each fetches all lists of a server.
MIN_REFRESH_INTERVAL_SECONDS: Final = 5.0


# Requests by event that wait for a refresh.
MAX_WAITING_REQUESTS: Final = 16


class Refresher:
    """Refreshes every source; belongs to one loop."""

    def __init__(
        self,
        registry: ContractRegistry,
        sources: Mapping[str, McpServerSource],
        *,
        on_change: Callable[[str, RegistryUpdate], None],
    ) -> None:
        self._registry = registry
        self._sources = sources
        self._on_change = on_change
        self._refresh_needed: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Requested by events: the one that runs or waits, shared by all who request it meanwhile.
        self._requested: dict[str | None, asyncio.Task[dict[str, Json]]] = {}
        self._requested_at: dict[str | None, float] = {}
        self._request_tasks: set[asyncio.Task[dict[str, Json]]] = set()
        self._first_refresh: dict[str, asyncio.Event] = {}
        self._waiting_requests = 0
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.refreshed: dict[str, float] = {}
        self.troubles: dict[str, str] = {}

    # The sources' tasks

    def add_source(self, source: McpServerSource) -> None:
        """Refresh a source from now on; call `remove_source` before closing it."""
        self._refresh_needed[source.name] = asyncio.Event()
        self._first_refresh[source.name] = asyncio.Event()
        self._tasks[source.name] = asyncio.create_task(self._run_source(source))

    async def remove_source(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        self._refresh_needed.pop(name, None)
        self._first_refresh.pop(name, None)
        self._locks.pop(name, None)
        self.troubles.pop(name, None)
        self.refreshed.pop(name, None)
        if task is not None:
            await end_tasks([task])

    async def close(self) -> None:
        for task in list(self._request_tasks):
            task.cancel()
        for name in list(self._tasks):
            await self.remove_source(name)

    def request_refresh(self, name: str) -> None:
        """A list may have changed, or the source is up."""
        needed = self._refresh_needed.get(name)
        if needed is not None:
            needed.set()

    async def _run_source(self, source: McpServerSource) -> None:
        needed, first = self._refresh_needed[source.name], self._first_refresh[source.name]
        try:
            await source.ready()
        except SourceFault as fault:
            # A request now would wait for it; there is an event when it comes up.
            self._note_trouble(source, fault)
            first.set()
            await needed.wait()
        while True:
            needed.clear()
            try:
                await self.refresh(source)
            except Exception:
                # One source's task: the others go on.
                log.exception("a refresh failed", extra={"source": source.name})
            first.set()
            await asyncio.sleep(adapter_settings.ANNOUNCE_DEBOUNCE_SECONDS)
            interval = source.settings.schema_refresh_interval_seconds
            with suppress(TimeoutError):
                async with asyncio.timeout(interval if interval > 0 else None):
                    await needed.wait()

    async def wait_first_refresh(self, timeout_seconds: float) -> list[str]:
        """Wait until every source was refreshed once, or the time is over; returns those that were not."""
        waiting = dict(self._first_refresh)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                for event in waiting.values():
                    await event.wait()
        return [name for name, event in waiting.items() if not event.is_set()]

    async def refresh(self, source: McpServerSource) -> RegistryUpdate | None:
        """Fetch a source's lists and publish what is in them; None when it cannot be reached."""
        name = source.name
        try:
            # One at a time: an older list must not replace a newer one.
            async with self._locks[name]:
                offer = await source.offer()
                update = await self._publish(source, offer)
        except (SourceFault, UsageError) as fault:
            self._note_trouble(source, fault)
            return None
        self.troubles.pop(name, None)
        self.refreshed[name] = asyncio.get_running_loop().time()
        for change in update.changes:
            log.info(
                "schema published",
                extra={
                    "source": name,
                    "kind": change.kind,
                    "version": change.version,
                    "change": change.level or "new",
                    "reason": change.reason,
                },
            )
        self._on_change(name, update)
        return update

    async def _publish(self, source: McpServerSource, offer: ServerOffer) -> RegistryUpdate:
        """Raises UsageError."""
        settings = source.settings
        return await self._registry.publish_source(
            source.name, settings, offer, reserved=self._nested_namespaces(settings.namespace)
        )

    def _nested_namespaces(self, namespace: str) -> tuple[str, ...]:
        """The namespaces of sources within this one."""
        found = {each.settings.namespace for each in self._sources.values()}
        return tuple(sorted(each for each in found if each.startswith(f"{namespace}.")))

    async def reclaim_namespace(self, namespace: str) -> None:
        """A source with this namespace was added: the others lose contracts that they published inside it."""
        for other in list(self._sources.values()):
            if namespace.startswith(f"{other.settings.namespace}."):
                await self.republish(other)

    async def republish(self, source: McpServerSource) -> None:
        """Publish the last known lists under new settings, without asking the server, which may hang.

        What the operator removed is gone when this returns; if nothing can be published, everything is.
        """
        offer = source.last_offer
        if offer is not None:
            try:
                update = await self._publish(source, offer)
            except UsageError as fault:
                self._note_trouble(source, fault)
                dropped = await self._registry.remove_source(source.name)
                if dropped is not None:
                    self._on_change(source.name, dropped)
            else:
                self._on_change(source.name, update)
        self.request_refresh(source.name)

    def _note_trouble(self, source: McpServerSource, fault: SourceFault | UsageError) -> None:
        if self.troubles.get(source.name) != str(fault):
            trouble = source.trouble or str(fault)
            log.warning("lists not refreshed", extra={"source": source.name, "reason": trouble})
        self.troubles[source.name] = str(fault)

    # xp.schema.refresh

    async def refresh_on_request(self, name: str | None) -> dict[str, Json]:
        """Refresh one source or all for a request by event; simultaneous requests share one refresh.

        Not more often than every MIN_REFRESH_INTERVAL_SECONDS: earlier requests wait. Raises
        SenderTooFast when many wait already, since anybody may send one and each takes the place of a call.
        """
        if self._waiting_requests >= MAX_WAITING_REQUESTS:
            wait = MIN_REFRESH_INTERVAL_SECONDS
            raise SenderTooFast(f"many refreshes wait already: ask again in {wait:g} s", retry_after=wait)
        task = self._requested.get(name)
        if task is None or task.done():
            task = self._requested[name] = asyncio.create_task(self._run_request(name))
            self._request_tasks.add(task)
            task.add_done_callback(self._request_tasks.discard)
        self._waiting_requests += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting_requests -= 1

    async def _run_request(self, name: str | None) -> dict[str, Json]:
        loop = asyncio.get_running_loop()
        earliest = self._requested_at.get(name, float("-inf")) + MIN_REFRESH_INTERVAL_SECONDS
        if loop.time() < earliest:
            await asyncio.sleep(earliest - loop.time())
        self._requested_at[name] = loop.time()
        # A request from here on may know of a later change.
        self._requested.pop(name, None)
        sources = [source for each, source in self._sources.items() if name in (None, each)]
        found = await asyncio.gather(*(self.refresh(source) for source in sources))
        refreshed = {s.name: update for s, update in zip(sources, found, strict=True) if update is not None}
        changed = sorted(
            {change.kind for update in refreshed.values() for change in update.changes}
            | {kind for update in refreshed.values() for kind in update.gone}
        )
        return {
            "refreshed": sorted(refreshed),
            "failed": sorted(source.name for source in sources if source.name not in refreshed),
            "changed": list(changed),
            "schemas_digest": self._registry.digest,
        }


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
