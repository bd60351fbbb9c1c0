"""From the records of a journal to the entries of its log, in blocks, from disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from moot.evidence.log_files import LogBroken
from moot.evidence.log_hashes import Entries, entries_between, entries_of
from moot.store.journal_reader import START, RecordPosition, read_blocks
from moot.store.record_chain import number_in


class EntryBlock(NamedTuple):
    """The entries of some records from number `first` on, and where the record after them stands."""

    first: int
    entries: bytes
    end: RecordPosition


def read_entries(
    folder: Path, after: int, through: int, *, start: RecordPosition = START
) -> Iterator[EntryBlock]:
    """The entries of the records after one number up to another; raises LogBroken where one is missing.

    `start` is where to begin, for who knows (`EntryBlock.end`).
    """
    for (segment, offset), text in read_blocks(folder, after, start=start):
        if after >= through:
            return
        found = entries_between(text, after, through) or _entries_between(text, after, through)
        entries, last, end, is_gap = found
        if is_gap or last == after:
            raise LogBroken(f"the journal in {folder} does not go on with record {after + 1}")
        yield EntryBlock(after + 1, entries, RecordPosition(segment, offset + end))
        after = last


def shared_begin(folder: Path, id: str) -> int:
    """The record behind which a journal is a copy of this space of a cluster: before it, it was another's."""
    begin, is_ours = 0, False
    for block in read_blocks(folder, 0):
        # A copy begins with the whole state, and so it goes on behind a gap.
        states = block.records() if b',"in":"state"' in block.text else ()
        for record in states:
            if record.text("in") == "state":
                was_ours, is_ours = is_ours, record.text("log") == id
                begin = begin if was_ours and is_ours else record.number
    return begin


def _entries_between(text: bytes, after: int, through: int) -> Entries:
    # The first block may begin before what is asked for, and the last one end behind it.
    cut = _offset(text, after + 1 - number_in(text))
    wanted = text[cut:]
    last = number_in(wanted[wanted.rfind(b"\n", 0, -1) + 1 :])
    if last > through:
        wanted = wanted[: _offset(wanted, through - after)]
        last = through
    is_gap = number_in(wanted) != after + 1 or wanted.count(b"\n") != last - after
    return entries_of(wanted), last, cut + len(wanted), is_gap


def _offset(text: bytes, lines: int) -> int:
    """Where in a text so many lines end."""
    at = 0
    for _ in range(lines):
        at = text.find(b"\n", at) + 1
    return at
