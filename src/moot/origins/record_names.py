"""The names of records by their ids, as results had them: the id of what a person named is theirs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from moot.origins.result_parts import NamedRecord
from moot.origins.text_forms import words_of

MAX_RECORDS: Final = 20_000
# Names of one record: an object has a name and a title, and others may have had the same id.
MAX_NAMES: Final = 8


@dataclass(slots=True)
class RecordNames:
    # Each name with its newest source, and ids by name.
    _names: dict[str, dict[str, int]] = field(default_factory=dict)
    _ids: dict[str, set[str]] = field(default_factory=dict)
    _count: int = 0

    def add(self, record: NamedRecord, number: int) -> None:
        self._count += 1
        if self._count > MAX_RECORDS:
            # What is forgotten here is asked for.
            self._names, self._ids, self._count = {}, {}, 1
        name = " ".join(words_of(record.name))
        names = self._names.setdefault(record.id, {})
        if len(names) < MAX_NAMES or name in names:
            names[name] = number
        ids = self._ids.setdefault(name, set())
        if len(ids) < 2:
            ids.add(record.id)

    def names_of(self, id: str, since: int) -> list[str]:
        """The names of the record with this id, as words, that no record with another id has."""
        found = self._names.get(id, {}).items()
        return [name for name, number in found if number > since and self._ids.get(name) == {id}]
