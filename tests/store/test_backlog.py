"""Records that have to wait: for an fsync before a new segment, and for their turn when there are many."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from moot.store import file_journal
from moot.store.journal import Journal
from moot.store.journal_reader import verify
from moot.store.segment_writer import STEP_BYTES, STEP_TEXTS, SegmentWriter, step_length
from tests.store.journals import (
    TriedJournal,
    folder_in,
    health_changes,
    opened_journal,
    value_record,
    values_in,
    wait_durable,
)
from tests.waiting import HANG_SECONDS, until


def inner(journal: Journal) -> Any:
    return journal


async def test_an_fsync_that_ends_before_one_asks_to_hear_of_it_is_not_waited_for_in_vain(
    tmp_path: Path,
) -> None:
    async with opened_journal(folder_in(tmp_path), TriedJournal(segment_bytes=200)) as journal:
        plan = inner(journal)._plan_sync
        late = 0

        def plan_late(*, now: bool = False) -> None:
            nonlocal late
            end = time.monotonic() + HANG_SECONDS
            # As if this thread had been held up: the other is through before it is asked to tell.
            while now and not inner(journal)._syncer.results and time.monotonic() < end:
                time.sleep(0.001)
                late += 1
            plan(now=now)

        inner(journal)._plan_sync = plan_late
        for number in range(12):
            journal.append(value_record(number))
            await asyncio.sleep(0)
        await until(lambda: not (journal.pending))
        assert late
    assert values_in(folder_in(tmp_path)) == list(range(12))


async def test_a_disk_that_hangs_before_a_new_segment_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_journal, "KEEP_BYTES", 2_000)
    hanging, sync = threading.Event(), SegmentWriter.sync

    def slowly(writer: SegmentWriter) -> None:
        hanging.wait(HANG_SECONDS)
        sync(writer)

    monkeypatch.setattr(SegmentWriter, "sync", slowly)
    async with opened_journal(folder_in(tmp_path), TriedJournal(segment_bytes=200)) as journal:
        answer = health_changes(journal)
        for number in range(300):
            journal.append(value_record(number))
            await asyncio.sleep(0)
        assert not await answer.get()
        hanging.set()
        assert await answer.get()
        await wait_durable(journal, journal.next_number - 1)
    folder = folder_in(tmp_path)
    verify(folder)
    assert [each for each in values_in(folder) if each is not None][:8] == list(range(8))


def test_a_step_is_bounded_by_count_and_by_bytes() -> None:
    assert step_length([b"x"] * 10) == 10
    assert step_length([b"x"] * 5_000) == STEP_TEXTS
    assert step_length([b"x" * (STEP_BYTES // 100)] * 150) == 100
    assert step_length([b"x" * (STEP_BYTES + 1)] * 65) == 1
