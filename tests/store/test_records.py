"""Reading a journal, whether its chain holds, and what a crash leaves at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from moot.errors import UsageError
from moot.store.journal_reader import (
    RecordPosition,
    follow_records,
    last_records,
    read_records,
    record_at,
    verify,
)
from moot.store.open_journal import open_journal
from moot.store.record_chain import ChainHead, line, seal
from tests.store.journals import (
    OPENED,
    SMALL,
    TriedJournal,
    edit_lines,
    envelope_record,
    folder_in,
    members,
    opened_journal,
    segments,
    value_record,
    values_in,
    wait_durable,
    write,
    write_now,
)


async def journal_of(tmp_path: Path, count: int = 12, *, segment_bytes: int = 1 << 20) -> Path:
    folder = folder_in(tmp_path)
    await write(
        folder, [value_record(i) for i in range(1, count + 1)], TriedJournal(segment_bytes=segment_bytes)
    )
    return folder


def forged(lines: list[bytes]) -> list[bytes]:
    """Line 3 with another content and a hash that fits it."""
    text, _ = seal([line(3, value_record("forged"))], ChainHead(3, lines[1][-67:-3]), 4)
    return [*lines[:2], b"".join(text), *lines[3:]]


@pytest.mark.parametrize(
    ("change", "what", "line", "words"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], "removed", 3, "record 3 is missing"),
        (lambda lines: [*lines[:2], *lines[5:]], "removed", 3, "record 3 to 5 is missing"),
        (lambda lines: lines[1:], "removed", 1, "record 1 is missing"),
        (lambda lines: [*lines[:2], lines[2].replace(b'x":3', b'x":4'), *lines[3:]], "changed", 3, ""),
        (lambda lines: [*lines[:2], lines[2][:-9] + b'000000"}\n', *lines[3:]], "changed", 3, ""),
        (forged, "changed", 4, "or the one before it"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "reordered", 2, "record 3 stands where"),
        (lambda lines: [*lines[:4], lines[1], *lines[4:]], "reordered", 5, "record 2 stands where"),
        (lambda lines: [*lines, lines[3]], "reordered", 13, "record 4 stands here again"),
        (lambda lines: [*lines[:2], lines[2][:20] + b"\n", *lines[3:]], "truncated", 3, "cut short"),
        (lambda lines: [*lines[:2], lines[2][:20] + lines[3], *lines[4:]], "changed", 3, "record 3 or"),
        (lambda lines: [*lines[:2], b"\n", *lines[2:]], "truncated", 3, "cut short"),
    ],
)  # fmt: skip
async def test_tampering_shows_with_its_place(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], what: str, line: int, words: str
) -> None:
    """D-85."""
    folder = await journal_of(tmp_path)
    assert verify(folder).ok
    edit_lines(segments(folder)[0], change)
    verdict = verify(folder)
    assert verdict.problem is not None
    assert verdict.problem[:3] == (what, "000000000001.jsonl", line)
    assert words in verdict.problem.text
    assert verdict.count == line - 1


async def batch_of(tmp_path: Path, count: int = 6) -> Path:
    """One sealed line, then a batch."""
    folder = folder_in(tmp_path)
    await write(folder, [value_record(1)])
    async with opened_journal(folder) as journal:
        numbers = [journal.append(value_record(i)) for i in range(2, count + 1)]
        await wait_durable(journal, numbers[-1])
    return folder


async def test_what_one_tick_brought_shares_a_seal(tmp_path: Path) -> None:
    folder = await batch_of(tmp_path)
    lines = segments(folder)[0].read_bytes().splitlines()
    assert [line.count(b'"h":"') for line in lines] == [1, 0, 0, 0, 0, 1]
    # As the page on the journal says it, in a few lines of any language.
    seal_before = orjson.loads(lines[0])["h"].encode()
    text = b"\n".join(lines[1:])
    body, _, stated = text.rpartition(b',"h":"')
    assert sha256(seal_before + body + b"}").hexdigest() == stated.decode()[:64]
    assert verify(folder).count == 6


@pytest.mark.parametrize(
    ("change", "what", "line", "words"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b'x":3', b'x":4'), *lines[3:]], "changed", 2, "2 to 6"),
        (lambda lines: [*lines[:2], *lines[3:]], "removed", 3, "record 3 is missing"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "reordered", 3, "record 4 stands where"),
        (lambda lines: [*lines[:2], lines[2][:8] + b"\n", *lines[3:]], "truncated", 3, "cut short"),
        (lambda lines: [*lines[:5], lines[5].replace(b'x":6', b'x":7')], "changed", 2, "2 to 6"),
    ],
)  # fmt: skip
async def test_tampering_inside_a_batch_shows(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], what: str, line: int, words: str
) -> None:
    """D-85: numbers tell the very line, the seal its batch."""
    folder = await batch_of(tmp_path)
    edit_lines(segments(folder)[0], change)
    verdict = verify(folder)
    assert verdict.problem is not None
    assert verdict.problem[:3] == (what, "000000000001.jsonl", line)
    assert words in verdict.problem.text
    assert verdict.count == 1


async def test_an_unsealed_batch_at_the_end_is_cut_off_whole(tmp_path: Path) -> None:
    """A seal is written with its batch, and nothing is acknowledged before all of it is on disk."""
    folder = await batch_of(tmp_path)
    path = segments(folder)[0]
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for size in range(first, len(whole)):
        path.write_bytes(whole[:size])
        verdict = verify(folder)
        assert (verdict.ok, verdict.count, verdict.torn) == (True, 1, size - first)
    await write(folder, [value_record("next")])
    assert values_in(folder) == [1, "next"]
    assert path.with_name(f"{path.name}.{first}.torn").read_bytes() == whole[first:-1]


async def test_zeros_in_the_last_batch_are_blocks_that_never_reached_the_disk(tmp_path: Path) -> None:
    """After a power cut a file may hold zeros where its size came before its data."""
    folder = await batch_of(tmp_path)
    path = segments(folder)[0]
    whole = path.read_bytes()
    start = whole.index(b'x":3')
    path.write_bytes(whole[:start] + bytes(20) + whole[start + 20 :] + bytes(512))
    assert not verify(folder).ok
    await write(folder, [value_record("next")])
    assert values_in(folder) == [1, "next"]


async def test_an_envelope_cannot_pretend_to_be_a_seal(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    raw = {"h": "0" * 64}
    async with opened_journal(folder) as journal:
        numbers = [journal.append(members({"raw": raw})) for _ in range(3)]
        await wait_durable(journal, numbers[-1])
    assert verify(folder).count == 3


async def test_a_segment_that_was_removed_or_cut_short_shows(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path, segment_bytes=200)
    first, second, third, *_ = segments(folder)
    kept = second.read_bytes()
    second.unlink()
    problem = verify(folder).problem
    assert problem is not None
    assert (problem.what, problem.segment, problem.line) == ("removed", third.name, 1)
    second.write_bytes(kept[: kept.index(b"\n") + 1])
    problem = verify(folder).problem
    assert problem is not None
    assert (problem.what, problem.segment) == ("removed", third.name)
    second.write_bytes(kept[:-5])
    problem = verify(folder).problem
    assert problem is not None
    assert (problem.what, problem.segment) == ("truncated", second.name)
    second.write_bytes(kept)
    first.unlink()
    problem = verify(folder).problem
    assert problem is not None
    assert (problem.what, problem.segment) == ("removed", second.name)


async def test_a_journal_under_another_space_does_not_fit(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path)
    other = folder_in(tmp_path, "den")
    other.parent.mkdir()
    folder.rename(other)
    assert not verify(other).ok


async def test_an_unfinished_last_line_is_not_there_yet(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path)
    path = segments(folder)[0]
    path.write_bytes(path.read_bytes()[:-10])
    verdict = verify(folder)
    assert (verdict.ok, verdict.count) == (True, 11)
    assert verdict.torn > 0
    assert values_in(folder) == list(range(1, 12))
    assert [record.number for record in last_records(folder, 2)] == [10, 11]


async def test_a_torn_end_is_cut_off_and_kept_wherever_the_crash_struck(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path, 4)
    path = segments(folder)[0]
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    start = len(whole) - len(lines[-1]) - len(lines[-2])
    for size in range(start, len(whole)):
        path.write_bytes(whole[:size])
        left = whole[:size].count(b"\n")
        torn = whole[:size].rpartition(b"\n")[2]
        await write(folder, [value_record("next")])
        assert values_in(folder) == [*range(1, left + 1), "next"]
        assert verify(folder).ok
        cut = list(folder.glob("*.torn"))
        assert [file.read_bytes() for file in cut] == ([torn] if torn else [])
        for file in cut:
            file.unlink()


@pytest.mark.parametrize(
    "rubbish", [b"\0" * 4096, b"\0" * 50 + b"\n", b'{"n":5,"x":5}\n', b"\xff\n\xff\n\n{"]
)
async def test_rubbish_behind_the_last_record_is_a_torn_end(tmp_path: Path, rubbish: bytes) -> None:
    folder = await journal_of(tmp_path, 4)
    with segments(folder)[0].open("ab") as file:
        file.write(rubbish)
    await write(folder, [value_record(5)])
    assert values_in(folder) == [1, 2, 3, 4, 5]
    assert verify(folder).ok
    (torn,) = folder.glob("*.torn")
    assert torn.read_bytes() == rubbish


async def test_a_last_record_that_does_not_fit_is_cut_off(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path, 4)
    edit_lines(segments(folder)[0], lambda lines: [*lines[:3], lines[3].replace(b'"x":4', b'"x":5')])
    await write(folder, [value_record("next")])
    assert values_in(folder) == [1, 2, 3, "next"]


async def test_damage_that_no_crash_explains_is_not_written_over(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path, 6)
    edit_lines(segments(folder)[0], lambda lines: [*lines[:2], *lines[3:]])
    before = segments(folder)[0].read_bytes()
    with pytest.raises(UsageError, match=r"000000000001\.jsonl line 3.*Record 2 is the last.*journal repair"):
        open_journal(folder, OPENED)
    assert segments(folder)[0].read_bytes() == before


def damaged(whole: bytes, kind: str, place: int) -> bytes:
    """The same bytes with one kind of damage at a place."""
    text = bytearray(whole)
    match kind:
        case "zero byte":
            text[place] = 0
        case "zeros":
            text[place : place + 40] = bytes(len(text[place : place + 40]))
        case "flipped bit":
            text[place] ^= 1 << place % 8
        case "missing bytes":
            del text[place : place + 7]
        case "swapped":
            text[place : place + 40], text[place + 40 : place + 80] = (
                text[place + 40 : place + 80],
                text[place : place + 40],
            )
    return bytes(text)


@pytest.mark.parametrize("kind", ["zero byte", "flipped bit"])
async def test_damage_before_the_last_batch_is_never_taken_for_a_torn_end(tmp_path: Path, kind: str) -> None:
    """Wherever it is: in what a record says, in its number, in its seal, in the newline."""
    folder = await journal_of(tmp_path, 4)
    path = segments(folder)[0]
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    for place in range(len(whole) - last):
        path.write_bytes(damaged(whole, kind, place))
        with pytest.raises(UsageError, match=r"whole records follow it.*journal repair"):
            open_journal(folder, OPENED)
        assert not verify(folder).ok
    assert not list(folder.glob("*.torn"))
    for place in range(len(whole) - last, len(whole)):
        path.write_bytes(damaged(whole, kind, place))
        await write(folder, [])
        assert values_in(folder) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["zeros", "missing bytes", "swapped"])
async def test_no_larger_damage_before_the_last_two_batches_is_taken_for_a_torn_end(
    tmp_path: Path, kind: str
) -> None:
    folder = await journal_of(tmp_path, 6)
    path = segments(folder)[0]
    whole = path.read_bytes()
    last = sum(map(len, whole.splitlines(keepends=True)[-2:]))
    for place in range(len(whole) - last - 80):
        if (text := damaged(whole, kind, place)) == whole:
            continue
        path.write_bytes(text)
        with pytest.raises(UsageError, match=r"whole records follow it.*journal repair"):
            open_journal(folder, OPENED)


async def test_a_large_batch_with_a_hole_and_its_seal_is_what_a_power_cut_left(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path, 3)
    async with opened_journal(folder) as journal:
        numbers = [journal.append(value_record("x" * 500)) for _ in range(40)]
        await wait_durable(journal, numbers[-1])
    path = segments(folder)[0]
    whole = path.read_bytes()
    for place in range(4096, len(whole) - 4096, 4096):
        path.write_bytes(whole[:place] + bytes(4096) + whole[place + 4096 :])
        await write(folder, [])
        assert values_in(folder) == [1, 2, 3]


async def test_a_missing_segment_is_not_written_over(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path, segment_bytes=200)
    segments(folder)[-2].unlink()
    with pytest.raises(UsageError, match=r"records 9 to 10 should come before .*moot journal repair"):
        open_journal(folder, OPENED)


async def test_an_empty_last_segment_is_gone_on_with(tmp_path: Path) -> None:
    """What a crash right after the start of a segment leaves."""
    folder = await journal_of(tmp_path, 4, segment_bytes=50)
    (folder / "000000000005.jsonl").touch()
    await write(folder, [value_record(5)])
    assert values_in(folder) == [1, 2, 3, 4, 5]
    assert verify(folder).ok


async def test_a_note_of_removal_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path)
    (folder / "removed.json").write_text("{}")
    with pytest.raises(UsageError, match=r"removed\.json cannot be read"):
        verify(folder)


# Reading


async def test_reading_begins_after_any_record(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path, segment_bytes=200)
    for after in range(14):
        assert [record.number for record in read_records(folder, after)] == list(range(after + 1, 13))
    for record in read_records(folder):
        assert record_at(folder, record.place).line == record.line  # type: ignore[union-attr]
        rest = read_records(folder, record.number, start=record.end)
        assert [later.number for later in rest] == list(range(record.number + 1, 13))


async def test_the_last_records_are_read_from_the_end_over_segments(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path, segment_bytes=200)
    for count in range(15):
        found = last_records(folder, count)
        assert [record.number for record in found] == list(range(1, 13))[max(0, 12 - count) :]
        assert [record.place for record in found] == [
            record.place for record in read_records(folder, max(0, 12 - count))
        ]


async def test_long_records_are_read_whole_from_both_ends(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    long = "é" * 600_000
    await write(
        folder,
        [value_record("a"), value_record(long), members({"x": "c"}).replace(b":", b":\r"), value_record("d")],
    )
    assert values_in(folder) == ["a", long, "c", "d"]
    assert [record.fields["x"] for record in last_records(folder, 3)] == [long, "c", "d"]


def test_following_waits_for_what_comes_next(tmp_path: Path) -> None:
    folder = asyncio.run(journal_of(tmp_path, 2, segment_bytes=100))
    waits: list[int] = []

    def pause() -> None:
        waits.append(1)
        write_now(folder, [value_record(10 + len(waits))], SMALL)

    found = follow_records(folder, 1, pause)
    assert [next(found).fields["x"] for _ in range(4)] == [2, 11, 12, 13]


def test_there_is_nothing_to_read_where_there_is_no_journal(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    assert list(read_records(folder)) == last_records(folder, 5) == []
    assert verify(folder).ok
    assert verify(folder).count == 0
    assert record_at(folder, RecordPosition(1, 0)) is None


async def test_a_line_that_is_no_record_stops_reading_with_its_place(tmp_path: Path) -> None:
    folder = await journal_of(tmp_path)
    edit_lines(segments(folder)[0], lambda lines: [*lines[:2], b"what?\n", *lines[2:]])
    with pytest.raises(UsageError, match="moot journal verify"):
        list(read_records(folder))
    with pytest.raises(UsageError, match="moot journal verify"):
        last_records(folder, 11)
    edit_lines(segments(folder)[0], lambda lines: [*lines[:2], b'{"n":3,what?\n', *lines[3:]])
    with pytest.raises(UsageError, match="record 3 is no record"):
        values_in(folder)


async def test_what_is_in_a_record_is_read_whatever_a_peer_wrote(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    raw = b'{"id":["x"],"correlation_id":[1,"a"],"x_correlation_ids":["a","b"]}'
    odd = b'"t":"soon","in":"receive","who":7,"raw":' + raw
    huge = b'"raw":{"n":' + b"9" * 400 + b',"s":"\\ud800"}'
    await write(folder, [odd, huge, envelope_record("e1", correlation_id="p1"), b'"in":"leave","raw":"text"'])
    first, second, third, fourth = read_records(folder)
    assert (first.time, first.text("who"), first.id, first.kind) == (0.0, "", "", "receive")
    assert first.correlations == ["a", "b"]
    assert second.fields["raw"] == {"n": int("9" * 400), "s": "?"}
    assert (third.id, third.kind, third.time, third.correlations) == ("e1", "chat", 1.0, ["p1"])
    assert fourth.envelope_fields == {}
