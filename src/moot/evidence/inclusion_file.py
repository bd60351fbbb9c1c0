"""A proof in one file (c2sp.org/tlog-proof): that one entry is in a log which was signed and witnessed.

    c2sp.org/tlog-proof@v1
    index 73894
    gSKyXoYZ…=
    B95lDa8R…=

    example.com/log
    109482
    sFodV/vS…=

    — example.com/log hI2DJw…=

Whoever has the entry, this file and the public keys that count needs nobody else to check it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from moot.evidence.checkpoint import Checkpoint, parse_checkpoint
from moot.evidence.merkle_tree import HASH_BYTES, leaf_hash, proves_inclusion
from moot.evidence.signed_note import Note, NoteError, decode_base64

_FIRST_LINE: Final = "c2sp.org/tlog-proof@v1"
_INDEX: Final = re.compile(r"index (0|[1-9][0-9]{0,18})")
MAX_PROOF_HASHES: Final = 63


class InclusionFile(msgspec.Struct, frozen=True):
    """`extra` is what the reader needs to make the entry; nobody signed it."""

    index: int
    proof: Sequence[bytes]
    note: Note
    checkpoint: Checkpoint
    extra: bytes = b""

    def __str__(self) -> str:
        lines = [_FIRST_LINE]
        if self.extra:
            lines.append(f"extra {b64encode(self.extra).decode()}")
        lines.append(f"index {self.index}")
        lines += [b64encode(each).decode() for each in self.proof]
        return "\n".join(lines) + f"\n\n{self.note}"

    def proves(self, entry: bytes) -> bool:
        """Whether this entry stands at the index in the tree of the checkpoint."""
        size, root = self.checkpoint.size, self.checkpoint.root
        return proves_inclusion(leaf_hash(entry), self.index, size, root, self.proof)


def parse_inclusion_file(raw: bytes) -> InclusionFile:
    """Read a proof without judging it; raises NoteError if it is none."""
    above, empty, note_text = raw.partition(b"\n\n")
    lines = above.decode("utf-8", "replace").split("\n")
    if not empty or lines.pop(0) != _FIRST_LINE:
        raise NoteError(f"a proof begins with the line {_FIRST_LINE!r}")
    extra: bytes | None = b""
    if lines and lines[0].startswith("extra "):
        extra = decode_base64(lines.pop(0).removeprefix("extra "))
    index = _INDEX.fullmatch(lines.pop(0)) if lines else None
    hashes = [decode_base64(line) for line in lines]
    proof = [hash for hash in hashes if hash is not None and len(hash) == HASH_BYTES]
    if index is None or extra is None or len(proof) != len(lines) or len(proof) > MAX_PROOF_HASHES:
        raise NoteError("a proof has `index N`, then hashes in base64, one a line")
    checkpoint, note = parse_checkpoint(note_text)
    return InclusionFile(int(index[1]), proof, note, checkpoint, extra)
