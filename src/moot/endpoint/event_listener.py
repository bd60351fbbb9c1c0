"""What comes from one set of relays: answers for a caller, and what the keys that it calls say publicly.

All keys that are reached by the same relays share one subscription, because a relay allows few on one
connection. When a key comes or goes the subscription is asked for anew before the old one ends; what then
comes twice, the receiver knows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Self

from moot.endpoint.endpoint_caller import EndpointCaller
from moot.endpoint.relay_client import RelayClient
from moot.endpoint.relay_subscriptions import RelayRefused, RelaySubscription
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.event_receiver import PublicReceived
from moot.xprotocol.events import ANNOUNCE, REVOKE, SKEW_SECONDS, SignedPublic

log = logging.getLogger(__name__)

# What a relay takes in one list of a filter.
MAX_PEERS: Final = 256
# A relay that refuses the subscription is asked again after this.
REFUSED_SECONDS: Final = 30.0

OnPublic = Callable[[SignedPublic], None]


class EventListener:
    """Runs within `async with`; `relays` belong to whoever made them."""

    def __init__(self, relays: RelayClient, caller: EndpointCaller, *, answers: bool = True) -> None:
        """`answers` False: somebody else hears the answers on these relays and hands them to the caller."""
        self.relays = relays
        self._caller = caller
        self._answers = answers
        self._peers: dict[str, list[OnPublic]] = {}
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def add(self, key: str, on_public: OnPublic) -> None:
        """Hear a key from now on; raises UsageError when there are too many."""
        listeners = self._peers.get(key)
        if listeners is None:
            if len(self._peers) >= MAX_PEERS:
                raise UsageError(f"{MAX_PEERS} endpoints are the most on one relay: use another for the rest")
            self._peers[key] = [on_public]
            self._ready.clear()
            self._changed.set()
        else:
            listeners.append(on_public)

    def remove(self, key: str, on_public: OnPublic) -> None:
        listeners = self._peers.get(key, [])
        if on_public in listeners:
            listeners.remove(on_public)
        if not listeners and self._peers.pop(key, None) is not None:
            self._changed.set()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def ready(self, within: float) -> None:
        """Wait until a relay has told all that it had stored of these keys; raises TimeoutError."""
        async with asyncio.timeout(within):
            await self._ready.wait()

    def _filters(self) -> list[dict[str, Json]]:
        keys = sorted(self._peers)
        filters: list[dict[str, Json]] = [{"kinds": [ANNOUNCE, REVOKE], "senders": keys}]
        if self._answers:
            # Answers to what we ask from now on; the other side's clock may be late.
            since = int(time.time()) - SKEW_SECONDS
            filters.append({"recipients": [self._caller.identity.key.text], "senders": keys, "since": since})
        return filters

    async def _run(self) -> None:
        reading: asyncio.Task[None] | None = None
        current: RelaySubscription | None = None
        try:
            while True:
                self._changed.clear()
                # The new one first: what comes meanwhile comes by one of the two.
                following = self.relays.subscribe(self._filters()) if self._peers else None
                if current is not None:
                    await current.close()
                if reading is not None:
                    reading.cancel()
                current = following
                reading = None if following is None else asyncio.create_task(self._read(following))
                await self._changed.wait()
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            if current is not None:
                await current.close()

    async def _read(self, subscription: RelaySubscription) -> None:
        stored = asyncio.create_task(self._note_stored(subscription))
        try:
            async for raw in subscription:
                self._take(raw)
        except RelayRefused as fault:
            log.warning("a relay refuses us", extra={"relay": fault.url, "words": fault.words[:200]})
            await asyncio.sleep(REFUSED_SECONDS)
            self._changed.set()
        except Exception:
            # A connection's task: nobody awaits it.
            log.exception("hearing a relay failed")
        finally:
            stored.cancel()
            await asyncio.gather(stored, return_exceptions=True)

    async def _note_stored(self, subscription: RelaySubscription) -> None:
        await subscription.stored()
        if not self._changed.is_set():
            self._ready.set()

    def _take(self, raw: bytes) -> None:
        outcome = self._caller.hear(raw)
        if isinstance(outcome, PublicReceived):
            for listener in tuple(self._peers.get(outcome.signed.event.sender, ())):
                listener(outcome.signed)
