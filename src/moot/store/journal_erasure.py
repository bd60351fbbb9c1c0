"""Erasing what somebody wrote, while the journal still verifies; and holding a space, so that nothing goes.

A record that is erased becomes a stub in its place:

    {"n":N,"erased":"ENTRY","t":T,"in":"receive","who":…,"kind":…,"id":…,"out":"erased","raw":{…}}

ENTRY is the SHA-256 of the line that stood there, so the log's tree stays as it was signed. `raw` is the
envelope without its payload; of a call it keeps method and tool, of an answer whether it was an error. A vote
stays, but for the call that the gateway made by it. Nobody signed what a stub says beside ENTRY.

A batch with a stub in it cannot be hashed again: its seal counts as it stands, the log vouches for its other
records, and a record of its own (`erase`) says which were erased and why: a stub that none of those names is
a changed record.

Only messages can be erased, and of those only such that give and take no right and decide nothing by
themselves. Replay skips stubs, so a snapshot has to cover them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from moot.errors import UsageError
from moot.private_files import sync_folder
from moot.protocol import strict_json
from moot.protocol.kinds import KINDS
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically
from moot.store.journal_reader import START, JournalRecord, read_blocks
from moot.store.journal_segments import HOLD_FILE, segments_of
from moot.store.record_chain import entry_of, hash_in, is_erased, line, number_in, shared_number
from moot.store.segment_writer import SegmentWriter

_MESSAGES: Final = frozenset({"receive", "post", "refused"})
# Of those that act in a space: their payload is what somebody wrote, and not what somebody decided.
_CALLS: Final = frozenset({"mcp/request", "mcp/response", "mcp/proposal"})
# What was found out or thought about a call, with its values.
_NOTES: Final = frozenset({"moot/origins", "moot/opinion"})
# Rules, votes, delegations: whoever decided what must stay.
_KEPT_PREFIXES: Final = ("trust/", "moot/", "capability/", "space/", "system/", "participant/")
_KEPT_MEMBERS: Final = ("protocol", "id", "ts", "from", "to", "kind", "correlation_id", "x_correlation_ids")
_ERASE: Final = b'"in":"erase"'


class Hold(msgspec.Struct, frozen=True):
    why: str
    since: float


class Erasures(NamedTuple):
    """What was erased of a journal; `unnamed` stubs are in no record that says so."""

    numbers: list[int]
    unnamed: list[int]


def read_hold(journal: Path) -> Hold | None:
    """Why nothing of a space may go, None if nothing keeps it."""
    try:
        return msgspec.json.decode((journal.parent / HOLD_FILE).read_bytes(), type=Hold)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        # Whatever it says, somebody wanted all of it kept.
        return Hold("the file cannot be read", 0.0)


def place_hold(journal: Path, hold: Hold) -> None:
    write_atomically(journal.parent / HOLD_FILE, msgspec.json.encode(hold))
    sync_folder(journal.parent)


def release_hold(journal: Path) -> None:
    """Raises UsageError where there is none."""
    try:
        (journal.parent / HOLD_FILE).unlink()
    except FileNotFoundError:
        raise UsageError(f"{journal.parent.name} is not held") from None
    sync_folder(journal.parent)


def why_kept(record: JournalRecord) -> str:
    """Why a record cannot be erased; "" if it can."""
    if is_erased(record.line):
        return "it was erased before"
    kind = record.kind.replace(".", "/")
    if record.text("in") not in _MESSAGES:
        return f"it is no message, but {record.text('in')}: who belongs to the space, or how it was run"
    if record.text("out") != "accepted" or kind in _CALLS:
        return ""
    if kind in _NOTES or (kind == "moot/approve" and record.made):
        return ""
    known = KINDS.get(kind)
    decides = known is not None and (known.changes_verdict or known.shrinks_rights or known.answers)
    if kind.startswith(_KEPT_PREFIXES) or (decides and not kind.startswith("chat")):
        return f"{kind} gives or takes a right, or decides something"
    return ""


def erase_records(
    journal: Path,
    numbers: Collection[int],
    *,
    covered: int,
    by: str,
    why: str,
    now: float,
    place: float = 0.0,
) -> int:
    """Erase these records, and journal that. Returns the number of the record that says so.

    `covered` is the last record that a snapshot covers. `place`, in a copy of a cluster's log, is the time
    that the record gets: there it says how far the copy goes, and what others said meanwhile comes behind
    it. Raises UsageError, and has done nothing then. After a crash in between it is called again: what is
    erased already is left as it is.
    """
    if (hold := read_hold(journal)) is not None:
        raise UsageError(f"{journal.parent.name} is held, and nothing of it is erased: {hold.why}")
    if late := [each for each in numbers if each > covered]:
        raise UsageError(
            f"no snapshot covers record {min(late)} yet: start the gateway and stop it, then call again"
        )
    writer = SegmentWriter(journal)
    try:
        number = writer.head.number
        told = {"t": place or now, "in": "erase", "numbers": sorted(numbers), "by": by, "why": why, "at": now}
        writer.write([line(number, strict_json.encode(told)[1:-1])], number + 1)
        # First that it is erased: a stub that no record names would look like damage.
        writer.sync()
        for segment in segments_of(journal):
            _rewrite(segment.path, set(numbers))
    finally:
        writer.release()
    # It knows where each record stood.
    for name in ("index.db", "index.db-wal", "index.db-shm"):
        (journal.parent / name).unlink(missing_ok=True)
    return number


def find_erasures(journal: Path) -> Erasures:
    """Which records were erased, and which of these no record names."""
    numbers: list[int] = []
    named: set[int] = set()
    for block in read_blocks(journal):
        if b'"erased":"' in block.text or _ERASE in block.text:
            for record in block.records():
                if is_erased(record.line):
                    numbers.append(record.number)
                elif record.text("in") == "erase":
                    told: Any = record.fields.get("numbers")
                    named |= {each for each in told if isinstance(each, int)}
    return Erasures(numbers, [each for each in numbers if each not in named])


def _rewrite(path: Path, numbers: Collection[int]) -> None:
    """Put stubs into one segment, in a new file that takes its place."""
    with path.open("rb") as file:
        if not any(number_in(each) in numbers for each in file):
            return
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with path.open("rb") as old, open(descriptor, "wb") as new:
        for each in old:
            number = number_in(each)
            new.write(_stub(number, each) if number in numbers and not is_erased(each) else each)
        new.flush()
        os.fsync(new.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def _stub(number: int, text: bytes) -> bytes:
    record = JournalRecord(number, text, START)
    is_accepted = record.text("out") == "accepted"
    facts: dict[str, Json] = {"n": number, "erased": entry_of(text).hex()}
    if shared := shared_number(text):
        facts["c"] = shared
    facts["t"] = record.time
    facts |= {name: record.text(name) for name in ("in", "session", "who", "dialect", "kind", "id")}
    facts["out"] = "erased" if is_accepted else record.text("out")
    if is_accepted:
        is_vote = bool(record.made)
        facts["raw"] = record.envelope_fields if is_vote else _without_payload(record.envelope_fields)
        if is_vote:
            made: Any = record.fields["made"]
            facts["made"] = [_without_payload(each) for each in made]
    seal = b',"h":"%b"' % hash_in(text) if hash_in(text) else b""
    return strict_json.encode(facts)[:-1] + seal + b"}\n"


def _without_payload(envelope: dict[str, Json]) -> dict[str, Json]:
    kept = {name: envelope[name] for name in _KEPT_MEMBERS if name in envelope}
    return kept | {"payload": dict(_kept_payload(envelope.get("payload")))}


def _kept_payload(payload: Json) -> Iterator[tuple[str, Json]]:
    """What is left: which tool was called, and whether an answer was an error."""
    if not isinstance(payload, dict):
        return
    params, result = payload.get("params"), payload.get("result")
    if isinstance(method := payload.get("method"), str):
        name = params.get("name") if isinstance(params, dict) else None
        yield "method", method
        yield "params", {"name": name} if isinstance(name, str) else {}
    if payload.get("error") is not None:
        yield "error", {"code": 0, "message": "erased"}
    elif "result" in payload:
        yield "result", {"isError": True} if isinstance(result, dict) and result.get("isError") else {}
