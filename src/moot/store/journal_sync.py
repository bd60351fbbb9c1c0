"""Fsync behind the writes of one journal, in a thread of its own.

The loop reports what it wrote and continues. The thread syncs every `seconds` while there is something new,
sooner if somebody waits or much was written, and sleeps when nothing is. The loop gets the results of fsyncs
from `results` when it has time; it is woken only by a fault, or if it asked for that (`notify`). To plan
every fsync and be woken for it cost the loop more than writing did, and mostly nobody waits.

    asleep ──mark_written──▶ waiting ──seconds, or sync_now──▶ fsync ──▶ waiting  (asleep after an idle round)
                                                                 └─fault──▶ paused, until `resume`

Both threads only set and read whole attributes, most of them set by one side alone, and each sets its own
before it reads the other's: so at least one of them sees what the other did, and no lock is needed.
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
    """Use on the thread of the loop. `on_result` is called there when a result should be fetched at once.

    `clock` is read by both threads; how long the thread sleeps is real time all the same.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        sync: Callable[[], None],
        seconds: float,
        on_result: Callable[[], None],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._loop = loop
        self._name = name
        self._sync = sync
        self._seconds = seconds
        self._on_result = on_result
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        # Set by the loop.
        self.notify = False
        self._written = (0, 0)
        self._wanted_now = 0  # the last record that somebody waits for
        self._wanted_batch = 0  # the last record of a batch that is large enough
        self._is_stopped = False
        self._on_stopped: deque[Callable[[], None]] = deque()
        # Set by the thread; by the loop only while it is paused.
        self._synced_record = 0
        self._started_record = 0  # the last record of the fsync that started last
        # Not 0: a clock may start there with the machine, and no fsync had started then.
        self._started_at = -inf
        self._is_busy = False
        self._is_asleep = False
        self.results: deque[SyncResult] = deque()
        # Set by both.
        self._is_paused = False

    # For the loop

    def mark_written(self, last: int, size: int) -> None:
        """Records up to this one are in the file, which has this size."""
        self._written = (last, size)
        if self._is_asleep:
            self._wakeups.put(None)
        elif self._thread is None:
            # Daemon: a disk that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def sync_now(self, last: int) -> None:
        """Somebody waits for this record: sync at once."""
        if last > self._wanted_now:
            self._wanted_now = last
            self._wakeups.put(None)

    def sync_batch(self, last: int) -> None:
        """Many records wait, up to this one: sync, but not within `seconds` of the last fsync's start."""
        is_new = self._wanted_batch <= self._started_record
        self._wanted_batch = last
        # In a steady flow the thread is about to do it, and need not be woken.
        if is_new and self._clock() - self._started_at >= self._seconds:
            self._wakeups.put(None)

    @property
    def running_seconds(self) -> float:
        """How long the fsync that runs now has taken so far; 0 when none runs."""
        started_at = self._started_at
        return max(0.0, self._clock() - started_at) if self._is_busy and started_at > -inf else 0.0

    def pause(self) -> bool:
        """Start no fsync from now on; returns whether none is running, so that the file may be closed."""
        self._is_paused = True
        return not self._is_busy

    def resume(self, synced: int, last: int, size: int) -> None:
        """Sync a reopened file: up to `synced` it is on disk, up to `last` it is written, with this size."""
        self._synced_record = self._started_record = synced
        self._written = (last, size)
        self._is_paused = False
        self._wakeups.put(None)

    def stop(self, then: Callable[[], None]) -> None:
        """Stop for good; `then` is called once no fsync is running, here or on the thread."""
        self._on_stopped.append(then)
        self._is_stopped = True
        if self.pause():
            self._call_stopped()
        self._wakeups.put(None)

    # The thread

    def _run(self) -> None:
        due = self._clock() + self._seconds
        was_idle = False
        while not self._is_stopped:
            if self._is_paused:
                self._sleep()
            elif (left := self._wait_until(due) - self._clock()) > 0:
                with suppress(Empty):
                    self._wakeups.get(timeout=left)
            elif self._written[0] > self._synced_record:
                self._sync_once()
                due = self._started_at + self._seconds
                was_idle = False
            elif was_idle:
                self._sleep()
                due = self._clock() + self._seconds
            else:
                due = self._clock() + self._seconds
                was_idle = True
        self._call_stopped()

    def _wait_until(self, due: float) -> float:
        synced = self._synced_record
        if synced < self._wanted_now <= self._written[0]:
            return 0.0
        if synced < self._wanted_batch:
            return min(due, self._started_at + self._seconds)
        return due

    def _sleep(self) -> None:
        """Wait until the loop wakes us up."""
        self._is_asleep = True
        # Checked once more: whoever wrote before that was set did not wake us.
        if (self._is_paused or self._written[0] <= self._synced_record) and not self._is_stopped:
            self._wakeups.get()
        self._is_asleep = False

    def _sync_once(self) -> None:
        # Before it is busy: `running_seconds` must not take the start of the one before for this one's.
        self._started_at = self._clock()
        self._is_busy = True
        if self._is_paused:
            self._is_busy = False
            return
        last, size = self._written
        self._started_record = last
        fault: OSError | UsageError | None = None
        try:
            self._sync()
            self._synced_record = last
        except (OSError, UsageError) as error:
            fault = error
            self._is_paused = True
        self.results.append(SyncResult(last, size, fault, self._clock() - self._started_at))
        self._is_busy = False
        if self.notify or fault is not None:
            # The loop may have been closed by now: then nobody waits for it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._on_result)

    def _call_stopped(self) -> None:
        try:
            # Taken out first: both threads may come here.
            then = self._on_stopped.pop()
        except IndexError:
            return
        then()
