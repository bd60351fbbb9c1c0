"""Looking things up: by reading, by the index, and by an index that no longer fits."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.store.journal_index import JournalIndex
from moot.store.journal_reader import read_records
from moot.store.journal_search import MAX_ALIKE_IDS, JournalQuery, find_number, search, whole_id
from moot.store.journal_segments import remove_segments
from moot.store.record_chain import ChainHead, line, seal
from tests.store.journals import (
    TriedJournal,
    edit_lines,
    envelope_record,
    folder_in,
    members,
    segments,
    write_now,
)

RECORDS = [
    members({"t": 10.0, "in": "join", "session": "s1", "who": "alice", "out": "accepted"}),
    envelope_record("p1", "agent", t=20.0, kind="mcp/proposal", payload={"method": "tools/call"}),
    envelope_record("f1", "alice", t=30.5, kind="mcp/request", correlation_id=["p1"], to=["files"]),
    envelope_record("r1", "files", t=40.0, kind="mcp/response", correlation_id="f1"),
    envelope_record("e1", "agent", t=50.0, kind="mcp/request", out="capability_violation"),
    envelope_record("c1", "zoë", t=60.0, payload={"text": "Grüße an alle", "deep": [{"er": "Needle"}]}),
    envelope_record("p1", "bob", t=70.0, out="duplicate_id"),
    # The same words, written with escapes that nobody needs.
    b'"t":80,"in":"receive","who":"\\u0061lice","out":"accepted","kind":"mcp\\/request","id":"\\u0065\\u0032",'
    b'"raw":{"id":"e2","correlation_id":["\\u0070\\u0031"],"payload":{"text":"nee\\u0064le"}}',
    members({"t": 90.0, "in": "leave", "session": "s1", "who": "alice", "out": "accepted"}),
    b'"t":95.0,"in":"receive","who":["odd"],"out":"invalid_envelope","kind":3,"raw":[1]',
]
QUERIES: list[tuple[JournalQuery, list[int]]] = [
    (JournalQuery(id="f1"), [3]),
    (JournalQuery(id="p1"), [2, 7]),
    (JournalQuery(id="e2"), [8]),
    (JournalQuery(id="none"), []),
    (JournalQuery(kind="mcp/request"), [3, 5, 8]),
    (JournalQuery(kind="mcp/*"), [2, 3, 4, 5, 8]),
    (JournalQuery(kind="join"), [1]),
    (JournalQuery(kind="receive"), [10]),
    (JournalQuery(who="alice"), [1, 3, 8, 9]),
    (JournalQuery(who="zoë"), [6]),
    (JournalQuery(outcome="capability_violation"), [5]),
    (JournalQuery(outcome="accepted", who="agent"), [2]),
    (JournalQuery(about="p1"), [3, 8]),
    (JournalQuery(about="f1"), [4]),
    (JournalQuery(text="needle"), [6, 8]),
    (JournalQuery(text="GRÜSSE"), [6]),
    (JournalQuery(text='"'), []),
    (JournalQuery(since=30.5), [3, 4, 5, 6, 7, 8, 9, 10]),
    (JournalQuery(until=20), [1, 2]),
    (JournalQuery(since=25, until=45, kind="mcp/*"), [3, 4]),
    (JournalQuery(), list(range(1, 11))),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = folder_in(tmp_path)
    write_now(folder, RECORDS, TriedJournal(segment_bytes=600))
    return folder


@pytest.fixture
def index(folder: Path) -> Iterator[JournalIndex]:
    opened = JournalIndex.open(folder)
    assert opened is not None
    with closing(opened):
        yield opened


def numbers(folder: Path, query: JournalQuery, index: JournalIndex | None = None) -> list[int]:
    return [record.number for record in search(folder, query, index=index)]


@pytest.mark.parametrize(("query", "expected"), QUERIES)
def test_a_search_finds_the_same_with_an_index_without_one_and_with_half_of_one(
    folder: Path, index: JournalIndex, query: JournalQuery, expected: list[int]
) -> None:
    assert numbers(folder, query) == expected
    assert numbers(folder, query, index) == expected
    assert index.catch_up()
    assert index.position == 10
    assert numbers(folder, query, index) == expected
    write_now(folder, RECORDS)
    assert index.position == 10
    assert numbers(folder, query, index) == expected + [number + 10 for number in expected]


def test_an_index_goes_on_where_it_stopped(folder: Path, index: JournalIndex) -> None:
    assert index.catch_up()
    write_now(folder, [envelope_record("new", t=100.0)])
    index.close()
    again = JournalIndex.open(folder)
    assert again is not None
    with closing(again):
        assert again.position == 10
        assert again.position_of(11) is None
        assert again.catch_up()
        assert again.position == 11
        assert numbers(folder, JournalQuery(id="new"), again) == [11]
    assert stat.S_IMODE((folder.parent / "index.db").stat().st_mode) == 0o600


def test_an_index_that_runs_out_of_time_is_right_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    folder.mkdir(parents=True)
    lines, _ = seal(
        [line(number, b'"in":"leave"') for number in range(1, 6_000)], ChainHead(1, b"lab"), 6_000
    )
    (folder / "000000000001.jsonl").write_bytes(b"".join(lines))
    index = JournalIndex.open(folder)
    assert index is not None
    with closing(index):
        assert not index.catch_up(0.0)
        assert index.position == 5_000
        assert len(numbers(folder, JournalQuery(kind="leave"), index)) == 5_999
        assert index.catch_up(60)
        assert index.position == 5_999


def test_an_index_that_disagrees_with_the_journal_begins_anew(folder: Path, index: JournalIndex) -> None:
    assert index.catch_up()
    for path in folder.iterdir():
        path.unlink()
    write_now(folder, [envelope_record("other", t=1.0), *RECORDS[:3]])
    assert numbers(folder, JournalQuery(id="p1"), index) == [3]
    assert index.position == 0
    assert index.catch_up()
    assert index.position == 4
    assert numbers(folder, JournalQuery(id="f1"), index) == [4]
    assert numbers(folder, JournalQuery(id="r1"), index) == []


def test_an_index_behind_which_the_journal_was_cut_begins_anew(folder: Path, index: JournalIndex) -> None:
    assert index.catch_up()
    edit_lines(segments(folder)[-1], lambda lines: lines[:-1])
    write_now(folder, [envelope_record("other", t=1.0)])
    assert index.catch_up()
    assert numbers(folder, JournalQuery(id="other"), index) == [10]
    assert numbers(folder, JournalQuery(kind="receive"), index) == []


def test_an_index_forgets_the_segments_that_were_removed(folder: Path, index: JournalIndex) -> None:
    assert index.catch_up()
    remove_segments(folder, 5)
    first = next(read_records(folder)).number
    assert first > 1
    assert index.catch_up()
    assert index.position_of(first - 1) is None
    assert index.position_of(first) is not None
    assert numbers(folder, JournalQuery(who="alice"), index) == [n for n in (1, 3, 8, 9) if n >= first]
    assert index.position == 10


def test_an_index_that_is_no_database_is_made_anew(folder: Path) -> None:
    (folder.parent / "index.db").write_bytes(b"this is not a database, though it is long enough" * 100)
    assert JournalIndex.open(folder, create=False) is None
    index = JournalIndex.open(folder)
    assert index is not None
    with closing(index):
        assert index.catch_up()
        assert index.position == 10


def test_an_index_of_another_version_is_made_anew(folder: Path) -> None:
    with closing(sqlite3.connect(folder.parent / "index.db")) as database:
        database.executescript("CREATE TABLE records (old TEXT); PRAGMA user_version = 77;")
    index = JournalIndex.open(folder)
    assert index is not None
    with closing(index):
        assert index.catch_up()
        assert numbers(folder, JournalQuery(id="f1"), index) == [3]


def test_an_index_that_another_process_holds_is_not_waited_for(folder: Path, index: JournalIndex) -> None:
    with closing(sqlite3.connect(folder.parent / "index.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not index.catch_up()
        other.execute("ROLLBACK")
    assert index.catch_up()
    assert numbers(folder, JournalQuery(who="zoë"), index) == [6]


def test_there_is_no_index_unless_one_may_be_made(folder: Path) -> None:
    assert JournalIndex.open(folder, create=False) is None
    assert os.listdir(folder.parent) == ["journal"]


def test_a_record_is_found_by_its_number(folder: Path, index: JournalIndex) -> None:
    for known in (None, index):
        for number in range(1, 11):
            found = find_number(folder, number, index=known)
            assert found is not None
            assert found.number == number
        assert find_number(folder, 11, index=known) is None
        index.catch_up()


def test_a_beginning_that_more_ids_have_than_are_looked_at_finds_none_of_them(tmp_path: Path) -> None:
    """Members choose ids: others' must not hide that a second proposal begins so."""
    folder = folder_in(tmp_path)
    chats = [envelope_record(f"abcd-{at:03}", "eve") for at in range(MAX_ALIKE_IDS - 1)]
    proposals = [envelope_record(id, "agent", kind="mcp/proposal") for id in ("abcd-x", "abcd-y")]
    write_now(folder, [*chats, *proposals])
    index = JournalIndex.open(folder)
    assert index is not None
    with closing(index):
        assert index.catch_up()
        with pytest.raises(UsageError, match="type more of the id"):
            whole_id(folder, "abcd", index=index, kinds=["mcp/proposal"])
        assert whole_id(folder, "abcd-x", index=index, kinds=["mcp/proposal"]) == "abcd-x"


def test_what_was_refused_hides_no_proposal_whose_id_begins_alike(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    refused = [
        envelope_record(id, "eve", kind="mcp/proposal", out="capability_violation")
        for id in ("abcd", "abcd-y")
    ]
    write_now(folder, [envelope_record("abcd-x", "agent", kind="mcp/proposal"), *refused])
    assert whole_id(folder, "abcd", kinds=["mcp/proposal"]) == "abcd-x"
    assert whole_id(folder, "abcd") == "abcd"
