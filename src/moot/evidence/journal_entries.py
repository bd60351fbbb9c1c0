"""From the records of a journal to the entries of its log, in blocks, from disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from moot.evidence.log_files import LogBroken
from moot.store.journal_reader import START, RecordPosition, read_blocks
from moot.store.record_chain import entry_of, number_in


class EntryBlock(NamedTuple):
    """The entries of some records from number `first` on, and where the record after them stands."""

    first: int
    entries: list[bytes]
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
        lines = text.split(b"\n")[:-1]
        first = number_in(lines[0])
        # Those before and behind what is asked for; where they end is to be known, too.
        skipped = max(0, after + 1 - first)
        wanted = lines[skipped:][: through - after]
        if first + skipped != after + 1 or not wanted or number_in(wanted[-1]) != after + len(wanted):
            raise LogBroken(f"the journal in {folder} does not go on with record {after + 1}")
        read = sum(map(len, lines[:skipped])) + skipped + sum(map(len, wanted)) + len(wanted)
        entries = [entry_of(line + b"\n") for line in wanted]
        yield EntryBlock(after + 1, entries, RecordPosition(segment, offset + read))
        after += len(wanted)
