"""Whether a journal and its log are what was signed, by their own files and by what others kept.

Whoever rewrites a journal can rewrite its log, and sign it if they have the key. A checkpoint that somebody
else kept, a witness or a file elsewhere, shows it: the tree of that size has another root now, or the log
has fewer entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from moot.evidence.checkpoint import Checkpoint, parse_checkpoint, signers
from moot.evidence.journal_entries import read_entries, shared_begin
from moot.evidence.log_files import LogBroken, LogReader
from moot.evidence.log_hashes import tile_hash
from moot.evidence.merkle_tree import HASH_BYTES
from moot.evidence.signed_note import Note, NoteError, VerifierKey
from moot.evidence.tiles import WIDTH
from moot.evidence.witness_policy import Policy
from moot.protocol.envelope import rfc3339
from moot.store.journal_reader import read_records
from moot.store.journal_segments import chain_start
from moot.store.record_chain import entry_of, shared_number


class LogReport(NamedTuple):
    """What is wrong, and what else is worth knowing."""

    faults: list[str]
    facts: list[str]


class KeptCheckpoint(NamedTuple):
    """A checkpoint from elsewhere; `seconds` is when it was kept, 0 if that is not known."""

    checkpoint: Checkpoint
    note: Note
    seconds: float = 0.0


def parse_kept(raw: bytes) -> list[KeptCheckpoint]:
    """One checkpoint, or lines of an anchor's file; raises NoteError."""
    if not raw.startswith(b"{"):
        return [KeptCheckpoint(*parse_checkpoint(raw))]
    found = []
    for line in raw.splitlines():
        if not line.endswith(b"}"):
            # Cut off in a crash; the next one stands on a line of its own.
            continue
        try:
            fields = orjson.loads(line)
            text, seconds = str(fields["checkpoint"]), float(fields["t"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            raise NoteError(f"{line[:60]!r} is no line of an anchor's file") from None
        found.append(KeptCheckpoint(*parse_checkpoint(text.encode()), seconds))
    return found


def check_log(journal: Path, folder: Path, keys: Sequence[VerifierKey], policy: Policy | None) -> LogReport:
    """The journal, entry by entry, and the tree over it. `keys` are those that the log may be signed by."""
    faults: list[str] = []
    facts: list[str] = []
    try:
        reader = LogReader(folder)
        # In this order: a gateway may sign meanwhile.
        cosigned = reader.cosigned()
        checkpoint, note = reader.signed()
        if cosigned is not None and (fault := _cosigned_fault(reader, checkpoint.size, cosigned[0])):
            # What witnesses saw was another log.
            faults.append(fault)
            cosigned = None
        _check_signature((checkpoint, note), cosigned, reader.about.first, keys, policy, faults, facts)
        _check_tiles(reader, checkpoint.size)
        if reader.root(checkpoint.size) != checkpoint.root:
            faults.append("changed: the tree over the entries is not the one that was signed")
        first, last = reader.about.first, reader.about.first + checkpoint.size - 1
        facts.insert(0, f"the log is signed up to record {last}")
        if reader.about.shared:
            _compare_shared(reader, journal, last, faults, facts)
            return LogReport(faults, facts)
        begin = max(first, chain_start(journal).number)
        if begin > first:
            facts.append(f"records {first} to {min(begin - 1, last)} were removed, and are in the log")
        faults += _compare(reader, journal, begin, last)
    except (LogBroken, NoteError) as fault:
        faults.append(str(fault))
    return LogReport(faults, facts)


def check_against(
    folder: Path, kept: Sequence[KeptCheckpoint], keys: Sequence[VerifierKey], policy: Policy | None
) -> LogReport:
    """Whether the log is the one of these checkpoints, or has grown since."""
    faults: list[str] = []
    facts: list[str] = []
    try:
        reader = LogReader(folder)
        size = reader.signed()[0].size
        ours = [each for each in kept if each.checkpoint.origin == reader.about.origin]
        if not ours:
            others = ", ".join(sorted({each.checkpoint.origin for each in kept})) or "nothing"
            faults.append(f"what it is compared with is of {others}, and this is {reader.about.origin}")
        holds: KeptCheckpoint | None = None
        for each in sorted(ours, key=lambda one: (one.checkpoint.size, one.seconds)):
            if _signed_by(each, keys, policy, faults, facts, reader.about.first):
                fault = _difference(reader, size, each, holds)
                if fault:
                    faults.append(fault)
                    break
                holds = each
        if holds is not None and not faults:
            facts.append(f"all that was kept elsewhere is in it, up to {_place(reader, holds)}")
    except (LogBroken, NoteError) as fault:
        faults.append(str(fault))
    return LogReport(faults, facts)


def _cosigned_fault(reader: LogReader, size: int, cosigned: Checkpoint) -> str | None:
    last = reader.about.first + cosigned.size - 1
    if cosigned.size > size:
        return f"truncated: record {last} was cosigned, and the log ends with {reader.about.first + size - 1}"
    if reader.root(cosigned.size) != cosigned.root:
        return f"rewritten or forked: record {last} was cosigned over other records"
    return None


def _check_signature(
    signed: tuple[Checkpoint, Note],
    cosigned: tuple[Checkpoint, Note] | None,
    first: int,
    keys: Sequence[VerifierKey],
    policy: Policy | None,
    faults: list[str],
    facts: list[str],
) -> None:
    if policy is not None:
        # The newest that witnesses had the time to sign.
        checkpoint, note = cosigned or signed
        policy.judge(checkpoint, note)
        last = first + checkpoint.size - 1
        facts += [f"{line} record {last}" for line in _witnessed(note, policy)]
    elif not keys:
        facts.append("nobody checked who signed it: no keys here; name them with --policy")
    elif not signers(signed[1], keys):
        faults.append("the log is signed by a key that is not the gateway's")


def _witnessed(note: Note, policy: Policy) -> list[str]:
    """Which witnesses signed, and when."""
    return [f"{name} saw, at {rfc3339(seconds)}," for name, seconds in policy.seen_by(note).items()]


def _check_tiles(reader: LogReader, size: int) -> None:
    """Each level of hashes must follow from the one below; raises LogBroken at the first that does not."""
    level = 0
    while count := size >> 8:
        for first in range(0, count, WIDTH):
            above = reader.hashes(level + 1, first, min(WIDTH, count - first))
            for at in range(len(above) // HASH_BYTES):
                below = reader.hashes(level, (first + at) * WIDTH, WIDTH)
                if tile_hash(below) != above[at * HASH_BYTES : (at + 1) * HASH_BYTES]:
                    start = (first + at) * WIDTH ** (level + 1) + reader.about.first
                    through = start + WIDTH ** (level + 1) - 1
                    raise LogBroken(
                        f"changed: the entries of records {start} to {through} are not those signed"
                    )
        size, level = count, level + 1


def _compare(reader: LogReader, journal: Path, begin: int, last: int) -> list[str]:
    after = begin - 1
    for block in read_entries(journal, begin - 1, last):
        count = len(block.entries) // HASH_BYTES
        logged = reader.entries(block.first - reader.about.first, count)
        if logged != block.entries:
            for at in range(count):
                part = slice(at * HASH_BYTES, (at + 1) * HASH_BYTES)
                if logged[part] != block.entries[part]:
                    return [f"changed: record {block.first + at} is not the one that was signed"]
        after = block.first + count - 1
    if after < last:
        return [f"truncated: the journal ends with record {after}, and {last} records were signed"]
    return []


def _compare_shared(reader: LogReader, journal: Path, last: int, faults: list[str], facts: list[str]) -> None:
    """One gateway's copy: it may have begun late, and what it has must be what the cluster signed."""
    begin, held, own = 0, 0, 0
    for record in read_records(journal, shared_begin(journal, reader.about.id)):
        number = shared_number(record.line)
        begin, held, own = begin or number, held + (number > 0), own + (number == 0)
        if 0 < number <= last and entry_of(record.line) != reader.entries(number - 1, 1):
            faults.append(f"changed: record {record.number} is not the one that was signed as {number}")
            return
    facts.append(
        f"{held} records from {begin} of the cluster on are in this copy, and {own} of this gateway's own"
    )


def _signed_by(
    each: KeptCheckpoint,
    keys: Sequence[VerifierKey],
    policy: Policy | None,
    faults: list[str],
    facts: list[str],
    first: int,
) -> bool:
    """Whether a kept checkpoint is by the log; says who saw it."""
    known = [*keys, *(log.key for log in policy.logs)] if policy is not None else list(keys)
    size = each.checkpoint.size
    if known and not any(key.name == each.checkpoint.origin for key in signers(each.note, known)):
        faults.append(f"the checkpoint of {size} entries is not signed by the log: it shows nothing")
        return False
    if not known:
        facts.append(f"nobody checked who signed the checkpoint of {size} entries")
    if policy is not None:
        facts += [f"{line} record {first + size - 1}" for line in _witnessed(each.note, policy)]
    return True


def _difference(
    reader: LogReader, size: int, kept: KeptCheckpoint, holds: KeptCheckpoint | None
) -> str | None:
    there = kept.checkpoint
    since = "from its beginning on" if holds is None else f"since {_place(reader, holds)}"
    if there.size > size:
        return (
            f"truncated: {_place(reader, kept)} was signed, and the log ends with record "
            f"{reader.about.first + size - 1}"
        )
    if reader.root(there.size) != there.root:
        return f"rewritten or forked {since}: {_place(reader, kept)} was signed over other records"
    return None


def _place(reader: LogReader, kept: KeptCheckpoint) -> str:
    when = f" (kept {rfc3339(kept.seconds)})" if kept.seconds else ""
    return f"record {reader.about.first + kept.checkpoint.size - 1}{when}"
