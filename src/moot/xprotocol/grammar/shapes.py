"""One way of `schema_merge`, with its keywords brought together type by type."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction

from moot.protocol.operation import Json
from moot.xprotocol.grammar.number_bounds import NumberBounds
from moot.xprotocol.grammar.schema import ALL_TYPES, Schema, to_fraction
from moot.xprotocol.grammar.strings import StringBounds
from moot.xprotocol.grammar.values import other_values, same_values, type_of


@dataclass(frozen=True, slots=True)
class Shape:
    """What must hold at one place, without choices left. `parts` are the schemas it came from."""

    parts: tuple[Schema, ...]
    types: frozenset[str]
    # Listed values as JSON texts, those of other types already left out.
    values: tuple[str, ...] | None
    excluded: tuple[str, ...]
    numbers: NumberBounds
    strings: StringBounds

    def is_free(self) -> bool:
        """Whether every value is welcome."""
        return all(part == Schema() or _only_combines(part) for part in self.parts)


def _only_combines(part: Schema) -> bool:
    # What `schema_merge` has taken care of says nothing more by itself.
    bare = replace(
        part,
        references=(),
        all_of=(),
        choices=(),
        one_of=(),
        negated=(),
        conditions=(),
        dependent=(),
        offered=(),
        unevaluated_properties=None,
        unevaluated_items=None,
        implied=False,
    )
    return bare == Schema()


def shape_of(parts: list[Schema]) -> Shape:
    types = ALL_TYPES
    values: tuple[str, ...] | None = None
    excluded: dict[str, None] = {}
    numbers = NumberBounds()
    low, high = 0, None
    patterns: dict[str, None] = {}
    not_patterns: dict[str, None] = {}
    formats: dict[str, None] = {}
    for part in parts:
        types &= part.types
        if part.values is not None:
            values = part.values if values is None else same_values(values, part.values)
        excluded |= dict.fromkeys(part.excluded)
        numbers = _numbers(numbers, part.numbers)
        low = max(low, part.min_length)
        if part.max_length is not None:
            high = part.max_length if high is None else min(high, part.max_length)
        patterns |= dict.fromkeys(part.patterns)
        not_patterns |= dict.fromkeys(part.not_patterns)
        formats |= dict.fromkeys(part.formats)
    if values is not None:
        values = tuple(text for text in other_values(values, excluded) if type_of(json.loads(text)) in types)
    banned = [json.loads(text) for text in excluded]
    return Shape(
        tuple(parts),
        types,
        values,
        tuple(excluded),
        replace(numbers, excluded=tuple(to_fraction(each) for each in banned if _is_number(each))),
        StringBounds(
            low,
            high,
            tuple(patterns),
            tuple(not_patterns),
            tuple(formats),
            tuple(each for each in banned if isinstance(each, str)),
        ),
    )


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(one: NumberBounds, other: NumberBounds) -> NumberBounds:
    if other.low is not None:
        one = one.from_below(other.low, open=other.low_open)
    if other.high is not None:
        one = one.from_above(other.high, open=other.high_open)
    units: dict[Fraction, None] = dict.fromkeys((*one.multiples, *other.multiples))
    return replace(one, multiples=tuple(units))
