"""Capability objects, compiled once and matched often (MEW 4.1, D-12, D-13).

A pattern value is one of five things: a string (`Text`, `NotText` or `Regex`), a plain value
(`Equal`), a list (`OneOf`) or an object (`Fields`). Each answers `matches(value, visits)`. Nothing
matches by accident: strings match strings only, an absent field matches nothing, and a list in the
payload is reached through JSONPath or `**` alone.

Three kinds of key search: `$…` (JSONPath), `**` (any depth) and keys with wildcards. The outermost
search of a pattern opens a purse of visits that the searches inside it share; when it is empty,
nothing more is found. Searches side by side have a purse each, so one cannot starve the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import re2

from moot.errors import InvalidPattern
from moot.protocol.operation import Json, Operation, Payload
from moot.protocol.patterns.globs import MAX_TEXT, Glob, glob, is_wild
from moot.protocol.patterns.jsonpath import Path, Visits, everything_in, find, read_path

# Limits of one capability. Real ones have a handful of nodes; these bound what a stranger's grant costs.
MAX_DEPTH: Final = 16
MAX_NODES: Final = 256
# D-12 gives the number for regular expressions; there is no reason for any other string to be longer.
MAX_STRING_BYTES: Final = 1024
# RE2's budget for one expression. Its default of 8 MiB times a few thousand members would be gigabytes.
REGEX_MEMORY: Final = 1 << 20

RESPONSE: Final = "mcp/response"
REQUEST_LIMIT: Final = "x-moot-request"


@dataclass(frozen=True, slots=True)
class Text:
    """A string that the glob matches."""

    glob: Glob

    def matches(self, value: Json, visits: Visits | None = None) -> bool:
        return isinstance(value, str) and self.glob.matches(value)


@dataclass(frozen=True, slots=True)
class NotText:
    """A string that the glob does not match: `!glob`."""

    glob: Glob

    def matches(self, value: Json, visits: Visits | None = None) -> bool:
        return isinstance(value, str) and self.glob.excludes(value)


class Regex:
    """A string in which RE2 finds the expression: `/re/`."""

    __slots__ = ("_compiled", "source")

    def __init__(self, source: str) -> None:
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.dot_nl = True
        options.max_mem = REGEX_MEMORY
        self.source = source
        self._compiled: Any = re2.compile(source.encode(), options)

    def matches(self, value: Json, visits: Visits | None = None) -> bool:
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


@dataclass(frozen=True, slots=True, eq=False)
class Equal:
    """A number, a boolean or null. 1 is 1.0 but not true."""

    value: float | bool | None

    # Not the dataclass's own: to Python, True is 1.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.matches(other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def matches(self, value: Json, visits: Visits | None = None) -> bool:
        if value is None or self.value is None:
            return value is self.value
        if isinstance(value, bool) or isinstance(self.value, bool):
            return value is self.value
        return isinstance(value, (int, float)) and value == self.value


@dataclass(frozen=True, slots=True)
class OneOf:
    alternatives: tuple[Node, ...]

    def matches(self, value: Json, visits: Visits | None = None) -> bool:
        return any(node.matches(value, visits) for node in self.alternatives)


@dataclass(frozen=True, slots=True)
class AtPath:
    """Key `$…`: something at the path matches."""

    key: str
    path: Path
    node: Node

    def matches(self, fields: Payload, visits: Visits | None) -> bool:
        visits = visits or Visits()
        return any(self.node.matches(found, visits) for found in find(self.path, fields, visits))


@dataclass(frozen=True, slots=True)
class Anywhere:
    """Key `**`: the object itself, or something inside it, matches."""

    key: str
    node: Node

    def matches(self, fields: Payload, visits: Visits | None) -> bool:
        visits = visits or Visits()
        return any(self.node.matches(found, visits) for found in everything_in(fields, visits))


@dataclass(frozen=True, slots=True)
class SomeKey:
    """A key with wildcards: a member whose name the glob matches has a value that matches."""

    key: str
    glob: Glob
    node: Node

    def matches(self, fields: Payload, visits: Visits | None) -> bool:
        visits = visits or Visits()
        for name, value in fields.items():
            if not visits.spend():
                return False
            if self.glob.matches(name) and self.node.matches(value, visits):
                return True
        return False


Search: TypeAlias = AtPath | Anywhere | SomeKey


@dataclass(frozen=True, slots=True)
class Fields:
    """An object in which every named field and every search has its match."""

    literal: tuple[tuple[str, Node], ...]
    searches: tuple[Search, ...] = ()

    def matches(self, value: Json, visits: Visits | None = None) -> bool:
        if not isinstance(value, dict):
            return False
        for name, node in self.literal:
            if name not in value or not node.matches(value[name], visits):
                return False
        return all(search.matches(value, visits) for search in self.searches)


Leaf: TypeAlias = Text | NotText | Regex | Equal
Node: TypeAlias = Leaf | OneOf | Fields


@dataclass(frozen=True, slots=True)
class RequestLimit:
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


@dataclass(frozen=True, slots=True)
class Pattern:
    """One capability object, compiled. `source` is the object as JSON, its labels included."""

    source: Mapping[str, Json]
    kind: Node
    payload: Fields | None
    to: tuple[Glob, ...] | None
    request: RequestLimit | None

    def matches(self, kind: str, payload: Payload, to: Sequence[str], operation: Operation | None) -> bool:
        """`operation` is what a response answers: as known of its request, or as a legacy sender claims."""
        return self.kind.matches(kind) and self.admits(kind, payload, to, operation)

    def admits(self, kind: str, payload: Payload, to: Sequence[str], operation: Operation | None) -> bool:
        """The same for a kind that is known to match."""
        if self.request is not None and not self.request.matches(kind, operation):
            return False
        # D-13: a broadcast addresses nobody in particular, so no list of addressees covers it.
        if self.to is not None and not (to and all(any(g.matches(name) for g in self.to) for name in to)):
            return False
        return self.payload is None or self.payload.matches(payload)


def is_regex(text: str) -> bool:
    return len(text) > 2 and text[0] == "/" == text[-1]


def leaves_of(node: Node) -> Iterator[Leaf | Fields]:
    """The alternatives of a one-of however nested, or the node itself."""
    if isinstance(node, OneOf):
        for alternative in node.alternatives:
            yield from leaves_of(alternative)
    else:
        yield node


def searches_within(node: Node) -> bool:
    """Whether the node looks at more than the fields that it names."""
    return any(
        isinstance(leaf, Fields)
        and (bool(leaf.searches) or any(searches_within(inner) for _, inner in leaf.literal))
        for leaf in leaves_of(node)
    )


def compile_object(source: Mapping[str, Json]) -> Pattern:
    """The pattern of a capability object; raises InvalidPattern naming the part and what to write."""
    return _Compiler().capability(source)


class _Compiler:
    """Compiles one capability and counts its nodes on the way."""

    def __init__(self) -> None:
        self.nodes = 0

    def capability(self, source: Mapping[str, Json]) -> Pattern:
        for key in source:
            if not isinstance(key, str) or (
                key not in ("kind", "payload", "to", "id", "description") and not key.startswith("x-")
            ):
                # D-13: a limit that we do not know would be ignored, and the right be wider than meant.
                _refuse(_shown_key(str(key)), "is no part of a capability; write x-… if it is a label")
        if "kind" not in source:
            _refuse("kind", 'is missing; write {"kind": "mcp/request"}, or {"kind": "*"} for every kind')
        kind = self.strings(source["kind"], "kind")
        payload = to = request = None
        if "payload" in source:
            payload = self.payload(source["payload"])
        if "to" in source:
            to = self.addressees(source["to"])
        if REQUEST_LIMIT in source:
            request = self.request(source[REQUEST_LIMIT])
        return Pattern(source, kind, payload, to, request)

    def payload(self, value: Json) -> Fields | None:
        if not isinstance(value, dict):
            _refuse("payload", 'must be an object of field patterns, as in {"method": "tools/*"}')
        fields = self.fields(value, "payload", 1)
        return fields if value else None

    def addressees(self, value: Json) -> tuple[Glob, ...]:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names:
            _refuse("to", 'must be a list of participant globs, as in ["tools-*"]')
        globs = []
        for name in names:
            node = self.string(name, "to") if isinstance(name, str) else None
            if not isinstance(node, Text):
                _refuse("to", f"takes globs only, not {_shown(name)}; write the names that may be addressed")
            globs.append(node.glob)
        return tuple(globs)

    def request(self, value: Json) -> RequestLimit:
        if not isinstance(value, dict) or not value or not value.keys() <= {"method", "context"}:
            _refuse(REQUEST_LIMIT, 'must hold method, context or both, as in {"method": "tools/*"}')
        limits = {key: self.strings(part, f"{REQUEST_LIMIT}.{key}") for key, part in value.items()}
        return RequestLimit(limits.get("method"), limits.get("context"))

    def strings(self, value: Json, where: str, depth: int = 1) -> Node:
        """A string pattern, or a list of them."""
        if isinstance(value, str):
            return self.string(value, where)
        if isinstance(value, list):
            return self.one_of(value, where, depth, strings_only=True)
        _refuse(where, f"must be a string pattern or a list of them, not {_shown(value)}")

    def value(self, value: Json, where: str, depth: int) -> Node:
        if isinstance(value, str):
            return self.string(value, where)
        if isinstance(value, dict):
            return self.fields(value, where, depth)
        if isinstance(value, list):
            return self.one_of(value, where, depth)
        self.count(where)
        if value is None or isinstance(value, (bool, int)):
            return Equal(value)
        if isinstance(value, float) and value == value and abs(value) != float("inf"):
            return Equal(value)
        _refuse(where, f"is not JSON: {_shown(value)}")

    def one_of(self, values: list[Json], where: str, depth: int, *, strings_only: bool = False) -> Node:
        self.count(where)
        self.go_deeper(where, depth)
        if not values:
            _refuse(where, "is an empty list, which nothing matches; name at least one alternative")
        read = self.strings if strings_only else self.value
        nodes = tuple(read(value, f"{where}[{at}]", depth + 1) for at, value in enumerate(values))
        return nodes[0] if len(nodes) == 1 else OneOf(nodes)

    def fields(self, fields: Mapping[str, Json], where: str, depth: int) -> Fields:
        self.count(where)
        self.go_deeper(where, depth)
        literal: list[tuple[str, Node]] = []
        searches: list[Search] = []
        for key, value in fields.items():
            if not isinstance(key, str):
                _refuse(where, f"has the key {_shown(key)}, which is no string; put it in quotes")
            inside = f"{where}.{_shown_key(key)}"
            self.measure(key, inside)
            node = self.value(value, inside, depth + 1)
            if key.startswith("$"):
                searches.append(AtPath(key, self.path(key, where), node))
            elif key == "**":
                searches.append(Anywhere(key, node))
            elif is_wild(key):
                searches.append(SomeKey(key, glob(key), node))
            else:
                literal.append((key, node))
        return Fields(tuple(literal), tuple(searches))

    def path(self, key: str, where: str) -> Path:
        try:
            return read_path(key)
        except InvalidPattern as fault:
            raise InvalidPattern(f"{where}: {fault.message}") from None

    def string(self, text: str, where: str) -> Text | NotText | Regex:
        self.count(where)
        self.measure(text, where)
        if is_regex(text):
            try:
                return Regex(text[1:-1])
            except (re2.error, UnicodeEncodeError) as fault:
                _refuse(
                    where, f"{_shown(text)} is no RE2 expression ({_reason(fault)}); mend it or use a glob"
                )
        if text.startswith("!"):
            return NotText(glob(text[1:]))
        return Text(glob(text))

    def measure(self, text: str, where: str) -> None:
        if len(text.encode(errors="surrogatepass")) > MAX_STRING_BYTES:
            _refuse(where, f"is longer than {MAX_STRING_BYTES} bytes; use a shorter pattern")

    def count(self, where: str) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            _refuse(where, f"is more than {MAX_NODES} values into one capability; split it into several")

    def go_deeper(self, where: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            _refuse(where, f"is nested deeper than {MAX_DEPTH} levels; use a ** or JSONPath key")


def _refuse(where: str, reason: str) -> NoReturn:
    raise InvalidPattern(f"capability: {where} {reason}")


def _shown(value: Json) -> str:
    return repr(value)[:60]


def _shown_key(key: str) -> str:
    return key if key.isidentifier() and len(key) < 60 else _shown(key)


def _reason(fault: Exception) -> str:
    said = fault.args[0] if fault.args else fault
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
