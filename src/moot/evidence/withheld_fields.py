"""Withholding single fields of a record, which the log has one hash of.

Where a field was, its line says `{"withheld":"HEX"}`: SHA-256 over a salt and the value, by RFC 8785
(or as it stands there, if it has more digits than that form can hold). The salt is made of that of the first
record that has this value there, and of the field's name: so the same value in proposal and request has the
same commitment, and a later receipt has it again. The salts of these lines
are withheld as well, or one could try values until the entry fits.

That such a line belongs to its entry, the log's key signs for, as a note:

    moot/withheld/v1
    ORIGIN
    ENTRY
    SHA-256 of the line, as it is shown
    HEX POINTER                         for each field that is withheld
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from moot.errors import UsageError
from moot.evidence.receipt_claims import canonical_bytes
from moot.evidence.signed_note import NoteError, SignerKey, VerifierKey, parse_note, verifies_ed25519
from moot.store.journal_reader import JournalRecord

TYPE: Final = "moot/withheld/v1"
# An answer to a challenge that has the hash of the call in it: whoever knows the rest could try values.
_PASSKEY: Final = "/passkey"
_SALT: Final = "/s"
# Shorter ones stand anywhere by chance.
_MIN_LEAK_CHARS: Final = 4

_decoder: Final = json.JSONDecoder()


class ShownLine(NamedTuple):
    """A line without some of its values: by pointer their commitments, and the values themselves."""

    text: str
    commitments: Mapping[str, str]
    values: Sequence[str]

    def note(self, origin: str, entry: str, key: SignerKey) -> str:
        """What ties it to its entry."""
        shown = sha256(self.text.encode()).hexdigest()
        fields = "".join(f"{digest} {pointer}\n" for pointer, digest in self.commitments.items())
        text = f"{TYPE}\n{origin}\n{entry}\n{shown}\n{fields}"
        return f"{text}\n{key.signature(text).line()}"

    def leak_in(self, texts: Iterable[tuple[int, str]]) -> int | None:
        """The number of a record that shows one of the values all the same."""
        wanted = {each.strip('"') for each in self.values}
        wanted = {each for each in wanted if len(each) >= _MIN_LEAK_CHARS}
        return next((number for number, text in texts if any(each in text for each in wanted)), None)


def check_pointer(pointer: str) -> None:
    """Raises UsageError for what is no JSON Pointer to a member."""
    if not pointer.startswith("/") or not pointer.isprintable() or pointer == "/":
        raise UsageError(f"{pointer!r} names no field: a JSON Pointer such as /params/arguments/amount does")


def withhold_fields(
    record: JournalRecord, text: str, pointers: Iterable[str], salts: dict[tuple[str, bytes], str]
) -> ShownLine | None:
    """The line without these fields of its message, or of itself if it has none; None if it has none of them.

    `salts` go from record to record of a receipt, in their order.
    """
    bases = [""]
    if "raw" in record.fields:
        made = record.fields.get("made")
        count = len(made) if isinstance(made, list) else 0
        bases = ["/raw/payload", *(f"/made/{number}/payload" for number in range(count))]
    commitments: dict[str, str] = {}
    values: list[str] = []
    # The outer ones first: what is within them is gone then.
    for pointer in sorted({*pointers, _PASSKEY}, key=len):
        for base in bases:
            place = _find(text, base + pointer)
            if place is not None:
                value = text[place]
                salt = salts.setdefault((pointer, _canonical(value)), record.text("s"))
                commitments[base + pointer] = digest = commitment(salt, pointer, value)
                text = text[: place.start] + _placeholder(digest) + text[place.stop :]
                values += [value] if pointer != _PASSKEY else []
    place = _find(text, _SALT)
    if not commitments or place is None:
        return None
    commitments[_SALT] = digest = commitment(record.text("s"), _SALT, text[place])
    return ShownLine(text[: place.start] + _placeholder(digest) + text[place.stop :], commitments, values)


def commitment(salt: str, pointer: str, value: str) -> str:
    """`salt` is that of the first record with this value there; `value` is as it stands in the line."""
    own = hmac.digest(salt.encode(), pointer.encode(), "sha256")
    return sha256(own + _canonical(value)).hexdigest()


def read_withheld(line: str, entry: str, origin: str, signed: str, known: Iterable[VerifierKey]) -> list[str]:
    """The pointers of what is withheld in a line; raises NoteError unless a known key of the log says so."""
    note = parse_note(signed.encode())
    if not note.signers([key for key in known if key.name == origin], verifies_ed25519):
        raise NoteError("no known key of the log signed for what is withheld of it")
    kind, of, about, shown, *fields = note.text.split("\n")[:-1] + [""] * 4
    if (kind, of, about, shown) != (TYPE, origin, entry, sha256(line.encode()).hexdigest()):
        raise NoteError("what is signed of its withheld fields is about another line")
    found = []
    for each in filter(None, fields):
        digest, _, pointer = each.partition(" ")
        place = _find(line, pointer)
        if place is None or line[place] != _placeholder(digest):
            raise NoteError(f"{pointer} is not withheld, though it is signed that it is")
        found.append(pointer)
    return found


def _canonical(value: str) -> bytes:
    return canonical_bytes(json.loads(value), value.encode()) or value.encode()


def _placeholder(digest: str) -> str:
    return f'{{"withheld":"{digest}"}}'


def _find(text: str, pointer: str) -> slice | None:
    """Where the value of a pointer stands; parsing it all would lose how numbers were written."""
    start = 0
    try:
        for step in pointer.split("/")[1:]:
            found = _member(text, start, step.replace("~1", "/").replace("~0", "~"))
            if found is None:
                return None
            start = found
        return slice(start, _decoder.raw_decode(text, start)[1])
    except (ValueError, RecursionError, IndexError):
        return None


def _member(text: str, start: int, step: str) -> int | None:
    if text[start] not in "{[":
        return None
    is_object, at, index = text[start] == "{", _skip(text, start + 1), 0
    while text[at] not in "}]":
        name = str(index)
        if is_object:
            name, at = _decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        if name == step:
            return at
        at = _skip(text, _decoder.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1
    return None


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
