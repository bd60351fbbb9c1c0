"""Records as lines of the journal, and the hashes that tie them to what was written before.

A line is `{"n":N,MEMBERS,"s":"SALT"}` and a newline. What one tick of the gateway brought is written at once
and is a *batch*; its last line carries a seal, `{"n":N,MEMBERS,"s":"SALT","h":"HASH"}`. HASH is the SHA-256,
in hex, of the seal before it followed by all lines of the batch, the last one without its `h` member and
newline. The first batch of a journal follows the name of the space's folder. So a line that was changed,
removed or moved shows, and anybody can check that with a few lines of any language. It is no signature:
whoever rewrites everything from some record on can make it fit again; a copy of one later seal kept elsewhere
shows that too.

One hash a batch, not a line: a busy gateway writes batches of some sixty records, and hashing each by itself
cost more than deciding on it. A quiet one seals every line.

In a cluster each gateway numbers its own copy, so a record that all of them have carries a number of its own
before the salt, `"c":C`, and its entry in the log is the hash of the line without `"n":N,` too.

The salt is random: so the hash of a record tells nothing of what is in it, and may be shown to anybody, also
when the record itself was erased. Records of earlier versions have none: the hash of such a one can be
compared with guesses.
"""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64encode
from binascii import unhexlify
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple

# `,"h":"` before the 64 digits, `"}` and the newline after them.
_BEFORE: Final = b',"h":"'
_AFTER: Final = b'"}\n'
SEAL_BYTES: Final = len(_BEFORE) + 64 + len(_AFTER)

# The first member of what stands where a record was erased; no other record begins with it.
_ERASED: Final = b',"erased":"'

# 132 random bits in the letters of base64.
SALT_CHARS: Final = 22
# How a record ends that all gateways of a cluster have. An envelope stands in braces of its own before it.
_SHARED_END: Final = re.compile(rb',"c":([1-9][0-9]{0,17}),"s":"[\w-]{22}"\}$')
_SHARED_END_CHARS: Final = 64
_SHARED_STUB: Final = re.compile(rb'\{"n":\d+,"erased":"[0-9a-f]{64}","c":([1-9][0-9]{0,17}),')
_SALTS_AT_ONCE: Final = 1024
# So much of a segment is in memory while it is checked.
_FOLLOWED_BYTES: Final = 1 << 20

# As a number: for `b"\n" in members` CPython first raises a TypeError and catches it, six times the cost.
_LINE_FEED: Final = 0x0A

_sealed_batches: Callable[[bytes, bytes, int], tuple[bytes, int, int, int, bool]] | None
try:
    from moot.store._record_hashes import sealed_batches as _sealed_batches
except ImportError:
    _sealed_batches = None

What = Literal["changed", "removed", "reordered", "truncated"]


# What one write takes: lines but for the last closing brace, and the seal that ends them.
Lines = tuple[bytes, bytes]


class ChainHead(NamedTuple):
    """Where a chain stands: the number that comes next, and the seal that it follows."""

    number: int
    hash: bytes


class ChainCheck(NamedTuple):
    """How far the chain holds in one segment. `whole` is False when what follows is not a sealed batch."""

    head: ChainHead
    size: int  # bytes that hold
    lines: int  # lines that hold
    whole: bool


def random_salts() -> bytes:
    """The salts of many records, one behind the other: to ask the kernel for each would cost the most."""
    return urlsafe_b64encode(os.urandom(_SALTS_AT_ONCE * SALT_CHARS * 6 // 8))


class _SaltPool:
    """Salts that were drawn and not used yet."""

    __slots__ = ("_at", "_salts")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._salts, self._at = b"", 0

    def take(self) -> bytes:
        if self._at >= len(self._salts):
            self._salts, self._at = random_salts(), 0
        at = self._at
        self._at = at + SALT_CHARS
        return self._salts[at : at + SALT_CHARS]


_pool: Final = _SaltPool()
if hasattr(os, "register_at_fork"):
    # Two processes must not draw the same ones.
    os.register_at_fork(after_in_child=_pool.forget)


def line(number: int, members: bytes, rest: bytes = b"", ending: bytes = b"") -> bytes:
    """A record but for its closing brace; `members` and `rest` are the inside of a JSON object.

    `ending` is its salt, and what else stands at its end, if that is not drawn here.
    """
    text = b'{"n":%d,%b%b%b' % (number, members, rest, ending or b',"s":"%b"' % _pool.take())
    # Inside a JSON text a newline is white space only: a string cannot hold one unescaped.
    return text.replace(b"\n", b" ") if _LINE_FEED in text else text


def seal(batch: Sequence[bytes], head: ChainHead, next_number: int) -> tuple[Lines, ChainHead]:
    """These lines, the seal behind them, and where the chain stands then.

    A text of the batch may hold several lines, and be any buffer that reads like bytes.
    """
    text = batch[0] if len(batch) == 1 else b"}\n".join(batch)
    digest = sha256(head.hash)
    digest.update(text)
    digest.update(b"}")
    hash = digest.hexdigest().encode()
    return (text, b"".join((_BEFORE, hash, _AFTER))), ChainHead(next_number, hash)


def batch_hash(before: bytes, batch: Sequence[bytes]) -> bytes:
    """The seal that these whole lines should have behind the seal `before`; the last one carries one."""
    digest = sha256(before)
    for each in batch[:-1]:
        digest.update(each)
    digest.update(batch[-1][:-SEAL_BYTES] + b"}")
    return digest.hexdigest().encode()


def hash_in(line: bytes) -> bytes:
    """The seal that a line carries, b"" when it carries none."""
    return line[-67:-3] if is_sealed(line) else b""


def entry_of(line: bytes) -> bytes:
    """What stands for a whole line in the log: the SHA-256 of it without its seal and newline.

    A record that was erased left its entry behind: `{"n":N,"erased":"HEX",…}`.
    """
    comma = line.find(b",", 5)
    if line.startswith(_ERASED, comma):
        kept = line[comma + len(_ERASED) :].partition(b'"')[0]
        with suppress(ValueError):
            if len(kept) == 64:
                return unhexlify(kept)
    return sha256(logged_text(line)).digest()


def logged_text(line: bytes) -> bytes:
    """What of a whole line its entry is the hash of."""
    text = line[:-SEAL_BYTES] + b"}" if is_sealed(line) else line[:-1]
    return b"{" + text[text.find(b",", 5) + 1 :] if _SHARED_END.search(text, _tail(text)) else text


def shared_ending_in_python(seed: bytes, space: bytes, number: int) -> bytes:
    """How a record ends that all gateways of a cluster have: its number there, and a hash of random bits that
    stand in the cluster's log beside the input, and nowhere else. Whoever has not read that message there
    cannot know it, and with record and message it is gone."""
    digest = sha256(b"salt %b/%b/%d" % (seed, space, number)).digest()
    return b',"c":%d,"s":"%b"' % (number, urlsafe_b64encode(digest)[:SALT_CHARS])


shared_ending: Callable[[bytes, bytes, int], bytes]
try:
    from moot.store._record_hashes import shared_ending as _shared_ending

    shared_ending = _shared_ending
except ImportError:
    shared_ending = shared_ending_in_python


def shared_number(line: bytes) -> int:
    """The number that a whole line has in all gateways of a cluster; 0 for one of this gateway alone."""
    text = line[:-SEAL_BYTES] + b"}" if is_sealed(line) else line[:-1]
    found = _SHARED_END.search(text, _tail(text)) or _SHARED_STUB.match(line)
    return int(found[1]) if found is not None else 0


def _tail(text: bytes) -> int:
    return max(0, len(text) - _SHARED_END_CHARS)


def is_erased(line: bytes) -> bool:
    """Whether only a stub is left of a record."""
    return line.startswith(_ERASED, line.find(b",", 5, 26))


def number_in(line: bytes) -> int:
    """The number that a line carries, 0 when it carries none."""
    digits = line[5 : line.find(b",", 5, 26)] if line.startswith(b'{"n":') else b""
    return int(digits) if digits.isdigit() else 0


def is_record(line: bytes) -> bool:
    """Whether a line has both ends of a record, whatever stands between them."""
    return line.endswith(b"}\n") and line.startswith(b'{"n":')


def is_sealed(line: bytes) -> bool:
    """Whether a line ends a batch. An envelope cannot pretend to: it stands inside a record's own braces."""
    return line[-SEAL_BYTES:-67] == _BEFORE and line.endswith(_AFTER) and line.startswith(b'{"n":')


def follow(path: Path, head: ChainHead) -> ChainCheck:
    """Check one segment batch by batch; stops at the first one that does not fit or is not sealed."""
    if _sealed_batches is None:
        return follow_in_python(path, head)
    number, hash = head
    size = lines = 0
    rest = b""
    with path.open("rb", buffering=0) as file:
        # A batch that is longer is read at once the next time, and not a block at a time.
        while block := file.read(max(_FOLLOWED_BYTES, len(rest))):
            text = rest + block
            hash, number, held, held_lines, is_wrong = _sealed_batches(text, hash, number)
            size += held
            lines += held_lines
            rest = text[held:]
            if is_wrong:
                break
    return ChainCheck(ChainHead(number, hash), size, lines, whole=not rest)


def follow_in_python(path: Path, head: ChainHead) -> ChainCheck:
    """The same, where nothing is compiled."""
    number, hash = head
    size = lines = 0
    open_size = open_lines = 0
    has_stub = False
    digest = sha256(hash)
    with path.open("rb", buffering=1 << 20) as file:
        for line in file:
            if not line.startswith(b'{"n":%d,' % (number + open_lines)) or not is_record(line):
                return ChainCheck(ChainHead(number, hash), size, lines, whole=False)
            open_lines += 1
            open_size += len(line)
            has_stub = has_stub or is_erased(line)
            if not is_sealed(line):
                digest.update(line)
                continue
            digest.update(line[:-SEAL_BYTES] + b"}")
            stated = line[-67:-3]
            # What an erased record was hashed as is gone with it: then the log vouches for the others.
            if digest.hexdigest().encode() != stated and not has_stub:
                return ChainCheck(ChainHead(number, hash), size, lines, whole=False)
            number += open_lines
            lines += open_lines
            size += open_size
            open_size = open_lines = 0
            has_stub = False
            hash = stated
            digest = sha256(hash)
    return ChainCheck(ChainHead(number, hash), size, lines, whole=not open_lines)
