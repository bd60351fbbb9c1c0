"""One record as a line of the journal, and the hash that ties it to the line before.

A line is `{"n":N,MEMBERS,"h":"HASH"}` and a newline. HASH is the SHA-256, in hex, of the hash of the record
before it followed by this line without its `h` member: `{"n":N,MEMBERS}`. The first record of a journal
follows the name of the space's folder. So a line that was changed, removed or moved shows, and anybody
can check that with a few lines of any language. It is no signature: whoever rewrites everything from some
record on can make it fit again; a copy of one later hash kept elsewhere shows that too.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple

# `,"h":"` before the 64 digits, `"}` and the newline after them.
_BEFORE: Final = b',"h":"'
_AFTER: Final = b'"}\n'
_TAIL: Final = len(_BEFORE) + 64 + len(_AFTER)
# As a number: for `b"\n" in members` CPython first raises a TypeError and catches it, six times the cost.
_LINE_FEED: Final = 0x0A

What = Literal["changed", "removed", "reordered", "truncated"]


class Head(NamedTuple):
    """Where a chain stands: the number that comes next, and the hash that it follows."""

    number: int
    hash: bytes


class Followed(NamedTuple):
    """How far the chain holds in one segment. `whole` is False when a line after that does not fit."""

    head: Head
    size: int  # bytes that hold
    lines: int  # lines that hold
    whole: bool


def seal(batch: Sequence[bytes], head: Head) -> tuple[bytes, Head]:
    """The lines of these records, and where the chain stands behind them."""
    # Joined, not formatted, and all in one loop: a gateway under load spends its time here.
    number, previous = head
    parts: list[bytes] = []
    add, join = parts.extend, b"".join
    for members in batch:
        if _LINE_FEED in members:
            # Inside a JSON text a newline is white space only: a string cannot hold one unescaped.
            members = members.replace(b"\n", b" ")
        start = b'{"n":%d,' % number
        previous = sha256(join((previous, start, members, b"}"))).hexdigest().encode()
        add((start, members, _BEFORE, previous, _AFTER))
        number += 1
    return join(parts), Head(number, previous)


def hash_in(line: bytes) -> bytes:
    """The hash that a line carries, b"" when it carries none."""
    return line[-67:-3] if looks_whole(line) else b""


def number_in(line: bytes) -> int:
    """The number that a line carries, 0 when it carries none."""
    digits = line[5 : line.find(b",", 5, 26)] if line.startswith(b'{"n":') else b""
    return int(digits) if digits.isdigit() else 0


def looks_whole(line: bytes) -> bool:
    """Whether a line has both ends of a record, whatever stands between them."""
    return line.startswith(b'{"n":') and line.endswith(_AFTER) and line[-_TAIL:-67] == _BEFORE


def follow(path: Path, head: Head) -> Followed:
    """Check one segment line by line; stops at the first line that does not fit."""
    number, previous = head
    size = lines = 0
    with path.open("rb", buffering=1 << 20) as file:
        for line in file:
            stated = line[-67:-3]
            if (
                sha256(b"%b%b}" % (previous, line[:-_TAIL])).hexdigest().encode() != stated
                or not line.startswith(b'{"n":%d,' % number)
                or not looks_whole(line)
            ):
                return Followed(Head(number, previous), size, lines, whole=False)
            previous = stated
            number += 1
            lines += 1
            size += len(line)
    return Followed(Head(number, previous), size, lines, whole=True)
