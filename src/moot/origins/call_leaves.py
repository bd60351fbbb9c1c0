"""The values of a call, each with what the tool's input schema lists for it.

A name of a member is a value too, unless the schema of the object it stands in lists it; without a schema
every name is one. An option counts only for the argument that it is listed for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moot.protocol import strict_json
from moot.protocol.operation import Json

MAX_DEPTH: Final = 16
# Parts of one schema that may stand for one value: more are not looked at, so what they list is not listed.
MAX_ALTERNATIVES: Final = 64
_MAX_PATH_CHARS: Final = 256
_MAX_NAME_CHARS: Final = 64
_JOINED: Final = ("anyOf", "oneOf", "allOf")


class CallLeaf(NamedTuple):
    """A value, or a name that nobody listed; `name` is the argument that it goes by."""

    path: str
    name: str
    value: Json
    options: frozenset[str]


def call_leaves(arguments: Mapping[str, Json], schema: Json) -> Iterator[CallLeaf]:
    def walk(value: Json, path: str, name: str, schemas: list[Json], depth: int) -> Iterator[CallLeaf]:
        parts = _parts(schemas, schema)
        if isinstance(value, dict) and depth:
            for key, inner in value.items():
                below = f"{path}.{key[:_MAX_NAME_CHARS]}" if path else key[:_MAX_NAME_CHARS]
                below = below[:_MAX_PATH_CHARS]
                listed = [each for part in parts if (each := _property(part, key)) is not None]
                if not listed:
                    yield CallLeaf(f"{below} (name)", "", key, frozenset())
                    listed = [part.get("additionalProperties") for part in parts]
                yield from walk(inner, below, key, listed, depth - 1)
        elif isinstance(value, list) and depth:
            for at, inner in enumerate(value):
                below = f"{path}[{at}]"[:_MAX_PATH_CHARS]
                yield from walk(inner, below, name, [_item(part, at) for part in parts], depth - 1)
        elif isinstance(value, dict | list):
            yield CallLeaf(path, "", strict_json.encode(value).decode("utf-8", "replace"), frozenset())
        else:
            yield CallLeaf(path, name, value, _options(parts))

    return walk(dict(arguments), "", "", [schema], MAX_DEPTH)


def _parts(schemas: list[Json], root: Json) -> list[dict[str, Json]]:
    """The schemas that a value may have to fit, references and alternatives followed."""
    found: list[dict[str, Json]] = []
    waiting = schemas[:MAX_ALTERNATIVES]
    for _ in range(MAX_ALTERNATIVES):
        if not waiting:
            break
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        found.append(part)
        for name in _JOINED:
            inner = part.get(name)
            waiting += inner[:MAX_ALTERNATIVES] if isinstance(inner, list) else []
        if isinstance(reference := part.get("$ref"), str):
            waiting.append(_referred(reference, root))
    return found


def _referred(reference: str, root: Json) -> Json:
    head, *steps = reference.split("/", MAX_DEPTH)
    for step in steps:
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root if head == "#" else None


def _property(part: Mapping[str, Json], key: str) -> Json:
    members = part.get("properties")
    return members.get(key) if isinstance(members, dict) else None


def _item(part: Mapping[str, Json], at: int) -> Json:
    first = part.get("prefixItems")
    return first[at] if isinstance(first, list) and at < len(first) else part.get("items")


def _options(parts: list[dict[str, Json]]) -> frozenset[str]:
    listed: list[Json] = []
    for part in parts:
        options = part.get("enum")
        listed += [*(options if isinstance(options, list) else ()), part.get("const")]
    return frozenset(each for each in listed if isinstance(each, str))
