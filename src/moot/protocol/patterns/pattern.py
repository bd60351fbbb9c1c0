"""Capability objects, compiled once and matched often (MEW 4.1, D-12, D-13).

A pattern value is one of six things: a string (`Text`, `NotText`, `Never` or `Regex`), a plain value
(`Equal`), a list (`OneOf`), an object (`Fields`) or `{"$exact": value}` (`Exact`). Each answers
`matches(value, visits)`. Nothing matches by accident: strings match strings only, an absent field
matches nothing, and a list in the payload is reached through JSONPath or `**`, or is exact.

Three kinds of key search: `$…` (JSONPath), `**` (any depth) and keys with wildcards. The outermost
search of a pattern has a budget of visits that the searches inside it share; when it is used up,
nothing more is found. Searches side by side have a budget each, so one cannot starve the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from moot.protocol.operation import Json, Operation, Payload
from moot.protocol.patterns.globs import MAX_TEXT, Glob
from moot.protocol.patterns.jsonpath import MessageVisits, Path, Visits, everything_in, find

# RE2's budget for one expression. Its default of 8 MiB times a few thousand members would be gigabytes.
REGEX_MEMORY: Final = 1 << 20

RESPONSE: Final = "mcp/response"
REQUEST_LIMIT: Final = "x-moot-request"


class Text(msgspec.Struct, frozen=True):
    """A string that the glob matches."""

    glob: Glob

    def matches(self, value: Json, _visits: Visits | MessageVisits | None = None) -> bool:
        return isinstance(value, str) and self.glob.matches(value)


class NotText(msgspec.Struct, frozen=True):
    """A string that the glob does not match: `!glob`."""

    glob: Glob

    def matches(self, value: Json, _visits: Visits | MessageVisits | None = None) -> bool:
        return isinstance(value, str) and self.glob.excludes(value)


class Never(msgspec.Struct, frozen=True):
    """A string pattern that matches nothing: a negation that does not say what it negates.

    Read as it stands, `!` would match everything. Whoever wrote it meant to withhold something, so it gives
    nothing; it is not refused, because configurations and snapshots that contain it still have to open.
    """

    source: str

    def matches(self, _value: Json, _visits: Visits | MessageVisits | None = None) -> bool:
        return False


class Regex:
    """A string in which RE2 finds the expression: `/re/`."""

    __slots__ = ("_compiled", "source")

    def __init__(self, source: str) -> None:
        # Here, not above: few spaces have such patterns, and every command reads some.
        import re2

        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.dot_nl = True
        options.max_mem = REGEX_MEMORY
        self.source = source
        self._compiled: Any = re2.compile(source.encode(), options)

    def matches(self, value: Json, _visits: Visits | MessageVisits | None = None) -> bool:
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            return False
        # RE2 reads bytes. Half a surrogate pair (refused at the wire, D-83) must not raise here.
        return self._compiled.search(value.encode(errors="surrogatepass")) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Regex) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        return f"Regex({self.source!r})"


class Equal(msgspec.Struct, frozen=True, eq=False):
    """A number, a boolean or null. 1 is 1.0 but not true."""

    value: float | bool | None

    # Not the dataclass's own: to Python, True is 1.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.matches(other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def matches(self, value: Json, _visits: Visits | MessageVisits | None = None) -> bool:
        if value is None or self.value is None:
            return value is self.value
        if isinstance(value, bool) or isinstance(self.value, bool):
            return value is self.value
        return isinstance(value, (int, float)) and value == self.value


class Exact(msgspec.Struct, frozen=True, eq=False):
    """This value and nothing more (D-102): an object has no further member, and 1 is not 1.0."""

    value: Json
    # The value as text, by which two patterns are compared.
    canonical: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and other.canonical == self.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def matches(self, value: Json, _visits: Visits | MessageVisits | None = None) -> bool:
        return _is_same(self.value, value)


def _is_same(wanted: Json, value: Json) -> bool:
    """Whether two JSON values are the same. No deeper and no longer than `wanted`, whatever `value` is."""
    if isinstance(wanted, dict):
        return (
            isinstance(value, dict)
            and len(value) == len(wanted)
            and all(name in value and _is_same(each, value[name]) for name, each in wanted.items())
        )
    if isinstance(wanted, list):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_is_same(one, other) for one, other in zip(wanted, value, strict=True))
        )
    return value.__class__ is wanted.__class__ and bool(value == wanted)


class OneOf(msgspec.Struct, frozen=True):
    alternatives: tuple[Node, ...]

    def matches(self, value: Json, visits: Visits | MessageVisits | None = None) -> bool:
        return any(node.matches(value, visits) for node in self.alternatives)


class AtPath(msgspec.Struct, frozen=True):
    """Key `$…`: something at the path matches."""

    key: str
    path: Path
    node: Node

    def matches(self, fields: Payload, visits: Visits | MessageVisits | None) -> bool:
        visits = Visits() if visits is None else visits.search()
        return any(self.node.matches(found, visits) for found in find(self.path, fields, visits))


class Anywhere(msgspec.Struct, frozen=True):
    """Key `**`: the object itself, or something inside it, matches."""

    key: str
    node: Node

    def matches(self, fields: Payload, visits: Visits | MessageVisits | None) -> bool:
        visits = Visits() if visits is None else visits.search()
        return any(self.node.matches(found, visits) for found in everything_in(fields, visits))


class SomeKey(msgspec.Struct, frozen=True):
    """A key with wildcards: a member whose name the glob matches has a value that matches."""

    key: str
    glob: Glob
    node: Node

    def matches(self, fields: Payload, visits: Visits | MessageVisits | None) -> bool:
        visits = Visits() if visits is None else visits.search()
        for name, value in fields.items():
            if not visits.spend():
                return False
            if self.glob.matches(name) and self.node.matches(value, visits):
                return True
        return False


Search: TypeAlias = AtPath | Anywhere | SomeKey


class Fields(msgspec.Struct, frozen=True):
    """An object in which every named field and every search has its match."""

    literal: tuple[tuple[str, Node], ...]
    searches: tuple[Search, ...] = ()

    def matches(self, value: Json, visits: Visits | MessageVisits | None = None) -> bool:
        if not isinstance(value, dict):
            return False
        for name, node in self.literal:
            if name not in value or not node.matches(value[name], visits):
                return False
        return all(search.matches(value, visits) for search in self.searches)


Leaf: TypeAlias = Text | NotText | Never | Regex | Equal | Exact
Node: TypeAlias = Leaf | OneOf | Fields


class RequestLimit(msgspec.Struct, frozen=True):
    """`x-moot-request` (D-52): the request that a response answers."""

    method: Node | None
    context: Node | None

    def matches(self, kind: str, operation: Operation | None) -> bool:
        # Elsewhere than on a response there is no request to look at, so nothing to prove it by.
        if kind != RESPONSE or operation is None:
            return False
        return (self.method is None or self.method.matches(operation.method)) and (
            self.context is None or self.context.matches(operation.context)
        )


class Pattern(msgspec.Struct, frozen=True):
    """One capability object, compiled. `source` is the object as JSON, its labels included."""

    source: Mapping[str, Json]
    kind: Node
    payload: Fields | None
    to: tuple[Glob, ...] | None
    request: RequestLimit | None

    def matches(self, kind: str, payload: Payload, to: Sequence[str], operation: Operation | None) -> bool:
        """`operation` is what a response answers: as known of its request, or as a legacy sender claims."""
        return self.kind.matches(kind) and self.admits(kind, payload, to, operation)

    def admits(
        self,
        kind: str,
        payload: Payload,
        to: Sequence[str],
        operation: Operation | None,
        visits: MessageVisits | None = None,
    ) -> bool:
        """The same for a kind that is known to match."""
        if self.request is not None and not self.request.matches(kind, operation):
            return False
        # D-13: a broadcast addresses nobody in particular, so no list of addressees covers it.
        if self.to is not None and not (to and all(any(g.matches(name) for g in self.to) for name in to)):
            return False
        return self.payload is None or self.payload.matches(payload, visits)


def is_regex(text: str) -> bool:
    return len(text) > 2 and text[0] == "/" == text[-1]


def negates_nothing(text: str) -> bool:
    """Whether a pattern begins with `!` and leaves open what it negates.

    That is so behind `!` alone, before another `!`, before a regular expression (negations take globs), and
    where white space stands at either end, so that the glob is not the word that was meant.
    """
    if not text.startswith("!"):
        return False
    negated = text[1:]
    return not negated or negated.startswith("!") or is_regex(negated) or negated != negated.strip()


def leaves_of(node: Node) -> Iterator[Leaf | Fields]:
    """The alternatives of a one-of however nested, or the node itself."""
    if isinstance(node, OneOf):
        for alternative in node.alternatives:
            yield from leaves_of(alternative)
    else:
        yield node


def searches_within(node: Node) -> bool:
    """Whether the node looks at more than the fields that it names: it searches, or compares whole values."""
    return any(
        isinstance(leaf.value, dict | list)
        if isinstance(leaf, Exact)
        else isinstance(leaf, Fields)
        and (bool(leaf.searches) or any(searches_within(inner) for _, inner in leaf.literal))
        for leaf in leaves_of(node)
    )


def compares_numbers(node: Node) -> bool:
    """Whether the node looks at the value of a number somewhere."""
    for leaf in leaves_of(node):
        if isinstance(leaf, Equal):
            if isinstance(leaf.value, int | float) and not isinstance(leaf.value, bool):
                return True
        elif isinstance(leaf, Exact):
            if _has_number(leaf.value):
                return True
        elif isinstance(leaf, Fields) and (
            any(compares_numbers(inner) for _, inner in leaf.literal)
            or any(compares_numbers(search.node) for search in leaf.searches)
        ):
            return True
    return False


def _has_number(value: Json) -> bool:
    if isinstance(value, dict):
        return any(_has_number(each) for each in value.values())
    if isinstance(value, list):
        return any(_has_number(each) for each in value)
    return isinstance(value, int | float) and not isinstance(value, bool)
