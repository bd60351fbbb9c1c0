"""Pages of a space's whole history, read backwards from its journal.

The window for polling holds the last minutes of a busy space. Whoever wants to know what happened last week
reads on here: the same messages that members heard then, a page at a time, newest page first. Everything
runs in a thread and within bounds, so that nobody who is connected notices.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from moot.errors import MootError
from moot.gateway.hosting.history_restore import envelope_of, is_for_everybody
from moot.gateway.hosting.space_records import is_gap, place_in_time, recorded_time
from moot.gateway.hosting.stored_input import ACCEPTED, read_input
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.space.config import SpaceConfig
from moot.space.last_vote import read_made
from moot.store.journal_backwards import first_number_from, records_before
from moot.store.journal_reader import JournalRecord, read_blocks
from moot.store.journal_segments import chain_start
from moot.store.record_chain import shared_number

# D-32: whether all members heard these depends on the settings of then.
_PERHAPS_PRIVATE: Final = frozenset({"chat/acknowledge", "participant/status"})

# Messages of one page: some screens of the console.
MAX_PAGE_MESSAGES: Final = 500
# 1 MiB: a page ends with the message that reaches it.
MAX_PAGE_BYTES: Final = 1 << 20
# Records that one gateway alone has, such as refusals, in a row; behind more, a copy is not compared.
_MAX_OWN_RECORDS: Final = 64
# 8 MiB of the journal are read for one page at most: some 15,000 records.
MAX_SCAN_BYTES: Final = 8 << 20

HistoryEnd = Literal["beginning", "removed", "elsewhere", "not_a_member", "not_kept"]


class HistoryQuery(NamedTuple):
    """Which messages are wanted. Each that is given must hold; without any, all are."""

    text: tuple[str, ...] = ()
    kind: str = ""
    sender: str = ""
    id: str = ""


class HistoryPage(NamedTuple):
    """Messages, oldest first; where to read on before; or why there is nothing before it."""

    messages: list[bytes]
    before: int | None = None
    end: HistoryEnd | None = None
    # Messages are missing in it, or behind it, which the journal could not take.
    has_gap: bool = False


class HistoryReader(NamedTuple):
    """Who reads: the first record, and the time, from which on this member may; and its dialect.

    With `by_time`, places in the history are times of the log and not numbers of records: those of a journal
    are one gateway's own, and a cluster has several.
    """

    first: int
    since: float
    dialect: DialectName
    by_time: bool = False


def read_page(
    folder: Path,
    before: int | None,
    wanted: HistoryQuery,
    *,
    reader: HistoryReader,
    config: SpaceConfig,
    limit: int,
    max_bytes: int = MAX_PAGE_BYTES,
    over_gaps: bool = False,
) -> HistoryPage:
    """One page of the messages before a place, or up to now. Blocks: call it in a thread.

    One that ends `elsewhere` also tells where the next one has to end, by the time of the log. `over_gaps`:
    also what is older than records that another gateway may have.
    """
    matcher = _Matcher(wanted)
    found: list[bytes] = []
    size = scanned = 0
    last, until = before, before
    is_full = has_gap = False
    start = chain_start(folder).number
    if reader.by_time and before is not None:
        before = first_number_from(folder, before, microseconds)
        if before is not None and before < reader.first:
            # Also where nothing of then is here: others are not asked for it.
            return HistoryPage([], None, "not_a_member")
        behind = None if before is None else next(records_before(folder, before + 1), None)
        gap = behind is not None and behind.number > start and gap_before(folder, behind, is_copy=True)
        if gap == "elsewhere" and not over_gaps:
            return HistoryPage([], until, "elsewhere")
        has_gap = bool(gap)
    for record in records_before(folder, before):
        place = microseconds(record.line) if reader.by_time else record.number
        # What has one time came in one message of the log, and is on one page.
        if is_full and place != last:
            break
        if record.number < reader.first or 0 < recorded_time(record.line) <= reader.since:
            return HistoryPage(found[::-1], None, "not_a_member", has_gap)
        scanned += len(record.line)
        last = place
        gap = record.number > start and gap_before(folder, record, is_copy=reader.by_time)
        if gap == "elsewhere" and not over_gaps:
            return HistoryPage(found[::-1], _behind(place, until), "elsewhere", has_gap)
        has_gap = has_gap or bool(gap)
        # Newest first, as everything here.
        for raw in reversed(_messages_of(record, matcher, reader, config)):
            found.append(raw)
            size += len(raw)
        is_full = is_full or bool(
            (wanted.id and found) or len(found) >= limit or size >= max_bytes or scanned >= MAX_SCAN_BYTES
        )
    else:
        end = _why_no_more(folder, start, reader)
        if end != "elsewhere" or last is None:
            return HistoryPage(found[::-1], None, end, has_gap)
        return HistoryPage(found[::-1], _behind(last, until), end, has_gap)
    return HistoryPage(found[::-1], last, None, has_gap)


class _CopyStart(msgspec.Struct):
    """What the record says with which a copy of a cluster's log begins."""

    log: str = ""
    # How many records there were before; None in journals of earlier releases.
    earlier: int | None = None


def _behind(start: int, before: int | None) -> int:
    """Where the page before the start of a copy ends: what came in one message with the end of the snapshot
    is not in the copy."""
    return start + 1 if before is None else min(start + 1, before)


def gap_before(folder: Path, record: JournalRecord, *, is_copy: bool) -> Literal["lost", "elsewhere"] | None:
    """Whether records are missing before this one, and where they may be."""
    if not is_gap(record.line, is_copy=is_copy):
        return None
    last, began = neighbours_of(folder, record.number) if is_copy else (0, 0)
    return None if last + 1 == began else "elsewhere" if began else "lost"


def _why_no_more(folder: Path, start: int, reader: HistoryReader) -> HistoryEnd:
    """Why nothing is before the first record of the journal."""
    if start > 1:
        return "removed"
    first = next(records_before(folder, start + 1), None) if reader.by_time else None
    if first is not None and is_gap(first.line, is_copy=True):
        copy = msgspec.json.decode(first.line, type=_CopyStart)
        if copy.log and copy.earlier != 0:
            return "elsewhere"
    return "beginning"


class CopyGap(NamedTuple):
    """A record before which some are missing: the number of the last one that is there, and of the first one
    behind; 0 where that is not known."""

    record: int
    last: int
    began: int


def copy_gaps(folder: Path) -> list[CopyGap]:
    """Where the copy that a gateway has of a space's records lacks some. Blocks: reads all of it."""
    found: list[CopyGap] = []
    for block in read_blocks(folder):
        if any(sign in block.text for sign in (b',"in":"state"', b',"in":"lost"')):
            gaps = (each for each in block.records() if is_gap(each.line, is_copy=True))
            found += [CopyGap(each.number, *neighbours_of(folder, each.number)) for each in gaps]
    return [each for each in found if each.last + 1 != each.began]


def neighbours_of(folder: Path, number: int | None) -> tuple[int, int]:
    """The numbers in the cluster's log of the last record before one of this copy, or of its last one, and of
    the first one behind; 0 where this copy does not have it. Blocks."""
    following = 0
    within = None if number is None else number + _MAX_OWN_RECORDS
    for record in islice(records_before(folder, within), 2 * _MAX_OWN_RECORDS):
        is_start, shared = is_gap(record.line, is_copy=True), shared_number(record.line)
        if number is not None and record.number >= number:
            following = _began_at(record.line) if is_start else shared or following
        elif is_start or shared:
            return shared, following
    return 0, following


def _began_at(line: bytes) -> int:
    """The number of the first record that a copy has had from here on; 0 if that is not known."""
    copy = msgspec.json.decode(line, type=_CopyStart)
    return copy.earlier + 1 if copy.log and copy.earlier is not None else 0


def microseconds(line: bytes) -> int:
    """The time of a record as a place in the history of a cluster."""
    return round(place_in_time(line) * 1e6)


def _messages_of(
    record: JournalRecord, matcher: _Matcher, reader: HistoryReader, config: SpaceConfig
) -> list[bytes]:
    """What members heard of a record, in the reader's dialect, as far as it is wanted.

    Most are one message; behind a vote stand the requests that the gateway made by it.
    """
    if not matcher.may_match(record.line):
        return []
    try:
        stored = read_input(record.line)
        if stored.input not in ("receive", "post") or stored.out != ACCEPTED or not bytes(stored.raw):
            return []
        heard = [envelope_of(stored, config), *(read_made(bytes(each)) for each in stored.made)]
        messages = [_encode(each, reader) for each in heard if _is_wanted(each, matcher, config)]
    except (MootError, msgspec.MsgspecError):
        # Under other rules than today's; whoever wants it finds it in the journal.
        return []
    return [each for each in messages if each is not None]


def _is_wanted(envelope: Envelope, matcher: _Matcher, config: SpaceConfig) -> bool:
    return (
        envelope.kind not in _PERHAPS_PRIVATE
        and is_for_everybody(envelope.kind, config)
        and matcher.matches(envelope)
    )


def _encode(envelope: Envelope, reader: HistoryReader) -> bytes | None:
    if envelope.dialect == reader.dialect:
        return envelope.raw
    return DIALECTS[reader.dialect].encode(envelope, operation=None, proposer=None)


class _Matcher:
    """What is wanted, made ready for many lines. A to Z are found in either case."""

    def __init__(self, wanted: HistoryQuery) -> None:
        self._texts = [_spellings(text) for text in wanted.text]
        self._kind = wanted.kind.lower().split("*") if wanted.kind else None
        self._wanted = wanted
        self._ids = _spellings(wanted.id) if wanted.id else None

    def may_match(self, line: bytes) -> bool:
        """Quickly: whether it is worth parsing."""
        if self._ids is not None and not any(each in line.lower() for each in self._ids):
            return False
        if not self._texts:
            return True
        lowered = line.lower()
        return all(any(each in lowered for each in spellings) for spellings in self._texts)

    def matches(self, envelope: Envelope) -> bool:
        wanted = self._wanted
        if wanted.id and envelope.id != wanted.id:
            return False
        if wanted.sender and envelope.sender != wanted.sender:
            return False
        if self._kind is not None and not _is_of_kind(envelope.kind, self._kind):
            return False
        lowered = envelope.raw.lower() if self._texts else b""
        return all(any(each in lowered for each in spellings) for spellings in self._texts)


def _spellings(text: str) -> Sequence[bytes]:
    """How a text can stand in JSON: as it is, or escaped."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    escaped = json.dumps(text)[1:-1]
    return tuple({each.encode("utf-8", "replace").lower() for each in (plain, escaped)})


def _is_of_kind(kind: str, pieces: Sequence[str]) -> bool:
    """Whether a kind has these pieces, with anything between them: `mcp` means mcp/request too.

    Not `re`: it tries all ways to share a text among many `*`, and nobody else runs meanwhile.
    """
    text, (first, *others) = kind.lower() + "/", pieces
    if not others:
        return text.startswith((f"{first}/", f"{first}:"))
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in others[:-1]:
        at = text.find(piece, at) + len(piece)
        if at < len(piece):
            return False
    return any(text.find(others[-1] + end, at) >= 0 for end in "/:")
