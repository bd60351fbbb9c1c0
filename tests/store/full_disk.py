"""`python -m tests.store.full_disk SCENARIO FOLDER`: a process whose files may not grow for a while.

The limit on the size of files (RLIMIT_FSIZE) acts as a full disk does: a write takes a part, the next fails.
Python ignores SIGXFSZ, so the write says so instead of ending the process.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from pathlib import Path

from moot.store.file_journal import KEEP_RECORDS
from moot.store.journal_reader import read_records
from moot.store.open_journal import open_journal
from tests.store.journals import (
    TriedJournal,
    health_changes,
    opened_journal,
    segments,
    value_record,
    values_in,
    wait_durable,
)
from tests.waiting import HANG_SECONDS

SETTINGS = TriedJournal(retry_seconds=0.001, segment_bytes=2_000_000)


def allow(size: int) -> None:
    """How large a file may get; -1 lifts the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if size >= 0 else hard, hard))


class Retries(logging.Handler):
    """Hears of every retry that failed."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.failed = asyncio.Event()
        log = logging.getLogger("moot.store.file_journal")
        log.setLevel(logging.DEBUG)
        log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.DEBUG:
            self.failed.set()


async def recovers(folder: Path) -> None:
    """Full in the middle of a record; what was kept is written in order when there is room again."""
    async with opened_journal(folder, SETTINGS) as journal:
        answer, retries = health_changes(journal), Retries()
        await wait_durable(journal, journal.append(value_record(0)))
        allow(segments(folder)[0].stat().st_size + 534)
        for i in range(1, 51):
            journal.append(value_record(i))
        assert await answer.get() is False
        assert not journal.writable
        assert journal.durable == 0 + 1
        assert segments(folder)[0].stat().st_size == resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        order: list[int] = []
        for i in range(51, 61):
            journal.when_durable(journal.append(value_record(i)), lambda i=i: order.append(i))  # type: ignore[misc]
        retries.failed.clear()
        await retries.failed.wait()
        assert not journal.writable
        allow(-1)
        assert await answer.get() is True
        assert journal.writable
        assert order == list(range(51, 61))
        await wait_durable(journal, journal.append(value_record(61)))
        assert answer.empty()
    assert values_in(folder) == list(range(62))


async def cannot_begin_a_segment(folder: Path) -> None:
    """No room for the first record of a new segment."""
    async with opened_journal(folder, TriedJournal(retry_seconds=0.001, segment_bytes=50)) as journal:
        answer, retries = health_changes(journal), Retries()
        await wait_durable(journal, journal.append(value_record(0)))
        allow(0)
        journal.append(value_record(1))
        assert await answer.get() is False
        await retries.failed.wait()
        journal.append(value_record(2))
        allow(-1)
        assert await answer.get() is True
        await wait_durable(journal, journal.next_number - 1)
    assert values_in(folder) == [0, 1, 2]


async def runs_out_of_memory_too(folder: Path) -> None:
    """Beyond the bound one record stands for those that found no room; vital ones find some."""
    async with opened_journal(folder, SETTINGS) as journal:
        answer = health_changes(journal)
        allow(0)
        journal.append(value_record(0))
        assert await answer.get() is False
        for i in range(1, KEEP_RECORDS):
            assert journal.append(value_record(i)) == i + 1
        lost = {journal.append(value_record("no room")) for _ in range(7)}
        assert lost == {KEEP_RECORDS + 1}
        assert journal.append(value_record("vital"), vital=True) == KEEP_RECORDS + 2
        assert journal.append(value_record("no room")) == KEEP_RECORDS + 3
        allow(-1)
        assert await answer.get() is True
        # Able means that all of it is safe, not that something was written.
        assert journal.durable == KEEP_RECORDS + 3
        await wait_durable(journal, journal.append(value_record("again")))
    found = values_in(folder)
    assert found[:KEEP_RECORDS] == list(range(KEEP_RECORDS))
    assert found[KEEP_RECORDS:] == ["lost", "vital", "lost", "again"]
    counts = [
        record.fields["count"] for record in read_records(folder, KEEP_RECORDS) if "count" in record.fields
    ]
    assert counts == [7, 1]


async def closes_without_room(folder: Path) -> None:
    """Closing tries once more, and then ends."""
    journal = open_journal(folder, SETTINGS.settings)
    answer = health_changes(journal)
    allow(0)
    journal.append(value_record(0))
    assert await answer.get() is False
    await journal.close()
    assert journal.durable == 0
    allow(-1)
    journal = open_journal(folder, SETTINGS.settings)
    answer = health_changes(journal)
    allow(0)
    journal.append(value_record(1))
    assert await answer.get() is False
    allow(-1)
    await journal.close()
    assert journal.durable == 1
    assert values_in(folder) == [1]


if __name__ == "__main__":
    scenarios = (recovers, cannot_begin_a_segment, runs_out_of_memory_too, closes_without_room)
    (chosen,) = [scenario for scenario in scenarios if scenario.__name__ == sys.argv[1]]
    asyncio.run(asyncio.wait_for(chosen(Path(sys.argv[2])), HANG_SECONDS))
