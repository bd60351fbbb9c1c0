"""A JSON Schema document read into small values that can be compared and remembered.

Sub-schemas become numbers (`SchemaId`) in a `Library`; two that say the same get the same number, whatever
their descriptions. Annotations and unknown keywords are dropped. A keyword whose value makes no sense
(`"type": "any"`, a property that is no schema) is dropped and noted: the grammar is then wider.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NewType
from urllib.parse import unquote

from moot.protocol.operation import Json
from moot.xprotocol.grammar.grammar_limits import SCHEMA_BYTES, SCHEMA_DEPTH, SCHEMA_NODES
from moot.xprotocol.grammar.notes import GrammarRefused, Notes
from moot.xprotocol.grammar.numbers import NumberBounds

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
    # False: `additional` only speaks of what no other keyword anywhere speaks of (unevaluatedProperties).
    additional_is_local: bool = True
    property_names: tuple[SchemaId, ...] = ()
    required: tuple[str, ...] = ()
    # Names that must not be there; only negations say so.
    forbidden: tuple[str, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    prefix: tuple[SchemaId, ...] = ()
    items: SchemaId | None = None
    contains: SchemaId | None = None
    min_contains: int = 1
    max_contains: int | None = None
    min_items: int = 0
    max_items: int | None = None
    unique: bool = False
    references: tuple[str, ...] = ()
    all_of: tuple[SchemaId, ...] = ()
    # Each group: at least one of its ways, a way being schemas that hold together.
    choices: tuple[tuple[tuple[SchemaId, ...], ...], ...] = ()
    one_of: tuple[tuple[SchemaId, ...], ...] = ()
    negated: tuple[SchemaId, ...] = ()
    conditions: tuple[tuple[SchemaId, SchemaId, SchemaId], ...] = ()
    dependent: tuple[tuple[str, SchemaId], ...] = ()
    # A type and what is not enforced on it.
    unsaid: tuple[tuple[str, str], ...] = ()


OBJECT_FIELDS = (
    *("properties", "pattern_properties", "additional", "property_names", "required", "forbidden"),
    *("min_properties", "max_properties"),
)
ARRAY_FIELDS = ("prefix", "items", "contains", "min_items", "max_items", "unique")

FREE = Schema()
NEVER_SCHEMA = Schema(never=True)


class Library:
    """All schemas of one document that were met so far, and the way to those that it refers to."""

    def __init__(self, document: Json, notes: Notes, read: Callable[[Library, Json, str], SchemaId]) -> None:
        _check_size(document)
        self.document = document
        self.notes = notes
        self._read = read
        self.legacy = _is_legacy(document)
        self._ids: dict[Schema, SchemaId] = {}
        self._schemas: list[Schema] = []
        self._targets: dict[str, SchemaId] = {}
        self._anchors: dict[str, Json] | None = None
        self.free = self.add(FREE)
        self.never = self.add(NEVER_SCHEMA)
        self.root = read(self, document, "#")

    def __getitem__(self, id: SchemaId) -> Schema:
        return self._schemas[id]

    def add(self, schema: Schema) -> SchemaId:
        if schema not in self._ids:
            if len(self._schemas) >= SCHEMA_NODES:
                raise GrammarRefused(
                    f"the schema has more than {SCHEMA_NODES} different parts; make it smaller"
                )
            self._ids[schema] = SchemaId(len(self._schemas))
            self._schemas.append(schema)
        return self._ids[schema]

    def target(self, reference: str) -> SchemaId:
        """What a `$ref` leads to; raises `GrammarRefused` for what is elsewhere or nowhere."""
        if reference not in self._targets:
            self._targets[reference] = self._read(self, self._find(reference), reference)
        return self._targets[reference]

    def _find(self, reference: str) -> Json:
        if not reference.startswith("#"):
            raise GrammarRefused(f"$ref '{reference}' leads out of the schema; copy what it names into $defs")
        pointer = unquote(reference[1:])
        at: Json = self.document
        if pointer and not pointer.startswith("/"):
            if pointer not in self._named():
                raise GrammarRefused(f"$ref '{reference}' names an anchor that the schema does not have")
            return self._named()[pointer]
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(at, list) and key.isdecimal() and int(key) < len(at):
                at = at[int(key)]
            elif isinstance(at, dict) and key in at:
                at = at[key]
            else:
                raise GrammarRefused(f"$ref '{reference}' leads to nothing in the schema")
        return at

    def _named(self) -> dict[str, Json]:
        if self._anchors is None:
            self._anchors = {}
            todo = [self.document]
            while todo:
                at = todo.pop()
                if isinstance(at, dict):
                    for word in ("$dynamicAnchor", "$anchor"):
                        if isinstance(at.get(word), str):
                            self._anchors.setdefault(at[word], at)
                    if isinstance(at.get("$id"), str) and at["$id"].startswith("#"):
                        self._anchors.setdefault(at["$id"][1:], at)
                    todo += list(at.values())
                elif isinstance(at, list):
                    todo += at
        return self._anchors


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


def _is_legacy(document: Json) -> bool:
    """Drafts 4, 6 and 7: beside `$ref` nothing counts, and newer keywords mean nothing."""
    dialect = document.get("$schema") if isinstance(document, dict) else None
    return isinstance(dialect, str) and any(f"draft-0{n}" in dialect for n in "34567")


def to_fraction(value: int | float) -> Fraction:
    return Fraction(Decimal(repr(value)))


def is_count(value: Json) -> bool:
    """Whether it is a whole number that is not negative; 2.0 counts."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0 and value == int(value)
