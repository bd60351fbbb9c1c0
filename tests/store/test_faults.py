"""Disks that fill up, fail, forget or lag, and processes that are killed: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from moot.store import segment_writer
from moot.store.file_journal import KEEP_BYTES
from moot.store.journal_reader import verify
from tests.store.crash_soak import ROOT, run_journal_crashes
from tests.store.journals import (
    TriedJournal,
    descriptor_of,
    folder_in,
    health_changes,
    opened_journal,
    segments,
    value_record,
    values_in,
    wait_durable,
)
from tests.waiting import HANG_SECONDS

SOON = TriedJournal(retry_seconds=0.001)


def test_nothing_acknowledged_is_lost_or_doubled_when_the_process_is_killed() -> None:
    """D-41; `make soak` does this a hundred times."""
    assert run_journal_crashes(4, seed=7).startswith("4 crashes")


@pytest.mark.parametrize(
    "scenario", ["recovers", "cannot_begin_a_segment", "runs_out_of_memory_too", "closes_without_room"]
)
def test_a_full_disk(tmp_path: Path, scenario: str) -> None:
    """D-85: able no more, records are kept, and all is well again when there is room; see full_disk.py."""
    folder = folder_in(tmp_path)
    command = [sys.executable, "-m", "tests.store.full_disk", scenario, str(folder)]
    done = subprocess.run(  # noqa: S603
        command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert verify(folder).ok


def replace_file(path: Path, other: int) -> None:
    """Let the journal's descriptor mean something else from now on."""
    os.dup2(other, descriptor_of(path), inheritable=False)
    os.close(other)


async def test_a_file_that_can_only_be_read_is_opened_anew(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    async with opened_journal(folder, SOON) as journal:
        answer = health_changes(journal)
        await wait_durable(journal, journal.append(value_record(1)))
        path = segments(folder)[0]
        replace_file(path, os.open(path, os.O_RDONLY))
        journal.append(value_record(2))
        assert await answer.get() is False
        journal.append(value_record(3))
        assert await answer.get() is True
        await wait_durable(journal, journal.append(value_record(4)))
    assert values_in(folder) == [1, 2, 3, 4]
    assert verify(folder).ok


async def test_a_descriptor_whose_closing_fails_is_not_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network's disk: it is gone all the same, and its number may be somebody's socket by now."""
    folder = folder_in(tmp_path)
    async with opened_journal(folder, SOON) as journal:
        answer = health_changes(journal)
        await wait_durable(journal, journal.append(value_record(1)))
        path = segments(folder)[0]
        file = descriptor_of(path)
        replace_file(path, os.open(path, os.O_RDONLY))
        close = os.close
        failed: list[int] = []

        def fail_to_close(descriptor: int) -> None:
            close(descriptor)
            if descriptor == file and not failed:
                # Whoever opens something next gets this number.
                failed.append(os.open(os.devnull, os.O_RDONLY))
                raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "close", fail_to_close)
        journal.append(value_record(2))
        assert await answer.get() is False
        assert await answer.get() is True
        assert failed == [file]
        os.fstat(file)  # still open
        close(file)
    assert values_in(folder) == [1, 2]
    assert verify(folder).ok


async def test_a_segment_that_cannot_be_begun_is_tried_again(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    async with opened_journal(folder, TriedJournal(retry_seconds=0.001, segment_bytes=50)) as journal:
        answer = health_changes(journal)
        await wait_durable(journal, journal.append(value_record(1)))
        (folder / "000000000002.jsonl").mkdir()
        journal.append(value_record(2))
        assert await answer.get() is False
        (folder / "000000000002.jsonl").rmdir()
        assert await answer.get() is True
    assert values_in(folder) == [1, 2]
    assert verify(folder).ok


async def test_what_a_failed_fsync_did_not_cover_is_written_again(tmp_path: Path) -> None:
    """A pipe takes the bytes, refuses the fsync and forgets them, as a kernel may after an I/O error."""
    folder = folder_in(tmp_path)
    async with opened_journal(folder, SOON) as journal:
        answer = health_changes(journal)
        await wait_durable(journal, journal.append(value_record(1)))
        reading, writing = os.pipe()
        replace_file(segments(folder)[0], writing)
        number = journal.append(value_record(2))
        await asyncio.sleep(0)
        journal.append(value_record(3))
        await asyncio.sleep(0)
        assert journal.durable == 1
        assert await answer.get() is False
        assert await answer.get() is True
        assert journal.durable >= number
        os.close(reading)
    assert values_in(folder) == [1, 2, 3]
    assert verify(folder).ok


async def test_a_file_that_lost_what_was_on_disk_is_not_written_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_in(tmp_path)
    async with opened_journal(folder, SOON) as journal:
        answer = health_changes(journal)
        await wait_durable(journal, journal.append(value_record(1)))
        path = segments(folder)[0]
        replace_file(path, os.open(path, os.O_RDONLY))
        os.truncate(path, 10)
        journal.append(value_record(2))
        assert await answer.get() is False
    assert not journal.writable
    assert journal.durable == 1
    assert segments(folder)[0].stat().st_size == 10
    assert "closed before all of it was on disk" in caplog.text


async def test_a_disk_that_falls_too_far_behind_makes_the_journal_unable_until_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)
    may_end = threading.Event()
    flush = segment_writer._flush

    def slow_flush(file: int) -> None:
        assert may_end.wait(HANG_SECONDS)
        flush(file)

    monkeypatch.setattr(segment_writer, "_flush", slow_flush)
    large = value_record("é" * (1 << 19))
    async with opened_journal(folder, TriedJournal(segment_bytes=1 << 30)) as journal:
        answer = health_changes(journal)
        for _ in range(KEEP_BYTES // len(large) + 1):
            journal.append(large)
        # The next tick writes all of it; its fsync takes longer than the tick after that.
        await asyncio.sleep(0)
        journal.append(value_record("behind"))
        assert await answer.get() is False
        journal.append(value_record("kept"))
        may_end.set()
        assert await answer.get() is True
        await wait_durable(journal, journal.append(value_record("last")))
    assert values_in(folder)[-3:] == ["behind", "kept", "last"]
    assert verify(folder).ok


async def test_what_a_process_wrote_that_was_killed_is_on_disk_before_it_counts_as_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a killed process the file has everything, the disk perhaps not: it ends with the machine's power."""
    folder = folder_in(tmp_path)
    async with opened_journal(folder) as journal:
        await wait_durable(journal, journal.append(value_record(1)))
    flushed: list[int] = []
    flush = segment_writer._flush

    def noted_flush(file: int) -> None:
        flush(file)
        flushed.append(os.fstat(file).st_ino)

    monkeypatch.setattr(segment_writer, "_flush", noted_flush)
    async with opened_journal(folder) as journal:
        assert journal.durable == 1
        assert flushed == [segments(folder)[0].stat().st_ino]
