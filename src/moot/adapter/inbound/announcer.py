"""`xp.endpoint.announce`: what the adapter is and wraps, said before anybody trusts it (XP 6.3, 7.2).

An announce goes out when the adapter has started, whenever what it would say differs from what it said last
(changes within `announce_debounce_seconds` make one, D-71), when another relay is in use, and again and
again, because events expire. With it go the delegations that the adapter holds, so that everybody can walk
its chain.

Of two announces a relay keeps the later one by its timestamp, in whole seconds. So each of ours is at least a
second later than the one before, that of an earlier process included: two within one second would let chance
decide.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from moot.adapter.config.adapter_settings import AdapterLimits
from moot.adapter.inbound.reply_publisher import EventPublisher
from moot.endpoint.relay_subscriptions import RelayRefused
from moot.errors import ConnectionLost, OutboxFull, TimedOut, UsageError
from moot.identity.keys import Identity
from moot.protocol.operation import Json
from moot.resilience.backoff import Backoff
from moot.xprotocol.event_composer import publish
from moot.xprotocol.events import ANNOUNCE, SKEW_SECONDS, SignedPublic

log = logging.getLogger(__name__)

_FAULTS = (TimedOut, OutboxFull, ConnectionLost, RelayRefused)


class Announcer:
    """Says what `payload` gives whenever that is due. `run` does the work."""

    def __init__(
        self,
        identity: Identity,
        relays: EventPublisher,
        limits: AdapterLimits,
        *,
        payload: Callable[[], dict[str, Json]],
        ttl: int,
        delegations: Sequence[SignedPublic] = (),
        last_time: int = 0,
        keep: Callable[[SignedPublic], Awaitable[object]] | None = None,
    ) -> None:
        """`last_time` is that of the last announce of this key; `keep` remembers one before it is said."""
        self.limits = limits
        self.ttl = ttl
        self._identity = identity
        self._relays = relays
        self._payload = payload
        self.delegations = tuple(delegations)
        self._stirred = asyncio.Event()
        self._is_due = True
        self._announced = asyncio.Event()
        self._last: dict[str, Json] | None = None
        self._last_time = last_time
        self._keep = keep
        # The event that was said last, and how often anything was.
        self.event: SignedPublic | None = None
        self.count = 0
        # Why the last attempt failed; empty when it did not.
        self.trouble = ""

    def stir(self, *, again: bool = False) -> None:
        """Something may have changed; `again` says it even if nothing did."""
        self._is_due = self._is_due or again
        self._stirred.set()

    async def announced(self) -> None:
        """Wait until something has been said."""
        await self._announced.wait()

    async def run(self) -> None:
        """Announce until cancelled."""
        backoff = self._new_backoff()
        while True:
            self._stirred.clear()
            delay_seconds = self.limits.announce_debounce_seconds
            try:
                if self._is_due or self._payload() != self._last:
                    await self._announce()
                backoff = self._new_backoff()
            except _FAULTS as fault:
                self.trouble = str(fault)
                log.warning("not announced", extra={"reason": str(fault)})
                self._stirred.set()
                delay_seconds = backoff.next_delay()
            except UsageError as fault:
                # Nothing that time would mend; the next change is another chance.
                self.trouble = str(fault)
                log.error("the announce cannot be sent", extra={"reason": str(fault)})
                self._is_due = False
            with suppress(TimeoutError):
                async with asyncio.timeout(self.interval):
                    await self._stirred.wait()
            if not self._stirred.is_set():
                self._is_due = True
            # D-71: what changes together is said together.
            await asyncio.sleep(delay_seconds)

    def _new_backoff(self) -> Backoff:
        # Made anew after each success: the limits may have been reloaded.
        return Backoff(2 * self.limits.announce_debounce_seconds, self.interval)

    @property
    def interval(self) -> float:
        """Well within an announce's life."""
        return min(self.limits.announce_interval_seconds, self.ttl / 2)

    async def _announce(self) -> None:
        payload = self._payload()
        due, self._is_due = self._is_due, False
        try:
            for delegation in self.delegations:
                # Kept for good by relays; said again because this may be another one.
                await self._relays.publish(delegation)
            moment = self._moment(time.time())
            signed = publish(
                self._identity,
                ANNOUNCE,
                payload,
                now=moment,
                ttl=self.ttl,
                delegation=self.delegations[-1].event.id if self.delegations else None,
            )
            self._last_time = moment
            if self._keep is not None:
                await self._keep(signed)
            await self._relays.publish(signed)
        except _FAULTS:
            self._is_due = due or self._last is None
            raise
        self._last, self.event = payload, signed
        self.count += 1
        self.trouble = ""
        self._announced.set()
        log.info("announced", extra={"event": signed.event.id, "digest": payload.get("schemas_digest")})

    def _moment(self, now: float) -> int:
        # Further ahead than clocks differ, a relay would not take it: then the clock was wrong before.
        return int(now) if self._last_time >= now + SKEW_SECONDS - 1 else max(int(now), self._last_time + 1)
