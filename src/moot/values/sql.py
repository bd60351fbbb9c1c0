"""SQL: a statement as it is written, in which only the values may vary.

Tables, columns, operators, joins, functions, keywords: all of it stays as it was approved. Numbers and texts
in quotes are the only parts that become slots, and a slot never holds a quote, so that no value can become
more of the statement. Only one statement without comments is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from moot.values.atoms import Atom, fixed, name_atom, word_atoms
from moot.values.scalars import email_atoms
from moot.values.templates import ValueTemplate

MAX_SQL_CHARS: Final = 2_000
# Comments, a second statement, dollar quotes, escapes: dialects disagree about them.
_HIDING: Final = re.compile(r"--|/\*|\*/|#|;|\\|\$|`|\0|@@")
# A text, a name in quotes (to some databases a text), a word, a number, a sign.
_TOKEN: Final = re.compile(
    r"(?P<text>'(?:[^']|'')*')|(?P<name>\"[^\"']*\")|(?P<word>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?)(?![A-Za-z0-9_.'\"])|(?P<space>\s+)|(?P<sign>[^\sA-Za-z0-9_'\"])",
    re.ASCII,
)
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]{0,11})\.[0-9]{1,4}", re.ASCII)
# Slots that could hold a quote, and the rest of a statement with it.
UNSAFE_SLOTS: Final = frozenset({"prose", "lines", "text", "message", "page", "id"})


def sql_atoms(text: str) -> list[Atom] | None:
    """The statement, its values apart from the rest; None if it cannot be told what is a value."""
    body = text.strip().removesuffix(";").strip()
    if not body or len(body) > MAX_SQL_CHARS or not text.isascii() or _HIDING.search(body):
        return None
    atoms: list[Atom] = []
    end, before, selects = 0, "", False
    for found in _TOKEN.finditer(body):
        if found.start() != end:
            return None
        end, token = found.end(), found[0]
        match found.lastgroup:
            case "space":
                atoms.append(fixed(" "))
                continue
            case "text":
                atoms += _text_atoms(token)
            case "number":
                # Which row it is, or how many, how large, how far.
                atoms.append(_number_atom(token, is_key=selects and before == "="))
            case _:
                atoms.append(fixed(token))
        before = token.upper()
        selects = before == "WHERE" or (selects and before != "SET")
    return list(_joined(atoms)) if end == len(body) else None


def _number_atom(text: str, *, is_key: bool) -> Atom:
    if _WHOLE.fullmatch(text):
        return Atom("digits" if is_key else "number", text)
    return Atom("amount" if _DECIMAL.fullmatch(text) else "word", text)


def _text_atoms(token: str) -> Iterator[Atom]:
    inner = token[1:-1]
    yield fixed("'")
    whole = name_atom(inner, "fixed")
    if whole.role != "fixed":
        yield whole
    elif "''" in inner or len(inner) > 100:
        yield Atom("word", inner)
    else:
        yield from email_atoms(inner) or word_atoms(inner)
    yield fixed("'")


def _joined(atoms: list[Atom]) -> Iterator[Atom]:
    """With what is fixed in one piece."""
    for is_fixed, group in groupby(atoms, lambda atom: atom.role == "fixed"):
        some = list(group)
        yield from [fixed("".join(atom.text for atom in some))] if is_fixed else some


def names_a_part(template: ValueTemplate) -> bool:
    """Whether a slot stands where a table, a column or a keyword does, so that more varies than values.

    For checks of rules that somebody wrote: what is learned has slots for values alone.
    """
    quotes = 0
    for part in template.parts:
        if isinstance(part, str):
            quotes += part.count("'")
        elif quotes % 2 == 0 and part.kind not in ("digits", "range"):
            return True
    return False
