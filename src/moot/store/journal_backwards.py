"""Reading a journal backwards from any record: newest first, a block at a time.

A page of old messages costs the same wherever it is: the segment is known by its name, and the place of a
record within it is found by halving the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from moot.store.journal_reader import JournalRecord, RecordPosition
from moot.store.journal_segments import segments_of
from moot.store.record_chain import number_in

_BLOCK: Final = 1 << 18


def records_before(folder: Path, before: int | None = None) -> Iterator[JournalRecord]:
    """The records before a number, newest first; from the last whole line there is, if no number is given.

    Ends early where retention removes a segment meanwhile. Lines that are no record are skipped: whoever
    reads here shows what there is, and `moot journal verify` tells about damage.
    """
    for segment in reversed(segments_of(folder)):
        if before is not None and segment.first >= before:
            continue
        try:
            file = segment.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            end = file.seek(0, os.SEEK_END) if before is None else _place_of(file, before, number_in)
            for offset, line in _lines_before(file, end):
                number = number_in(line)
                if number and (before is None or number < before):
                    yield JournalRecord(number, line, RecordPosition(segment.first, offset))


def first_number_from(folder: Path, value: int, value_of: Callable[[bytes], int]) -> int | None:
    """The number of the first record whose value is not below this one; None if all are below.

    `value_of` tells the value of a line, which grows from record to record, such as its time.
    """
    found: int | None = None
    for segment in reversed(segments_of(folder)):
        try:
            file = segment.path.open("rb")
        except FileNotFoundError:
            break
        with file:
            place = _place_of(file, value, value_of)
            file.seek(place)
            found = number_in(file.readline()) or found
        if place:
            break
    return found


def _lines_before(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines before a place of a file, the last one first, and where they start."""
    rest = b""
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        text = file.read(end - start) + rest
        end = start
        if start:
            # What stands before the first newline began in an earlier block.
            first = text.find(b"\n") + 1
            if not first:
                rest = text
                continue
            rest, text, start = text[:first], text[first:], start + first
        else:
            rest = b""
        last = len(text)
        while last:
            newline = text.rfind(b"\n", 0, last - 1) + 1
            if text.endswith(b"\n", newline, last):
                yield start + newline, text[newline:last]
            last = newline


def _place_of(file: BinaryIO, value: int, value_of: Callable[[bytes], int]) -> int:
    """Where the first record with this value or a higher one starts; the end of the file if none has."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while low < high:
        middle = (low + high) // 2
        start = _line_start(file, middle)
        file.seek(start)
        line = file.readline()
        if value_of(line) < value:
            low = start + len(line)
        else:
            high = start
    return low


def _line_start(file: BinaryIO, place: int) -> int:
    """Where the line begins that holds this byte."""
    end = place
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
