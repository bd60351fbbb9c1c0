"""Reading a journal: records in order, from the end, as they come; and whether the chain holds.

Everything here streams: a journal of millions of lines is never in memory, and one that a gateway is
writing to can be read meanwhile. A line without its newline is not there yet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.store.journal_segments import chain_start, is_torn_end, segments_of
from moot.store.record_chain import ChainCheck, What, follow, hash_in, is_record, is_sealed, number_in

_BLOCK: Final = 1 << 18


class RecordPosition(NamedTuple):
    """Where a record stands: the segment's first number, and the byte at which the line starts."""

    segment: int
    offset: int


START: Final = RecordPosition(0, 0)


class JournalRecord:
    """One line. It is parsed when somebody asks for what is in it."""

    __slots__ = ("_fields", "line", "number", "place")

    def __init__(self, number: int, line: bytes, place: RecordPosition) -> None:
        self.number = number
        self.line = line  # with its newline
        self.place = place
        self._fields: dict[str, Json] | None = None

    @property
    def fields(self) -> dict[str, Json]:
        """All members; integers too large for orjson take the long way."""
        if self._fields is None:
            try:
                self._fields = orjson.loads(self.line)
            except orjson.JSONDecodeError:
                self._fields = self._parse_slowly()
        return self._fields

    def _parse_slowly(self) -> dict[str, Json]:
        try:
            text = json.dumps(json.loads(self.line), ensure_ascii=False)
        except (ValueError, RecursionError):
            raise _unreadable(f"record {self.number}") from None
        # Half a surrogate pair can be escaped in JSON, but not printed or stored.
        fields: dict[str, Json] = json.loads(text.encode("utf-8", "replace"))
        return fields

    @property
    def envelope(self) -> bytes | None:
        """The bytes of `raw`, as the sender wrote them (but for newlines between members)."""
        raw = _raw_decoder.decode(self.line).raw
        return bytes(raw) or None

    @property
    def made(self) -> list[bytes]:
        """Of the last vote of a quorum: the requests that the gateway made for the voter, in MEW."""
        return [bytes(each) for each in _raw_decoder.decode(self.line).made]

    @property
    def hash(self) -> str:
        """The seal of its batch, "" when it is not the last of it."""
        return hash_in(self.line).decode()

    @property
    def end(self) -> RecordPosition:
        """Where the next record stands, if it is in the same segment."""
        return RecordPosition(self.place.segment, self.place.offset + len(self.line))

    # What was journaled, whatever was: a refused envelope may hold anything.

    @property
    def time(self) -> float:
        t = self.fields.get("t")
        return float(t) if isinstance(t, int | float) else 0.0

    def text(self, member: str) -> str:
        """A member that should be a string; "" when it is not there or something else."""
        value = self.fields.get(member)
        return value if isinstance(value, str) else ""

    @property
    def id(self) -> str:
        """The id of the envelope, "" when there is none."""
        id = self.envelope_fields.get("id")
        return self.text("id") or (id if isinstance(id, str) else "")

    @property
    def kind(self) -> str:
        """The kind of the envelope; what else came in (join, leave, admin …) is its own kind."""
        return self.text("kind") or self.text("in")

    @property
    def envelope_fields(self) -> dict[str, Json]:
        """The envelope, {} when there is none."""
        raw = self.fields.get("raw")
        return raw if isinstance(raw, dict) else {}

    @property
    def correlations(self) -> list[str]:
        """The ids that the envelope correlates to: a list in MEW, one string in MCPx (the rest beside it)."""
        found: dict[str, None] = {}
        for member in ("correlation_id", "x_correlation_ids"):
            value: Any = self.envelope_fields.get(member)
            for id in value if isinstance(value, list) else [value]:
                if isinstance(id, str):
                    found[id] = None
        return list(found)


class _WithRaw(msgspec.Struct):
    raw: msgspec.Raw = msgspec.Raw(b"")
    made: list[msgspec.Raw] = []


_raw_decoder = msgspec.json.Decoder(_WithRaw)


def read_records(folder: Path, after: int = 0, *, start: RecordPosition = START) -> Iterator[JournalRecord]:
    """The records after this number, in order, up to the last whole line there is now.

    `start` is where to begin, for who knows (`Record.end`). Raises UsageError at a line that is no record.
    """
    for block in read_blocks(folder, after, start=start):
        yield from block.records(after)


class RecordBlock(NamedTuple):
    """Many whole lines of one segment."""

    place: RecordPosition
    text: bytes

    def records(self, after: int = 0) -> Iterator[JournalRecord]:
        segment, offset = self.place
        for line in _lines(self.text):
            number = number_in(line)
            if not number:
                raise _unreadable(f"the line of segment {segment} at byte {offset}")
            if number > after:
                yield JournalRecord(number, line, RecordPosition(segment, offset))
            offset += len(line)


def read_blocks(folder: Path, after: int = 0, *, start: RecordPosition = START) -> Iterator[RecordBlock]:
    """The lines after a record, some hundred at a time; the first block may begin with earlier ones."""
    segments = segments_of(folder)
    for segment, following in zip_longest(segments, segments[1:]):
        if segment.first < start.segment or (following is not None and following.first <= after + 1):
            continue
        offset = start.offset if segment.first == start.segment else 0
        try:
            file = segment.path.open("rb", buffering=0)
        except FileNotFoundError:
            raise UsageError(f"{segment.path} was removed while it was read: call again") from None
        with file:
            file.seek(offset)
            rest = b""
            while read := file.read(_BLOCK):
                end = read.rfind(b"\n") + 1
                if not end:
                    rest += read
                    continue
                # A quarter of a megabyte is copied once.
                text = b"".join((rest, memoryview(read)[:end]))
                rest = read[end:]
                if number_in(text[text.rfind(b"\n", 0, -1) + 1 :]) > after:
                    yield RecordBlock(RecordPosition(segment.first, offset), text)
                offset += len(text)


def _lines(text: bytes) -> list[bytes]:
    """Whole lines with their newlines. A peer may write carriage returns between members."""
    if b"\r" not in text:
        return text.splitlines(keepends=True)
    return [line + b"\n" for line in text.split(b"\n")[:-1]]


def follow_records(folder: Path, after: int, pause: Callable[[], None]) -> Iterator[JournalRecord]:
    """The records after this number, and then those that come; `pause` is called when there is none."""
    start = START
    while True:
        for record in read_records(folder, after, start=start):
            after, start = record.number, record.end
            yield record
        pause()


def last_records(folder: Path, count: int) -> list[JournalRecord]:
    """The last records, oldest first, read from the end."""
    found: list[JournalRecord] = []
    for segment in reversed(segments_of(folder)):
        lines = _last_lines(segment.path, count - len(found))
        found += [
            JournalRecord(number_in(line), line, RecordPosition(segment.first, offset))
            for offset, line in reversed(lines)
        ]
        if len(found) >= count:
            break
    found.reverse()
    if any(not record.number for record in found):
        raise _unreadable("a line near the end")
    return found


def _last_lines(path: Path, count: int) -> list[tuple[int, bytes]]:
    """The last whole lines of a file and where they start."""
    if count <= 0:
        return []
    with path.open("rb") as file:
        start = file.seek(0, os.SEEK_END)
        text = b""
        while start and text.count(b"\n") <= count:
            step = min(_BLOCK, start)
            start = file.seek(start - step)
            text = file.read(step) + text
    places: list[tuple[int, bytes]] = []
    # What follows the last newline is not there yet.
    for line in _lines(text[: text.rfind(b"\n") + 1]):
        places.append((start, line))
        start += len(line)
    return places[-count:]


def record_at(folder: Path, place: RecordPosition) -> JournalRecord | None:
    """The record that stands at a place, None when there is no record."""
    for segment in segments_of(folder):
        if segment.first == place.segment:
            with segment.path.open("rb") as file:
                file.seek(place.offset)
                line = file.readline()
            return (
                JournalRecord(number_in(line), line, place) if is_record(line) and number_in(line) else None
            )
    return None


def _unreadable(where: str) -> UsageError:
    return UsageError(f"the journal cannot be read: {where} is no record; `moot journal verify` says more")


# Whether the chain holds


class JournalProblem(NamedTuple):
    """The first place at which a journal is not what was written."""

    what: What
    segment: str
    line: int
    text: str


class JournalCheck(msgspec.Struct, frozen=True):
    """`count` records hold, from number `first` on. `torn` bytes at the end are not a record yet."""

    count: int
    first: int
    problem: JournalProblem | None = None
    torn: int = 0

    @property
    def ok(self) -> bool:
        return self.problem is None

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def verify(folder: Path) -> JournalCheck:
    """Follow the chain through all segments; stops at the first problem."""
    head = chain_start(folder)
    first = head.number
    segments = segments_of(folder)
    for position, segment in enumerate(segments):
        count = head.number - first
        if segment.first != head.number:
            text = f"record {head.number} should come here: what stood before this segment is missing"
            return JournalCheck(count, first, JournalProblem("removed", segment.path.name, 1, text))
        followed = follow(segment.path, head)
        head = followed.head
        if not followed.whole:
            last = position + 1 == len(segments)
            problem, torn = _diagnose(segment.path, followed, last=last)
            if problem is None and not is_torn_end(segment.path, followed):
                text = f"record {head.number} is not what was written, and whole records follow it"
                problem = JournalProblem("changed", segment.path.name, followed.lines + 1, text)
            return JournalCheck(head.number - first, first, problem, torn)
    return JournalCheck(head.number - first, first)


def _diagnose(path: Path, followed: ChainCheck, *, last: bool) -> tuple[JournalProblem | None, int]:
    """What is wrong with the batch behind what holds: the line that does not belong, or the seal."""
    first = expected = followed.head.number
    number_of_line = followed.lines + 1

    def problem(what: What, text: str, line: int) -> tuple[JournalProblem, int]:
        return JournalProblem(what, path.name, line, text), 0

    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(followed.size)
        for line in file:
            number = number_in(line)
            if last and not line.endswith(b"\n"):
                return None, end - followed.size
            if not is_record(line):
                return problem("truncated", f"record {expected} is cut short", number_of_line)
            if number != expected:
                later = any(number_in(other) == expected for other in file)
                return problem(*_out_of_place(number, expected, later=later), number_of_line)
            if is_sealed(line):
                which = f"record {first}" if first == expected else f"one of records {first} to {expected}"
                text = f"{which} or the one before it is not what was written"
                return problem("changed", text, followed.lines + 1)
            expected += 1
            number_of_line += 1
    if last:
        return None, end - followed.size
    return problem("truncated", f"what follows record {expected - 1} is missing", number_of_line - 1)


def _out_of_place(number: int, expected: int, *, later: bool) -> tuple[What, str]:
    if later:
        return "reordered", f"record {number} stands where record {expected} belongs"
    if number > expected:
        through = f" to {number - 1}" if number - 1 > expected else ""
        return "removed", f"record {expected}{through} is missing"
    return "reordered", f"record {number} stands here again, where record {expected} belongs"
