"""When something in a space ends by itself: one heap of deadlines, in which stale ones do not pile up."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Literal

from moot.protocol.operation import Json

Deadline = Literal[
    "request", "execution", "proposal", "pause", "shutdown", "stream", "grant", "token", "poll"
]


class Deadlines:
    """`is_live` tells whether a deadline still refers to something, at the time that it has now."""

    def __init__(self, is_live: Callable[[float, Deadline, str], bool]) -> None:
        self._is_live = is_live
        self._heap: list[tuple[float, int, Deadline, str]] = []
        # How many were ever scheduled: whoever waits for the next one sees by it that there may be another.
        self.scheduled = 0
        self._max_entries = 256

    def schedule(self, when: float, what: Deadline, key: str) -> None:
        self.scheduled += 1
        heapq.heappush(self._heap, (when, self.scheduled, what, key))
        # Most things end before their deadline; stale deadlines must not pile up until then.
        if len(self._heap) > self._max_entries:
            is_live = self._is_live
            self._heap = [entry for entry in self._heap if is_live(entry[0], entry[2], entry[3])]
            heapq.heapify(self._heap)
            # Not sooner: each is asked about, and is small beside what it is the deadline of.
            self._max_entries = 4 * len(self._heap) + 256

    def next_deadline(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def is_due(self, now: float) -> bool:
        """Whether one has come that still refers to something. A space that begins at a saved state has no
        others, and has to come to the same answer."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            if self._is_live(heap[0][0], *heap[0][2:]):
                return True
            heapq.heappop(heap)
        return False

    def pop_due(self, now: float) -> list[tuple[Deadline, str]]:
        """Remove and return the deadlines that have come, earliest first. One may undo the next."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_live(entry[0], *entry[2:]):
                due.append((entry[2], entry[3]))
        return due

    def save(self) -> list[Json]:
        return [
            [when, what, key] for when, _, what, key in sorted(self._heap) if self._is_live(when, what, key)
        ]
