"""What other schemas at the same place declare: members to offer beside a choice, what nobody evaluates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from moot.xprotocol.grammar.schema import FREE, Library, Schema, SchemaId


def unevaluated_members(schema: Schema, inner: list[Schema], free: SchemaId) -> Schema | None:
    """`unevaluatedProperties` as `additionalProperties` beside all that this schema and the inner declare."""
    if schema.unevaluated_properties is None or schema.additional is not None:
        return None
    if any(part.additional is not None or part.unevaluated_properties is not None for part in inner):
        return None
    names = dict.fromkeys(name for part in (schema, *inner) for name, _ in part.properties or ())
    patterns = dict.fromkeys(pattern for part in (schema, *inner) for pattern, _ in part.pattern_properties)
    return replace(
        FREE,
        properties=tuple((name, free) for name in names),
        pattern_properties=tuple((pattern, free) for pattern in patterns),
        additional=schema.unevaluated_properties,
    )


def unevaluated_items(schema: Schema, inner: list[Schema], library: Library) -> Schema | None:
    """`unevaluatedItems` as `items` after all that this schema and its inner ones speak of."""
    if schema.unevaluated_items is None or schema.items is not None:
        return None
    if any(part.items is not None or part.unevaluated_items is not None for part in inner):
        return None
    parts = (schema, *inner)
    length = max(len(part.prefix) for part in parts)
    # In 2019-09 `contains` evaluates nothing.
    found = [part.contains for part in parts if part.contains is not None and library.draft > 2019]
    items = library.any_of((schema.unevaluated_items, *found))
    return replace(FREE, prefix=(library.free,) * length, items=items)


def offered_members(
    library: Library, ids: Iterable[SchemaId], *, conditional: bool = False
) -> SchemaId | None:
    """What these declare, whichever way they hold, to stand beside schemas that do not speak of it.

    `conditional`: also what they declare under an `if` or a dependency.
    """
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
        if conditional:
            inner += [each for condition in schema.conditions for each in condition]
            inner += [needed for _, needed in schema.dependent]
        todo[:0] = [*inner, *schema.all_of]
    return library.add(replace(FREE, offered=tuple(found))) if found else None
