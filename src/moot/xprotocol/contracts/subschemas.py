"""Where schemas stand inside a JSON Schema, and where its references lead.

A `$ref` inside `default` or `enum` is data, and a property may be called `items`: whoever walks a schema has
to know which members hold schemas. All drafts that MCP servers use are covered at once, since a name never
changed from schema to data between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from moot.protocol.operation import Json

ONE_SCHEMA: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
# `items` was a list up to draft 7; the later name is `prefixItems`.
LIST_OF_SCHEMAS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
MAP_OF_SCHEMAS: Final = frozenset({"dependencies", "dependentSchemas", "patternProperties", "properties"})
# Held for reference: they say nothing about a value until a reference leads to them.
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
ANCHORS: Final = ("$anchor", "$dynamicAnchor")

# For readers only: they never make a value valid or invalid.
ANNOTATIONS: Final = frozenset(
    {
        "$comment",
        "default",
        "deprecated",
        "description",
        "example",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)

Pointer = tuple[str, ...]


def subschemas(schema: Mapping[str, Json], *, definitions: bool = True) -> Iterator[tuple[Pointer, Json]]:
    """Every schema that stands directly in this one, objects and booleans, with the way to it."""
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in ONE_SCHEMA:
                yield (keyword,), value
            elif keyword in MAP_OF_SCHEMAS or (definitions and keyword in DEFINITIONS):
                for name, entry in value.items():
                    if isinstance(entry, dict | bool):
                        yield (keyword, name), entry
        elif isinstance(value, list):
            if keyword in LIST_OF_SCHEMAS:
                for index, entry in enumerate(value):
                    if isinstance(entry, dict | bool):
                        yield (keyword, str(index)), entry
        elif isinstance(value, bool) and keyword in ONE_SCHEMA:
            yield (keyword,), value


def rebuilt(schema: Mapping[str, Json], change: Callable[[Json], Json]) -> dict[str, Json]:
    """A copy in which `change` was put in the place of every schema that stands directly in this one."""
    copy: dict[str, Json] = {}
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in ONE_SCHEMA:
                value = change(value)
            elif keyword in MAP_OF_SCHEMAS or keyword in DEFINITIONS:
                value = {
                    name: change(entry) if isinstance(entry, dict | bool) else entry
                    for name, entry in value.items()
                }
        elif isinstance(value, list):
            if keyword in LIST_OF_SCHEMAS:
                value = [change(entry) if isinstance(entry, dict | bool) else entry for entry in value]
        elif isinstance(value, bool) and keyword in ONE_SCHEMA:
            value = change(value)
        copy[keyword] = value
    return copy


def everywhere(schema: Json) -> Iterator[tuple[Pointer, dict[str, Json]]]:
    """The schema itself and every object schema inside it, definitions included, each with its pointer."""
    waiting: list[tuple[Pointer, Json]] = [((), schema)]
    while waiting:
        pointer, place = waiting.pop()
        if isinstance(place, dict):
            yield pointer, place
            waiting += [(pointer + way, inner) for way, inner in subschemas(place)]


def anchors(schema: Json) -> dict[str, dict[str, Json]]:
    """The schemas that a reference can name by word, as in `#node`."""
    return {
        place[keyword]: place
        for _, place in everywhere(schema)
        for keyword in ANCHORS
        if isinstance(place.get(keyword), str)
    }


def target_of(reference: str, root: Json, named: Mapping[str, Json]) -> Json | None:
    """What a local reference (`#…`) leads to; None when nothing is there."""
    fragment = unquote(reference[1:])
    if not fragment:
        return root
    if not fragment.startswith("/"):
        return named.get(fragment)
    place = root
    for step in fragment[1:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and step in place:
            place = place[step]
        elif isinstance(place, list) and step.isascii() and step.isdigit() and int(step) < len(place):
            place = place[int(step)]
        else:
            return None
    return place if isinstance(place, dict | bool) else None


def pointer_text(pointer: Pointer) -> str:
    """RFC 6901, as people see it in messages."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in pointer) or "the root"
