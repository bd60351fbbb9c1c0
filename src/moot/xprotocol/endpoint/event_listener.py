"""Listens on one set of relays: for answers to a caller, and for announces and revocations of its endpoints.

All keys on the same relays share one subscription, because a relay allows few on one connection. When a key
is added or removed, the new subscription is made before the old one ends; the receiver drops duplicates.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Self

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.endpoint.endpoint_caller import EndpointCaller
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.endpoint.relay_subscriptions import RelayRefused, RelaySubscription
from moot.xprotocol.events.event_receiver import PublicReceived
from moot.xprotocol.events.events import ANNOUNCE, REVOKE, SKEW_SECONDS, SignedPublic

log = logging.getLogger(__name__)

# A relay's limit for one list of a filter.
MAX_PEERS: Final = 256
# Retry after a relay refused the subscription.
REFUSED_SECONDS: Final = 30.0

OnPublic = Callable[[SignedPublic], None]


class EventListener:
    """Runs within `async with`; `relays` are not opened or closed here."""

    def __init__(
        self, relays: RelayClient, caller: EndpointCaller, *, listens_for_answers: bool = True
    ) -> None:
        """`listens_for_answers` False: somebody else receives the answers and passes them to the caller."""
        self.relays = relays
        self._caller = caller
        self._listens_for_answers = listens_for_answers
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
        """Listen to a key; raises UsageError when there are too many."""
        listeners = self._peers.get(key)
        if listeners is None:
            if len(self._peers) >= MAX_PEERS:
                raise UsageError(f"at most {MAX_PEERS} endpoints per relay: use another relay for the rest")
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

    async def wait_ready(self, timeout_seconds: float) -> None:
        """Wait until a relay has sent all stored events of these keys; raises TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            await self._ready.wait()

    def _filters(self) -> list[dict[str, Json]]:
        keys = sorted(self._peers)
        filters: list[dict[str, Json]] = [{"kinds": [ANNOUNCE, REVOKE], "senders": keys}]
        if self._listens_for_answers:
            # Answers to calls from now on; the other side's clock may be late.
            since = int(time.time()) - SKEW_SECONDS
            filters.append({"recipients": [self._caller.identity.key.text], "senders": keys, "since": since})
        return filters

    async def _run(self) -> None:
        reading: asyncio.Task[None] | None = None
        current: RelaySubscription | None = None
        try:
            while True:
                self._changed.clear()
                # The new one first, so that no event is missed in between.
                replacement = self.relays.subscribe(self._filters()) if self._peers else None
                if current is not None:
                    await current.close()
                if reading is not None:
                    reading.cancel()
                current = replacement
                reading = None if replacement is None else asyncio.create_task(self._read(replacement))
                await self._changed.wait()
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            if current is not None:
                await current.close()

    async def _read(self, subscription: RelaySubscription) -> None:
        stored = asyncio.create_task(self._wait_stored(subscription))
        try:
            async for raw in subscription:
                self._dispatch(raw)
        except RelayRefused as fault:
            log.warning(
                "a relay refused the subscription", extra={"relay": fault.url, "reason": fault.reason[:200]}
            )
            await asyncio.sleep(REFUSED_SECONDS)
            self._changed.set()
        except Exception:
            # A connection's task: nobody awaits it.
            log.exception("listening to a relay failed")
        finally:
            stored.cancel()
            await asyncio.gather(stored, return_exceptions=True)

    async def _wait_stored(self, subscription: RelaySubscription) -> None:
        await subscription.wait_stored()
        if not self._changed.is_set():
            self._ready.set()

    def _dispatch(self, raw: bytes) -> None:
        outcome = self._caller.receive(raw)
        if isinstance(outcome, PublicReceived):
            for listener in tuple(self._peers.get(outcome.signed.event.sender, ())):
                listener(outcome.signed)
