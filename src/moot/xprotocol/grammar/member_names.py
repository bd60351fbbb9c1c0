"""Which names an object's members may have, and which schemas hold for a member of that name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from moot.protocol.operation import Json
from moot.xprotocol.grammar.grammar_limits import NAME_PATTERNS
from moot.xprotocol.grammar.language.automata import TooLarge, matches
from moot.xprotocol.grammar.language.languages import Language, Not
from moot.xprotocol.grammar.language.pattern_search import search_language
from moot.xprotocol.grammar.language.regex import PatternUnsupported
from moot.xprotocol.grammar.number.number_bounds import NumberBounds
from moot.xprotocol.grammar.rule_book import NEVER, Expr, RuleBook, alt
from moot.xprotocol.grammar.schema import ALL_TYPES, Library, Schema, SchemaId, to_fraction
from moot.xprotocol.grammar.schema_merge import ways
from moot.xprotocol.grammar.strings import Note, StringBounds, admits, string
from moot.xprotocol.grammar.values import literal, other_values, same_values, type_of

# A longer name is not kept out of the undeclared ones: the tree of differences goes one level a character.
_LONGEST_NAME = 80


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


@dataclass(frozen=True, slots=True)
class NameKind:
    """A kind of undeclared names, as text with its quotes, and what holds for members of such a name."""

    name: Expr
    schemas: tuple[SchemaId, ...]


def declared_schemas(
    library: Library, parts: tuple[Schema, ...], name: str, note: Note
) -> tuple[SchemaId, ...] | None:
    """What holds for the member of this name; `None` if there may be none."""
    if not _may_be_named(library, parts, name, note):
        return None
    found: dict[SchemaId, None] = {}
    for part in parts:
        own = [id for declared, id in part.properties or () if declared == name]
        matched = [(id, _found(pattern, name)) for pattern, id in part.pattern_properties]
        own += [id for id, found_there in matched if found_there]
        # Where a pattern is beyond us, the name may be its business, and not additionalProperties'.
        unknown = any(found_there is None for _, found_there in matched)
        if not own and not unknown and part.additional is not None:
            own = [part.additional]
        found |= dict.fromkeys(own)
    if any(library[id].never for id in found):
        return None
    return tuple(found)


def offered_schemas(library: Library, parts: tuple[Schema, ...]) -> dict[str, SchemaId]:
    """Members that only other ways of an anyOf declare, where undeclared ones are not offered anyway."""
    if any(part.additional is not None for part in parts) or not any(_declares(part) for part in parts):
        return {}
    offers: dict[str, list[SchemaId]] = {}
    for part in parts:
        for name, id in part.offered:
            offers.setdefault(name, []).append(id)
    known = {name for part in parts for name, _ in part.properties or ()}
    patterns = dict.fromkeys(pattern for part in parts for pattern, _ in part.pattern_properties)
    return {
        name: library.any_of(ids)
        for name, ids in offers.items()
        if name not in known and all(_found(pattern, name) is False for pattern in patterns)
    }


def _found(pattern: str, name: str) -> bool | None:
    """Whether a pattern is found in a name; `None` if we cannot read it."""
    try:
        return matches(search_language(pattern), name)
    except (PatternUnsupported, TooLarge):
        return None


def _may_be_named(library: Library, parts: tuple[Schema, ...], name: str, note: Note) -> bool:
    return any(_admits(shape, name) is not False for shape in _name_shapes(library, parts, note))


def _name_shapes(library: Library, parts: tuple[Schema, ...], note: Note) -> list[Shape]:
    """The ways to satisfy all propertyNames at once."""
    ids = tuple(id for part in parts for id in part.property_names)
    return [shape_of(way) for way in ways(library, ids, note)]


def _admits(shape: Shape, name: str) -> bool | None:
    if "string" not in shape.types:
        return False
    if shape.values is not None:
        return any(json.loads(text) == name for text in shape.values)
    return admits(shape.strings, name)


def name_kinds(
    book: RuleBook,
    library: Library,
    parts: tuple[Schema, ...],
    taken: set[str],
    *,
    hint: str,
    note: Note,
) -> list[NameKind]:
    """The kinds of names that are not declared.

    D-66: without additionalProperties none are offered, unless the object declares nothing at all.
    """
    sources = list(dict.fromkeys(pattern for part in parts for pattern, _ in part.pattern_properties))
    languages = _languages(sources, note)
    shapes = _name_shapes(library, parts, note)
    found: list[NameKind] = []
    for inside, outside in _combinations(sources, note):
        schemas = _schemas_for(library, parts, inside)
        if schemas is None:
            continue
        # A pattern that we cannot read holds for any name, and for none.
        demands: list[Language] = [each for source in inside if (each := languages[source]) is not None]
        demands += [Not(each) for source in outside if (each := languages[source]) is not None]
        name = alt(*(_names(book, shape, demands, taken, hint=hint, note=note) for shape in shapes))
        if name != NEVER:
            found.append(NameKind(book.rule(f"{hint}-name", name), schemas))
    return found


def _names(
    book: RuleBook, shape: Shape, demands: list[Language], taken: set[str], *, hint: str, note: Note
) -> Expr:
    """The names of one shape that meet the demands and are not taken."""
    if "string" not in shape.types:
        return NEVER
    if shape.values is not None:
        listed = [json.loads(text) for text in shape.values]
        free = [each for each in listed if each not in taken and _may_match(demands, each)]
        return alt(*(literal(book, each) for each in free))
    kept_out = [name for name in sorted(taken) if _may_match(demands, name)]
    if any(len(name) > _LONGEST_NAME for name in kept_out):
        note(f"names of more than {_LONGEST_NAME} characters may be repeated")
        kept_out = [name for name in kept_out if len(name) <= _LONGEST_NAME]
    bounds = replace(shape.strings, excluded=(*shape.strings.excluded, *kept_out))
    return string(book, bounds, demands, hint=f"{hint}-name", note=note)


def _combinations(sources: list[str], note: Note) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Patterns that a name matches and patterns that it does not: every selection, if they are few."""
    if len(sources) <= NAME_PATTERNS:
        for selection in product((True, False), repeat=len(sources)):
            inside = tuple(source for source, chosen in zip(sources, selection, strict=True) if chosen)
            yield inside, tuple(source for source in sources if source not in inside)
        return
    note("names that match several of patternProperties need only satisfy one")
    for source in sources:
        yield (source,), ()
    yield (), tuple(sources)


def _schemas_for(
    library: Library, parts: tuple[Schema, ...], inside: tuple[str, ...]
) -> tuple[SchemaId, ...] | None:
    """What holds for undeclared names that match exactly these patterns; `None`: not offered."""
    found: dict[SchemaId, None] = {}
    for part in parts:
        own = [id for pattern, id in part.pattern_properties if pattern in inside]
        if not own and part.additional is not None:
            own = [part.additional]
        found |= dict.fromkeys(own)
    if not inside and all(part.additional is None for part in parts) and any(map(_declares, parts)):
        return None
    return None if any(library[id].never for id in found) else tuple(found)


def _declares(part: Schema) -> bool:
    if part.implied:
        return False
    return part.properties is not None or bool(part.pattern_properties or part.required)


def _languages(sources: list[str], note: Note) -> dict[str, Language | None]:
    found: dict[str, Language | None] = {}
    for source in sources:
        try:
            found[source] = search_language(source)
        except PatternUnsupported as unsupported:
            note(f"patternProperties {source} is not enforced: {unsupported}")
            found[source] = None
    return found


def _may_match(languages: list[Language], name: str) -> bool:
    try:
        return all(matches(language, name) for language in languages)
    except TooLarge:
        return True
