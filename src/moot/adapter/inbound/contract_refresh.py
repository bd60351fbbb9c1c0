"""Keeping what is published in step with what the servers offer (XP 7.2).

A source's lists are fetched when it comes up (at the start, too), every `schema_refresh_interval_seconds`, on
`xp.schema.refresh`, and when the server says that a list changed: at once, but no more often than every
`announce_debounce_seconds`, since a server can say so a thousand times. A source that cannot be asked keeps
what it had published: its calls fail until it is back, its contracts need not be learnt again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from moot.adapter.config.adapter_settings import AdapterLimits
from moot.adapter.inbound.contract_registry import ContractRegistry, RegistryUpdate
from moot.adapter.inbound.mcp_source import McpServerSource, SourceFault
from moot.errors import SenderTooFast, UsageError
from moot.protocol.operation import Json
from moot.xprotocol.publication import ServerOffer

log = logging.getLogger(__name__)

# Who asked for a refresh by event and waits for it.
MOST_WAITING: Final = 16


class Refresher:
    """Refreshes every source; belongs to one loop."""

    def __init__(
        self,
        registry: ContractRegistry,
        sources: Mapping[str, McpServerSource],
        limits: AdapterLimits,
        *,
        on_change: Callable[[str, RegistryUpdate], None],
    ) -> None:
        self.limits = limits
        self._registry = registry
        self._sources = sources
        self._on_change = on_change
        self._wanted: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Asked for by events: the one that runs or waits, shared by all who ask meanwhile.
        self._asked: dict[str | None, asyncio.Task[dict[str, Json]]] = {}
        self._asked_at: dict[str | None, float] = {}
        self._asking: set[asyncio.Task[dict[str, Json]]] = set()
        self._first: dict[str, asyncio.Event] = {}
        self._waiting = 0
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.refreshed: dict[str, float] = {}
        self.troubles: dict[str, str] = {}

    # The sources' tasks

    def follow(self, source: McpServerSource) -> None:
        """Look after a source from now on; call `ended` before it goes."""
        self._wanted[source.name] = asyncio.Event()
        self._first[source.name] = asyncio.Event()
        self._tasks[source.name] = asyncio.create_task(self._keep(source))

    async def ended(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        self._wanted.pop(name, None)
        self._first.pop(name, None)
        self._turns.pop(name, None)
        self.troubles.pop(name, None)
        self.refreshed.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        for asked in list(self._asking):
            asked.cancel()
        for name in list(self._tasks):
            await self.ended(name)

    def want(self, name: str) -> None:
        """A list may have changed, or the source is up."""
        wanted = self._wanted.get(name)
        if wanted is not None:
            wanted.set()

    async def _keep(self, source: McpServerSource) -> None:
        wanted, first = self._wanted[source.name], self._first[source.name]
        try:
            await source.ready()
        except SourceFault as fault:
            # Asking now would be waiting for it; it says so when it comes up.
            self._note_trouble(source, fault)
            first.set()
            await wanted.wait()
        while True:
            wanted.clear()
            try:
                await self.refresh(source)
            except Exception:
                # One source's task: the others go on.
                log.exception("a refresh failed", extra={"source": source.name})
            first.set()
            await asyncio.sleep(self.limits.announce_debounce_seconds)
            interval = source.settings.schema_refresh_interval_seconds
            with suppress(TimeoutError):
                async with asyncio.timeout(interval if interval > 0 else None):
                    await wanted.wait()

    async def begun(self, within: float) -> list[str]:
        """Wait until every source was asked once, or the time is over; those that were not."""
        waiting = dict(self._first)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                for event in waiting.values():
                    await event.wait()
        return [name for name, event in waiting.items() if not event.is_set()]

    async def refresh(self, source: McpServerSource) -> RegistryUpdate | None:
        """Fetch a source's lists and publish what is in them; None when it cannot be asked."""
        name = source.name
        try:
            # One at a time: a list that was fetched earlier must not be taken later.
            async with self._turns[name]:
                offer = await source.offer()
                taken = await self._take(source, offer)
        except (SourceFault, UsageError) as fault:
            self._note_trouble(source, fault)
            return None
        self.troubles.pop(name, None)
        self.refreshed[name] = asyncio.get_running_loop().time()
        for change in taken.changes:
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
        self._on_change(name, taken)
        return taken

    async def _take(self, source: McpServerSource, offer: ServerOffer) -> RegistryUpdate:
        """Raises UsageError."""
        settings = source.settings
        return await self._registry.take(
            source.name, settings.translation, offer, reserved=self._inside(settings.namespace)
        )

    def _inside(self, namespace: str) -> tuple[str, ...]:
        """The namespaces of sources within this one."""
        found = {each.settings.namespace for each in self._sources.values()}
        return tuple(sorted(each for each in found if each.startswith(f"{namespace}.")))

    async def made_room(self, namespace: str) -> None:
        """A source with this namespace is here now: what others had published inside it is theirs no more."""
        for other in list(self._sources.values()):
            if namespace.startswith(f"{other.settings.namespace}."):
                await self.settings_changed(other)

    async def settings_changed(self, source: McpServerSource) -> None:
        """Publish what is known under other settings, without asking: the server may not want to answer.

        What the operator took away is gone when this returns; if nothing can be published, everything is.
        """
        offer = source.last_offer
        if offer is not None:
            try:
                taken = await self._take(source, offer)
            except UsageError as fault:
                self._note_trouble(source, fault)
                dropped = await self._registry.drop(source.name)
                if dropped is not None:
                    self._on_change(source.name, dropped)
            else:
                self._on_change(source.name, taken)
        self.want(source.name)

    def _note_trouble(self, source: McpServerSource, fault: SourceFault | UsageError) -> None:
        if self.troubles.get(source.name) != str(fault):
            trouble = source.trouble or str(fault)
            log.warning("lists not refreshed", extra={"source": source.name, "reason": trouble})
        self.troubles[source.name] = str(fault)

    # xp.schema.refresh

    async def asked(self, name: str | None) -> dict[str, Json]:
        """Refresh one source or all for somebody who asked by event; those who ask together share one.

        Not more often than every `limits.refresh_seconds`: whoever asks earlier waits. Raises SenderTooFast
        when many wait already, since anybody may ask and each takes the place of a call.
        """
        if self._waiting >= MOST_WAITING:
            wait = self.limits.refresh_seconds
            raise SenderTooFast(f"limits.refresh_seconds is {wait:g}: many wait already", retry_after=wait)
        task = self._asked.get(name)
        if task is None or task.done():
            task = self._asked[name] = asyncio.create_task(self._refresh_asked(name))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        self._waiting += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting -= 1

    async def _refresh_asked(self, name: str | None) -> dict[str, Json]:
        loop = asyncio.get_running_loop()
        earliest = self._asked_at.get(name, float("-inf")) + self.limits.refresh_seconds
        if loop.time() < earliest:
            await asyncio.sleep(earliest - loop.time())
        self._asked_at[name] = loop.time()
        # Whoever asks from here on may know of a later change.
        self._asked.pop(name, None)
        sources = [source for each, source in self._sources.items() if name in (None, each)]
        found = await asyncio.gather(*(self.refresh(source) for source in sources))
        refreshed = {s.name: taken for s, taken in zip(sources, found, strict=True) if taken is not None}
        changed = sorted(
            {change.kind for taken in refreshed.values() for change in taken.changes}
            | {kind for taken in refreshed.values() for kind in taken.gone}
        )
        return {
            "refreshed": sorted(refreshed),
            "failed": sorted(source.name for source in sources if source.name not in refreshed),
            "changed": list(changed),
            "schemas_digest": self._registry.digest,
        }
