"""Schemas that hold together, taken apart into the ways in which they can.

`$ref` and `allOf` add to what must hold. `anyOf`, `oneOf`, `if`, `not` and the dependencies are choices;
every combination of choices is one way. A way whose types have nothing in common is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from moot.xprotocol.grammar.grammar_limits import (
    ALTERNATIVES,
    CHOICES,
    COMPARED,
    OFFERED_MEMBERS,
    WRITTEN_MEMBERS,
)
from moot.xprotocol.grammar.negation import all_listed_apart, disjoint, negation
from moot.xprotocol.grammar.schema import ALL_TYPES, FREE, Library, Schema, SchemaId
from moot.xprotocol.grammar.values import same_values

Note = Callable[[str], None]
# More anyOf schemas than this are not selected from in every way: their number is a power of two.
_SELECTED_ANY_OF = 8
# More oneOf schemas than this are only compared, not negated: their number is squared.
_NEGATED_ONE_OF = 12


@dataclass(frozen=True, slots=True)
class _Way:
    """Schemas to add, and choices that come with them.

    What is in `silent` must hold as well, but evaluates no member or item: negations and what they bring.
    """

    ids: tuple[SchemaId, ...]
    silent: tuple[SchemaId, ...] = ()
    groups: tuple[tuple[_Way, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Group:
    """A choice to be made, the schema that asks for it, and those that led there."""

    owner: SchemaId
    origins: frozenset[SchemaId]
    ways: tuple[_Way, ...]


@dataclass(slots=True)
class _State:
    members: dict[SchemaId, None] = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)
    # Which schemas each one takes in, as far as they evaluate for it.
    inner: dict[SchemaId, dict[SchemaId, None]] = field(default_factory=dict)
    types: frozenset[str] = ALL_TYPES
    values: tuple[str, ...] | None = None

    def copy(self) -> _State:
        inner = {id: dict(ids) for id, ids in self.inner.items()}
        return _State(dict(self.members), list(self.groups), inner, self.types, self.values)


@dataclass(frozen=True, slots=True)
class _Origin:
    """A schema on its way in, with those that led to it: all of them, and those since the last choice."""

    id: SchemaId
    all: frozenset[SchemaId] = frozenset()
    direct: frozenset[SchemaId] = frozenset()
    # The schema that takes it in and is told what it evaluates.
    outer: SchemaId | None = None

    def onward(self, id: SchemaId) -> _Origin:
        return _Origin(id, self.all | {self.id}, self.direct | {self.id}, self.id)


class _TooManySchemas(Exception):
    pass


def ways(library: Library, ids: tuple[SchemaId, ...], note: Note) -> list[list[Schema]]:
    """The ways in which these schemas hold together, each as plain schemas; none if they never do."""
    # First everything, then without what is only there to be strict, then without any choice.
    for strictness, words in (
        (2, None),
        (1, "oneOf, not, if and dependencies are not fully enforced: too many combinations"),
        (0, "anyOf and oneOf are not enforced: too many combinations"),
    ):
        try:
            found = _Merging(library, note, strictness).run(ids)
        except _TooManySchemas:
            continue
        cost = sum(len(part.properties or ()) + len(part.offered) for way in found for part in way)
        if strictness and library.written + cost > WRITTEN_MEMBERS:
            continue
        library.written += cost
        if words is not None:
            note(words)
        return found
    raise AssertionError("without choices there is one way at most")


class _Merging:
    def __init__(self, library: Library, note: Note, strictness: int) -> None:
        self.library = library
        self.note = note
        self.strictness = strictness
        self.tries = 0

    def run(self, ids: tuple[SchemaId, ...]) -> list[list[Schema]]:
        found: dict[tuple[Schema, ...], None] = {}
        for state in self.expand(_State(), [_Origin(id) for id in ids]):
            found[(*(self.library[id] for id in state.members), *self.left_over(state))] = None
            if len(found) > ALTERNATIVES:
                raise _TooManySchemas
        return [list(parts) for parts in found]

    def expand(self, state: _State, new: list[_Origin]) -> Iterator[_State]:
        self.tries += 1
        if self.tries > 4 * ALTERNATIVES or len(state.groups) > CHOICES:
            raise _TooManySchemas
        if not self.close(state, new):
            return
        if not state.groups:
            yield state
            return
        group = state.groups.pop(0)
        for way in group.ways:
            branch = state.copy()
            branch.groups = [replace(group, ways=inner) for inner in way.groups] + branch.groups
            origins = [_Origin(id, group.origins, outer=group.owner) for id in way.ids]
            yield from self.expand(branch, [*origins, *(_Origin(id, group.origins) for id in way.silent)])

    def left_over(self, state: _State) -> Iterator[Schema]:
        """What `unevaluatedProperties` and `unevaluatedItems` come to, now that all choices are made."""
        for id in state.members:
            schema = self.library[id]
            if schema.unevaluated_properties is None and schema.unevaluated_items is None:
                continue
            if self.strictness < 2:
                self.note(
                    "unevaluatedProperties and unevaluatedItems are not enforced: too many combinations"
                )
                continue
            seen = [self.library[each] for each in _reached(state.inner, id)]
            yield from (each for each in (unevaluated_members(schema, seen, self.library.free),) if each)
            yield from (each for each in (unevaluated_items(schema, seen, self.library),) if each)

    def close(self, state: _State, new: list[_Origin]) -> bool:
        """Add schemas and all that they take in; False if nothing can satisfy the result."""
        todo = list(new)
        while todo:
            origin = todo.pop(0)
            id = origin.id
            if origin.outer is not None:
                state.inner.setdefault(origin.outer, {})[id] = None
            if id in origin.direct:
                # A reference that leads to itself and nothing else says nothing.
                continue
            if id in origin.all:
                # Validators that end here at all say yes.
                self.note("anyOf, oneOf or not lead back to their own schema, which is not enforced")
                continue
            if id in state.members:
                continue
            schema = self.library[id]
            state.members[id] = None
            state.types &= schema.types
            if schema.values is not None:
                known = state.values
                state.values = schema.values if known is None else same_values(known, schema.values)
            if schema.never or not state.types or state.values == ():
                return False
            # In reading order: all of one before the next begins. Members come in this order.
            inner = [self.library.target(reference) for reference in schema.references]
            todo[:0] = [origin.onward(each) for each in (*inner, *schema.all_of)]
            todo += [_Origin(each) for each in self.given_up(schema)]
            state.groups += [_Group(id, origin.all | {id}, group) for group in self.groups(schema)]
        return True

    def given_up(self, schema: Schema) -> Iterator[SchemaId]:
        """Members that only choices declare which are not made any more: the grammar must not lose them."""
        lost = [id for condition in schema.conditions for id in condition] if self.strictness < 2 else []
        lost += [needed for _, needed in schema.dependent] if self.strictness < 2 else []
        if self.strictness == 0:
            lost += [id for group in schema.choices for way in group for id in way]
            lost += [id for group in schema.one_of for id in group]
        offer = offered_members(self.library, lost, conditional=True)
        if offer is not None:
            yield offer

    def groups(self, schema: Schema) -> Iterator[tuple[_Way, ...]]:
        if self.strictness == 0:
            return
        for group in schema.choices:
            yield tuple(self.at_least_one(group, schema))
        for one_of in schema.one_of:
            yield tuple(self.only_one(one_of))
        if self.strictness == 1:
            return
        for id in schema.negated:
            opposite = negation(self.library, id)
            if opposite is None:
                self.note("not is not enforced")
            else:
                yield tuple(_Way((), (each,)) for each in opposite)
        for condition, then, otherwise in schema.conditions:
            if self.library.has_unevaluated or (then, otherwise) != (self.library.free, self.library.free):
                yield tuple(self.branches(condition, then, otherwise))
        for name, needed in schema.dependent:
            absent = self.library.add(replace(FREE, forbidden=(name,), implied=True))
            present = self.library.add(
                replace(FREE, types=frozenset({"object"}), required=(name,), implied=True)
            )
            yield (_Way((), (absent,)), _Way((needed,), (present,)))

    def at_least_one(self, group: tuple[tuple[SchemaId, ...], ...], outer: Schema) -> Iterator[_Way]:
        """One way each, with what the others declare; or every selection, where it counts who evaluates."""
        if self.library.has_unevaluated and self.strictness > 1:
            if len(group) > _SELECTED_ANY_OF:
                raise _TooManySchemas
            for size in range(1, len(group) + 1):
                for selected in combinations(group, size):
                    yield _Way(tuple(id for ids in selected for id in ids))
            return
        offers = [offered_members(self.library, ids) for ids in group]
        count = sum(len(self.library[offer].offered) for offer in offers if offer is not None)
        if count * len(group) > OFFERED_MEMBERS:
            self.note("anyOf: members that only other schemas of it declare are not offered: too many")
            offers = [None] * len(group)
        # With what is required around them, objects that differ in a member's value cannot hold at once.
        objects = replace(FREE, types=frozenset({"object"}), required=outer.required)
        whole = [self.library.add(replace(objects, all_of=ids)) for ids in group]
        for at, ids in enumerate(group):
            beside = [
                ids if n == at else self._beside(whole[at], whole[n], offer) for n, offer in enumerate(offers)
            ]
            yield _Way(tuple(id for row in beside for id in row))

    def _beside(self, one: SchemaId, other: SchemaId, offer: SchemaId | None) -> tuple[SchemaId, ...]:
        return () if offer is None or disjoint(self.library, one, other) else (offer,)

    def only_one(self, ids: tuple[SchemaId, ...]) -> Iterator[_Way]:
        if all_listed_apart(self.library, ids):
            yield from (_Way((id,)) for id in ids)
            return
        if len(ids) > COMPARED:
            self.note("oneOf is enforced like anyOf: it has too many schemas to compare")
            yield from (_Way((id,)) for id in ids)
            return
        for at, id in enumerate(ids):
            groups: list[tuple[_Way, ...]] = []
            for other_at, other in enumerate(ids):
                if other_at == at or disjoint(self.library, id, other):
                    continue
                opposite = None
                if self.strictness > 1 and len(ids) <= _NEGATED_ONE_OF:
                    opposite = negation(self.library, other)
                if opposite is None:
                    self.note("oneOf is enforced like anyOf: more than one of its schemas may hold")
                else:
                    groups.append(tuple(_Way((), (each,)) for each in opposite))
            yield _Way((id,), (), tuple(groups))

    def branches(self, condition: SchemaId, then: SchemaId, otherwise: SchemaId) -> Iterator[_Way]:
        yield _Way((condition, then))
        if then == otherwise == self.library.free:
            # Only what it evaluates counts, and to evaluate less is never of use.
            yield _Way(())
            return
        opposite = negation(self.library, condition)
        if opposite is None:
            self.note("if, then and else are not fully enforced: else may hold in either case")
            yield _Way((otherwise,))
        else:
            yield from (_Way((otherwise,), (each,)) for each in opposite)


def _reached(inner: Mapping[SchemaId, Iterable[SchemaId]], start: SchemaId) -> list[SchemaId]:
    """All that a schema takes in, directly or not; not itself."""
    found: dict[SchemaId, None] = {}
    todo = list(inner.get(start, ()))
    while todo:
        at = todo.pop()
        if at not in found and at != start:
            found[at] = None
            todo += inner.get(at, ())
    return list(found)


def unevaluated_members(schema: Schema, inner: list[Schema], free: SchemaId) -> Schema | None:
    """`unevaluatedProperties` as `additionalProperties` beside all that this schema and the inner declare."""
    if schema.unevaluated_properties is None or schema.additional is not None:
        return None
    if any(part.additional is not None or part.unevaluated_properties is not None for part in inner):
        return None
    names = dict.fromkeys(name for part in (schema, *inner) for name, _ in part.properties or ())
    patterns = dict.fromkeys(pattern for part in (schema, *inner) for pattern, _ in part.pattern_properties)
    return replace(
        FREE,
        properties=tuple((name, free) for name in names),
        pattern_properties=tuple((pattern, free) for pattern in patterns),
        additional=schema.unevaluated_properties,
    )


def unevaluated_items(schema: Schema, inner: list[Schema], library: Library) -> Schema | None:
    """`unevaluatedItems` as `items` after all that this schema and its inner ones speak of."""
    if schema.unevaluated_items is None or schema.items is not None:
        return None
    if any(part.items is not None or part.unevaluated_items is not None for part in inner):
        return None
    parts = (schema, *inner)
    length = max(len(part.prefix) for part in parts)
    # In 2019-09 `contains` evaluates nothing.
    found = [part.contains for part in parts if part.contains is not None and library.draft > 2019]
    items = library.any_of((schema.unevaluated_items, *found))
    return replace(FREE, prefix=(library.free,) * length, items=items)


def offered_members(
    library: Library, ids: Iterable[SchemaId], *, conditional: bool = False
) -> SchemaId | None:
    """What these declare, whichever way they hold, to stand beside schemas that do not speak of it.

    `conditional`: also what they declare under an `if` or a dependency.
    """
    found: dict[tuple[str, SchemaId], None] = {}
    seen: set[SchemaId] = set()
    todo = list(ids)
    while todo:
        id = todo.pop(0)
        if id in seen:
            continue
        seen.add(id)
        schema = library[id]
        found |= dict.fromkeys(schema.properties or ())
        inner = [library.target(reference) for reference in schema.references]
        inner += [each for group in schema.choices for way in group for each in way]
        inner += [each for group in schema.one_of for each in group]
        if conditional:
            inner += [each for condition in schema.conditions for each in condition]
            inner += [needed for _, needed in schema.dependent]
        todo[:0] = [*inner, *schema.all_of]
    return library.add(replace(FREE, offered=tuple(found))) if found else None
