"""Schemas that hold together, taken apart into the ways in which they can.

`$ref` and `allOf` add to what must hold. `anyOf`, `oneOf`, `if`, `not` and the dependencies are choices;
every combination of choices is one way. A way whose types have nothing in common is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from moot.xprotocol.grammar.grammar_limits import ALTERNATIVES, CHOICES, COMPARED
from moot.xprotocol.grammar.negation import all_listed_apart, disjoint, negation
from moot.xprotocol.grammar.schema import ALL_TYPES, FREE, Library, Schema, SchemaId
from moot.xprotocol.grammar.values import same_values

Note = Callable[[str], None]
# More oneOf schemas than this are only compared, not negated: their number is squared.
_NEGATED_ONE_OF = 12


@dataclass(frozen=True, slots=True)
class _Way:
    """Schemas to add, and choices that come with them."""

    ids: tuple[SchemaId, ...]
    groups: tuple[tuple[_Way, ...], ...] = ()


@dataclass(slots=True)
class _State:
    members: dict[SchemaId, None] = field(default_factory=dict)
    # Choices to be made, with the schemas that led to them.
    groups: list[tuple[frozenset[SchemaId], tuple[_Way, ...]]] = field(default_factory=list)
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
        found: dict[tuple[SchemaId, ...], None] = {}
        for members in self.expand(_State(), [_Origin(id) for id in ids]):
            found[members] = None
            if len(found) > ALTERNATIVES:
                raise _TooManySchemas
        return [[self.library[id] for id in members] for members in found]

    def expand(self, state: _State, new: list[_Origin]) -> Iterator[tuple[SchemaId, ...]]:
        self.tries += 1
        if self.tries > 4 * ALTERNATIVES or len(state.groups) > CHOICES:
            raise _TooManySchemas
        if not self.close(state, new):
            return
        if not state.groups:
            yield tuple(state.members)
            return
        origins, group = state.groups.pop(0)
        for way in group:
            branch = state.copy()
            branch.groups = [(origins, inner) for inner in way.groups] + branch.groups
            yield from self.expand(branch, [_Origin(id, origins) for id in way.ids])

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
            state.groups += [(origin.all | {id}, group) for group in self.groups(schema)]
        return True

    def groups(self, schema: Schema) -> Iterator[tuple[_Way, ...]]:
        if self.strictness == 0:
            return
        for group in schema.choices:
            yield tuple(_Way(ids) for ids in group)
        for one_of in schema.one_of:
            yield tuple(self.only_one(one_of))
        if self.strictness == 1:
            return
        for id in schema.negated:
            opposite = negation(self.library, id)
            if opposite is None:
                self.note("not is not enforced")
            else:
                yield tuple(_Way((each,)) for each in opposite)
        for condition, then, otherwise in schema.conditions:
            yield tuple(self.branches(condition, then, otherwise))
        for name, needed in schema.dependent:
            absent = self.library.add(replace(FREE, forbidden=(name,)))
            present = self.library.add(replace(FREE, types=frozenset({"object"}), required=(name,)))
            yield (_Way((absent,)), _Way((present, needed)))

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
                    groups.append(tuple(_Way((each,)) for each in opposite))
            yield _Way((id,), tuple(groups))

    def branches(self, condition: SchemaId, then: SchemaId, otherwise: SchemaId) -> Iterator[_Way]:
        yield _Way((condition, then))
        opposite = negation(self.library, condition)
        if opposite is None:
            self.note("if, then and else are not fully enforced: else may hold in either case")
            yield _Way((otherwise,))
        else:
            yield from (_Way((each, otherwise)) for each in opposite)
