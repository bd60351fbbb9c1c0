"""From the JSON of a capability object to a `Pattern` (D-12, D-13).

Whatever cannot be read is refused here, with a message that names the part and what to write, so
that nothing is decided at run time that could have been wrong from the start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from moot.errors import InvalidPattern
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import Glob, glob, is_wild
from moot.protocol.patterns.jsonpath import Path, read_path
from moot.protocol.patterns.pattern import (
    REQUEST_LIMIT,
    Anywhere,
    AtPath,
    Equal,
    Exact,
    Fields,
    Never,
    Node,
    NotText,
    OneOf,
    Pattern,
    Regex,
    RequestLimit,
    Search,
    SomeKey,
    Text,
    is_regex,
    negates_nothing,
)

# Limits of one capability. Real ones have a handful of nodes; these bound what a stranger's grant costs.
MAX_DEPTH: Final = 16
MAX_NODES: Final = 256
# D-12 gives the number for regular expressions; there is no reason for any other string to be longer.
MAX_STRING_BYTES: Final = 1024


# D-102: a value and nothing more.
EXACT: Final = "$exact"

_KEYS: Final = frozenset({"kind", "payload", "to", "id", "description"})


def compile_object(source: Mapping[str, Json]) -> Pattern:
    """The pattern of a capability object; raises InvalidPattern naming the part and what to write."""
    return _Compiler().capability(source)


class _Compiler:
    """Compiles one capability and counts its nodes on the way."""

    def __init__(self) -> None:
        self.nodes = 0

    def capability(self, source: Mapping[str, Json]) -> Pattern:
        for key in source:
            if key not in _KEYS and not key.startswith("x-"):
                # D-13: a limit that we do not know would be ignored, and the right be wider than meant.
                raise _refusal(_shown_key(key), "is no part of a capability; write x-… if it is a label")
        if "kind" not in source:
            raise _refusal(
                "kind", 'is missing; write {"kind": "mcp/request"}, or {"kind": "*"} for every kind'
            )
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
            raise _refusal("payload", 'must be an object of field patterns, as in {"method": "tools/*"}')
        if EXACT in value:
            # Every request has an id of its own, so no whole payload comes twice.
            raise _refusal("payload", f"cannot be {EXACT} itself; write it inside, as in params.arguments")
        fields = self.fields(value, "payload", 1)
        return fields if value else None

    def addressees(self, value: Json) -> tuple[Glob, ...]:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names:
            raise _refusal("to", 'must be a list of participant globs, as in ["tools-*"]')
        globs = []
        for name in names:
            node = self.string(name, "to") if isinstance(name, str) else None
            if not isinstance(node, Text):
                raise _refusal(
                    "to", f"takes globs only, not {_shown(name)}; write the names that may be addressed"
                )
            globs.append(node.glob)
        return tuple(globs)

    def request(self, value: Json) -> RequestLimit:
        if not isinstance(value, dict) or not value or not value.keys() <= {"method", "context"}:
            raise _refusal(REQUEST_LIMIT, 'must hold method, context or both, as in {"method": "tools/*"}')
        limits = {key: self.strings(part, f"{REQUEST_LIMIT}.{key}") for key, part in value.items()}
        return RequestLimit(limits.get("method"), limits.get("context"))

    def strings(self, value: Json, where: str, depth: int = 1) -> Node:
        """A string pattern, or a list of them."""
        if isinstance(value, str):
            return self.string(value, where)
        if isinstance(value, list):
            return self.one_of(value, where, depth, strings_only=True)
        raise _refusal(where, f"must be a string pattern or a list of them, not {_shown(value)}")

    def value(self, value: Json, where: str, depth: int) -> Node:
        if isinstance(value, str):
            return self.string(value, where)
        if isinstance(value, dict):
            return self.exact(value, where, depth) if EXACT in value else self.fields(value, where, depth)
        if isinstance(value, list):
            return self.one_of(value, where, depth)
        self.count(where)
        return Equal(value)

    def exact(self, fields: Mapping[str, Json], where: str, depth: int) -> Exact:
        if len(fields) > 1:
            raise _refusal(where, f"has {EXACT} and other keys; {EXACT} stands alone")
        value = fields[EXACT]
        self.count_inside(value, f"{where}.{EXACT}", depth)
        return Exact(value, json.dumps(value, sort_keys=True))

    def count_inside(self, value: Json, where: str, depth: int) -> None:
        self.count(where)
        self.go_deeper(where, depth)
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for each in inner:
            self.count_inside(each, where, depth + 1)

    def one_of(self, values: list[Json], where: str, depth: int, *, strings_only: bool = False) -> Node:
        self.count(where)
        self.go_deeper(where, depth)
        if not values:
            raise _refusal(where, "is an empty list, which nothing matches; name at least one alternative")
        read = self.strings if strings_only else self.value
        nodes = tuple(read(value, f"{where}[{at}]", depth + 1) for at, value in enumerate(values))
        return nodes[0] if len(nodes) == 1 else OneOf(nodes)

    def fields(self, fields: Mapping[str, Json], where: str, depth: int) -> Fields:
        self.count(where)
        self.go_deeper(where, depth)
        literal: list[tuple[str, Node]] = []
        searches: list[Search] = []
        for key, value in fields.items():
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

    def string(self, text: str, where: str) -> Text | NotText | Never | Regex:
        self.count(where)
        self.measure(text[1:-1] if is_regex(text) else text, where)
        if is_regex(text):
            import re2

            try:
                return Regex(text[1:-1])
            except (re2.error, UnicodeEncodeError) as fault:
                reason = f"{_shown(text)} is no RE2 expression ({_reason(fault)}); mend it or use a glob"
                raise _refusal(where, reason) from None
        if negates_nothing(text):
            return Never(text)
        if text.startswith("!"):
            return NotText(glob(text[1:]))
        return Text(glob(text))

    def measure(self, text: str, where: str) -> None:
        if len(text.encode(errors="surrogatepass")) > MAX_STRING_BYTES:
            raise _refusal(where, f"is longer than {MAX_STRING_BYTES} bytes; use a shorter pattern")

    def count(self, where: str) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _refusal(
                where, f"is more than {MAX_NODES} values into one capability; split it into several"
            )

    def go_deeper(self, where: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _refusal(where, f"is nested deeper than {MAX_DEPTH} levels; use a ** or JSONPath key")


def _refusal(where: str, reason: str) -> InvalidPattern:
    return InvalidPattern(f"capability: {where} {reason}")


def _shown(value: Json) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:60]


def _shown_key(key: str) -> str:
    return key if key.isidentifier() and len(key) < 60 else _shown(key)


def _reason(fault: Exception) -> str:
    text = fault.args[0] if fault.args else fault
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
