"""The pieces of a text that has a meaning, and how far each may be generalised.

fixed     always as it is: commands, flags, hosts, domains, separators, endings
word      as it is, or one of a list that was seen: subcommands, values of options
name      also a slot, when many different ones were seen and nearly all are new: branches, packages
stem      the same for names of files and of people in addresses, which are new more often than not
number    a range: counts, sizes
digits    as many digits as were seen: numbers of versions and of issues
hex, uuid, date, prose, message, text       any other of that kind
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Role = Literal[
    "fixed", "word", "name", "stem", "ending",
    "number", "digits", "amount", "hex", "uuid", "date", "prose", "message", "text",
]  # fmt: skip

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
_HEX: Final = re.compile(r"(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,64}", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_DATE: Final = re.compile(r"[12][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_PIECES: Final = re.compile(r"[A-Za-z0-9_-]+|[^A-Za-z0-9_-]", re.ASCII)
# What an odd name of a file may contain beside letters and digits, as it is.
_ODD_NAME: Final = re.compile(r"[A-Za-z0-9_ .,+=@#()-]+", re.ASCII)
_ENDING: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Atom:
    role: Role
    text: str


def fixed(text: str) -> Atom:
    return Atom("fixed", text)


def name_atom(text: str, role: Role = "name") -> Atom:
    """The atom of one run of letters, digits, `_` and `-`: what it is made of decides."""
    if _UUID.fullmatch(text):
        return Atom("uuid", text)
    if _DATE.fullmatch(text):
        return Atom("date", text)
    if _DIGITS.fullmatch(text):
        return Atom("digits", text)
    if _HEX.fullmatch(text):
        return Atom("hex", text)
    return Atom(role if NAME.fullmatch(text) else "fixed", text)


def word_atoms(text: str, role: Role = "name") -> Iterator[Atom]:
    """The atoms of a word: names with separators between them, which are fixed."""
    for piece in _PIECES.findall(text):
        yield name_atom(piece, role) if NAME.fullmatch(piece) else fixed(piece)


def file_atoms(path: str) -> list[Atom] | None:
    """The atoms of a path: folders, the name of the file, its ending. None if it is not normalised.

    Never across `..`; nothing hidden, escaped or empty has a slot.
    """
    root, rest = ("/", path[1:]) if path.startswith("/") else ("", path)
    folder = rest.endswith("/")
    segments = rest.removesuffix("/").split("/")
    if any(segment in ("", ".", "..") or not segment.isascii() for segment in segments):
        return None
    if not all(char.isprintable() and char not in "\\%" for char in path):
        return None
    atoms = [fixed(root)] if root else []
    for segment in segments[:-1]:
        atoms += [_folder_atom(segment), fixed("/")]
    return [*atoms, *([_folder_atom(segments[-1]), fixed("/")] if folder else _file_name_atoms(segments[-1]))]


def _folder_atom(segment: str) -> Atom:
    return name_atom(segment, "name") if NAME.fullmatch(segment) else fixed(segment)


def _file_name_atoms(name: str) -> list[Atom]:
    if name.startswith((".", "~", "-")) or not _ODD_NAME.fullmatch(name):
        return [fixed(name)]
    stem, ending = name, ""
    cut = name.rfind(".")
    if cut > 0 and _ENDING.fullmatch(name[cut:]):
        stem, ending = name[:cut], name[cut:]
    # Without an ending it may be a folder, a program or a key: its kind is not known.
    return [Atom("stem" if ending else "name", stem), *([Atom("ending", ending)] if ending else [])]


def is_path_like(text: str) -> bool:
    """Whether a word can only be a path: with a slash, or a name with an ending that is no number."""
    return "/" in text or bool(_ENDING.search(text) and _file_name_atoms(text)[-1].role == "ending")
