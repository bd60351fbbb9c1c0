"""Whether two schemas can hold at once, as far as that is plain to see."""

from __future__ import annotations

import json

from moot.protocol.operation import Json
from moot.xprotocol.grammar.schema import ALL_TYPES, Library, Schema, SchemaId
from moot.xprotocol.grammar.values import identity, same_values, type_of

_NUMBERS = frozenset({"integer", "fraction"})


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
