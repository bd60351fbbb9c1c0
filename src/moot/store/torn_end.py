"""Whether what does not fit at the end of a journal can be what a crash left there.

A crash, or a power cut, leaves one batch that is cut short or has holes, and behind it nothing, zeros or
rubbish. If another batch was sealed behind the place, then that place was written long before: it is damage
in the middle, and to cut it off would undo what was acknowledged.

Mostly that shows by a seal with a record behind it. If the seal itself is what was damaged, the hash that it
had is computed from the batch that it belongs to: if the batch behind it follows that one, it was sealed.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Final

from moot.store.record_chain import SEAL_BYTES, ChainCheck

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
