"""Requests that waited at a relay while the adapter was away: taken at its own pace, and none refused for it.

They all come at once when it is back, and nobody sent them too fast. So they count against no rate and no
number of calls of one sender; instead, so many of them run at a time as one sender may have. The next begins
when one has ended. Those that wait are kept as they came and are looked at when their turn comes: until then
their ids are not taken, so that a crash loses none. When many wait, no more are read from the relay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# What waits here; more waits at the relay.
MAX_EVENTS: Final = 4_096
MAX_BYTES: Final = 64 << 20
# Looked at before other tasks of the loop may run: some 2 ms.
_PER_TURN: Final = 8


class Backlog:
    """`start` takes one event; `has_room` says whether another may begin. `pump` when a call has ended."""

    def __init__(self, start: Callable[[bytes], None], has_room: Callable[[], bool]) -> None:
        self._start = start
        self._has_room = has_room
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._taken = asyncio.Event()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, raw: bytes) -> None:
        """Add an event; waits while too many wait already."""
        while len(self._waiting) >= MAX_EVENTS or self._bytes + len(raw) > MAX_BYTES:
            self._taken.clear()
            await self._taken.wait()
        self._waiting.append(raw)
        self._bytes += len(raw)
        self.pump()

    def clear(self) -> None:
        self._waiting.clear()
        self._bytes = 0
        self._taken.set()

    def pump(self) -> None:
        """Begin what there is room for, in the next turn of the loop."""
        if not self._is_due and self._waiting:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        for _ in range(_PER_TURN):
            if not self._waiting or not self._has_room():
                return
            raw = self._waiting.popleft()
            self._bytes -= len(raw)
            self._taken.set()
            self._start(raw)
        self.pump()
