"""URLs: scheme, whole host and port are fixed; the path is a path; the values of a query are words.

A place in the page (`#x`) is as it was. A URL with a user, an escape, an empty or dotted segment, a
look-alike letter or a host that is not in its plain form is not read: only the very same text can be
approved.
"""

from __future__ import annotations

import re
from typing import Final

from moot.values.atoms import Atom, file_atoms, fixed, name_atom, word_atoms

_URL: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,15})://(?P<host>[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
    r"(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:]+\])(?P<port>:[0-9]{1,5})?"
    r"(?P<path>/[A-Za-z0-9_./~@:+,=-]*)?(?P<query>\?[A-Za-z0-9_.=&+,:-]*)?"
    r"(?P<place>#[A-Za-z0-9_.:-]{1,100})?",
    re.ASCII,
)
_NUMERIC_HOST: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.ASCII)
MAX_URL_CHARS: Final = 2_000


def url_atoms(text: str) -> list[Atom] | None:
    found = _URL.fullmatch(text) if len(text) <= MAX_URL_CHARS else None
    if found is None or len(found["host"]) > 253 or _is_disguised(found["host"]):
        return None
    atoms = [fixed(f"{found['scheme']}://{found['host']}{found['port'] or ''}")]
    path = found["path"]
    if path and path != "/":
        inner = file_atoms(path)
        if inner is None:
            return None
        atoms += inner
    elif path:
        atoms.append(fixed("/"))
    if found["query"]:
        atoms += _query_atoms(found["query"])
    atoms += [fixed(found["place"])] if found["place"] else []
    return atoms


def _is_disguised(host: str) -> bool:
    """Numbers that are addresses in other notations: only four plain parts are one."""
    labels = host.split(".")
    if not _NUMERIC_HOST.fullmatch(labels[-1]):
        return False
    return len(labels) != 4 or not all(re.fullmatch("0|[1-9][0-9]{0,2}", label) for label in labels)


def _query_atoms(query: str) -> list[Atom]:
    atoms: list[Atom] = [fixed("?")]
    for at, pair in enumerate(query[1:].split("&")):
        name, equals, value = pair.partition("=")
        atoms.append(fixed(("&" if at else "") + name + equals))
        atoms += (
            [name_atom(value, "word")] if re.fullmatch("[A-Za-z0-9_-]+", value) else word_atoms(value, "word")
        )
    return atoms
