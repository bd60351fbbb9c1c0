"""The names of records by their ids, as results had them: the id of what a person named is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moot.origins.text_forms import words_of
from moot.origins.value_keys import words_in_name
from moot.protocol.operation import Json

MAX_RECORDS: Final = 20_000
# Names of one record: an object has a name and a title, and others may have had the same id.
MAX_NAMES: Final = 8
MAX_RECORD_ID_CHARS: Final = 64
MAX_RECORD_NAME_CHARS: Final = 256
# A name of a record must be unlikely to be said by chance.
MIN_RECORD_NAME_CHARS: Final = 8
# `{"result": {"files": […]}}`
MAX_WRAPPERS: Final = 3
_NAME_MEMBERS: Final = frozenset({"name", "title", "filename", "subject", "label", "path"})
_RECORD_IDS: Final = frozenset({"id", "uid", "uuid"})


class NamedRecord(NamedTuple):
    """An object in a result that has an id and a name: `{"id": 5, "title": "Dental check-up"}`."""

    id: str
    name: str


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


def records_of(value: Json, depth: int = MAX_WRAPPERS) -> Iterator[NamedRecord]:
    """The records of an answer, and never what stands inside of a record: others write there."""
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict):
            continue
        ids = [inner for name, inner in each.items() if not _RECORD_IDS.isdisjoint(words_in_name(name))]
        names = [inner for name, inner in each.items() if not _NAME_MEMBERS.isdisjoint(words_in_name(name))]
        # With two ids it is not clear which is its own.
        if len(ids) == 1 and isinstance(ids[0], str | int) and len(str(ids[0])) <= MAX_RECORD_ID_CHARS:
            for name in names:
                if isinstance(name, str) and MIN_RECORD_NAME_CHARS <= len(name) <= MAX_RECORD_NAME_CHARS:
                    yield NamedRecord(str(ids[0]), name)
        if not (ids or names or isinstance(value, list)) and depth:
            for inner in each.values():
                yield from records_of(inner, depth - 1)
