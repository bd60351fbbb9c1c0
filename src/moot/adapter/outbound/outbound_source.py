"""One XProtocol endpoint behind the MCP face: found, asked what it offers, and asked again when that changes.

A source goes through *connecting* → *ready* and back: discover the key (or take the configured one), reach a
relay, hear the announce, fetch the catalog, check and pin it. When a step fails the source says why, waits
a while and begins again; what it offered before stays offered, since the endpoint may be back any moment, and
a call meanwhile says that it is not there.

The catalog is fetched again when the endpoint announces another one, by interval, and when asked to.
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

from moot.adapter.config.source_settings import XProtocolSource
from moot.adapter.outbound.mirrored_offers import MirroredOffers, offered
from moot.adapter.outbound.relay_pool import RelayPool
from moot.endpoint.discovery import discover
from moot.endpoint.dns_records import Lookup
from moot.endpoint.document_fetch import FetchPolicy
from moot.endpoint.endpoint_caller import CallProofs, EndpointCaller
from moot.endpoint.event_listener import EventListener
from moot.endpoint.known_endpoints import KnownEndpoints
from moot.endpoint.remote_endpoint import RemoteContractCatalog, RemoteEndpoint
from moot.errors import MootError, Unreachable
from moot.mcp.tool_pins import Pins
from moot.protocol.operation import Json
from moot.resilience.backoff import Backoff
from moot.resilience.token_bucket import TokenBucket
from moot.xprotocol.contracts import Contract

log = logging.getLogger(__name__)

# For a relay, before anything is asked.
RELAY_SECONDS: Final = 10.0
# After a failure: half a second, doubling up to a minute. An announce or `refresh` ends the wait.
FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 60.0
# Of failures in a row, after which an endpoint is looked for anew: it may have moved.
FAILURES_BEFORE_DISCOVERY: Final = 2
# Announces within this bring one fetch: an endpoint that is edited announces every second.
CALM_SECONDS: Final = 0.2
# An endpoint can make us fetch and look at its whole catalog: so often in a row, and then this seldom.
FETCHES_BURST: Final = 5
FETCH_SECONDS: Final = 10.0
# Refused contracts and notes that `health` tells.
MAX_TOLD: Final = 50
PINS_FILE: Final = "endpoint-pins.json"

State = Literal["connecting", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What all sources share."""

    caller: EndpointCaller
    lines: RelayPool
    known: KnownEndpoints
    lookup: Lookup
    reach: FetchPolicy
    store: Path | None
    tools_most: int
    # Told after every change of what a source offers or how it is.
    on_change: Callable[[OutboundSource], None]
    # Told after every announce: subscriptions may have been lost with a restart.
    on_announce: Callable[[OutboundSource], None]


class OutboundSource:
    """One source, kept by the task that runs `keep`."""

    def __init__(
        self, settings: XProtocolSource, credentials: CallProofs, surroundings: SourceContext
    ) -> None:
        self.settings = settings
        self.credentials = credentials
        self.state: State = "connecting"
        self.fault: MootError | None = None
        self.offered = MirroredOffers()
        self.notes: tuple[str, ...] = ()
        self.key = settings.key
        self.refreshed_at: float | None = None
        # Set when the first attempt is over, however it went.
        self.settled = asyncio.Event()
        self.remote: RemoteEndpoint | None = None
        self._around = surroundings
        self._hearing: EventListener | None = None
        self._pins: Pins | None = None
        self._contracts: tuple[Contract, ...] | None = None
        self._wake = asyncio.Event()
        self._rounds = 0
        self._in_round = False
        self._failures = 0
        # When asked to by its operator, and how many fetches its announces may still bring.
        self._urgent = asyncio.Event()
        self._fetch_rate = TokenBucket(1 / FETCH_SECONDS, FETCHES_BURST, time.monotonic())
        self._round_over = asyncio.Condition()

    @property
    def name(self) -> str:
        return self.settings.name

    async def keep(self) -> None:
        """Until cancelled."""
        backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
        interval = self.settings.schema_refresh_interval_seconds
        try:
            while True:
                self._wake.clear()
                wait: float | None = interval or None
                self._in_round = True
                try:
                    await self._round()
                    self._failures = 0
                    backoff.reset()
                except MootError as fault:
                    self._failed(fault)
                    wait = backoff.next_delay()
                except Exception:
                    # A source's task: the others go on.
                    log.exception("a source failed", extra={"source": self.name})
                    self._failed(Unreachable("an internal error; the log says which"))
                    wait = backoff.next_delay()
                if self._failures >= FAILURES_BEFORE_DISCOVERY and self.settings.endpoint is not None:
                    await self._leave()
                async with self._round_over:
                    self._in_round = False
                    self._rounds += 1
                    self._round_over.notify_all()
                self.settled.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                await self._calm()
        finally:
            await self._leave()

    async def refresh(self, within: float) -> None:
        """Fetch the catalog anew, now; raises what is wrong with the source, or TimeoutError."""
        # A round that is under way may have begun before whatever changed.
        target = self._rounds + (1 if self._in_round else 0)
        self._urgent.set()
        self._wake.set()
        async with asyncio.timeout(within), self._round_over:
            await self._round_over.wait_for(lambda: self._rounds > target)
        if self.fault is not None:
            raise self.fault

    async def _calm(self) -> None:
        """Before the next round: one at once when the operator asks, else no more than the bounds allow."""
        seconds = self._fetch_rate.wait_seconds(time.monotonic()) or CALM_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._urgent.wait()
        self._urgent.clear()
        self._fetch_rate.take_anyway(time.monotonic(), max_debt_seconds=0.0)

    async def _round(self) -> None:
        if self.remote is None:
            await self._enter()
        remote, hearing = self.remote, self._hearing
        if remote is None or hearing is None:
            raise Unreachable("not connected")
        await hearing.relays.connected(RELAY_SECONDS)
        # So that the announce's key is known before an older one is used.
        with suppress(TimeoutError):
            await hearing.ready(RELAY_SECONDS)
        catalog = await remote.contract_catalog(self.settings.schema_filter)
        await self._take(catalog, remote.key)

    async def _enter(self) -> None:
        settings, around = self.settings, self._around
        enc_key: str | None = None
        schema_url: str | None = None
        reach = replace(around.reach, allow_private=settings.allow_private_addresses)
        if settings.endpoint is not None:
            found = await discover(settings.endpoint, reach, around.lookup)
            around.known.check(str(found.name), found.key)
            key, enc_key, schema_url = found.key, found.encryption_key, found.schema_url
            hearing = await around.lines.found(found.relays, reach)
            self.notes = found.notes
        else:
            key = settings.key or ""
            hearing = await around.lines.named(settings.relay)
        # From here on `_leave` gives it back, whatever fails.
        self._hearing = hearing
        self.key = key
        file = None if around.store is None else around.store / PINS_FILE
        try:
            self._pins = Pins(key, file)
            self.remote = RemoteEndpoint(
                key,
                hearing,
                around.caller,
                enc_key=enc_key,
                schema_url=schema_url,
                reach=reach,
                credentials=self.credentials,
                most=around.tools_most,
                on_announce=self._announced,
            )
        except BaseException:
            await self._leave()
            raise

    async def _leave(self) -> None:
        remote, hearing = self.remote, self._hearing
        self.remote = self._hearing = None
        if remote is not None:
            remote.close()
        if hearing is not None:
            await self._around.lines.release(hearing)

    def _announced(self, changed: bool) -> None:
        if changed and self.settled.is_set():
            self._wake.set()
        self._around.on_announce(self)

    async def _take(self, catalog: RemoteContractCatalog, key: str) -> None:
        changed = catalog.contracts != self._contracts
        if changed and self._pins is not None:
            # In a thread: a stranger's schemas can be made to take long to look at.
            self.offered = await asyncio.to_thread(offered, catalog.contracts, self._pins)
            self._contracts = catalog.contracts
        self.notes = self.notes[:MAX_TOLD] if not changed else _notes(catalog, self.offered)
        self.refreshed_at = time.time()
        was, self.state, self.fault = self.state, "ready", None
        if changed or was != "ready":
            log.info(
                "a source is ready",
                extra={"source": self.name, "key": key, "tools": len(self.offered.tools)},
            )
            for change in self.offered.news if changed else ():
                log.warning(
                    "a contract changed without a new version: held back",
                    extra={"source": self.name, "contract": change.tool, "lines": change.lines()},
                )
            self._around.on_change(self)

    def _failed(self, fault: MootError) -> None:
        if str(fault) != str(self.fault):
            log.warning("a source cannot be used", extra={"source": self.name, "reason": str(fault)})
        self._failures += 1
        self.state, self.fault = "failed", fault
        self._around.on_change(self)

    def accept(self, contracts: list[str] | None = None) -> list[str]:
        """Consent to contracts that changed under their version: all, or these (`kind version`)."""
        accepted = [] if self._pins is None else self._pins.accept(contracts)
        if accepted:
            self._contracts = None
            self._wake.set()
        return accepted

    def health(self) -> dict[str, Json]:
        """How it is, for people and for `status`: what strangers wrote is escaped (D-86)."""
        offers, remote = self.offered, self.remote
        told: dict[str, Json] = {
            "name": self.name,
            "endpoint": self.settings.address,
            "key": self.key,
            "state": self.state,
            "relay": self._hearing.relays.url if self._hearing is not None else None,
            "tools": len(offers.tools),
            "prompts": len(offers.prompts),
            "resources": sum(len(each.resources) for each in offers.resources),
            "refreshed_at": None if self.refreshed_at is None else int(self.refreshed_at),
        }
        if remote is not None and remote.announce is not None:
            told["display_name"] = escaped(remote.announce.display_name)
        if self.fault is not None:
            told["fault"] = escaped(str(self.fault))
        if self.notes:
            told["notes"] = [escaped(note) for note in self.notes]
        if offers.refused:
            told["refused"] = [
                {"kind": escaped(kind), "reason": escaped(why)} for kind, why in offers.refused[:MAX_TOLD]
            ]
        if offers.held:
            told["changed"] = {escaped(change.tool): change.lines() for change in offers.held[:MAX_TOLD]}
        return told


def escaped(text: str) -> str:
    """Text that does to a terminal, and to who reads it, nothing but stand there."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _notes(catalog: RemoteContractCatalog, offers: MirroredOffers) -> tuple[str, ...]:
    notes = [f"{kind or 'catalog'}: {why}" for kind, why in catalog.unread]
    if catalog.omitted:
        notes.append(
            f"at least {catalog.omitted} more contracts are not shown: limits.tools_per_endpoint is met;"
            " name those that you want in schema_filter"
        )
    if not catalog.signed:
        notes.append("the catalog is from schema_url: its host vouches for it, the endpoint's key does not")
    if not (offers.tools or offers.prompts or offers.resources):
        notes.append("nothing is offered: see `refused`, and schema_filter")
    return tuple(notes[:MAX_TOLD])
