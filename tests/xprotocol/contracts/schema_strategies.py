"""Random schemas, small changes to them, and values that an old caller may have sent."""

from __future__ import annotations

import copy
from collections.abc import Callable

from hypothesis import strategies as st

from moot.protocol.operation import Json

Draw = Callable[[st.SearchStrategy[Json]], Json]

NAMES = ("a", "b", "c", "d")
SCALARS: list[Json] = [None, True, False, 0, 1, 2, 3, 4, 10, -1, 0.5, 2.0, "", "a", "ab", "abc", "aaaa", "b1"]
PATTERNS = ["^a", "b$", "^[a-c]*$"]
SIZES = st.integers(0, 4)


@st.composite
def schemas(draw: Draw, depth: int = 2) -> Json:
    """A schema of the kinds that tools use, biased towards objects."""
    kinds = ["string", "number", "integer", "boolean", "enum", "any"]
    if depth:
        kinds += ["object"] * 6 + ["array", "array", "anyOf", "oneOf", "allOf", "types", "pattern"]
    kind = draw(st.sampled_from(kinds))
    inner = schemas(max(depth - 1, 0))
    schema: Json = {"type": kind}
    if kind == "string":
        schema |= draw(st.fixed_dictionaries({}, optional={"minLength": SIZES, "maxLength": SIZES}))
        schema |= draw(st.fixed_dictionaries({}, optional={"pattern": st.sampled_from(PATTERNS)}))
    elif kind in ("number", "integer"):
        bounds = dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), SIZES)
        schema |= draw(st.fixed_dictionaries({}, optional={**bounds, "multipleOf": st.integers(1, 4)}))
    elif kind == "enum":
        schema = {"enum": draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=4))}
    elif kind == "any":
        schema = draw(
            st.sampled_from([{}, {"description": "anything"}, {"const": 1}, {"minLength": 2}, True])
        )
    elif kind == "types":
        schema = {
            "type": draw(st.lists(st.sampled_from(["string", "integer", "null"]), min_size=1, unique=True))
        }
    elif kind in ("anyOf", "oneOf", "allOf"):
        schema = {kind: draw(st.lists(inner, min_size=1, max_size=3))}
    elif kind == "array":
        sizes: Json = {"minItems": SIZES, "maxItems": SIZES, "uniqueItems": st.booleans(), "items": inner}
        schema |= draw(st.fixed_dictionaries({}, optional=sizes))
    elif kind == "pattern":
        schema = {"type": "object", "patternProperties": {draw(st.sampled_from(PATTERNS)): draw(inner)}}
    elif kind == "object":
        schema["properties"] = draw(st.dictionaries(st.sampled_from(NAMES), inner, max_size=3))
        schema["required"] = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
        others = draw(st.sampled_from(["absent", "absent", False, True, "schema"]))
        if others != "absent":
            schema["additionalProperties"] = draw(inner) if others == "schema" else others
    return schema


@st.composite
def changed(draw: Draw, schema: Json) -> Json:
    """The schema with one place in it changed, the rest as it was."""
    new = copy.deepcopy(schema)
    place = new
    while isinstance(place, dict):
        below = [value for value in place.values() if isinstance(value, dict | list) and value]
        if not below or draw(st.booleans()):
            break
        place = draw(st.sampled_from(below))
    if isinstance(place, list):
        if place and all(isinstance(item, dict | bool) for item in place):
            place[draw(st.integers(0, len(place) - 1))] = draw(schemas(1))
        elif draw(st.booleans()) and len(place) > 1:
            place.pop()
        elif all(isinstance(item, str) for item in place):
            place.append(draw(st.sampled_from(NAMES)))
        return new
    if not isinstance(place, dict):
        return draw(schemas())
    word = draw(st.sampled_from(["add", "drop", "swap", "require", "describe"]))
    if word == "drop" and place:
        del place[draw(st.sampled_from(sorted(place)))]
    elif word == "add":
        if "type" in place or "properties" in place:
            place.setdefault("properties", {})[draw(st.sampled_from(NAMES))] = draw(schemas(1))
        else:
            place |= draw(schemas(0).filter(lambda value: isinstance(value, dict)))
    elif word == "require":
        place["required"] = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
    elif word == "describe":
        place["description"] = "other words"
    else:
        fresh = draw(schemas(1).filter(lambda value: isinstance(value, dict)))
        place.clear()
        place |= fresh
    return new


@st.composite
def values(draw: Draw, schema: Json) -> Json:
    """A value that may or may not fit, with no members but those that the schema speaks of."""
    if not isinstance(schema, dict):
        return draw(st.sampled_from([*SCALARS, [], {}, ["a"]]))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return draw(values(draw(st.sampled_from(schema[word]))))
    if "allOf" in schema:
        merged: Json = {}
        for branch in schema["allOf"]:
            merged |= branch if isinstance(branch, dict) else {}
        return draw(values(merged))
    if "enum" in schema or "const" in schema:
        return draw(
            st.sampled_from([*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])])
        )
    types = schema.get("type", "object" if "properties" in schema else None)
    kind = draw(st.sampled_from(types)) if isinstance(types, list) else types
    if kind == "object":
        return draw(_objects(schema))
    if kind == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems", 4)
        return draw(st.lists(values(schema.get("items", True)), min_size=least, max_size=max(least, most)))
    if kind == "string":
        return draw(st.sampled_from([value for value in SCALARS if isinstance(value, str)]))
    if kind in ("number", "integer"):
        return draw(st.sampled_from([v for v in SCALARS if isinstance(v, int | float)]))
    return draw(st.sampled_from([*SCALARS, [], {}]))


@st.composite
def _objects(draw: Draw, schema: Json) -> Json:
    spoken_of: Json = dict(schema.get("properties", {}))
    for name in schema.get("required", ()):
        spoken_of.setdefault(name, schema.get("additionalProperties", True))
    if schema.get("additionalProperties", False) is not False:
        for name in NAMES:
            spoken_of.setdefault(name, schema["additionalProperties"])
    for pattern in schema.get("patternProperties", {}):
        spoken_of.setdefault(
            {"^a": "a", "b$": "b", "^[a-c]*$": "c"}[pattern], schema["patternProperties"][pattern]
        )
    present = {
        name: value
        for name, value in spoken_of.items()
        if name in schema.get("required", ()) or draw(st.booleans())
    }
    return {name: draw(values(value)) for name, value in present.items()}
