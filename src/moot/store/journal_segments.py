"""The files of a journal: which there are, where the chain stands, and what a crash left at the end.

    DATA/spaces/NAME/journal/
        000000000001.jsonl             records 1, 2, 3 …, one a line
        000000091442.jsonl             goes on with record 91442; the last one is written to
        000000091442.jsonl.5120.torn   what was cut off at byte 5120 when the gateway started again
        removed.json                   after retention: the last record that was removed, and its hash
        verified.json                  closed segments that were checked, so that a start need not read them
        again

A new segment begins only when the one before it is on disk, so only the last one can have a torn end.

A closed segment does not change any more, so that one which was checked before needs no second look while
the file system says that it is still the same file: its size, its times and its inode are kept in
`verified.json`. Without that note, or after a copy, all of it is read again, at some 400 MiB a second.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from moot.errors import UsageError
from moot.private_files import sync_folder
from moot.resilience.atomic_file import write_atomically
from moot.store.record_chain import SEAL_BYTES, ChainCheck, ChainHead, follow, hash_in

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"(\d{12,18})\.jsonl")
REMOVED_FILE: Final = "removed.json"
# In the folder of a space: while it is there, nothing of its journal is removed or erased.
HOLD_FILE: Final = "hold.json"
_NOTE: Final = "verified.json"
# How much is read at once from the end of a file; an envelope may have 1 MiB.
_BLOCK: Final = 1 << 16


# Whether what does not fit at the end of a journal can be what a crash left there.
#
# A crash, or a power cut, leaves one batch that is cut short or has holes, and behind it nothing, zeros or
# rubbish. If another batch was sealed behind the place, then that place was written long before: it is damage
# in the middle, and to cut it off would undo what was acknowledged.
#
# Mostly that shows by a seal with a record behind it. If the seal itself is what was damaged, the hash that
# it had is computed from the batch that it belongs to: if the batch behind it follows that one, it was
# sealed.

_RECORD: Final = b'{"n":'
_RECORD_START: Final = re.compile(rb'\{"n":\d')
# A seal of 75 bytes is recognised if no more of them than this were damaged.
_DAMAGED_BYTES: Final = 15
_HEX: Final = frozenset(b"0123456789abcdef")
_PREFIX: Final = b',"h":"'
_END: Final = b'"}\n'


def is_torn_end(path: Path, followed: ChainCheck) -> bool:
    """Whether a crash can have left what stands in this segment behind what holds; False: it is damage."""
    is_sealed_before = False
    with path.open("rb") as file:
        file.seek(followed.size)
        for line in file:
            if is_sealed_before and _RECORD in line:
                return False
            is_sealed_before = is_sealed_before or _ends_in_seal(line)
        if not is_sealed_before:
            return True
        file.seek(followed.size)
        rest = file.read()
    return not _follows_damaged_seal(rest[: rest.rfind(_END) + len(_END)], followed.head.hash)


def _ends_in_seal(line: bytes) -> bool:
    """Whether a line ends a batch, also if its beginning was damaged."""
    return line.endswith(_END) and line[-SEAL_BYTES:].startswith(_PREFIX)


def _follows_damaged_seal(text: bytes, before: bytes) -> bool:
    """Whether a last batch in this text follows another one whose seal, or its newline, was damaged."""
    stated = text[-SEAL_BYTES:][len(_PREFIX) : -len(_END)]
    for found in _RECORD_START.finditer(text, 1):
        start = found.start()
        damaged = text[start - SEAL_BYTES : start]
        if start < SEAL_BYTES or not _resembles_seal(damaged):
            continue
        written = damaged[len(_PREFIX) : -len(_END)]
        computed = sha256(before + text[: start - SEAL_BYTES] + b"}").hexdigest().encode()
        batch = text[start:-SEAL_BYTES] + b"}"
        if any(sha256(seal + batch).hexdigest().encode() == stated for seal in (written, computed)):
            return True
    return False


def _resembles_seal(text: bytes) -> bool:
    """Whether most bytes are those of a seal."""
    digits = text[len(_PREFIX) : -len(_END)]
    fitting = sum(digit in _HEX for digit in digits)
    fitting += sum(
        a == b for a, b in zip(text[: len(_PREFIX)] + text[-len(_END) :], _PREFIX + _END, strict=True)
    )
    return fitting >= SEAL_BYTES - _DAMAGED_BYTES


class CheckedSegment(msgspec.Struct, frozen=True):
    """What a segment was when the chain was followed through it, and where the chain stood then."""

    name: str
    size: int
    modified: int
    changed: int
    inode: int
    after: str  # the seal that it follows
    next: int
    h: str

    def is_still(self, other: CheckedSegment) -> bool:
        return (self.name, self.size, self.modified, self.changed, self.inode, self.after) == (
            other.name, other.size, other.modified, other.changed, other.inode, other.after,
        )  # fmt: skip


class BrokenSegment(Exception):
    """The chain does not hold in a closed segment: `line` is the first that does not fit."""

    def __init__(self, path: Path, line: int, head: ChainHead) -> None:
        super().__init__(path, line, head)
        self.path = path
        self.line = line
        self.head = head


def follow_closed(folder: Path, paths: Sequence[Path], head: ChainHead, *, keep_note: bool) -> ChainHead:
    """Follow the chain through closed segments; raises BrokenSegment where it does not hold."""
    known = {one.name: one for one in _read_note(folder)}
    checked: list[CheckedSegment] = []
    for path in paths:
        if int(path.stem) != head.number:
            raise BrokenSegment(path, 1, head)
        seen = _look_at(path, head)
        before = known.get(path.name)
        if before is None or not before.is_still(seen):
            followed = follow(path, head)
            if not followed.whole:
                raise BrokenSegment(path, followed.lines + 1, followed.head)
            before = msgspec.structs.replace(
                seen, next=followed.head.number, h=followed.head.hash.decode("utf-8", "replace")
            )
        checked.append(before)
        head = ChainHead(before.next, before.h.encode())
    if keep_note and checked != list(known.values()):
        write_atomically(folder / _NOTE, msgspec.json.encode(checked))
    return head


def _look_at(path: Path, head: ChainHead) -> CheckedSegment:
    found = path.stat()
    after = head.hash.decode("utf-8", "replace")
    return CheckedSegment(
        path.name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, after, 0, ""
    )


def _read_note(folder: Path) -> list[CheckedSegment]:
    try:
        return msgspec.json.decode((folder / _NOTE).read_bytes(), type=list[CheckedSegment])
    except (OSError, msgspec.MsgspecError):
        # Then everything is checked anew.
        return []


class Segment(NamedTuple):
    """One file, and the number of its first record."""

    first: int
    path: Path


class SegmentTail(NamedTuple):
    """The segment that is written to, what it holds, and where the chain stands."""

    segment: Segment
    size: int
    head: ChainHead


class _Removed(msgspec.Struct, frozen=True):
    through: int
    h: str


def segment_at(folder: Path, first: int) -> Segment:
    return Segment(first, folder / f"{first:012}.jsonl")


def segments_of(folder: Path) -> list[Segment]:
    """All segments that count, oldest first; none when there is no such folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    begin = chain_start(folder).number
    found = [Segment(int(match[1]), folder / name) for name in names if (match := _NAME.fullmatch(name))]
    return sorted(segment for segment in found if segment.first >= begin)


def chain_start(folder: Path) -> ChainHead:
    """Where the oldest record that was not removed by retention chains to."""
    try:
        removed = msgspec.json.decode((folder / REMOVED_FILE).read_bytes(), type=_Removed)
    except FileNotFoundError:
        return first_head(folder)
    except msgspec.MsgspecError as fault:
        raise UsageError(
            f"{folder / REMOVED_FILE} cannot be read ({fault}): restore it from a copy"
        ) from None
    return ChainHead(removed.through + 1, removed.h.encode())


def first_head(folder: Path) -> ChainHead:
    """Where the chain of a new journal stands."""
    return ChainHead(1, folder.resolve().parent.name.encode())


def make_folder(folder: Path) -> None:
    """Make the folder and those above it that are missing, all for the owner only, and durable."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def last_line(path: Path) -> bytes:
    """The last line of a file, with its newline if it has one."""
    with path.open("rb") as file:
        start = file.seek(0, os.SEEK_END)
        end = b""
        while start:
            step = min(_BLOCK, start)
            start = file.seek(start - step)
            end = file.read(step) + end
            newline = end.rfind(b"\n", 0, len(end) - 1)
            if newline >= 0:
                return end[newline + 1 :]
    return end


def find_tail(folder: Path, *, repair: bool, at_least: int = 0) -> SegmentTail:
    """Where a journal ends. With `repair`, a torn end is cut off and kept in a file beside it.

    All segments are checked, closed ones only if they changed since the last time. Raises UsageError for
    damage that no crash explains, and for a journal that ends before record `at_least`, of which others know
    that it was there (D-98); nothing is cut off then.
    """
    segments = segments_of(folder)
    head = begin = chain_start(folder)
    tail = SegmentTail(segment_at(folder, begin.number), 0, begin)
    is_torn = False
    if segments:
        segment = segments[-1]
        try:
            head = follow_closed(folder, [each.path for each in segments[:-1]], begin, keep_note=repair)
            if head.number != segment.first:
                raise BrokenSegment(segment.path, 1, head)
        except BrokenSegment as broken:
            raise _broken_error(folder, broken, at_least) from None
        followed = follow(segment.path, head)
        is_torn = not followed.whole
        if is_torn and not is_torn_end(segment.path, followed):
            raise _damage_error(segment.path, followed)
        tail = SegmentTail(segment, followed.size, followed.head)
    last = tail.head.number - 1
    if last < at_least:
        raise ended_early_error(tail.segment.path if segments else folder, folder, last, at_least)
    if is_torn and repair:
        _cut_off(tail.segment.path, tail.size)
    return tail


def repair_hint(folder: Path) -> str:
    """What to do about a journal that is not whole; `folder` is that of the journal."""
    data = folder.parent.parent.parent
    return (
        f"Restore {data} from a copy, or type `moot journal repair --data {shlex.quote(str(data))} "
        f"--space {folder.parent.name}`: it says what would be given up, and asks first"
    )


def ended_early_error(path: Path, folder: Path, last: int, known: int) -> UsageError:
    missing = f"record {known}" if known == last + 1 else f"records {last + 1} to {known}"
    is_there = "ends with" if path.exists() and last else "is gone or empty: it should hold more than"
    return UsageError(
        f"the journal of {folder.parent.name} is not whole: {path} {is_there} record {last}, but {missing} "
        f"had been written: {folder.parent.parent.parent / 'moot.sqlite'} or "
        f"{folder.parent / 'position.json'} tells of record {known}. "
        f"What was decided there, a kick or a revocation, would be undone. {repair_hint(folder)}"
    )


def _broken_error(folder: Path, broken: BrokenSegment, known: int) -> UsageError:
    path, first, expected = broken.path, int(broken.path.stem), broken.head.number
    if broken.line == 1 and first != expected:
        missing = f"record {expected}" if first == expected + 1 else f"records {expected} to {first - 1}"
        why = f"{missing} should come before {path}, which begins with record {first}: no file holds them"
        if expected == 1 and not (folder / REMOVED_FILE).exists():
            why += f", and there is no {REMOVED_FILE} to name them as removed on purpose"
    else:
        last = f"record {expected - 1} is the last that holds"
        why = f"{path} line {broken.line} is not what was written: {last}"
    if known:
        why += f"; record {known} had been written"
    return UsageError(f"the journal of {folder.parent.name} is not whole: {why}. {repair_hint(folder)}")


def _damage_error(path: Path, followed: ChainCheck) -> UsageError:
    return UsageError(
        f"the journal of {path.parent.parent.name} is damaged at {path} line {followed.lines + 1}: whole "
        f"records follow it, so no crash did this. Record {followed.head.number - 1} is the last that holds. "
        f"{repair_hint(path.parent)}"
    )


def _cut_off(path: Path, size: int) -> None:
    """Cut a file back, keeping what is cut off beside it."""
    torn = path.with_name(f"{path.name}.{size}.torn")
    with path.open("rb+") as file:
        file.seek(size)
        with open(os.open(torn, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as kept:
            shutil.copyfileobj(file, kept)
            kept.flush()
            os.fsync(kept.fileno())
            cut = kept.tell()
        file.truncate(size)
        os.fsync(file.fileno())
    log.warning("torn end of the journal cut off", extra={"segment": path.name, "bytes": cut})


def remove_segments(folder: Path, through: int) -> None:
    """Remove the segments whose records all are `through` or older; not the last, none of a held space."""
    if (folder.parent / HOLD_FILE).exists():
        return
    old = [
        (segment, following.first - 1)
        for segment, following in pairwise(segments_of(folder))
        if following.first - 1 <= through
    ]
    if old:
        newest, last = old[-1]
        note = _Removed(last, hash_in(last_line(newest.path)).decode())
        fresh = folder / f"{REMOVED_FILE}.new"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(note))
            file.flush()
            os.fsync(file.fileno())
        # First the note, then the files: after a crash between the two, `remove_leftovers` does the rest.
        fresh.replace(folder / REMOVED_FILE)
        sync_folder(folder)
    remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Delete the files of segments that count as removed."""
    begin = chain_start(folder).number
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and int(match[1]) < begin:
            path.unlink()
