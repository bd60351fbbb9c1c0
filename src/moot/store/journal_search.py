"""Looking for records: by the index as far as it goes, by reading lines behind it.

Most of a journal is passed over without being parsed: a word that is not among the bytes of a line is not in
the record either, unless somebody wrote it with escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.store.journal_index import JournalIndex
from moot.store.journal_reader import (
    START,
    JournalRecord,
    RecordPosition,
    read_blocks,
    read_records,
    record_at,
)
from moot.store.record_chain import number_in

# Written as themselves in every JSON text but for escapes that nobody needs, which are looked for apart.
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
# The least that is looked up of the beginning of an id, and how many with one beginning are looked at.
MIN_ID_CHARS: Final = 4
MAX_ALIKE_IDS: Final = 100
_TIME = re.compile(rb'\{"n":\d+,"t":(\d+(?:\.\d+)?)[,}]')


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """All that is given must hold. A kind may end in `*`; text is found in any letter case."""

    id: str | None = None
    kind: str | None = None
    who: str | None = None
    outcome: str | None = None
    about: str | None = None
    text: str | None = None
    since: float | None = None
    until: float | None = None

    def matches(self, record: JournalRecord) -> bool:
        return (
            (self.since is None or record.time >= self.since)
            and (self.until is None or record.time <= self.until)
            and (self.id is None or self.id == record.id)
            and (self.who is None or self.who == record.text("who"))
            and (self.outcome is None or self.outcome == record.text("out"))
            and (self.kind is None or _matches_kind(self.kind, record.kind))
            and (self.about is None or self.about in record.correlations)
            and (self.text is None or _contains(record.fields, self.text.casefold()))
        )

    @property
    def words(self) -> list[bytes]:
        """What must be among the bytes of a line that has no escapes."""
        whole = [self.id, self.who, self.outcome, self.about]
        words = [f'"{word}"' for word in whole if word is not None and _PLAIN.fullmatch(word)]
        if self.kind is not None and _PLAIN.fullmatch(self.kind):
            words.append(f'"{self.kind[:-1]}' if self.kind.endswith("*") else f'"{self.kind}"')
        return [word.encode() for word in words]


def search(
    folder: Path, query: JournalQuery, *, index: JournalIndex | None = None, after: int = 0
) -> Iterator[JournalRecord]:
    """The records that match, oldest first."""
    start = START
    if index is not None and index.can_answer(query):
        try:
            for number, place in index.find(query, after):
                record = record_at(folder, place)
                if record is None or record.number != number:
                    raise _Stale
                after = number
                if query.matches(record):
                    yield record
            if index.position >= after:
                after, start = index.position, index.end
        except _Stale:
            # Somebody changed the journal behind the index: what was found so far stands, the rest is read.
            index.clear()
    yield from _scan(folder, query, after, start)


def whole_id(
    folder: Path, named: str, *, index: JournalIndex | None = None, kinds: Collection[str] = ()
) -> str:
    """The one id that begins so, as lists show it; `named` if none. Raises UsageError if there are several.

    With `kinds`, of an accepted message of one of these: whoever is refused chooses ids, too.
    """
    outcome = "accepted" if kinds else None
    if len(named) < MIN_ID_CHARS or any(search(folder, JournalQuery(id=named, outcome=outcome), index=index)):
        return named
    begun = index.ids_beginning(named, MAX_ALIKE_IDS + 1) if index is not None else []
    tail = (
        read_records(folder, index.position, start=index.end) if index is not None else read_records(folder)
    )
    begun += [record.id for record in tail if record.id is not None and record.id.startswith(named)]
    if len(set(begun)) > MAX_ALIKE_IDS:
        raise UsageError(f"more than {MAX_ALIKE_IDS} messages begin with {named}: type more of the id")
    found = {
        id for id in set(begun)
        if not kinds or any(each.kind in kinds for each in search(
            folder, JournalQuery(id=id, outcome=outcome), index=index))
    }  # fmt: skip
    if len(found) > 1:
        raise UsageError(f"{len(found)} messages begin with {named}: type more of the id")
    return found.pop() if found else named


class _Stale(UsageError):
    """The index names a place at which there is another record or none."""


def _scan(folder: Path, query: JournalQuery, after: int, start: RecordPosition) -> Iterator[JournalRecord]:
    may_match = _prefilter(query)
    for block in read_blocks(folder, after, start=start):
        # Blocks first, then lines: most blocks of a large journal hold nothing that is looked for.
        if may_match(block.text):
            for record in block.records(after):
                if _is_in_time(query, record.line) and may_match(record.line) and query.matches(record):
                    yield record


def _prefilter(query: JournalQuery) -> Callable[[bytes], bool]:
    """A quick look at bytes that passes over nothing that could match."""
    words = query.words
    text = query.text.lower().encode() if query.text and _PLAIN.fullmatch(query.text) else b""
    # An ASCII character may be written as \u00xx, and a slash as \/.
    slash = b"\\/" if any(b"/" in word for word in (*words, text)) else b"\\u00"

    def may_match(raw: bytes) -> bool:
        for word in words:
            if word not in raw:
                return b"\\u00" in raw or slash in raw
        return not text or text in raw.lower() or b"\\u00" in raw or slash in raw

    return may_match


def _is_in_time(query: JournalQuery, line: bytes) -> bool:
    """False when the line says at its start that it is of another time."""
    if (query.since is None and query.until is None) or not (found := _TIME.match(line)):
        return True
    t = float(found[1])
    return (query.since is None or t >= query.since) and (query.until is None or t <= query.until)


def _matches_kind(wanted: str, kind: str) -> bool:
    return kind.startswith(wanted[:-1]) if wanted.endswith("*") else kind == wanted


def _contains(fields: dict[str, Json], text: str) -> bool:
    """Whether some string in a record holds the text; its own number and hash do not count."""
    waiting: list[Json] = [value for name, value in fields.items() if name not in ("n", "h")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if text in value.casefold():
                return True
        elif isinstance(value, dict):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def find_number(folder: Path, number: int, *, index: JournalIndex | None = None) -> JournalRecord | None:
    """The record with this number."""
    if index is not None and (place := index.position_of(number)) is not None:
        record = record_at(folder, place)
        if record is not None and record.number == number:
            return record
    record = next(read_records(folder, number - 1), None)
    return record if record is not None and number_in(record.line) == number else None
