"""Which events were seen already, so that nobody acts twice on one.

An id is kept until its event could not be accepted any more, and never dropped before: when the memory is
full, new events are refused until something expires. Ids are compared, not signatures: whoever holds a key
can sign the same event twice.

The clock may be set back. Whatever was forgotten as expired would then count as new, so the memory also
keeps the latest moment it has forgotten up to, and takes everything that ends before it as seen.

This is the memory of one process; what must outlive it comes back through `restore`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, Protocol

from moot.errors import EndpointUnavailable

# About 150 MB. With lifetimes of an hour it takes 250 events a second to fill; shorten them to allow more.
MAX_LIVE_IDS: Final = 1_000_000
# Ids that end within the same ten seconds are forgotten together.
_SLOT_SECONDS: Final = 10


class SeenIds(Protocol):
    """What a receiver asks of a memory of ids, be it this one or a table on disk."""

    def seen(self, event_id: str, until: int) -> bool: ...

    def remember(self, event_id: str, until: int, now: float) -> None:
        """Keep an id up to `until`; raises EndpointUnavailable when there is no room for it."""


class ReplayCache:
    """Seen ids of events that could still be accepted."""

    def __init__(self, limit: int = MAX_LIVE_IDS) -> None:
        self._limit = limit
        self._ids: set[bytes] = set()
        self._slots: dict[int, deque[bytes]] = {}
        self._ends: list[int] = []
        self._forgotten_up_to = -1

    def __len__(self) -> int:
        return len(self._ids)

    def seen(self, event_id: str, until: int) -> bool:
        """Whether an event with this id, acceptable up to `until`, may have been accepted before."""
        return until <= self._forgotten_up_to or bytes.fromhex(event_id) in self._ids

    def remember(self, event_id: str, until: int, now: float) -> None:
        """Keep an id up to `until`; raises EndpointUnavailable with `retry_after` when the memory is full."""
        self._forget(now)
        if len(self._ids) >= self._limit:
            wait = max(1.0, self._ends[0] + _SLOT_SECONDS - now) if self._ends else 1.0
            raise EndpointUnavailable(
                "too many events at once: none can be told from a replay", retry_after=wait
            )
        digest = bytes.fromhex(event_id)
        if digest in self._ids:
            return
        self._ids.add(digest)
        start = until - until % _SLOT_SECONDS
        slot = self._slots.get(start)
        if slot is None:
            slot = self._slots[start] = deque()
            heappush(self._ends, start)
        slot.append(digest)

    def restore(self, entries: Iterable[tuple[str, int]], now: float) -> None:
        """Remember what outlived a restart; raises EndpointUnavailable when it does not fit."""
        for event_id, until in entries:
            self.remember(event_id, until, now)

    def _forget(self, now: float) -> None:
        while self._ends and self._ends[0] + _SLOT_SECONDS <= now:
            start = heappop(self._ends)
            self._ids.difference_update(self._slots.pop(start))
            self._forgotten_up_to = max(self._forgotten_up_to, start + _SLOT_SECONDS - 1)
