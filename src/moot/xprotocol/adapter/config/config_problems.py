"""Collects all problems of a configuration, each with the path of its key.

The readers of `moot.config.section_reader` raise at the first mistake; here each is caught and kept, and
reading goes on. No message shows a value that may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from moot.config.section_reader import Reader, at, fields_of, mapping, read_plain, texts_of, unknown_key
from moot.errors import InvalidKey, UsageError
from moot.protocol.operation import Json

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

# Of each source, and at the top of the file for those that say nothing.
REFRESH_KEY: Final = "schema_refresh_interval_seconds"


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """An error in a configuration: where it is, and what to do about it."""

    # Of the key, as in `mcp_sources[1].auth.token_env`; empty: the file as a whole.
    path: str
    message: str
    # The name of the server or endpoint that it is about: nobody counts entries of a list.
    source: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{text} (source {self.source})" if self.source else text


@dataclass(slots=True)
class ConfigProblems:
    """Problems and notes found so far. A note is about what works, but may not be what was meant."""

    problems: list[ConfigProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Names of sources by the path of their entry.
    sources: dict[str, str] = field(default_factory=dict)

    def add_problem(self, path: str, message: str) -> None:
        entry = path[: path.find("]") + 1]
        self.problems.append(ConfigProblem(path, message, self.sources.get(entry, "")))

    def add_note(self, path: str, message: str) -> None:
        self.notes.append(f"{path}: {message}")

    def add_error(self, fault: UsageError, path: str = "") -> None:
        """Add what a reader raised; its text names the path itself, or it belongs to the one given."""
        for text in texts_of(fault):
            where, colon, message = text.partition(": ")
            if colon and (where.startswith(path) if path else " " not in where):
                self.add_problem(where, message)
            else:
                self.add_problem(path, text)

    @contextmanager
    def catching(self, path: str) -> Iterator[None]:
        """Turn an error inside the block into a problem of this path."""
        try:
            yield
        except UsageError as fault:
            self.add_error(fault, path)
        except InvalidKey as fault:
            self.add_problem(path, str(fault))
        except UnicodeError:
            # Half of a surrogate pair, which YAML can write.
            self.add_problem(path, "contains an invalid character")

    def read_section(
        self, kind: type[_Struct], value: Json, path: str, readers: Mapping[str, Reader] | None = None
    ) -> _Struct | None:
        """A struct filled from a mapping, as `read_struct` does, but collecting every mistake.

        A field that cannot be read has its default; None when it has none, or the struct itself refuses.
        """
        with self.catching(path):
            given = {} if value is None else mapping(value, path)
            fields = fields_of(kind)
            self.check_keys(given, fields, path)
            values: dict[str, Any] = {}
            whole = True
            for key, described in fields.items():
                place = at(path, key)
                if key in given:
                    faults = len(self.problems)
                    with self.catching(place):
                        reader = (readers or {}).get(key)
                        values[described.name] = (
                            reader(given[key], place)
                            if reader
                            else read_plain(described.type, given[key], place)
                        )
                    whole = whole and (len(self.problems) == faults or not described.required)
                elif described.required:
                    self.add_problem(place, "is missing")
                    whole = False
            if not whole:
                return None
            try:
                return kind(**values)
            except UsageError as fault:
                # Its text begins with the key.
                raise UsageError(f"{path}.{fault}") from None
        return None

    def check_keys(self, given: Mapping[str, Json], known: Mapping[str, object], path: str) -> None:
        """Add a problem for every unknown key."""
        for key in given:
            if key not in known:
                self.add_error(unknown_key(path, key, known), at(path, key))

    def read_entries(self, value: Json, path: str, refresh_seconds: float) -> list[tuple[Json, str]]:
        """The entries of a list of sources, each with its path. Two of one name are a problem.

        One without an interval of its own gets `refresh_seconds`.
        """
        if value is None:
            return []
        if not isinstance(value, list):
            self.add_problem(path, "must be a list: each entry begins with - name:")
            return []
        first: dict[str, str] = {}
        entries: list[tuple[Json, str]] = []
        for place, entry in enumerate(value):
            name = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(name, str):
                self.sources[f"{path}[{place}]"] = name[:64]
            if isinstance(name, str) and first.setdefault(name, f"{path}[{place}]") != f"{path}[{place}]":
                self.add_problem(
                    f"{path}[{place}].name", f"is also the name of {first[name]}; names must be unique"
                )
            if isinstance(entry, dict) and entry.get(REFRESH_KEY) is None:
                entry = {**entry, REFRESH_KEY: refresh_seconds}
            entries.append((entry, f"{path}[{place}]"))
        return entries
