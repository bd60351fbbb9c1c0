"""The thread behind a journal: all that is written is synced in time; the loop is woken only if it asks."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from moot.store.journal_sync import JournalSyncer, SyncResult
from tests.waiting import HANG_SECONDS, bounded, until

SECONDS = 0.005


@dataclass
class Disk:
    """What is asked of it, and what it does about that."""

    begun: list[float] = field(default_factory=list)
    act: Callable[[], object] = lambda: None
    woken: int = 0
    taken: list[SyncResult] = field(default_factory=list)

    def sync(self) -> None:
        self.begun.append(monotonic())
        self.act()

    def on_result(self) -> None:
        self.woken += 1

    def syncer(self, seconds: float = SECONDS) -> JournalSyncer:
        return JournalSyncer(asyncio.get_running_loop(), "disk", self.sync, seconds, self.on_result)

    async def covers(self, syncer: JournalSyncer, last: int) -> SyncResult:
        """Wait for the fsync that covers this record, without anything that would hasten it."""
        async with bounded():
            while not self.taken or self.taken[-1].last < last:
                if syncer.results:
                    synced = syncer.results.popleft()
                    self.taken.append(synced)
                else:
                    await asyncio.sleep(0.0005)
        return self.taken[-1]

    async def tells(self, times: int = 1) -> None:
        """Wait until the loop was woken so often: the thread says so after the outcome is there to take."""
        await until(lambda: self.woken >= times)


async def test_what_is_written_is_synced_though_nobody_asks_and_the_loop_is_left_alone() -> None:
    disk = Disk()
    syncer = disk.syncer()
    syncer.mark_written(1, 10)
    assert (await disk.covers(syncer, 1))[:3] == (1, 10, None)
    # Long enough for the thread to fall asleep.
    await asyncio.sleep(SECONDS * 6)
    syncer.mark_written(3, 30)
    assert (await disk.covers(syncer, 3))[:3] == (3, 30, None)
    syncer.stop(lambda: None)
    assert len(disk.begun) == 2
    assert disk.woken == 0


async def test_whoever_wants_to_hear_is_told_and_sync_now_waits_for_nothing() -> None:
    disk = Disk()
    syncer = disk.syncer(seconds=3_600)
    syncer.notify = True
    syncer.mark_written(1, 10)
    await asyncio.sleep(SECONDS * 2)
    assert disk.begun == []
    syncer.sync_now(1)
    await disk.covers(syncer, 1)
    await disk.tells()
    # Many at a time do not wait for an hour either, but for half of it.
    syncer.mark_written(100, 1_000)
    syncer.sync_batch(100)
    await asyncio.sleep(SECONDS * 2)
    assert len(disk.begun) == 1
    syncer.stop(lambda: None)


async def test_many_at_a_time_do_not_wait_where_none_was_synced_yet() -> None:
    """Also on a machine that has been up for less than `seconds`: its clock began at 0, an fsync did not."""
    disk = Disk()
    syncer = JournalSyncer(
        asyncio.get_running_loop(), "disk", disk.sync, 3_600, disk.on_result, clock=lambda: 1_000.0
    )
    syncer.mark_written(64, 640)
    syncer.sync_batch(64)
    assert (await disk.covers(syncer, 64))[:3] == (64, 640, None)
    syncer.stop(lambda: None)
    assert len(disk.begun) == 1


async def test_no_record_is_forgotten_in_a_thousand_races() -> None:
    """Writes, hurries and pauses at odd moments: each record is covered within moments of its writing."""
    dice = random.Random(4)
    disk = Disk()
    disk.act = lambda: threading.Event().wait(dice.choice((0, 0, 0.0001, 0.001)))
    syncer = disk.syncer(seconds=0.001)
    last = 0
    for _ in range(1_000):
        last += 1
        syncer.mark_written(last, last * 10)
        match dice.randrange(6):
            case 0:
                syncer.sync_now(last)
            case 1:
                syncer.sync_batch(last)
            case 2:
                assert (await disk.covers(syncer, last)).size == last * 10
            case 3:
                await asyncio.sleep(dice.choice((0, 0.0005, 0.001, 0.002, 0.003)))
            case _:
                pass
    assert (await disk.covers(syncer, last)).last == last
    syncer.stop(lambda: None)
    lasts = [synced.last for synced in disk.taken]
    assert lasts == sorted(set(lasts))


async def test_who_holds_it_has_the_file_for_themselves() -> None:
    disk = Disk()
    is_held = False

    def watch() -> None:
        assert not is_held

    disk.act = watch
    syncer = disk.syncer(seconds=0.0005)
    last = 0
    for _ in range(300):
        last += 1
        syncer.mark_written(last, last)
        await asyncio.sleep(0.0003)
        if syncer.pause():
            is_held = True
            await asyncio.sleep(0.0003)
            while syncer.results:
                synced = syncer.results.popleft()
                disk.taken.append(synced)
            covered = disk.taken[-1].last if disk.taken else 0
            is_held = False
            syncer.resume(covered, last, last)
        else:
            await disk.covers(syncer, disk.taken[-1].last + 1 if disk.taken else 1)
            syncer.resume(disk.taken[-1].last, last, last)
    await disk.covers(syncer, last)
    syncer.stop(lambda: None)


async def test_after_a_fault_nothing_is_synced_until_the_file_is_another() -> None:
    disk = Disk()

    def fail() -> None:
        raise OSError(5, "Input/output error")

    disk.act = fail
    syncer = disk.syncer()
    syncer.mark_written(1, 10)
    assert isinstance((await disk.covers(syncer, 1)).fault, OSError)
    await disk.tells()
    syncer.mark_written(2, 20)
    await asyncio.sleep(SECONDS * 4)
    assert len(disk.begun) == 1
    disk.act = lambda: None
    assert syncer.pause()
    syncer.resume(0, 2, 20)
    assert (await disk.covers(syncer, 2))[:3] == (2, 20, None)
    syncer.stop(lambda: None)
    assert disk.woken == 1


async def test_the_end_waits_for_the_fsync_that_is_under_way() -> None:
    disk = Disk()
    goes_on, ended = threading.Event(), threading.Event()
    disk.act = lambda: goes_on.wait(HANG_SECONDS)
    syncer = disk.syncer()
    syncer.mark_written(1, 10)
    await until(lambda: disk.begun)
    syncer.stop(ended.set)
    assert not ended.is_set()
    goes_on.set()
    assert await asyncio.to_thread(ended.wait, HANG_SECONDS)


async def test_the_end_comes_at_once_where_nothing_was_ever_written() -> None:
    disk = Disk()
    ended: list[int] = []
    disk.syncer().stop(lambda: ended.append(1))
    assert ended == [1]
