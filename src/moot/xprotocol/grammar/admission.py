"""Whether a listed value satisfies the schemas around it. Only asked for `enum` and `const`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from moot.protocol.operation import Json
from moot.xprotocol.grammar.member_names import declared_schemas
from moot.xprotocol.grammar.schema import Library, Schema, SchemaId, to_fraction
from moot.xprotocol.grammar.schema_merge import ways
from moot.xprotocol.grammar.shapes import Shape, shape_of
from moot.xprotocol.grammar.strings import admits
from moot.xprotocol.grammar.values import identity, type_of

# Yes, no, or we cannot tell.
Verdict = bool | None
_DEPTH = 24


def admitted(library: Library, ids: tuple[SchemaId, ...], value: Json, *, depth: int = _DEPTH) -> Verdict:
    """Whether a value satisfies the schemas of these numbers."""
    if depth == 0:
        return None
    noted: list[str] = []
    verdicts = [fits(library, shape_of(way), value, depth=depth) for way in ways(library, ids, noted.append)]
    if True in verdicts:
        return None if noted else True
    return None if None in verdicts else False


def fits(library: Library, shape: Shape, value: Json, *, depth: int = _DEPTH) -> Verdict:
    """Whether a value fits one shape."""
    kind = type_of(value)
    if kind not in shape.types:
        return False
    text = json.dumps(value, ensure_ascii=False)
    known = identity(text)
    if shape.values is not None and known not in {identity(each) for each in shape.values}:
        return False
    if known in {identity(each) for each in shape.excluded}:
        return False
    match kind:
        case "string":
            return admits(shape.strings, value)
        case "integer" | "fraction":
            return shape.numbers.admit(to_fraction(value))
        case "array":
            return _all(_array(library, part, value, depth) for part in shape.parts)
        case "object":
            return _object(library, shape.parts, value, depth)
    return True


def _all(verdicts: Iterator[Verdict]) -> Verdict:
    result: Verdict = True
    for verdict in verdicts:
        if verdict is False:
            return False
        if verdict is None:
            result = None
    return result


def _array(library: Library, part: Schema, value: list[Json], depth: int) -> Verdict:
    if len(value) < part.min_items or (part.max_items is not None and len(value) > part.max_items):
        return False
    if part.unique and len({identity(json.dumps(each)) for each in value}) < len(value):
        return False

    def verdicts() -> Iterator[Verdict]:
        for at, each in enumerate(value):
            id = part.prefix[at] if at < len(part.prefix) else part.items
            if id is not None:
                yield admitted(library, (id,), each, depth=depth - 1)
        if part.contains is not None:
            yield None

    return _all(verdicts())


def _object(library: Library, parts: tuple[Schema, ...], value: dict[str, Json], depth: int) -> Verdict:
    for part in parts:
        if any(name not in value for name in part.required) or any(name in value for name in part.forbidden):
            return False
        if len(value) < part.min_properties:
            return False
        if part.max_properties is not None and len(value) > part.max_properties:
            return False

    def verdicts() -> Iterator[Verdict]:
        for name, each in value.items():
            noted: list[str] = []
            ids = declared_schemas(library, parts, name, noted.append)
            if ids is None:
                yield False
            else:
                yield admitted(library, ids, each, depth=depth - 1)
                if noted:
                    yield None

    return _all(verdicts())
