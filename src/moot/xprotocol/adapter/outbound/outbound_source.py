"""One XProtocol endpoint that is offered to MCP clients: discovered, and its catalog kept up to date.

A source goes through *connecting* → *ready* and back: discover the key (or take the configured one), reach a
relay, receive the announce, fetch the catalog, check and pin it. When a step fails the source says why,
backs off and starts again. Its previous offers stay listed, since the endpoint may be back any moment; a call
meanwhile fails as unavailable. But a *revoked* endpoint lists nothing: nobody answers for what it says.

The catalog is fetched again when the endpoint announces another one, by interval, and on request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from moot.errors import MootError, Unreachable
from moot.mcp.tool_pins import Pins
from moot.protocol.operation import Json
from moot.resilience.rate_limits import TokenBucket
from moot.resilience.restart_loop import Backoff
from moot.xprotocol.adapter.config.source_settings import XProtocolSource
from moot.xprotocol.adapter.outbound.mirrored_offers import MirroredOffers, mirror_contracts
from moot.xprotocol.adapter.outbound.relay_pool import RelayPool
from moot.xprotocol.contracts.contracts import Contract
from moot.xprotocol.endpoint.discovery import discover
from moot.xprotocol.endpoint.dns_records import Lookup
from moot.xprotocol.endpoint.document_fetch import FetchPolicy
from moot.xprotocol.endpoint.endpoint_caller import CallProofs, EndpointCaller
from moot.xprotocol.endpoint.event_listener import EventListener
from moot.xprotocol.endpoint.known_endpoints import KnownEndpoints
from moot.xprotocol.endpoint.remote_endpoint import RemoteContractCatalog, RemoteEndpoint

log = logging.getLogger(__name__)

# For a relay to connect.
RELAY_SECONDS: Final = 10.0
# After a failure: half a second, doubling up to a minute. An announce or `refresh` ends the wait.
FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 60.0
# Consecutive failures after which an endpoint is discovered again: it may have moved.
FAILURES_BEFORE_DISCOVERY: Final = 2
# Announces within this make one fetch: an endpoint under development announces every second.
DEBOUNCE_SECONDS: Final = 0.2
# An endpoint's announces make us fetch its whole catalog: this many in a row, then one per FETCH_SECONDS.
FETCH_BURST: Final = 5
FETCH_SECONDS: Final = 10.0
# Refused contracts and notes in `health`.
MAX_LISTED_NOTES: Final = 50
PINS_FILE: Final = "endpoint-pins.json"

State = Literal["connecting", "ready", "failed", "revoked"]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What all outbound sources share."""

    caller: EndpointCaller
    relay_pool: RelayPool
    known_endpoints: KnownEndpoints
    lookup: Lookup
    fetch_policy: FetchPolicy
    store: Path | None
    max_tools: int
    # Called after every change of a source's offers or state.
    on_change: Callable[[OutboundSource], None]
    # Called after every announce: a restart may have lost subscriptions.
    on_announce: Callable[[OutboundSource], None]


class OutboundSource:
    """One source, kept up to date by the task that runs `run`."""

    def __init__(self, settings: XProtocolSource, credentials: CallProofs, context: SourceContext) -> None:
        self.settings = settings
        self.credentials = credentials
        self.state: State = "connecting"
        self.fault: MootError | None = None
        self.offers = MirroredOffers()
        self.notes: tuple[str, ...] = ()
        self.key = settings.key
        self.refreshed_at: float | None = None
        # Set when the first attempt is over, with or without success.
        self.settled = asyncio.Event()
        self.remote: RemoteEndpoint | None = None
        self._context = context
        self._listener: EventListener | None = None
        self._pins: Pins | None = None
        self._contracts: tuple[Contract, ...] | None = None
        # Who revoked a key, for as long as we run: the relay may not repeat it.
        self._revoked_by: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._refreshes = 0
        self._is_refreshing = False
        self._failures = 0
        # Set for a refresh by the operator; and the number of fetches that announces may still trigger.
        self._urgent = asyncio.Event()
        self._fetch_rate = TokenBucket(1 / FETCH_SECONDS, FETCH_BURST, time.monotonic())
        self._refresh_ended = asyncio.Condition()

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def is_revoked(self) -> bool:
        return self.state == "revoked"

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
        interval = self.settings.schema_refresh_interval_seconds
        try:
            while True:
                self._wake.clear()
                wait: float | None = interval or None
                self._is_refreshing = True
                try:
                    await self._refresh_once()
                    self._failures = 0
                    backoff.reset()
                except MootError as fault:
                    self._set_failed(fault)
                    wait = backoff.next_delay()
                except Exception:
                    # A source's task: the others go on.
                    log.exception("a source failed", extra={"source": self.name})
                    self._set_failed(Unreachable("internal error; see the log"))
                    wait = backoff.next_delay()
                if self._failures >= FAILURES_BEFORE_DISCOVERY and self.settings.endpoint is not None:
                    await self._disconnect()
                async with self._refresh_ended:
                    self._is_refreshing = False
                    self._refreshes += 1
                    self._refresh_ended.notify_all()
                self.settled.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                await self._wait_for_quota()
        finally:
            await self._disconnect()

    async def refresh(self, timeout_seconds: float) -> None:
        """Fetch the catalog now; raises the source's fault, or TimeoutError."""
        # A refresh in progress may have started before the change.
        target = self._refreshes + (1 if self._is_refreshing else 0)
        self._urgent.set()
        self._wake.set()
        async with asyncio.timeout(timeout_seconds), self._refresh_ended:
            await self._refresh_ended.wait_for(lambda: self._refreshes > target)
        if self.fault is not None:
            raise self.fault

    async def _wait_for_quota(self) -> None:
        """Wait before the next refresh: not at all for the operator, else as the quota demands."""
        seconds = self._fetch_rate.wait_seconds(time.monotonic()) or DEBOUNCE_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._urgent.wait()
        self._urgent.clear()
        self._fetch_rate.take_anyway(time.monotonic(), max_debt_seconds=0.0)

    async def _refresh_once(self) -> None:
        if self.remote is None:
            await self._connect()
        remote, listener = self.remote, self._listener
        if remote is None or listener is None:
            raise Unreachable("not connected")
        await listener.relays.wait_connected(RELAY_SECONDS)
        # So that the announce's key is known before an older one is used.
        with suppress(TimeoutError):
            await listener.wait_ready(RELAY_SECONDS)
        catalog = await remote.contract_catalog(self.settings.schema_filter)
        await self._apply_catalog(catalog, remote.key)

    async def _connect(self) -> None:
        settings, context = self.settings, self._context
        enc_key: str | None = None
        schema_url: str | None = None
        fetch_policy = replace(context.fetch_policy, allow_private=settings.allow_private_addresses)
        if settings.endpoint is not None:
            found = await discover(settings.endpoint, fetch_policy, context.lookup)
            context.known_endpoints.check(str(found.name), found.key)
            key, enc_key, schema_url = found.key, found.encryption_key, found.schema_url
            listener = await context.relay_pool.acquire_discovered(found.relays, fetch_policy)
            self.notes = found.notes
        else:
            key = settings.key or ""
            listener = await context.relay_pool.acquire_configured(settings.relay)
        # From here on `_disconnect` releases it, whatever fails.
        self._listener = listener
        self.key = key
        file = None if context.store is None else context.store / PINS_FILE
        try:
            self._pins = Pins(key, file)
            self.remote = RemoteEndpoint(
                key,
                listener,
                context.caller,
                enc_key=enc_key,
                schema_url=schema_url,
                fetch_policy=fetch_policy,
                credentials=self.credentials,
                max_contracts=context.max_tools,
                on_announce=self._on_announce,
                revoked_by=self._revoked_by.get(key),
            )
        except BaseException:
            await self._disconnect()
            raise

    async def _disconnect(self) -> None:
        remote, listener = self.remote, self._listener
        self.remote = self._listener = None
        if remote is not None:
            remote.close()
        if listener is not None:
            await self._context.relay_pool.release(listener)

    def check_revoked(self) -> None:
        """Stop listing what a revoked endpoint offered, without waiting for the next fetch."""
        remote = self.remote
        if remote is not None and remote.is_revoked and not self.is_revoked:
            self._set_failed(remote.revocation())

    def _on_announce(self, changed: bool) -> None:
        self.check_revoked()
        if changed and self.settled.is_set():
            self._wake.set()
        self._context.on_announce(self)

    async def _apply_catalog(self, catalog: RemoteContractCatalog, key: str) -> None:
        changed = catalog.contracts != self._contracts
        if changed and self._pins is not None:
            # In a thread: a hostile endpoint's schemas can be slow to check.
            self.offers = await asyncio.to_thread(mirror_contracts, catalog.contracts, self._pins)
            if self.remote is not None and self.remote.is_revoked:
                # Meanwhile.
                raise self.remote.revocation()
            self._contracts = catalog.contracts
        self.notes = self.notes[:MAX_LISTED_NOTES] if not changed else _notes(catalog, self.offers)
        self.refreshed_at = time.time()
        was, self.state, self.fault = self.state, "ready", None
        if changed or was != "ready":
            log.info(
                "a source is ready",
                extra={"source": self.name, "key": key, "tools": len(self.offers.tools)},
            )
            for change in self.offers.newly_withheld if changed else ():
                log.warning(
                    "a contract changed without a new version: withheld",
                    extra={"source": self.name, "contract": change.tool, "lines": change.lines()},
                )
            self._context.on_change(self)

    def _set_failed(self, fault: MootError) -> None:
        if str(fault) != str(self.fault):
            log.warning("a source is unavailable", extra={"source": self.name, "reason": str(fault)})
        self._failures += 1
        remote = self.remote
        self.state, self.fault = "failed", fault
        if remote is not None and remote.is_revoked:
            self.state = "revoked"
            if remote.revoked_by is not None:
                self._revoked_by[remote.key] = remote.revoked_by
        self._context.on_change(self)

    def accept(self, contracts: list[str] | None = None) -> list[str]:
        """Accept contracts that changed under their version: all, or these (`kind version`)."""
        accepted = [] if self._pins is None else self._pins.accept(contracts)
        if accepted:
            self._contracts = None
            self._wake.set()
        return accepted

    def health(self) -> dict[str, Json]:
        """Its state, for people and for `status`: text of strangers is escaped (D-86)."""
        offers, remote = self.offers if not self.is_revoked else MirroredOffers(), self.remote
        status: dict[str, Json] = {
            "name": self.name,
            "endpoint": self.settings.address,
            "key": self.key,
            "state": self.state,
            "relay": self._listener.relays.url if self._listener is not None else None,
            "tools": len(offers.tools),
            "prompts": len(offers.prompts),
            "resources": sum(len(each.resources) for each in offers.resources),
            "refreshed_at": None if self.refreshed_at is None else int(self.refreshed_at),
        }
        if remote is not None and remote.announce is not None:
            status["display_name"] = escaped(remote.announce.display_name)
        if self.fault is not None:
            status["fault"] = escaped(str(self.fault))
        if self.notes:
            status["notes"] = [escaped(note) for note in self.notes]
        if offers.refused:
            status["refused"] = [
                {"kind": escaped(kind), "reason": escaped(why)}
                for kind, why in offers.refused[:MAX_LISTED_NOTES]
            ]
        if offers.withheld:
            status["changed"] = {
                escaped(change.tool): change.lines() for change in offers.withheld[:MAX_LISTED_NOTES]
            }
        return status


def escaped(text: str) -> str:
    """Text that is safe to print on a terminal."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _notes(catalog: RemoteContractCatalog, offers: MirroredOffers) -> tuple[str, ...]:
    notes = [f"{kind or 'catalog'}: {why}" for kind, why in catalog.invalid]
    if catalog.omitted:
        notes.append(
            f"at least {catalog.omitted} more contracts are not shown: there are too many of them; "
            "name those that you need in schema_filter"
        )
    if not catalog.signed:
        notes.append(
            "the catalog is from schema_url: it is authenticated by its host, not by the endpoint's key"
        )
    if not (offers.tools or offers.prompts or offers.resources):
        notes.append("nothing is offered: see `refused` and schema_filter")
    return tuple(notes[:MAX_LISTED_NOTES])
