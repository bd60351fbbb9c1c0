"""Signed notes (c2sp.org/signed-note): a text, an empty line, and a line for each signature.

    example.com/log
    42
    m2vY…=

    — example.com/log hI2DJw…=

A signature line has the key's name, and in base64 the key's id and the signature. The id is a short hash of
name, type and public key; name and id together say which key it was. Whoever reads a note ignores keys that
are not known to it, and refuses the note if one that is known did not sign this text.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from moot.errors import UsageError

# Types of signatures: the log's own, and a witness's with the time at which it saw the text.
ED25519: Final = 0x01
COSIGNATURE: Final = 0x04

MAX_NOTE_BYTES: Final = 64 << 10
MAX_SIGNATURES: Final = 64

_DASH: Final = "— "
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_NAME: Final = re.compile(r"[^\s+]+")


class NoteError(UsageError):
    """A note that is none, or whose signatures do not hold."""


class Signature(NamedTuple):
    """A line below a note; `bytes` has what follows the key's id."""

    name: str
    key_id: bytes
    bytes: bytes

    def line(self) -> str:
        return f"{_DASH}{self.name} {b64encode(self.key_id + self.bytes).decode()}\n"


class VerifierKey(NamedTuple):
    """The public half of a key, with its name and what it signs."""

    name: str
    type: int
    public: bytes

    @property
    def key_id(self) -> bytes:
        return sha256(self.name.encode() + b"\n" + bytes([self.type]) + self.public).digest()[:4]

    def __str__(self) -> str:
        """As others write it: NAME+ID+KEY."""
        return f"{self.name}+{self.key_id.hex()}+{b64encode(bytes([self.type]) + self.public).decode()}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Raises NoteError if it is no Ed25519 key, or its id is not its own."""
        name, _, rest = text.partition("+")
        id, _, encoded = rest.partition("+")
        raw = decode_base64(encoded)
        if raw is None or len(raw) != 33 or raw[0] not in (ED25519, COSIGNATURE) or not _NAME.fullmatch(name):
            raise NoteError(f"{text!r} is no public key: NAME+ID+BASE64 of an Ed25519 key is needed")
        key = cls(name, raw[0], raw[1:])
        if key.key_id.hex() != id:
            raise NoteError(f"{text!r} is no public key: its id should be {key.key_id.hex()}")
        return key

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Whether this key made an Ed25519 signature over exactly these bytes."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class SignerKey:
    """A private key under its name."""

    def __init__(self, name: str, private: Ed25519PrivateKey, type: int = ED25519) -> None:
        if not _NAME.fullmatch(name):
            raise NoteError(f"{name!r} cannot name a key: it must not be empty or contain spaces or '+'")
        self._private = private
        self.verifier = VerifierKey(name, type, private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)

    def signature(self, text: str) -> Signature:
        """This key's signature below a text."""
        return Signature(self.verifier.name, self.verifier.key_id, self.sign(text.encode()))


class Verifies(Protocol):
    """What kind of signature a key of some type makes over a text."""

    def __call__(self, key: VerifierKey, text: str, signature: bytes) -> bool: ...


class Note(NamedTuple):
    """A text, which ends in a newline, and what stands below it."""

    text: str
    signatures: Sequence[Signature]

    def __str__(self) -> str:
        return self.text + "\n" + "".join(each.line() for each in self.signatures)

    def with_signatures(self, added: Iterable[Signature]) -> Note:
        """With further ones below; one that stands there already is not repeated."""
        return Note(self.text, tuple(dict.fromkeys((*self.signatures, *added))))

    def signers(self, known: Iterable[VerifierKey], verifies: Verifies) -> list[VerifierKey]:
        """Those of the known keys that signed; raises NoteError if one of them signed something else."""
        by_name = {(key.name, key.key_id): key for key in known}
        found: dict[VerifierKey, None] = {}
        for each in self.signatures:
            key = by_name.get((each.name, each.key_id))
            if key is None or key in found:
                continue
            if not verifies(key, self.text, each.bytes):
                raise NoteError(f"the signature of {key.name} does not fit the text above it")
            found[key] = None
        return list(found)


def verifies_ed25519(key: VerifierKey, text: str, signature: bytes) -> bool:
    """A plain signature over the text."""
    return key.type == ED25519 and key.verifies(text.encode(), signature)


def parse_note(raw: bytes) -> Note:
    """Read a note without judging who signed it; raises NoteError if it is none."""
    if len(raw) > MAX_NOTE_BYTES:
        raise NoteError(f"a signed note has at most {MAX_NOTE_BYTES} bytes")
    try:
        content = raw.decode()
    except UnicodeDecodeError:
        raise NoteError("a signed note is UTF-8 text") from None
    if _CONTROL.search(content):
        raise NoteError("a signed note has no control characters")
    text, empty, below = content.rpartition("\n\n")
    if not empty or not below.endswith("\n"):
        raise NoteError("a signed note is a text, an empty line, and signature lines that end with a newline")
    return Note(text + "\n", parse_signatures(below))


def parse_signatures(lines: str) -> tuple[Signature, ...]:
    """Signature lines, each with its newline; raises NoteError if one of them is none."""
    found = []
    for line in lines.removesuffix("\n").split("\n"):
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        raw = decode_base64(encoded)
        if not line.startswith(_DASH) or not _NAME.fullmatch(name) or raw is None or len(raw) < 5:
            raise NoteError(f"{line[:80]!r} is no signature line: '— NAME BASE64' is needed")
        found.append(Signature(name, raw[:4], raw[4:]))
    if len(found) > MAX_SIGNATURES:
        raise NoteError(f"a note has at most {MAX_SIGNATURES} signatures")
    return tuple(found)


def decode_base64(text: str) -> bytes | None:
    """The bytes of a base64 text in the one way to write them; None if it is none."""
    try:
        raw = b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if b64encode(raw).decode() == text else None
