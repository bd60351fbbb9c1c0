"""Whose bytes are handled next: no connection, and no crowd of them, keeps the event loop from others.

A connection that is read is handled at once, for one slice at most: so many bytes, frames or seconds. All
connections together have one turn of the loop. What is left over after a slice, or comes when the turn is
over, waits in a queue, and its connection is not read meanwhile: the kernel's buffers fill, and the peer has
to wait. Every turn of the loop takes from the queue, first whoever has used least time so far, and among
equals whoever sent least. So a member who says one word goes before any number of others who shout.

How much somebody has used counts from what the least of those who wait had used: nobody saves up time by
being silent, or by coming again as somebody new.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Final, Protocol

# One slice: 200 envelopes of the usual size, enough to be written and journaled together.
SLICE_BYTES: Final = 64 << 10
# Pings and empty frames too: about what `SLICE_SECONDS` are enough for.
SLICE_FRAMES: Final = 1_000
# Nobody notices so short a wait.
SLICE_SECONDS: Final = 0.001
# For all connections together, then the event loop looks after everything else.
TURN_SECONDS: Final = 0.002


class ReadSource(Protocol):
    """A connection: `used_seconds` and `is_queued` belong to the schedule."""

    used_seconds: float
    is_queued: bool

    def handle_slice(self, seconds: float) -> bool:
        """Handle what was read for so long at most; True if some is left."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class ReadSchedule:
    """The turns of all connections of one listener."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._queue: list[tuple[float, int, int, ReadSource]] = []
        self._least_used = 0.0
        self._entries = 0
        self._turn_used = 0.0
        self._is_scheduled = False

    def handle(self, source: ReadSource, size: int, now: float) -> None:
        """Handle the bytes that this connection has just read, now or later."""
        if self._queue or self._turn_used >= TURN_SECONDS:
            self._enqueue(source, size)
            return
        is_left = source.handle_slice(SLICE_SECONDS)
        used = self._clock() - now
        source.used_seconds += used
        self._turn_used += used
        if not self._is_scheduled:
            self._schedule()
        # All that could be read at a time: the kernel may hold more.
        if is_left or size >= SLICE_BYTES:
            self._enqueue(source, size)

    def _enqueue(self, source: ReadSource, size: int) -> None:
        if source.is_queued:
            return
        source.is_queued = True
        source.pause_reading()
        source.used_seconds = max(source.used_seconds, self._least_used)
        self._push(source, size)
        if not self._is_scheduled:
            self._schedule()

    def _push(self, source: ReadSource, size: int) -> None:
        self._entries += 1
        heapq.heappush(self._queue, (source.used_seconds, size, self._entries, source))

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._run_turn)

    def _run_turn(self) -> None:
        """After everything that was readable has been read: the next turn, for those who wait first."""
        self._is_scheduled = False
        self._turn_used = 0.0
        if not self._queue:
            return
        now = self._clock()
        end = now + TURN_SECONDS
        while self._queue and now < end:
            _, size, _, source = heapq.heappop(self._queue)
            self._least_used = source.used_seconds
            is_left = source.handle_slice(min(SLICE_SECONDS, end - now))
            then = self._clock()
            source.used_seconds += then - now
            now = then
            if is_left:
                self._push(source, size)
            else:
                source.is_queued = False
                source.resume_reading()
        if self._queue:
            self._schedule()
