"""Publishes `xp.endpoint.announce`: the public description of the adapter and what it wraps (XP 6.3, 7.2).

An announce is published when the adapter has started, whenever its content differs from the last one (changes
within ANNOUNCE_DEBOUNCE_SECONDS make one, D-71), when another relay is in use, and periodically, because
events expire. The adapter's delegations are published with it, so that everybody can walk its chain.

Of two announces a relay keeps the later one by its timestamp, in whole seconds. So each of ours is at least a
second later than the one before, that of an earlier process included.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from moot.errors import ConnectionLost, OutboxFull, TimedOut, UsageError
from moot.protocol.operation import Json
from moot.resilience.restart_loop import Backoff
from moot.xprotocol.adapter.config import adapter_settings
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.endpoint.relay_subscriptions import RelayRefused
from moot.xprotocol.event_store.event_query import EventQuery
from moot.xprotocol.event_store.event_store import EventStore
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import ANNOUNCE, SKEW_SECONDS, SignedPublic
from moot.xprotocol.identity.keys import Identity

# How often the announce is repeated, since events expire.
ANNOUNCE_INTERVAL_SECONDS: Final = 1_800.0

log = logging.getLogger(__name__)

_FAULTS = (TimedOut, OutboxFull, ConnectionLost, RelayRefused)


class Announcer:
    """Announces what `payload` returns whenever that is due, in the task that runs `run`."""

    def __init__(
        self,
        identity: Identity,
        relays: RelayClient,
        *,
        payload: Callable[[], dict[str, Json]],
        ttl_seconds: int,
        delegations: Sequence[SignedPublic] = (),
        last_time: int = 0,
        save: Callable[[SignedPublic], Awaitable[object]] | None = None,
        is_allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        """`last_time` is that of the last announce of this key; `save` stores one before it is published.

        While `is_allowed` says no, nothing is announced: the key has been revoked.
        """
        self._is_allowed = is_allowed
        self.ttl_seconds = ttl_seconds
        self._identity = identity
        self._relays = relays
        self._payload = payload
        self.delegations = tuple(delegations)
        self._changed = asyncio.Event()
        self._is_due = True
        self._first_announced = asyncio.Event()
        self._last_payload: dict[str, Json] | None = None
        self._last_time = last_time
        self._save = save
        # The last event, and how many there were.
        self.event: SignedPublic | None = None
        self.count = 0
        # Why the last attempt failed; empty when it did not.
        self.trouble = ""

    def notify_change(self, *, force: bool = False) -> None:
        """The payload may have changed; `force` announces even if it did not."""
        self._is_due = self._is_due or force
        self._changed.set()

    async def wait_announced(self) -> None:
        """Wait until the first announce is published."""
        await self._first_announced.wait()

    async def run(self) -> None:
        """Announce until cancelled."""
        backoff = self._new_backoff()
        while True:
            self._changed.clear()
            delay_seconds = adapter_settings.ANNOUNCE_DEBOUNCE_SECONDS
            try:
                if self._is_allowed() and (self._is_due or self._payload() != self._last_payload):
                    await self._announce()
                backoff = self._new_backoff()
            except _FAULTS as fault:
                self.trouble = str(fault)
                log.warning("not announced", extra={"reason": str(fault)})
                self._changed.set()
                delay_seconds = backoff.next_delay()
            except UsageError as fault:
                # A retry would not help; the next change may.
                self.trouble = str(fault)
                log.error("the announce cannot be sent", extra={"reason": str(fault)})
                self._is_due = False
            with suppress(TimeoutError):
                async with asyncio.timeout(self.interval):
                    await self._changed.wait()
            if not self._changed.is_set():
                self._is_due = True
            # D-71: changes close together make one announce.
            await asyncio.sleep(delay_seconds)

    def _new_backoff(self) -> Backoff:
        return Backoff(2 * adapter_settings.ANNOUNCE_DEBOUNCE_SECONDS, self.interval)

    @property
    def interval(self) -> float:
        """Seconds between two announces, well within the lifetime of one."""
        return min(ANNOUNCE_INTERVAL_SECONDS, self.ttl_seconds / 2)

    async def _announce(self) -> None:
        payload = self._payload()
        due, self._is_due = self._is_due, False
        try:
            for delegation in self.delegations:
                # Relays keep them for good; sent again because this may be another relay.
                await self._relays.publish(delegation)
            moment = self._next_timestamp(time.time())
            signed = publish(
                self._identity,
                ANNOUNCE,
                payload,
                now=moment,
                ttl=self.ttl_seconds,
                delegation=self.delegations[-1].event.id if self.delegations else None,
            )
            self._last_time = moment
            if self._save is not None:
                await self._save(signed)
            await self._relays.publish(signed)
        except _FAULTS:
            self._is_due = due or self._last_payload is None
            raise
        self._last_payload, self.event = payload, signed
        self.count += 1
        self.trouble = ""
        self._first_announced.set()
        log.info("announced", extra={"event": signed.event.id, "digest": payload.get("schemas_digest")})

    def _next_timestamp(self, now: float) -> int:
        # A relay refuses a time further ahead than clocks differ: then our clock was wrong before.
        return int(now) if self._last_time >= now + SKEW_SECONDS - 1 else max(int(now), self._last_time + 1)


async def last_announce_time(store: EventStore, key: str) -> int:
    """When an earlier process announced this key last; 0: never."""
    query = EventQuery(kinds=(ANNOUNCE,), senders=(key,), public_only=True)
    return max([stored.timestamp async for stored in store.find(query)], default=0)
