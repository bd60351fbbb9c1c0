"""Schemas that hold together, taken apart into the ways in which they can.

`$ref` and `allOf` add to what must hold. `anyOf` and `oneOf` are choices; every combination of choices is one
way. A way whose types have nothing in common is dropped. `not`, `if` and the dependencies are left to
validation (decision 0282); what they declare may be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations

from moot.xprotocol.grammar.disjoint_schemas import all_listed_apart, disjoint
from moot.xprotocol.grammar.grammar_limits import (
    ALTERNATIVES,
    CHOICES,
    COMPARED,
    OFFERED_MEMBERS,
    WRITTEN_MEMBERS,
)
from moot.xprotocol.grammar.schema import ALL_TYPES, FREE, Library, Schema, SchemaId
from moot.xprotocol.grammar.values import same_values

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Group:
    """A choice to be made between schemas that hold together, and the schemas that led there."""

    origins: frozenset[SchemaId]
    ways: tuple[tuple[SchemaId, ...], ...]


@dataclass(slots=True)
class _State:
    members: dict[SchemaId, None] = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)
    types: frozenset[str] = ALL_TYPES
    values: tuple[str, ...] | None = None

    def copy(self) -> _State:
        return _State(dict(self.members), list(self.groups), self.types, self.values)


@dataclass(frozen=True, slots=True)
class _Origin:
    """A schema on its way in, with those that led to it: all of them, and those since the last choice."""

    id: SchemaId
    all: frozenset[SchemaId] = frozenset()
    direct: frozenset[SchemaId] = frozenset()

    def onward(self, id: SchemaId) -> _Origin:
        return _Origin(id, self.all | {self.id}, self.direct | {self.id})


class _TooManySchemas(Exception):
    pass


def ways(library: Library, ids: tuple[SchemaId, ...], note: Note) -> list[list[Schema]]:
    """The ways in which these schemas hold together, each as plain schemas; none if they never do."""
    try:
        found = _Merging(library, note, chooses=True).run(ids)
        cost = sum(len(part.properties or ()) + len(part.offered) for way in found for part in way)
        if library.written + cost <= WRITTEN_MEMBERS:
            library.written += cost
            return found
    except _TooManySchemas:
        pass
    note("anyOf and oneOf are not enforced: too many combinations")
    # Without any choice there is one way at most.
    return _Merging(library, note, chooses=False).run(ids)


class _Merging:
    def __init__(self, library: Library, note: Note, *, chooses: bool) -> None:
        self.library = library
        self.note = note
        self.chooses = chooses
        self.tries = 0

    def run(self, ids: tuple[SchemaId, ...]) -> list[list[Schema]]:
        found: dict[tuple[Schema, ...], None] = {}
        for state in self.expand(_State(), [_Origin(id) for id in ids]):
            found[tuple(self.library[id] for id in state.members)] = None
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
            yield from self.expand(state.copy(), [_Origin(id, group.origins) for id in way])

    def close(self, state: _State, new: list[_Origin]) -> bool:
        """Add schemas and all that they take in; False if nothing can satisfy the result."""
        todo = list(new)
        while todo:
            origin = todo.pop(0)
            id = origin.id
            if id in origin.direct:
                # A reference that leads to itself and nothing else says nothing.
                continue
            if id in origin.all:
                # Validators that end here at all say yes.
                self.note("anyOf or oneOf lead back to their own schema, which is not enforced")
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
            state.groups += [_Group(origin.all | {id}, group) for group in self.groups(schema)]
        return True

    def given_up(self, schema: Schema) -> Iterator[SchemaId]:
        """Members that only what is not enforced declares: the grammar must not lose them."""
        lost = list(schema.conditional)
        if not self.chooses:
            lost += [id for group in schema.choices for way in group for id in way]
            lost += [id for group in schema.one_of for id in group]
        offer = offered_members(self.library, lost)
        if offer is not None:
            yield offer

    def groups(self, schema: Schema) -> Iterator[tuple[tuple[SchemaId, ...], ...]]:
        if self.chooses:
            for group in schema.choices:
                yield tuple(self.at_least_one(group, schema))
            for one_of in schema.one_of:
                self.compare(one_of)
                yield tuple((id,) for id in one_of)

    def at_least_one(
        self, group: tuple[tuple[SchemaId, ...], ...], outer: Schema
    ) -> Iterator[tuple[SchemaId, ...]]:
        """One way each, with what the others declare."""
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
            yield tuple(id for row in beside for id in row)

    def _beside(self, one: SchemaId, other: SchemaId, offer: SchemaId | None) -> tuple[SchemaId, ...]:
        return () if offer is None or disjoint(self.library, one, other) else (offer,)

    def compare(self, ids: tuple[SchemaId, ...]) -> None:
        """Note that more than one schema of a oneOf may hold, unless it is plain that none can."""
        if all_listed_apart(self.library, ids):
            return
        if len(ids) > COMPARED:
            self.note("oneOf is enforced like anyOf: it has too many schemas to compare")
        elif not all(disjoint(self.library, one, other) for one, other in combinations(ids, 2)):
            self.note("oneOf is enforced like anyOf: more than one of its schemas may hold")


def offered_members(library: Library, ids: Iterable[SchemaId]) -> SchemaId | None:
    """What these declare, whichever way they hold, to stand beside schemas that do not speak of it."""
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
        todo[:0] = [*inner, *schema.all_of, *schema.conditional]
    return library.add(replace(FREE, offered=tuple(found))) if found else None
