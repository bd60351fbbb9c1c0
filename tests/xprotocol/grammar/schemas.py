"""Random schemas, nastier than what tools have: every keyword, in combinations that nobody would write."""

from __future__ import annotations

import random

from moot.protocol.operation import Json

_NAMES = [
    "a",
    "b",
    "ab",
    "name",
    'qu"ote',
    "back\\slash",
    "é",
    "日",
    "",
    "x-1",
    "a/b",
    "a~b",
    "$ref",
    "type",
    "😀",
    "new\nline",
]
_PATTERNS = [
    "^a",
    "b$",
    "^[a-z]+$",
    "x",
    "^\\d{2,4}$",
    '^[^"]*$',
    "\\s",
    "^.{3}$",
    "^(foo|bar)+$",
    "^[A-Z][a-z]*( [A-Z][a-z]*)*$",
    "^(?!x)[a-z]{1,5}$",
    "^(?=.*\\d)(?=.*[a-z]).{4,8}$",
    "\\bword\\b",
    "^\\w+([-.]\\w+)*$",
    "^$",
    "",
    "a|b",
    "^a|b$",
    "^(a*)*$",
    "[^\\x00-\\x7F]",
    "^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$",
    "^\\p{Lu}",
    "^(a?){3}b$",
    "\\\\",
    "^/[^/]+(/[^/]+)*$",
    "^[\\s\\S]*$",
    "^#(?:[0-9a-fA-F]{3}){1,2}$",
    "^(?:a|ab)(?:c|bcd)$",
    "^[é-ü]+$",
    '["\\\\]',
    "^\\u0041\\x42$",
    "^[-a]$",
    "^[^-a\\]]$",
    "(?<!-)$",
    "^(a|b)?(c|d)?$",
    "^[😀-😃]$",
    "^\\S+$",
    "^\\D\\W$",
]
_FORMATS = [
    "date",
    "date-time",
    "time",
    "uuid",
    "ipv4",
    "ipv6",
    "uri",
    "email",
    "hostname",
    "duration",
    "json-pointer",
    "uri-reference",
    "made-up",
    "relative-json-pointer",
]
_NUMBERS: list[float] = [
    0,
    1,
    -1,
    5,
    10,
    99,
    100,
    101,
    255,
    1000,
    -7,
    -100,
    0.5,
    -0.25,
    1.5,
    0.1,
    3.14,
    1e-3,
    12.75,
    -99.99,
    2**31,
    1e12,
    -1e15,
    1e-9,
]
_VALUES: list[Json] = [
    None,
    True,
    False,
    0,
    1,
    -3,
    2.5,
    1.0,
    1e22,
    1e-07,
    "",
    "a",
    'q"q',
    "é😀",
    "b\\n",
    "x\ny",
    [],
    [1, "a"],
    {},
    {"a": 1, "é": [None]},
    {"b": {"c": "d"}},
]
_DIALECTS = [
    *["http://json-schema.org/draft-07/schema#"] * 3,
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
_TYPES = ["null", "boolean", "object", "array", "string", "integer", "number"]


class Schemas:
    """Random schemas from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: list[str] = []

    def document(self) -> Json:
        """A whole schema, at times with definitions that refer to each other."""
        self.names = self.random.sample(
            ["node", "a/b", "c~d", "e f", "tree"], self.random.choice([0, 0, 1, 2])
        )
        schema = self.schema(0)
        if not isinstance(schema, dict):
            return schema
        if self.names:
            schema = dict(schema)
            schema["$defs"] = {name: self.schema(1) for name in self.names}
        if self.random.random() < 0.25:
            schema = {**schema, "$schema": self.random.choice(_DIALECTS)}
        return schema

    def schema(self, depth: int) -> Json:
        draw = self.random.random
        if draw() < 0.04:
            return draw() < 0.7
        if draw() < 0.06:
            return {}
        if self.names and draw() < 0.15 + 0.1 * depth:
            found = {
                "$ref": "#/$defs/"
                + self.random.choice(self.names).replace("~", "~0").replace("/", "~1").replace(" ", "%20")
            }
            return found if draw() < 0.7 else {**found, **self.typed(depth)}
        schema = self.typed(depth)
        if depth < 3 and draw() < 0.25:
            schema |= self.combined(depth)
        return schema

    def typed(self, depth: int) -> dict[str, Json]:
        draw = self.random.random
        if draw() < 0.1:
            return {"enum": self.random.sample(_VALUES, self.random.randint(1, 4))}
        if draw() < 0.04:
            return {"const": self.random.choice(_VALUES)}
        kinds = [kind for kind in _TYPES if depth < 4 or kind not in ("object", "array")]
        kind = self.random.choice([*kinds, *(["object"] * 3 if depth < 2 else [])])
        schema: dict[str, Json] = {"type": kind}
        match kind:
            case "object":
                schema |= self.object(depth)
            case "array":
                schema |= self.array(depth)
            case "string":
                schema |= self.string()
            case "integer" | "number":
                schema |= self.number(whole=kind == "integer")
        if draw() < 0.08:
            del schema["type"]
        elif draw() < 0.1:
            schema["type"] = [kind, self.random.choice(_TYPES)]
            if schema["type"][0] == schema["type"][1]:
                schema["type"] = kind
        return schema

    def object(self, depth: int) -> dict[str, Json]:
        draw = self.random.random
        names = self.random.sample(_NAMES, self.random.choice([0, 1, 2, 3, 3, 5]))
        schema: dict[str, Json] = {}
        if names or draw() < 0.5:
            schema["properties"] = {name: self.schema(depth + 1) for name in names}
        if names and draw() < 0.7:
            schema["required"] = [name for name in names if draw() < 0.4]
        if draw() < 0.05:
            schema.setdefault("required", []).append(
                self.random.choice([name for name in _NAMES if name not in names])
            )
        if draw() < 0.4:
            schema["additionalProperties"] = self.random.choice([False, False, True, {"type": "integer"}, {}])
        if draw() < 0.12:
            schema["unevaluatedProperties"] = self.random.choice([False, False, True, {"type": "integer"}])
        if draw() < 0.12:
            patterns = self.random.sample(_PATTERNS, self.random.choice([1, 1, 2]))
            schema["patternProperties"] = {pattern: self.schema(depth + 2) for pattern in patterns}
        if draw() < 0.06:
            schema["propertyNames"] = self.random.choice(
                [{"maxLength": 3}, {"pattern": "^[a-z]+$"}, {"enum": ["a", "b", "zz"]}, {"minLength": 1}]
            )
        if draw() < 0.1:
            schema["minProperties"] = self.random.choice([1, 1, 2, 3])
        if draw() < 0.08:
            schema["maxProperties"] = self.random.choice([0, 1, 2, 3])
        if draw() < 0.05 and len(names) > 1:
            schema["dependentRequired"] = {names[0]: [names[1]]}
        if draw() < 0.03 and names:
            schema["dependentSchemas"] = {names[0]: self.schema(depth + 2)}
        return schema

    def array(self, depth: int) -> dict[str, Json]:
        draw = self.random.random
        schema: dict[str, Json] = {}
        if draw() < 0.8:
            schema["items"] = self.schema(depth + 1)
        if draw() < 0.15:
            schema["prefixItems"] = [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]
        if draw() < 0.05:
            schema = {
                "items": [self.schema(depth + 1), self.schema(depth + 1)],
                "additionalItems": self.schema(depth + 1),
            }
        if draw() < 0.3:
            schema["minItems"] = self.random.choice([0, 1, 2, 5])
        if draw() < 0.3:
            schema["maxItems"] = self.random.choice([0, 1, 3, 5, 40])
        if draw() < 0.1:
            schema["uniqueItems"] = True
        if draw() < 0.08:
            schema["contains"] = self.schema(depth + 2)
            if draw() < 0.5:
                schema["minContains"] = self.random.choice([0, 1, 2])
            if draw() < 0.4:
                schema["maxContains"] = self.random.choice([0, 1, 2, 3])
        if draw() < 0.1:
            schema["unevaluatedItems"] = self.random.choice([False, False, True, {"type": "integer"}])
        return schema

    def string(self) -> dict[str, Json]:
        draw = self.random.random
        schema: dict[str, Json] = {}
        if draw() < 0.25:
            schema["minLength"] = self.random.choice([0, 1, 2, 5, 30])
        if draw() < 0.25:
            schema["maxLength"] = self.random.choice([0, 1, 3, 10, 100, 1_900, 2_500])
        if draw() < 0.3:
            schema["pattern"] = self.random.choice(_PATTERNS)
        if draw() < 0.15:
            schema["format"] = self.random.choice(_FORMATS)
        return schema

    def number(self, *, whole: bool) -> dict[str, Json]:
        draw = self.random.random
        schema: dict[str, Json] = {}
        for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if draw() < 0.25:
                schema[word] = self.random.choice(_NUMBERS)
        if draw() < 0.1:
            schema["multipleOf"] = self.random.choice([1, 2, 5, 10, 3, 7, 0.5, 0.01, 1.5, 25])
        return schema

    def combined(self, depth: int) -> dict[str, Json]:
        draw = self.random.random

        def several() -> list[Json]:
            return [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]

        word = self.random.choice(["anyOf", "oneOf", "allOf", "not", "if", "required", "members"])
        match word:
            case "not":
                return {"not": self.schema(depth + 2)}
            case "if":
                parts = {"if": self.schema(depth + 1), "then": self.schema(depth + 1)}
                return parts if draw() < 0.5 else {**parts, "else": self.schema(depth + 1)}
            case "members":
                # Objects that may hold together, and at times ask for what none of them has evaluated.
                branches = [{"type": "object", **self.object(depth + 1)} for _ in range(2)]
                whole = {self.random.choice(["anyOf", "anyOf", "allOf", "oneOf"]): branches}
                return whole if draw() < 0.5 else {**whole, "unevaluatedProperties": False}
            case "required":
                group = [{"required": [self.random.choice(_NAMES)]} for _ in range(2)]
                return {self.random.choice(["anyOf", "oneOf"]): group}
        return {word: several()}
