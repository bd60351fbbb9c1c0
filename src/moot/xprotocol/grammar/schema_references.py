"""Where the references of a schema lead: to its own parts, by pointer, by anchor, or by `$id`.

A schema may hold others with an address of their own (`$id`), each of which is a resource: references inside
it are relative to that address, and anchors are its own. Nothing outside of the document is ever fetched.
`$dynamicRef` leads to the outermost resource on the way that has the anchor, so a reference carries its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote, urljoin

from moot.protocol.operation import Json
from moot.xprotocol.grammar.grammar_limits import REFERENCE_CHARACTERS
from moot.xprotocol.grammar.notes import GrammarRefused

_SCHEMAS = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "contains", "not", "if", "then"),
    *("else", "items", "additionalItems", "unevaluatedItems", "contentSchema"),
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


@dataclass(frozen=True, slots=True)
class Location:
    """The address of the resource around a place, and those entered before it, outermost first."""

    base: str = ""
    scope: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference with its full address; `written` is how the schema has it."""

    address: str
    scope: tuple[str, ...] = ()
    dynamic: bool = False
    written: str = field(default="", compare=False)


class Resources:
    """All resources of one document and their anchors."""

    def __init__(self, document: Json, draft: int) -> None:
        self.draft = draft
        # Each with the address around it: its own is relative to that.
        self._roots: dict[str, tuple[Json, str]] = {"": (document, "")}
        self._anchors: dict[tuple[str, str], tuple[Json, str]] = {}
        self._dynamic: set[tuple[str, str]] = set()
        self._index(document)

    def inside(self, raw: Json, location: Location) -> Location:
        """The location of what stands in a schema that stands at this location."""
        base = self._base(raw, location.base)
        if not self._dynamic or base in location.scope:
            return Location(base, location.scope)
        return Location(base, (*location.scope, base))

    def reference(self, written: str, location: Location, *, dynamic: bool = False) -> Reference:
        return Reference(_join(location.base, written), location.scope, dynamic, written)

    def find(self, reference: Reference) -> tuple[Json, Location]:
        """What a reference leads to; raises `GrammarRefused` for what is elsewhere or nowhere."""
        address, _, fragment = reference.address.partition("#")
        fragment, written = unquote(fragment), reference.written
        if address not in self._roots:
            raise GrammarRefused(f"$ref '{written}' leads out of the schema; copy what it names into $defs")
        if not fragment or fragment.startswith("/"):
            at, base = self._follow(*self._roots[address], fragment, written)
        else:
            if reference.dynamic and (address, fragment) in self._dynamic:
                scope = (each for each in reference.scope if (each, fragment) in self._dynamic)
                address = next(scope, address)
            if (address, fragment) not in self._anchors:
                raise GrammarRefused(f"$ref '{written}' names an anchor that the schema does not have")
            at, base = self._anchors[address, fragment]
        return at, Location(base, reference.scope)

    def _follow(self, root: Json, base: str, pointer: str, written: str) -> tuple[Json, str]:
        at = root
        for step in pointer.split("/")[1:]:
            base = self._base(at, base)
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(at, list) and key.isdecimal() and int(key) < len(at):
                at = at[int(key)]
            elif isinstance(at, dict) and key in at:
                at = at[key]
            else:
                raise GrammarRefused(f"$ref '{written}' leads to nothing in the schema")
        return at, base

    def _base(self, raw: Json, base: str) -> str:
        own = self._own_address(raw)
        return base if own is None or own.startswith("#") else _join(base, own).partition("#")[0]

    def _own_address(self, raw: Json) -> str | None:
        if not isinstance(raw, dict) or (self.draft <= 7 and "$ref" in raw):
            return None
        own = raw.get("id" if self.draft <= 4 else "$id")
        return own if isinstance(own, str) else None

    def _index(self, document: Json) -> None:
        todo: list[tuple[Json, str]] = [(document, "")]
        while todo:
            at, outer = todo.pop()
            if not isinstance(at, dict):
                continue
            base = self._base(at, outer)
            if base != outer:
                self._roots.setdefault(base, (at, outer))
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(at.get(word), str):
                    self._anchors.setdefault((base, at[word]), (at, outer))
            if isinstance(at.get("$dynamicAnchor"), str):
                self._dynamic.add((base, at["$dynamicAnchor"]))
            own = self._own_address(at)
            if own is not None and own.startswith("#"):
                self._anchors.setdefault((base, own[1:]), (at, outer))
            todo += [(each, base) for each in _subschemas(at)]


def _subschemas(raw: dict[str, Json]) -> Iterator[Json]:
    for word in _SCHEMAS:
        yield raw.get(word)
    for word in _LISTS:
        if isinstance(raw.get(word), list):
            yield from raw[word]
    for word in _MAPS:
        if isinstance(raw.get(word), dict):
            yield from raw[word].values()


def _join(base: str, written: str) -> str:
    if len(written) > REFERENCE_CHARACTERS:
        raise GrammarRefused(f"a reference or $id is longer than {REFERENCE_CHARACTERS} characters")
    if written.startswith("#"):
        return base + written
    try:
        return urljoin(base, written)
    except ValueError:
        raise GrammarRefused(f"'{written}' is no address; a reference in the schema begins with #") from None
