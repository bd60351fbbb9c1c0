"""Which kind of value an argument holds, by its schema, its name and its content."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeVar

from moot.errors import UsageError
from moot.values.atoms import Atom, file_atoms, is_path_like
from moot.values.patches import is_patch, patch_atoms, patch_files
from moot.values.scalars import (
    amount_atoms,
    day_atoms,
    days_until,
    email_atoms,
    id_atoms,
    text_atoms,
    time_atoms,
)
from moot.values.shell import shell_atoms
from moot.values.sql import UNSAFE_SLOTS, sql_atoms
from moot.values.templates import ValueTemplate, is_prose, is_shell_like, is_sql_like, read_template
from moot.values.urls import url_atoms
from moot.values.word_lists import (
    BODY_NAMES,
    CODE_NAMES,
    EDITED_NAMES,
    EDITING_TOOLS,
    PATH_NAMES,
    PAYEE_NAMES,
    RUNNING_TOOLS,
    SEARCH_NAMES,
    SHELL_NAMES,
    SHELL_TOOLS,
    SQL_NAMES,
    STORING_TOOLS,
    TEXT_NAMES,
    WHOLE_SHELL_NAMES,
    says_what_runs,
)

T = TypeVar("T")
ValueKind = Literal["shell", "path", "patch", "url", "email", "sql", "id", "amount", "day", "time", "text"]

READERS: Final[dict[ValueKind, Callable[[str], list[Atom] | None]]] = {
    "shell": shell_atoms,
    "path": file_atoms,
    "patch": patch_atoms,
    "url": url_atoms,
    "email": email_atoms,
    "sql": sql_atoms,
    "id": id_atoms,
    "amount": amount_atoms,
    # Days from that of the call: texts are taken for it with the call's time at hand only.
    "day": day_atoms,
    "time": time_atoms,
    "text": text_atoms,
}
KINDS: Final = tuple(READERS)
MAX_TEMPLATES: Final = 64

_FORMATS: Final[dict[str, ValueKind]] = {
    "uri": "url", "url": "url", "email": "email", "date": "time", "date-time": "time", "uuid": "id",
}  # fmt: skip


def recognise(
    name: str,
    values: Sequence[str],
    *,
    tool: str | None = None,
    schema: object = None,
    within: Sequence[str] = (),
    reads: bool = False,
) -> ValueKind | None:
    """The kind of these values; None if they are unknown text, of which only the very same is approved.

    `within` are the names of the objects around it; `reads` whether the tool is known to read only.
    """
    format = schema.get("format") if isinstance(schema, dict) else None
    declared = _FORMATS.get(format) if isinstance(format, str) else None
    if declared is not None:
        return declared
    words, tools = _words(name), _words(tool or "")
    if all(map(is_patch, values)):
        return "patch"
    if stores_texts(name, tool) and not all(map(_is_path, values)):
        return "text"
    if words & CODE_NAMES:
        return "path" if words & {"source"} and all(map(_is_path, values)) else None
    if _most(values, lambda text: "://" in text) and all("://" in text for text in values):
        return "url"
    if _most(values, is_sql_like) and not words & TEXT_NAMES:
        return "sql"
    if words & SHELL_NAMES or name.lower() in WHOLE_SHELL_NAMES:
        return "shell"
    if _most(values, is_shell_like) and not words & TEXT_NAMES:
        return "shell"
    scalars: tuple[ValueKind, ...] = ("email", "time", "amount")
    for kind in scalars:
        if all(READERS[kind](text) is not None for text in values):
            return kind
    if words & TEXT_NAMES or _words(" ".join(within)) & BODY_NAMES:
        # A tool that runs what it is given takes words of a language at most.
        return "text" if not tools & RUNNING_TOOLS or all(map(is_prose, values)) else None
    if all(id_atoms(text) is not None for text in values):
        return "id" if reads or not words & PAYEE_NAMES else None
    if words & (SEARCH_NAMES | SQL_NAMES):
        return "text" if _most(values, is_prose) and not tools & RUNNING_TOOLS - {"query"} else None
    if words & PATH_NAMES or all(map(is_path_like, values)):
        return "path"
    if tools & SHELL_TOOLS:
        return "shell"
    # What a tool that only reads is asked about, in words, does not matter.
    return "text" if reads and all(map(is_prose, values)) else None


def stores_texts(name: str, tool: str | None) -> bool:
    """Whether an argument is what a tool writes to a file or the like, without reading it."""
    words, tools = _words(name), _words(tool or "")
    if tools & RUNNING_TOOLS or words & PATH_NAMES:
        return False
    return bool(
        (words & {"content", "contents"} and tools & STORING_TOOLS)
        or (words & EDITED_NAMES and tools & EDITING_TOOLS)
    )


def has_word(name: str | None, words: frozenset[str]) -> bool:
    """Whether a tool or an argument says one of these by its name."""
    return not words.isdisjoint(_words(name or ""))


def _is_path(text: str) -> bool:
    return is_path_like(text) and " " not in text and file_atoms(text) is not None


def _words(name: str) -> set[str]:
    return {run.lower() for run in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", name)} | {name.lower()}


def _most(values: Sequence[str], test: Callable[[str], bool]) -> bool:
    return sum(map(test, values)) * 2 > len(values)


class ValuePattern:
    """What an argument of one kind may be: one of some templates."""

    __slots__ = ("kind", "templates")

    def __init__(self, kind: ValueKind, templates: Sequence[str]) -> None:
        """Raises UsageError for a template that cannot be read."""
        if not templates or len(templates) > MAX_TEMPLATES:
            raise UsageError(f"must have 1 to {MAX_TEMPLATES} templates")
        self.kind = kind
        self.templates: tuple[ValueTemplate, ...] = tuple(map(read_template, templates))
        if kind == "day" and any(not each.slots and day_atoms(str(each)) is None for each in self.templates):
            raise UsageError("says how many days after that of the call a date is: 0, <1..14>, <-7..0>")
        kinds = {slot.kind for template in self.templates for slot in template.slots}
        if kind == "sql" and not UNSAFE_SLOTS.isdisjoint(kinds):
            raise UsageError(
                "has a slot that can hold quotes, and with them another condition: "
                "values in SQL are <name>, <4 digits>, <1..50>, <date>, <uuid> or <hex>"
            )

    def admits(self, value: object) -> bool:
        if not isinstance(value, str):
            return False
        texts = patch_files(value) or [""] if self.kind == "patch" else [value]
        return all(self.index_of(text) is not None for text in texts)

    def admits_at(self, value: object, moment: float) -> bool:
        """Whether a call of this time may have this value."""
        return self.admits(days_until(value, moment) if self.kind == "day" else value)

    def index_of(self, value: str) -> int | None:
        """The first template that a text matches; None if none does."""
        text = canonical_text(self.kind, value)
        if text is None:
            return None
        # CI, packaging, hooks, locks, scripts: only as they were approved.
        exact = self.kind in ("path", "patch") and says_what_runs(
            text.partition(" ")[2] if self.kind == "patch" else text
        )
        return next(
            (
                at
                for at, template in enumerate(self.templates)
                if template.matches(text) and not (exact and template.slots)
            ),
            None,
        )

    def texts(self) -> list[str]:
        return [str(template) for template in self.templates]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValuePattern) and (self.kind, self.templates) == (
            other.kind,
            other.templates,
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.templates))

    def __repr__(self) -> str:
        return f"ValuePattern({self.kind!r}, {self.texts()!r})"


# Some 8 MB of texts at most, and as much of what is written of them.
_MAX_CACHED_CHARS: Final = 1_000
_Reader = Callable[[ValueKind, str], T | None]


def _cached(read: _Reader[T]) -> _Reader[T]:
    """The same reader, which reads no short text twice."""
    known = lru_cache(maxsize=8192)(read)
    return lambda kind, text: (known if len(text) <= _MAX_CACHED_CHARS else read)(kind, text)


@_cached
def read_value(kind: ValueKind, text: str) -> tuple[Atom, ...] | None:
    """The atoms of a text of this kind; None if it cannot be read."""
    atoms = READERS[kind](text)
    return None if atoms is None else tuple(atoms)


@_cached
def canonical_text(kind: ValueKind, text: str) -> str | None:
    """One way of writing a text of this kind; None if it cannot be read."""
    atoms = read_value(kind, text)
    return None if atoms is None else "".join(atom.text for atom in atoms)
