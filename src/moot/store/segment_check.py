"""Whether the closed segments of a journal are what was written, each of them read once.

A closed segment does not change any more, so that one which was checked before needs no second look while
the file system says that it is still the same file: its size, its times and its inode are kept in
`verified.json` beside it. Without that note, or after a copy, all of it is read again, at some 150 MiB a
second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from moot.resilience.atomic_file import write_atomically
from moot.store.record_chain import ChainHead, follow

_NOTE: Final = "verified.json"


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
