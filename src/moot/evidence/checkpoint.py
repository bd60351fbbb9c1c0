"""Checkpoints: a log's origin, size and root in three lines, signed by the log and cosigned by witnesses.

A log's own signature is over the text. A witness's (cosignature/v1) is over a line with the time before it,
and says: at that time this was the largest tree that I had seen of this log, and the smaller ones that I saw
are its beginning.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Final, NamedTuple

from moot.evidence.merkle_tree import HASH_BYTES
from moot.evidence.signed_note import (
    COSIGNATURE,
    ED25519,
    Note,
    NoteError,
    Signature,
    SignerKey,
    VerifierKey,
    decode_base64,
    parse_note,
)

_TEXT: Final = re.compile(r"([^\n]+)\n(0|[1-9][0-9]{0,18})\n([A-Za-z0-9+/]{43}=)\n((?:[^\n]+\n)*)")


class Checkpoint(NamedTuple):
    """How large a log is, and the root of its tree."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"

    def signed(self, key: SignerKey) -> Note:
        text = self.text()
        return Note(text, (key.signature(text),))


def parse_checkpoint(raw: bytes) -> tuple[Checkpoint, Note]:
    """Read a checkpoint without judging who signed it; raises NoteError if it is none."""
    note = parse_note(raw)
    found = _TEXT.fullmatch(note.text)
    root = decode_base64(found[3]) if found else None
    if found is None or root is None or len(root) != HASH_BYTES:
        raise NoteError("a checkpoint has three lines: the origin, the size, and the root in base64")
    return Checkpoint(found[1], int(found[2]), root), note


def cosign(note: Note, key: SignerKey, seconds: int) -> Signature:
    """A witness's signature below a checkpoint, of this time."""
    signed = key.sign(_cosigned(note.text, seconds))
    return Signature(key.verifier.name, key.verifier.key_id, seconds.to_bytes(8, "big") + signed)


def cosigned_at(signature: bytes) -> int:
    """The time that a cosignature states, in seconds since 1970."""
    return int.from_bytes(signature[:8], "big")


def verifies(key: VerifierKey, text: str, signature: bytes) -> bool:
    """Whether a log's or a witness's signature fits this text."""
    if key.type == ED25519:
        return key.verifies(text.encode(), signature)
    return (
        key.type == COSIGNATURE
        and len(signature) == 72
        and cosigned_at(signature) > 0
        and key.verifies(_cosigned(text, cosigned_at(signature)), signature[8:])
    )


def signers(note: Note, known: Iterable[VerifierKey]) -> list[VerifierKey]:
    """The logs and witnesses among the known keys that signed; NoteError if one signed something else."""
    return note.signers(known, verifies)


def _cosigned(text: str, seconds: int) -> bytes:
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()
