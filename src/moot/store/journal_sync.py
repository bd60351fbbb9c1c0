"""Fsync behind the writes of one journal, in a thread of its own.

The loop says what it wrote and goes on. The thread syncs every `seconds` while there is something new, sooner
if somebody waits or much has come, and sleeps when nothing is written. What an fsync came to is there to
`take` when the loop looks; the loop is woken only by a fault, or if it wants to hear (`tell`). To plan every
fsync and be woken for it cost the loop more than writing did, and mostly nobody waits.

    asleep ──wrote──▶ waiting ──seconds, or hurry──▶ fsync ──▶ waiting      (asleep again after an idle round)
                                                       └─fault──▶ held, until `go_on`

Both threads only set and read whole attributes, most of them set by one side alone, and each sets its own
before it looks at the other's: so at least one of them sees what the other did, and no lock is needed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import NamedTuple

from moot.errors import UsageError


class SyncResult(NamedTuple):
    """One fsync: the last record that it covers and the size of the file then, or why it failed."""

    last: int
    size: int
    fault: OSError | UsageError | None
    seconds: float  # how long it took


class JournalSyncer:
    """Use on the thread of the loop. `told` is called there when there is something to `take` at once.

    `clock` is read by both threads; how long the thread sleeps is real time all the same.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        sync: Callable[[], None],
        seconds: float,
        told: Callable[[], None],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._loop = loop
        self._name = name
        self._sync = sync
        self._seconds = seconds
        self._told = told
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._bell: SimpleQueue[None] = SimpleQueue()
        # Set by the loop.
        self.tell = False
        self._written = (0, 0)
        self._hurried = 0  # the last record that somebody waits for
        self._crowded = 0  # the last one of more than should wait together
        self._is_ended = False
        self._at_end: deque[Callable[[], None]] = deque()
        # Set by the thread; by the loop only while it is held.
        self._covered = 0
        self._begun = 0  # the last record of the fsync that began last
        # Not 0: clocks begin there when the machine does, and none had begun then.
        self._began = -inf
        self._is_busy = False
        self._is_asleep = False
        self.outcomes: deque[SyncResult] = deque()
        # Set by both.
        self._is_held = False

    # For the loop

    def wrote(self, last: int, size: int) -> None:
        """Records up to this one are in the file, which has this size."""
        self._written = (last, size)
        if self._is_asleep:
            self._bell.put(None)
        elif self._thread is None:
            # Daemon: a disk that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def hurry(self, last: int) -> None:
        """Somebody waits for this record: sync at once."""
        if last > self._hurried:
            self._hurried = last
            self._bell.put(None)

    def crowd(self, last: int) -> None:
        """Many wait up to this record: sync, but no sooner than `seconds` after the last one began."""
        is_news = self._crowded <= self._begun
        self._crowded = last
        # In a steady flow the thread is about to, and need not be told.
        if is_news and self._clock() - self._began >= self._seconds:
            self._bell.put(None)

    def take(self) -> SyncResult | None:
        """What the next fsync came to that nobody has looked at."""
        return self.outcomes.popleft() if self.outcomes else None

    def hold(self) -> bool:
        """No fsync begins from now on; whether none is under way, so that the file may be closed."""
        self._is_held = True
        return not self._is_busy

    def go_on(self, covered: int, last: int, size: int) -> None:
        """The file is another: up to `covered` it is on disk, up to `last` it is written, with this size."""
        self._covered = self._begun = covered
        self._written = (last, size)
        self._is_held = False
        self._bell.put(None)

    def end(self, then: Callable[[], None]) -> None:
        """Nothing more comes; `then` is called once no fsync is under way, here or on the thread."""
        self._at_end.append(then)
        self._is_ended = True
        if self.hold():
            self._finish()
        self._bell.put(None)

    # The thread

    def _run(self) -> None:
        due = self._clock() + self._seconds
        was_idle = False
        while not self._is_ended:
            if self._is_held:
                self._rest()
            elif (left := self._wait_until(due) - self._clock()) > 0:
                with suppress(Empty):
                    self._bell.get(timeout=left)
            elif self._written[0] > self._covered:
                self._cover()
                due = self._began + self._seconds
                was_idle = False
            elif was_idle:
                self._rest()
                due = self._clock() + self._seconds
            else:
                due = self._clock() + self._seconds
                was_idle = True
        self._finish()

    def _wait_until(self, due: float) -> float:
        covered = self._covered
        if covered < self._hurried <= self._written[0]:
            return 0.0
        if covered < self._crowded:
            return min(due, self._began + self._seconds)
        return due

    def _rest(self) -> None:
        """Until the bell rings."""
        self._is_asleep = True
        # Looked at once more: whoever wrote before that was set did not ring.
        if (self._is_held or self._written[0] <= self._covered) and not self._is_ended:
            self._bell.get()
        self._is_asleep = False

    def _cover(self) -> None:
        self._is_busy = True
        if self._is_held:
            self._is_busy = False
            return
        last, size = self._written
        self._began = self._clock()
        self._begun = last
        fault: OSError | UsageError | None = None
        try:
            self._sync()
            self._covered = last
        except (OSError, UsageError) as error:
            fault = error
            self._is_held = True
        self.outcomes.append(SyncResult(last, size, fault, self._clock() - self._began))
        self._is_busy = False
        if self.tell or fault is not None:
            # The loop may have been closed by now: nobody is left to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._told)

    def _finish(self) -> None:
        try:
            # Taken out first: both threads may come here.
            then = self._at_end.pop()
        except IndexError:
            return
        then()
