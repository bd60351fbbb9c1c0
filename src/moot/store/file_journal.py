"""The journal of one space: every input with its outcome, appended, chained, on disk within milliseconds.

How it works. `append` puts a record into a list and asks the loop to call `_write` once in this tick.
`_write` numbers, chains and writes the whole list with one system call. What is written is not yet safe from
a power cut: it waits until an fsync, in a thread (`JournalSyncer`), has covered it. An fsync starts
SYNC_SECONDS after the first such write, after SYNC_RECORDS if none started so recently, or at once when
somebody waits (`when_durable`). One runs at a time, so records that arrive meanwhile share the next one.
Where nobody waits, the result of an fsync is processed when there is something else to do (`process_syncs`).

    healthy ──write or fsync fails──▶ failed ──RETRY_SECONDS──▶ recovering ──all kept is on disk──▶ healthy
       ├──more waits for fsync than KEEP_BYTES──────────────────────▶┤ └──fails again──▶ failed
       └──an fsync takes SYNC_TIMEOUT_SECONDS──▶ stalled ──it returns─┘

A retry opens the file anew and cuts it back to its last whole chunk. After a failed fsync it cuts back to
what the last good one covered and writes the rest again: the kernel may have dropped those pages and will
not say so twice, so no later fsync is taken to cover them. While an fsync hangs nothing is written either:
a disk that does not answer could hold up the loop. While not healthy, records are kept in memory up to a
bound; beyond it one record `{"in":"lost","count":N}` stands for all that found no room, so that the chain
tells of the hole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from moot.errors import UsageError
from moot.store.journal import Journal, JournalRules
from moot.store.journal_retention import DAY_SECONDS, Retention, time_of_first
from moot.store.journal_sync import JournalSyncer, SyncResult
from moot.store.record_chain import Lines, line, number_in
from moot.store.segment_writer import SegmentWriter, step_length

log = logging.getLogger(__name__)


# 64 MiB: some 100,000 records, checked within half a second at a start.
SEGMENT_BYTES: Final = 64 << 20
# D-41: at most 5 ms from write to fsync, or as soon as 64 records wait if the last one was as long ago.
SYNC_SECONDS: Final = 0.005
SYNC_RECORDS: Final = 64
# What is kept in memory while the disk does not take it: some minutes of a busy space.
KEEP_RECORDS: Final = 100_000
KEEP_BYTES: Final = 64 << 20
# One write in so many is timed: to time each would cost the loop a tenth of the write itself.
TIMED_WRITES: Final = 16
# `close` gives a disk this long of which it is known that it does not answer.
_STALLED_CLOSE_SECONDS: Final = 0.5


class FileJournal(Journal):
    is_written = True

    def __init__(
        self, settings: JournalRules, writer: SegmentWriter, sync_seconds: float | None = None
    ) -> None:
        self.next_number = writer.head.number
        self.recorded = writer.head.number - 1
        self.writable = True
        self.logged = 0 if settings.log else None
        self._writer = writer
        self._batch_records = SYNC_RECORDS
        self._space = writer.folder.resolve().parent.name
        self._loop = asyncio.get_running_loop()
        self._retention = Retention(
            self._loop, f"journal {self._space} removing", writer.folder, settings.retain_segments,
            max_age_seconds=settings.retain_days * DAY_SECONDS, clock=lambda: self.clock(),
        )  # fmt: skip
        self._ends_daily = settings.retain_days > 0
        if sync_seconds is None:
            sync_seconds = SYNC_SECONDS
        self._syncer = JournalSyncer(
            self._loop, f"journal {self._space}", writer.sync, sync_seconds, self.process_syncs
        )
        self._state: Literal["healthy", "stalled", "failed", "recovering", "closed"] = "healthy"
        # Looks for an fsync that hangs; set while something is written that is not on disk.
        self._stall_timer: asyncio.TimerHandle | None = None
        # Not written yet: the last records up to next_number.
        self.pending = []
        self._scheduled = False
        self._writes = -1  # the first is timed
        # Written, not yet known to be on disk: the last record of each write, and its lines.
        self._unsynced: deque[tuple[int, Lines]] = deque()
        self._unsynced_bytes = 0
        self._synced_size = writer.size
        self._sync_failed = False
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        # While the disk fails.
        self._retry_timer: asyncio.TimerHandle | None = None
        self._retry_due = False
        self._recover_until = 0
        self._kept_bytes = 0
        self._lost = 0

    @property
    def durable(self) -> int:
        if self._syncer.results:
            self.process_syncs()
        return self.recorded

    @property
    def sync_running_seconds(self) -> float:
        return self._syncer.running_seconds

    @property
    def is_full(self) -> bool:
        return not self.writable and (
            self._lost > 0 or self._kept_bytes >= KEEP_BYTES or len(self.pending) >= KEEP_RECORDS
        )

    def append(self, members: bytes, rest: bytes = b"", *, vital: bool = False) -> int:
        ending = b""
        if self.shared is not None:
            shared = self.shared.next_ending()
            if shared is None:
                return self.next_number - 1
            ending = shared
        if not self.writable:
            return self._keep(line(self.next_number, members, rest, ending), vital)
        number = self.next_number
        self.next_number = number + 1
        self.pending.append(line(number, members, rest, ending))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._write)
        return number

    def when_durable(self, number: int, call: Callable[[], None]) -> None:
        if number <= self.durable:
            self._loop.call_soon(call)
            return
        if self._waiting and number < self._waiting[-1][0]:
            insort(self._waiting, (number, call), key=lambda entry: entry[0])
        else:
            self._waiting.append((number, call))
        self._plan_sync()

    def prune_until(self, number: int) -> None:
        if self._state != "closed":
            # What is removed cannot be brought into the log any more.
            self._retention.prune_until(number if self.logged is None else min(number, self.logged))

    def end_old_segment(self) -> None:
        is_idle = not self.pending and self.durable == self.next_number - 1
        if not self._ends_daily or self._state != "healthy" or not is_idle:
            # It is looked at again in an hour.
            return
        writer = self._writer
        try:
            if writer.size and self.clock() - time_of_first(writer.segment.path) >= DAY_SECONDS:
                writer.begin_segment()
                self._synced_size = 0
        except OSError as fault:
            log.warning("no new segment begun", extra={"space": self._space, "why": str(fault)})

    async def close(self) -> None:
        if self._state == "closed":
            return
        done = asyncio.Event()
        self.when_durable(self.next_number - 1, done.set)
        if self._state == "failed":
            self._retry()
        else:
            self._write()
        known = {"failed": 0.0, "stalled": _STALLED_CLOSE_SECONDS}
        seconds = known.get(self._state, self.close_seconds)
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        except TimeoutError:
            last, lost = self.durable, self.next_number - 1 - self.durable
            log.error(
                "journal closed before all of it was on disk",
                extra={"space": self._space, "records": lost, "first": last + 1},
            )
        self._state = "closed"
        self.writable = False
        for timer in (self._retry_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        # Not during an fsync that hangs: the files are closed when it returns.
        self._syncer.stop(self._writer.release)
        self._retention.stop()

    # Writing

    def _write(self) -> None:
        # First, while this call still counts as scheduled: otherwise it would schedule another one.
        if self._syncer.results:
            self.process_syncs()
        self._scheduled = False
        state, writer = self._state, self._writer
        if not self.pending or state == "failed" or state == "closed" or state == "stalled":
            return
        if self._unsynced_bytes > KEEP_BYTES:
            if state == "healthy":
                self._mark_unwritable("fsync takes too long")
                self._start_recovery()
                self._plan_sync()
            return
        batch = self.pending[: step_length(self.pending)]
        try:
            if writer.size >= SEGMENT_BYTES:
                if self._unsynced:
                    # A new segment begins when this one is on disk; `_process_sync` comes back for it.
                    if state == "healthy" and sum(map(len, self.pending)) > KEEP_BYTES:
                        self._mark_unwritable("fsync takes too long")
                        self._start_recovery()
                    self._plan_sync(now=True)
                    return
                writer.begin_segment()
                self._synced_size = 0
            after = self.pending[len(batch) : len(batch) + 1]
            self._writes += 1
            began = 0.0 if self._writes % TIMED_WRITES else time.perf_counter()
            lines = writer.write(batch, number_in(bytes(after[0])) if after else self.next_number)
        except OSError as fault:
            self._fail(fault)
            return
        if began and self.on_written is not None:
            self.on_written(time.perf_counter() - began)
        del self.pending[: len(batch)]
        last = writer.head.number - 1
        self._unsynced.append((last, lines))
        self._unsynced_bytes += len(lines[0])
        self._syncer.mark_written(last, writer.size)
        if self._stall_timer is None:
            self._set_stall_timer(self.sync_timeout_seconds)
        if state == "recovering":
            self._kept_bytes = sum(map(len, self.pending))
            self._lost = self._lost if self.pending else 0
        if self.pending:
            self.schedule()
        # Mostly nobody waits, and few records do.
        if (
            self._waiting
            or self.pending
            or state == "recovering"
            or last - self.recorded >= self._batch_records
        ):
            self._plan_sync()

    def schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._write)

    # Fsync

    def _plan_sync(self, *, now: bool = False) -> None:
        """Have the fsync start sooner if need be, and be notified of its end if somebody waits."""
        if not self._unsynced or self._state in ("failed", "stalled", "closed"):
            self._syncer.notify = bool(self._waiting) or self._state == "stalled"
            return
        last = self._unsynced[-1][0]
        awaited = bool(self._waiting) and self._waiting[0][0] <= last
        self._syncer.notify = now or bool(self._waiting or self.pending) or self._state == "recovering"
        if self._syncer.notify and self._syncer.results:
            # An fsync ended just before: there will be no notification of that one.
            self.schedule()
        if now or awaited or self._state == "recovering":
            self._syncer.sync_now(last)
        elif last - self.recorded >= self._batch_records:
            self._syncer.sync_batch(last)

    def process_syncs(self) -> None:
        while self._syncer.results:
            synced = self._syncer.results.popleft()
            self._process_sync(synced)
            # Counted when whoever waits for it knows.
            if synced.fault is None and self.on_synced is not None:
                self.on_synced(synced.seconds)

    def _process_sync(self, synced: SyncResult) -> None:
        if self._state == "closed":
            return
        if synced.fault is not None:
            self._sync_failed = True
            self._fail(synced.fault)
        else:
            self._synced_size = synced.size
            self._advance(synced.last)
            if self._state == "stalled":
                log.info("fsync returned", extra={"space": self._space, "seconds": round(synced.seconds, 3)})
                self._start_recovery()
            if self._state == "recovering" and synced.last >= self._recover_until:
                self._state = "healthy"
                self.writable = True
                self._lost = self._kept_bytes = 0
                log.info("journal writes again", extra={"space": self._space})
                self._report_health()
        if self._retry_due:
            self._retry()
        elif self.pending:
            self.schedule()
        self._plan_sync()

    def _advance(self, last: int) -> None:
        while self._unsynced and self._unsynced[0][0] <= last:
            self._unsynced_bytes -= len(self._unsynced.popleft()[1][0])
        self.recorded = last
        while self._waiting and self._waiting[0][0] <= last:
            # Each in its own step of the loop: a fault in one is not the others' or ours.
            self._loop.call_soon(self._waiting.popleft()[1])

    # While the disk fails

    def _set_stall_timer(self, seconds: float) -> None:
        self._stall_timer = self._loop.call_later(seconds, self._look_for_stall)

    def _look_for_stall(self) -> None:
        """Notice an fsync that does not return. One timer while something waits for the disk, and no more."""
        self._stall_timer = None
        self.process_syncs()
        if not self._unsynced or self._state in ("failed", "stalled", "closed"):
            return
        limit, running = self.sync_timeout_seconds, self._syncer.running_seconds
        if running < limit:
            self._set_stall_timer(limit - running)
            return
        self._state = "stalled"
        if self.writable:
            self._mark_unwritable(f"an fsync has not returned for {running:.1f} seconds")
        self._syncer.notify = True
        if self._syncer.results:
            # It has ended this very moment, before it could know that somebody wants to be told.
            self.schedule()

    def _fail(self, fault: OSError | UsageError) -> None:
        self._state = "failed"
        if self.writable:
            self._mark_unwritable(str(fault))
        else:
            log.debug("journal still cannot be written", extra={"space": self._space, "why": str(fault)})
        if self._retry_timer is None:
            self._retry_timer = self._loop.call_later(self.retry_seconds, self._retry)

    def _mark_unwritable(self, why: str) -> None:
        self.writable = False
        self._kept_bytes = sum(map(len, self.pending))
        log.error("journal cannot be written", extra={"space": self._space, "why": why})
        self._report_health()

    def _report_health(self) -> None:
        if self.on_health is not None:
            self._loop.call_soon(self.on_health, self.writable)

    def _keep(self, entry: bytes, vital: bool) -> int:
        if self._state == "closed":
            raise UsageError("the journal is closed")
        # The same room again for what must not be lost.
        room = 2 if vital else 1
        fits = self._kept_bytes + len(entry) <= KEEP_BYTES * room
        if fits and len(self.pending) < KEEP_RECORDS * room:
            self._lost = 0
            self._kept_bytes += len(entry)
            self.pending.append(entry)
            self.next_number += 1
            return self.next_number - 1
        if not self._lost:
            self.pending.append(b"")
            self.next_number += 1
        self._lost += 1
        lost = b'"t":%.6f,"in":"lost","count":%d' % (self.clock(), self._lost)
        self.pending[-1] = line(self.next_number - 1, lost)
        return self.next_number - 1

    def _retry(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        if self._state != "failed":
            return
        # The file must not be closed under an fsync; `_process_sync` comes back here.
        self._syncer.notify = True
        self._retry_due = not self._syncer.pause()
        if self._retry_due:
            return
        self.process_syncs()
        self._start_recovery()
        try:
            if self._sync_failed:
                self._writer.reopen(self._synced_size, [lines for _, lines in self._unsynced])
                self._sync_failed = False
            else:
                self._writer.reopen(self._writer.size)
        except OSError as fault:
            self._fail(fault)
            return
        written = self._unsynced[-1][0] if self._unsynced else self.recorded
        self._syncer.resume(self.recorded, written, self._writer.size)
        if self._unsynced and self._stall_timer is None:
            self._set_stall_timer(self.sync_timeout_seconds)
        self._write()
        self._plan_sync()

    def _start_recovery(self) -> None:
        self._state = "recovering"
        self._recover_until = self.next_number - 1
