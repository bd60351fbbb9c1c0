"""The opposite of a schema, where it can be said; and whether two schemas can hold at once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from moot.protocol.operation import Json
from moot.xprotocol.grammar.number.number_bounds import NumberBounds
from moot.xprotocol.grammar.schema import ALL_TYPES, FREE, Library, Schema, SchemaId
from moot.xprotocol.grammar.values import identity, same_values, type_of

_NUMBERS = frozenset({"integer", "fraction"})
_STRING = frozenset({"string"})
_OBJECT = frozenset({"object"})
_ARRAY = frozenset({"array"})
_DEPTH = 6


def negation(library: Library, id: SchemaId, *, depth: int = _DEPTH) -> list[SchemaId] | None:
    """Schemas of which one or more hold where this one does not; `None` if we cannot say.

    A schema is the sum of its keywords, so its opposite is any of their opposites.
    """
    schema = library[id]
    if schema.never:
        return [library.free]
    if depth == 0 or _beyond(schema):
        return None
    found: list[SchemaId] = [library.add(each) for each in _plain_opposites(schema)]
    for name, sub in schema.properties or ():
        opposites = negation(library, sub, depth=depth - 1)
        if opposites is None:
            return None
        for each in opposites:
            there = replace(FREE, types=_OBJECT, required=(name,), properties=((name, each),), implied=True)
            found.append(library.add(there))
    inner = _array_opposites(library, schema, depth)
    if inner is None:
        return None
    found += inner
    for sub in [*schema.all_of, *(library.target(reference) for reference in schema.references)]:
        opposites = negation(library, sub, depth=depth - 1)
        if opposites is None:
            return None
        found += opposites
    for group in schema.choices:
        opposite = _none_of(library, group, depth)
        if opposite is None:
            return None
        found.append(opposite)
    for condition, then, otherwise in schema.conditions:
        broken = [negation(library, each, depth=depth - 1) for each in (condition, then, otherwise)]
        if any(each is None for each in broken):
            return None
        not_condition, not_then, not_otherwise = (each or [] for each in broken)
        ways = [(condition, each) for each in not_then]
        ways += [(one, other) for one in not_condition for other in not_otherwise]
        found.append(library.add(replace(FREE, choices=(tuple(ways),))) if ways else library.never)
    for name, needed in schema.dependent:
        opposites = negation(library, needed, depth=depth - 1)
        if opposites is None:
            return None
        present = library.add(replace(FREE, types=_OBJECT, required=(name,), implied=True))
        ways = [(present, each) for each in opposites]
        found.append(library.add(replace(FREE, choices=(tuple(ways),))) if ways else library.never)
    return [*found, *schema.negated]


def _array_opposites(library: Library, schema: Schema, depth: int) -> list[SchemaId] | None:
    found: list[Schema] = []
    for at, sub in enumerate(schema.prefix):
        opposites = negation(library, sub, depth=depth - 1)
        if opposites is None:
            return None
        before = (library.free,) * at
        found += [replace(FREE, types=_ARRAY, min_items=at + 1, prefix=(*before, each)) for each in opposites]
    if schema.items is not None:
        opposites = negation(library, schema.items, depth=depth - 1)
        if opposites is None:
            return None
        found += [replace(FREE, types=_ARRAY, contains=each) for each in opposites]
    if schema.contains is not None:
        counted = replace(FREE, types=_ARRAY, contains=schema.contains)
        if schema.min_contains:
            found.append(replace(counted, min_contains=0, max_contains=schema.min_contains - 1))
        if schema.max_contains is not None:
            found.append(replace(counted, min_contains=schema.max_contains + 1))
    return [library.add(each) for each in found]


def _none_of(library: Library, group: Iterable[tuple[SchemaId, ...]], depth: int) -> SchemaId | None:
    choices: list[tuple[tuple[SchemaId, ...], ...]] = []
    for way in group:
        opposites: list[SchemaId] = []
        for each in way:
            more = negation(library, each, depth=depth - 1)
            if more is None:
                return None
            opposites += more
        if not opposites:
            return library.never
        choices.append(tuple((each,) for each in opposites))
    return library.add(replace(FREE, choices=tuple(choices)))


def _beyond(schema: Schema) -> bool:
    """Whether a keyword is there whose opposite has no words."""
    return bool(
        schema.numbers.multiples
        or schema.numbers.excluded
        or schema.formats
        or schema.pattern_properties
        or schema.additional is not None
        or schema.unevaluated_properties is not None
        or schema.unevaluated_items is not None
        or schema.property_names
        or (schema.items is not None and schema.prefix)
        or schema.unique
        or schema.one_of
    )


def _plain_opposites(schema: Schema) -> Iterable[Schema]:
    if schema.types != ALL_TYPES:
        yield replace(FREE, types=ALL_TYPES - schema.types)
    if schema.values is not None:
        yield replace(FREE, excluded=schema.values)
    if schema.excluded:
        yield replace(FREE, values=schema.excluded)
    bounds = schema.numbers
    if bounds.low is not None:
        below = NumberBounds().from_above(bounds.low, open=not bounds.low_open)
        yield replace(FREE, types=_NUMBERS, numbers=below)
    if bounds.high is not None:
        above = NumberBounds().from_below(bounds.high, open=not bounds.high_open)
        yield replace(FREE, types=_NUMBERS, numbers=above)
    if schema.min_length:
        yield replace(FREE, types=_STRING, max_length=schema.min_length - 1)
    if schema.max_length is not None:
        yield replace(FREE, types=_STRING, min_length=schema.max_length + 1)
    for pattern in schema.patterns:
        yield replace(FREE, types=_STRING, not_patterns=(pattern,))
    for pattern in schema.not_patterns:
        yield replace(FREE, types=_STRING, patterns=(pattern,))
    for name in schema.required:
        yield replace(FREE, types=_OBJECT, forbidden=(name,), implied=True)
    for name in schema.forbidden:
        yield replace(FREE, types=_OBJECT, required=(name,), implied=True)
    if schema.min_properties:
        yield replace(FREE, types=_OBJECT, max_properties=schema.min_properties - 1)
    if schema.max_properties is not None:
        yield replace(FREE, types=_OBJECT, min_properties=schema.max_properties + 1)
    if schema.min_items:
        yield replace(FREE, types=_ARRAY, max_items=schema.min_items - 1)
    if schema.max_items is not None:
        yield replace(FREE, types=_ARRAY, min_items=schema.max_items + 1)


def disjoint(library: Library, left: SchemaId, right: SchemaId, *, depth: int = 4) -> bool:
    """Whether it is plain to see that no value satisfies both; False also if it takes a closer look."""
    ours, theirs = _parts(library, left), _parts(library, right)
    if any(part.never for part in [*ours, *theirs]):
        return True
    types = _types(ours) & _types(theirs)
    left_values, right_values = _values(ours), _values(theirs)
    if left_values is not None and right_values is not None and not same_values(left_values, right_values):
        return True
    for values in (left_values, right_values):
        if values is not None:
            types &= {type_of(json.loads(text)) for text in values}
    return all(_apart(library, kind, ours, theirs, depth) for kind in types)


def all_listed_apart(library: Library, ids: tuple[SchemaId, ...]) -> bool:
    """Whether each of these lists its values and none lists another's: an enum with titles, in effect."""
    known: set[Json] = set()
    for id in ids:
        values = _values(_parts(library, id))
        if values is None:
            return False
        own = {identity(text) for text in values}
        if own & known:
            return False
        known |= own
    return True


def _apart(library: Library, kind: str, ours: list[Schema], theirs: list[Schema], depth: int) -> bool:
    """Whether values of this one type cannot satisfy both."""
    if kind in _NUMBERS:
        low = max(
            (part.numbers.low for part in [*ours, *theirs] if part.numbers.low is not None), default=None
        )
        high = min(
            (part.numbers.high for part in [*ours, *theirs] if part.numbers.high is not None), default=None
        )
        return low is not None and high is not None and low > high
    if kind != "object" or depth == 0:
        return False
    for one, other in ((ours, theirs), (theirs, ours)):
        needed = [name for part in one for name in part.required]
        if any(_excludes(library, other, name) for name in needed):
            return True
    shared = {name for part in ours for name in part.required} & {
        name for part in theirs for name in part.required
    }
    return any(
        disjoint(library, left, right, depth=depth - 1)
        for name in sorted(shared)
        for left in _members(ours, name)
        for right in _members(theirs, name)
    )


def _excludes(library: Library, parts: list[Schema], name: str) -> bool:
    """Whether an object that satisfies these cannot have a member of this name."""
    for part in parts:
        if name in part.forbidden:
            return True
        declared = dict(part.properties or ())
        if name in declared and library[declared[name]].never:
            return True
        closed = part.additional is not None and library[part.additional].never
        if closed and name not in declared and not part.pattern_properties:
            return True
    return False


def _members(parts: list[Schema], name: str) -> list[SchemaId]:
    return [sub for part in parts for declared, sub in part.properties or () if declared == name]


def _parts(library: Library, id: SchemaId) -> list[Schema]:
    """The schema and what it takes in without choice."""
    found: dict[SchemaId, Schema] = {}
    todo = [id]
    while todo:
        at = todo.pop()
        if at not in found:
            found[at] = library[at]
            todo += found[at].all_of
            todo += [library.target(reference) for reference in found[at].references]
    return list(found.values())


def _types(parts: list[Schema]) -> frozenset[str]:
    types = ALL_TYPES
    for part in parts:
        types &= part.types
    return types


def _values(parts: list[Schema]) -> tuple[str, ...] | None:
    values: tuple[str, ...] | None = None
    for part in parts:
        if part.values is not None:
            values = part.values if values is None else same_values(values, part.values)
    return values
