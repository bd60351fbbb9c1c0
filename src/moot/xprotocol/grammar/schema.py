"""A JSON Schema document read into small values that can be compared and remembered.

Sub-schemas become numbers (`SchemaId`) in a `Library`; two that say the same get the same number, whatever
their descriptions. Annotations and unknown keywords are dropped. A keyword whose value makes no sense
(`"type": "any"`, a property that is no schema) is dropped and noted: the grammar is then wider.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import NewType

from moot.protocol.operation import Json
from moot.xprotocol.grammar.grammar_limits import SCHEMA_BYTES, SCHEMA_DEPTH, SCHEMA_NODES
from moot.xprotocol.grammar.notes import GrammarRefused, Notes
from moot.xprotocol.grammar.number.number_bounds import NumberBounds
from moot.xprotocol.grammar.schema_references import Location, Reference, Resources

SchemaId = NewType("SchemaId", int)

# `number` is `integer` and the rest: intersections are then plain intersections.
TYPES: Mapping[str, frozenset[str]] = {
    "null": frozenset({"null"}),
    "boolean": frozenset({"boolean"}),
    "object": frozenset({"object"}),
    "array": frozenset({"array"}),
    "string": frozenset({"string"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "fraction"}),
}
ALL_TYPES = frozenset().union(*TYPES.values())


_NO_BOUNDS = NumberBounds()


@dataclass(frozen=True, slots=True)
class Schema:
    """One schema's own keywords, each in the form in which it is used. Listed values are JSON texts."""

    never: bool = False
    types: frozenset[str] = ALL_TYPES
    values: tuple[str, ...] | None = None
    excluded: tuple[str, ...] = ()
    numbers: NumberBounds = _NO_BOUNDS
    min_length: int = 0
    max_length: int | None = None
    patterns: tuple[str, ...] = ()
    not_patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    properties: tuple[tuple[str, SchemaId], ...] | None = None
    pattern_properties: tuple[tuple[str, SchemaId], ...] = ()
    additional: SchemaId | None = None
    unevaluated_properties: SchemaId | None = None
    # Members that other ways of an anyOf declare: they may stand here where nothing else speaks of them.
    offered: tuple[tuple[str, SchemaId], ...] = ()
    property_names: tuple[SchemaId, ...] = ()
    required: tuple[str, ...] = ()
    # Names that must not be there; only negations say so.
    forbidden: tuple[str, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    prefix: tuple[SchemaId, ...] = ()
    items: SchemaId | None = None
    unevaluated_items: SchemaId | None = None
    contains: SchemaId | None = None
    min_contains: int = 1
    max_contains: int | None = None
    min_items: int = 0
    max_items: int | None = None
    unique: bool = False
    references: tuple[Reference, ...] = ()
    all_of: tuple[SchemaId, ...] = ()
    # Each group: at least one of its ways, a way being schemas that hold together.
    choices: tuple[tuple[tuple[SchemaId, ...], ...], ...] = ()
    one_of: tuple[tuple[SchemaId, ...], ...] = ()
    negated: tuple[SchemaId, ...] = ()
    conditions: tuple[tuple[SchemaId, SchemaId, SchemaId], ...] = ()
    dependent: tuple[tuple[str, SchemaId], ...] = ()
    # What the compiler made of a negation or a dependency: it demands, but declares no member.
    implied: bool = False


OBJECT_FIELDS = (
    *("properties", "pattern_properties", "additional", "property_names", "required", "forbidden"),
    *("min_properties", "max_properties"),
)
ARRAY_FIELDS = ("prefix", "items", "contains", "min_items", "max_items", "unique")

FREE = Schema()
NEVER_SCHEMA = Schema(never=True)


class Library:
    """All schemas of one document that were met so far, and the way to those that it refers to."""

    def __init__(
        self, document: Json, notes: Notes, read: Callable[[Library, Json, str, Location], SchemaId]
    ) -> None:
        _check_size(document)
        self.notes = notes
        self._read = read
        self.draft = _draft(document)
        self.resources = Resources(document, self.draft)
        # Whether a schema asks what others have evaluated; choices are then taken apart further.
        self.has_unevaluated = not self.legacy and '"unevaluated' in json.dumps(document)
        # How many members have been written so far, in all ways (`WRITTEN_MEMBERS`).
        self.written = 0
        self._ids: dict[Schema, SchemaId] = {}
        self._schemas: list[Schema] = []
        self._targets: dict[Reference, SchemaId] = {}
        self.free = self.add(FREE)
        self.never = self.add(NEVER_SCHEMA)
        self.root = read(self, document, "#", Location())

    @property
    def legacy(self) -> bool:
        """Drafts 4, 6 and 7: beside `$ref` nothing counts, and newer keywords mean nothing."""
        return self.draft <= 7

    def __getitem__(self, id: SchemaId) -> Schema:
        return self._schemas[id]

    def add(self, schema: Schema) -> SchemaId:
        # To hash one is to hash all its fields: as seldom as can be.
        id = self._ids.get(schema)
        if id is None:
            if len(self._schemas) >= SCHEMA_NODES:
                raise GrammarRefused(
                    f"the schema has more than {SCHEMA_NODES} different parts; make it smaller"
                )
            id = self._ids[schema] = SchemaId(len(self._schemas))
            self._schemas.append(schema)
        return id

    def any_of(self, ids: Iterable[SchemaId]) -> SchemaId:
        """At least one of these."""
        distinct = tuple(dict.fromkeys(ids))
        if self.free in distinct or len(distinct) == 1:
            return self.free if self.free in distinct else distinct[0]
        return self.add(replace(FREE, choices=(tuple((id,) for id in distinct),)))

    def target(self, reference: Reference) -> SchemaId:
        """What a `$ref` leads to; raises `GrammarRefused` for what is elsewhere or nowhere."""
        if reference not in self._targets:
            if len(self._targets) >= SCHEMA_NODES:
                raise GrammarRefused("the schema's $dynamicRef lead too many ways; use $ref")
            raw, location = self.resources.find(reference)
            self._targets[reference] = self._read(self, raw, reference.written, location)
        return self._targets[reference]


def _check_size(document: Json) -> None:
    todo: list[tuple[Json, int]] = [(document, 0)]
    while todo:
        at, depth = todo.pop()
        if depth > SCHEMA_DEPTH:
            raise GrammarRefused(f"the schema is nested deeper than {SCHEMA_DEPTH}; make it flatter")
        if isinstance(at, dict | list):
            todo += [(each, depth + 1) for each in (at.values() if isinstance(at, dict) else at)]
    try:
        size = len(json.dumps(document, allow_nan=False, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise GrammarRefused("the schema holds half a surrogate pair, which JSON text cannot carry") from None
    except (TypeError, ValueError):
        raise GrammarRefused(
            "the schema holds something that JSON does not have (NaN, infinity, an object)"
        ) from None
    if size > SCHEMA_BYTES:
        raise GrammarRefused(f"the schema is longer than {SCHEMA_BYTES} bytes; make it smaller")


def _draft(document: Json) -> int:
    """The draft that `$schema` names: 3 to 7, 2019 or 2020; without one, the newest."""
    dialect = document.get("$schema") if isinstance(document, dict) else None
    if isinstance(dialect, str):
        if "2019-09" in dialect:
            return 2019
        for number in range(3, 8):
            if f"draft-0{number}" in dialect:
                return number
    return 2020


def to_fraction(value: int | float) -> Fraction:
    return Fraction(Decimal(repr(value)))


def is_count(value: Json) -> bool:
    """Whether it is a whole number that is not negative; 2.0 counts."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0 and value == int(value)
