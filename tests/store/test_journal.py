"""Writing a journal: numbers, order, durability, segments, retention, going on after an end."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.store.journal_erasure import Hold, place_hold, release_hold
from moot.store.journal_reader import read_records, verify
from moot.store.journal_segments import remove_segments
from moot.store.open_journal import open_journal
from tests.store.journals import (
    OPENED,
    SMALL,
    TriedJournal,
    envelope_record,
    folder_in,
    members,
    opened_journal,
    segments,
    value_record,
    values_in,
    wait_durable,
    write,
)
from tests.waiting import until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="journals live on POSIX")


async def test_records_are_numbered_from_one_and_chained_from_the_name_of_the_space(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    await write(folder, [value_record("a"), value_record("b")])
    first, second = segments(folder)[0].read_bytes().splitlines()
    salts = [re.search(rb',"s":"([\w-]{22})"', each)[0] for each in (first, second)]  # type: ignore[index]
    assert salts[0] != salts[1]
    one = hashlib.sha256(b'lab{"n":1,"x":"a"%b}' % salts[0]).hexdigest()
    two = hashlib.sha256(one.encode() + b'{"n":2,"x":"b"%b}' % salts[1]).hexdigest()
    assert first == b'{"n":1,"x":"a"%b,"h":"%b"}' % (salts[0], one.encode())
    assert second == b'{"n":2,"x":"b"%b,"h":"%b"}' % (salts[1], two.encode())


async def test_a_journal_goes_on_where_it_ended(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    await write(folder, [value_record(1), value_record(2)])
    await write(folder, [value_record(3)])
    assert values_in(folder) == [1, 2, 3]
    assert verify(folder).count == 3
    assert len(segments(folder)) == 1


async def test_files_and_folders_are_for_the_owner_only(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    await write(folder, [value_record(1)])
    assert stat.S_IMODE(segments(folder)[0].stat().st_mode) == 0o600
    for path in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


async def test_records_of_one_tick_are_written_together_and_called_back_in_order(tmp_path: Path) -> None:
    async with opened_journal(folder_in(tmp_path)) as journal:
        answer: list[int] = []
        done = asyncio.Event()
        numbers = [journal.append(value_record(i)) for i in range(5)]
        assert journal.next_number == 6
        assert journal.durable == 0
        for number in reversed(numbers):
            journal.when_durable(number, lambda number=number: answer.append(number))  # type: ignore[misc]
        journal.when_durable(numbers[-1], done.set)
        await done.wait()
        assert answer == [1, 2, 3, 4, 5]
        assert journal.durable == journal.recorded == 5
        again = asyncio.Event()
        journal.when_durable(3, again.set)
        assert not again.is_set()
        await again.wait()


async def test_records_become_durable_though_nobody_waits_for_them(tmp_path: Path) -> None:
    """D-41: within `sync_seconds` or `sync_records`; both ways."""

    async def become_durable(settings: TriedJournal, count: int) -> None:
        folder = folder_in(tmp_path, f"lab-{count}")
        async with opened_journal(folder, settings) as journal:
            for i in range(count):
                journal.append(value_record(i))
            await until(lambda: journal.durable >= count)

    await become_durable(TriedJournal(sync_seconds=0.001), 1)
    await become_durable(TriedJournal(sync_seconds=3600, sync_records=3), 3)


async def test_a_fault_in_one_callback_does_not_keep_the_others(tmp_path: Path) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: faults.append(facts["exception"]))

    def stumble() -> None:
        raise ZeroDivisionError

    async with opened_journal(folder_in(tmp_path)) as journal:
        number = journal.append(value_record(1))
        journal.when_durable(number, stumble)
        await wait_durable(journal, number)
    assert [type(fault) for fault in faults] == [ZeroDivisionError]


async def test_line_ends_between_the_members_of_an_envelope_do_not_break_a_line(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    await write(folder, [b'"raw":{\n "id":\r\n"e\\n1"}', value_record(2)])
    first, second = read_records(folder)
    assert first.fields["raw"] == {"id": "e\n1"}
    assert first.envelope == b'{  "id":\r "e\\n1"}'
    assert second.envelope is None
    assert verify(folder).ok


async def test_a_full_segment_is_followed_by_one_that_is_named_by_its_first_record(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    await write(folder, [value_record(i) for i in range(1, 21)], SMALL)
    paths = segments(folder)
    assert len(paths) > 3
    for path in paths:
        first = path.read_bytes().partition(b",")[0]
        assert first == b'{"n":%d' % int(path.stem)
    assert values_in(folder) == list(range(1, 21))
    assert verify(folder).count == 20


async def test_a_segment_begins_only_when_the_one_before_is_on_disk(tmp_path: Path) -> None:
    """Or an fsync of the new file would vouch for the end of the old one."""
    folder = folder_in(tmp_path)
    settings = TriedJournal(segment_bytes=50, sync_seconds=3600, sync_records=1000)
    async with opened_journal(folder, settings) as journal:
        journal.append(value_record(1))
        await asyncio.sleep(0)
        assert journal.durable == 0
        journal.append(value_record(2))
        while len(segments(folder)) < 2:
            await asyncio.sleep(0)
        assert journal.durable == 1


async def test_a_backlog_is_written_step_by_step_in_order(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    async with opened_journal(folder, TriedJournal(segment_bytes=50_000)) as journal:
        for i in range(6_000):
            journal.append(value_record(i))
    assert values_in(folder) == list(range(6_000))
    assert verify(folder).ok


async def left(folder: Path, firsts: list[int]) -> None:
    """Wait until these segments are left; removing goes on behind writing."""
    await until(lambda: [int(path.stem) for path in segments(folder)] == firsts)


async def test_old_segments_go_only_when_a_snapshot_covers_them(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    settings = TriedJournal(segment_bytes=50, retain_segments=2)
    async with opened_journal(folder, settings) as journal:
        for i in range(1, 11):
            await wait_durable(journal, journal.append(value_record(i)))
        assert len(segments(folder)) == 10
        journal.prune_until(0)
        journal.prune_until(4)
        await wait_durable(journal, journal.append(value_record(11)))
        await left(folder, [5, 6, 7, 8, 9, 10, 11])
        journal.prune_until(11)
        await wait_durable(journal, journal.append(value_record(12)))
        # The two newest of those that there were stay, and the new one.
        await left(folder, [10, 11, 12])
    verdict = verify(folder)
    assert (verdict.ok, verdict.first, verdict.last) == (True, 10, 12)
    await write(folder, [value_record(13)], settings)
    assert values_in(folder) == [10, 11, 12, 13]
    assert verify(folder).ok


async def test_what_is_too_old_goes_by_whole_days_unless_it_is_held_or_not_covered(
    tmp_path: Path,
) -> None:
    folder = folder_in(tmp_path)
    now = 1_000_000_000.0
    async with opened_journal(folder, TriedJournal(retain_days=30)) as journal:
        journal.clock = lambda: now
        for day in range(3):
            now = 1_000_000_000.0 + day * 86_400
            # Twice: a file has a day.
            for hour in (0, 6):
                now += hour * 3_600
                journal.end_old_segment()
                await wait_durable(journal, journal.append(members({"x": day, "t": now})))
        assert [int(path.stem) for path in segments(folder)] == [1, 3, 5]
        now = 1_000_000_000.0 + 31 * 86_400
        place_hold(folder, Hold("a lawsuit", now))
        journal.prune_until(6)
        await wait_durable(journal, journal.append(members({"x": 3, "t": now})))
        await left(folder, [1, 3, 5])
        release_hold(folder)
        journal.prune_until(1)
        await left(folder, [1, 3, 5])
        journal.prune_until(6)
        # The first day is 31 days and 18 hours old, the second day's last record 29 days and 18 hours.
        await left(folder, [3, 5])
        # A space in which nobody says anything any more: the file of today is closed without a new record.
        now += 40 * 86_400
        journal.end_old_segment()
        journal.prune_until(7)
        await left(folder, [8])
        journal.end_old_segment()
        await wait_durable(journal, journal.append(members({"x": 4, "t": now})))
    verdict = verify(folder)
    assert (verdict.ok, verdict.first, verdict.last) == (True, 8, 8)
    assert values_in(folder) == [4]


async def test_without_retention_nothing_goes(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    async with opened_journal(folder, SMALL) as journal:
        for i in range(20):
            await wait_durable(journal, journal.append(value_record(i)))
        journal.prune_until(20)
    assert len(values_in(folder)) == 20


async def test_a_removal_that_a_crash_cut_short_is_finished_by_the_next_start(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    await write(folder, [value_record(i) for i in range(1, 7)], TriedJournal(segment_bytes=50))
    kept = {path: path.read_bytes() for path in segments(folder)}
    remove_segments(folder, 4)
    for path, text in kept.items():
        path.write_bytes(text)
    assert values_in(folder) == [5, 6]
    assert verify(folder).ok
    await write(folder, [value_record(7)])
    assert [int(path.stem) for path in segments(folder)] == [5, 6]
    assert verify(folder).ok


async def test_a_removal_that_fails_is_a_warning_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_in(tmp_path)
    async with opened_journal(folder, TriedJournal(segment_bytes=50, retain_segments=1)) as journal:
        for i in range(3):
            await wait_durable(journal, journal.append(value_record(i)))
        (folder / "removed.json.new").mkdir()
        journal.prune_until(3)
        await wait_durable(journal, journal.append(value_record(3)))
        await until(lambda: "could not be removed" in caplog.text)
    assert values_in(folder) == [0, 1, 2, 3]


async def test_off_keeps_numbers_and_writes_nothing(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    off = TriedJournal(mode="off")

    async def count(expected: int) -> None:
        async with opened_journal(folder, off) as journal:
            number = journal.append(value_record(1))
            assert number == journal.durable == expected
            assert journal.recorded == expected - 1
            await wait_durable(journal, number)
            journal.prune_until(number)
            assert journal.writable

    await count(1)
    assert not folder.exists()
    await write(folder, [value_record(1), value_record(2)])
    await count(3)
    assert values_in(folder) == [1, 2]


async def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    async with opened_journal(folder):
        with pytest.raises(UsageError, match="another process writes"):
            open_journal(folder, OPENED)
    async with opened_journal(folder) as journal:
        journal.append(envelope_record("e1"))


async def test_a_closed_journal_takes_no_more(tmp_path: Path) -> None:
    async with opened_journal(folder_in(tmp_path), SMALL) as journal:
        pass
    await journal.close()
    journal.prune_until(1)
    with pytest.raises(UsageError, match="closed"):
        journal.append(value_record(1))


async def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "spaces").write_text("a file where a folder should be")
    with pytest.raises(UsageError, match="--data"):
        open_journal(folder_in(tmp_path), OPENED)
