"""Values that satisfy a schema and values that do not. jsonschema_rs tells which is which.

The sampler guesses from the keywords and keeps what the validator confirms, so a wrong guess costs a try and
nothing else. Members come in the schema's order, and undeclared ones only where a grammar offers them (D-66).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from moot.protocol.operation import Json
from moot.xprotocol.grammar.regex import (
    Anchor,
    Char,
    Choice,
    Concat,
    Look,
    Pattern,
    PatternUnsupported,
    Repeat,
    parse,
)

_WORDS = ["", "a", "hello", "x y", 'say "hi"', "back\\slash", "tab\there", "new\nline", "über", "日本", "😀", "/p/q", "0", "null", "A1-b_2", "\x7f\x01"]  # fmt: skip
_FORMATS = {
    "date-time": ["2024-02-29T12:30:00Z", "1999-12-31T23:59:59.123+05:30", "2000-02-29t00:00:00z", "2016-12-31T23:59:60Z"],
    "date": ["2024-02-29", "1999-12-31", "2023-02-28"],
    "time": ["12:30:00Z", "23:59:59.5-08:00", "23:59:60Z"],
    "duration": ["P1D", "PT5M", "P1Y2M3DT4H5M6S", "P2W"],
    "uri": ["https://example.com/a?b=c#d", "mailto:x@y.org", "urn:isbn:123", "http://[::1]:80/", "ftp://u:p@h/"],
    "uri-reference": ["/a/b?c", "x", "#f", "https://example.com", "//h/p"],
    "iri": ["https://example.com/ü"],
    "iri-reference": ["/ü"],
    "email": ["a@b.co", "first.last+tag@sub.example.org"],
    "hostname": ["example.com", "a-b.c", "localhost"],
    "ipv4": ["127.0.0.1", "255.255.255.255"],
    "ipv6": ["::1", "2001:db8::8a2e:370:7334", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
    "json-pointer": ["", "/a/0", "/a~1b"],
    "relative-json-pointer": ["0", "1/a", "2#"],
}  # fmt: skip
_SCALARS: list[Json] = [None, True, False, 0, 1, -1, 42, 10**20, 0.5, -3.25, 1e-07, 2.5e-300, "", "text", "é", [], {}, [1, "a"], {"k": None}]


_OBJECT_WORDS = ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "propertyNames")


def validator(schema: Json) -> Any | None:
    """What tells the truth about values, or `None` if the schema is malformed."""
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True)
    except (ValueError, TypeError):
        return None


_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas")
_CLOSING = ("properties", "patternProperties", "required", "$ref", "allOf", "anyOf", "oneOf", "if")


def closed(schema: Json, *, in_place: bool = False) -> Json:
    """The schema without room for members that it does not declare, however it is satisfied."""
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Json] = {}
    for word, value in schema.items():
        if word == "$schema":
            continue
        inner = word in _IN_PLACE
        if word in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas") and isinstance(value, dict):
            result[word] = {name: closed(sub, in_place=inner or "def" in word) for name, sub in value.items()}
        elif isinstance(value, list) and word in ("allOf", "anyOf", "oneOf", "prefixItems", "items"):
            result[word] = [closed(sub, in_place=inner) for sub in value]
        elif word in ("items", "additionalProperties", "contains", "not", "if", "then", "else"):
            result[word] = closed(value, in_place=inner)
        else:
            result[word] = value
    open_ended = "additionalProperties" in schema or "unevaluatedProperties" in schema
    if not in_place and not open_ended and any(word in schema for word in _CLOSING):
        result["unevaluatedProperties"] = False
    return result


class Instances:
    """Samples for one schema."""

    def __init__(self, schema: Json, truth: Any, seed: int) -> None:
        self.schema = schema
        self.truth = truth
        self.closed = validator(closed(schema))
        self.random = random.Random(seed)

    def valid(self, count: int, tries: int = 12) -> list[Json]:
        found: list[Json] = []
        for attempt in range(count * tries):
            value = self._value(self.schema, 0)
            if self._is_promised(value) and _finite(value):
                found.append(value)
                if len(found) == count:
                    break
            if attempt > 3 * tries and not found:
                break
        return found

    def _is_promised(self, value: Json) -> bool:
        """Whether it is valid without members that are undeclared where it is valid."""
        if not self.truth.is_valid(value) or not (self.closed is None or self.closed.is_valid(value)):
            return False
        # An integer is promised without an exponent, and Python writes 3e+22 for its own float.
        return "e+" not in json.dumps(value) or '"integer"' not in json.dumps(self.schema)

    def invalid(self, seeds: list[Json], count: int) -> list[Json]:
        """Values near the valid ones that the schema refuses."""
        found: list[Json] = []
        starts = seeds or [self._value(self.schema, 0)]
        for _ in range(count * 6):
            value = self._spoilt(json.loads(json.dumps(self.random.choice(starts))))
            if _finite(value) and not self.truth.is_valid(value):
                found.append(value)
                if len(found) == count:
                    break
        return found

    # Guessing.

    def _value(self, schema: Json, depth: int) -> Json:
        if not isinstance(schema, dict) or depth > 12:
            return self._anything(depth)
        schema = self._merged(schema, depth)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self.random.choice(schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            kind = self.random.choice(kind)
        if kind is None:
            kind = self._guessed_type(schema)
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self.random.random() < 0.5
            case "null":
                return None
        made = self._anything(depth)
        # Undeclared members are no part of the promise.
        return None if isinstance(made, dict) and any(word in schema for word in _OBJECT_WORDS) else made

    def _guessed_type(self, schema: dict[str, Json]) -> str | None:
        for kind, words in (
            ("object", _OBJECT_WORDS),
            ("array", ("items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems")),
            ("string", ("pattern", "format", "minLength", "maxLength")),
            ("number", ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum")),
        ):  # fmt: skip
            if any(word in schema for word in words) and self.random.random() < 0.8:
                return kind
        return None

    def _merged(self, schema: dict[str, Json], depth: int) -> dict[str, Json]:
        """One dictionary out of references, allOf and a pick of each choice; crude on purpose."""
        merged = dict(schema)
        for _ in range(8):
            extra: list[Json] = []
            for word in ("$ref", "$dynamicRef"):
                if isinstance(merged.get(word), str):
                    extra.append(self._resolved(merged.pop(word)))
            extra += merged.pop("allOf", None) or []
            for word in ("anyOf", "oneOf"):
                choices = merged.pop(word, None)
                if isinstance(choices, list) and choices:
                    extra.append(self.random.choice(choices))
            if "if" in merged and self.random.random() < 0.7:
                follow = self.random.random() < 0.5
                condition = merged.pop("if")
                extra += [condition, merged.pop("then", {})] if follow else [merged.pop("else", {})]
            if not extra:
                break
            for each in extra:
                if isinstance(each, dict):
                    merged = _joined(merged, each)
        return merged

    def _resolved(self, reference: str) -> Json:
        at = self.schema
        for step in reference.removeprefix("#").split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                at = at[int(key)] if isinstance(at, list) else at[key]
            except (KeyError, IndexError, TypeError, ValueError):
                return {}
        return at

    def _anything(self, depth: int) -> Json:
        if depth < 3 and self.random.random() < 0.2:
            return {self.random.choice(_WORDS): self._anything(depth + 1) for _ in range(2)}
        return self.random.choice(_SCALARS)

    def _object(self, schema: dict[str, Json], depth: int) -> dict[str, Json]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [name for name in schema.get("required") or [] if isinstance(name, str)]
        likely = self.random.choice([0.0, 0.3, 0.7, 1.0]) if depth < 6 else 0.0
        made: dict[str, Json] = {}
        for name, sub in properties.items():
            if name in required or self.random.random() < likely:
                made[name] = self._value(sub, depth + 1)
        for name in required:
            if name not in made:
                made[name] = self._value(schema.get("additionalProperties", {}), depth + 1)
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict) and self.random.random() < 0.7:
            for pattern, sub in patterns.items():
                name = self._matching(pattern)
                if name not in properties and jsonschema_rs.is_valid({"pattern": pattern}, name):
                    made.setdefault(name, self._value(sub, depth + 1))
        open_ended = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        bare = not any(word in schema for word in ("properties", "patternProperties", "required", "additionalProperties"))
        if (open_ended or open_ended == {} or bare) and depth < 5 and self.random.random() < 0.6:
            for _ in range(self.random.choice([1, 1, 2, schema.get("minProperties", 1) if isinstance(schema.get("minProperties"), int) else 1])):
                name = self._value(schema["propertyNames"], depth) if "propertyNames" in schema else self._new_name(properties)
                if isinstance(name, str) and name not in properties:
                    made.setdefault(name, self._value(open_ended if isinstance(open_ended, dict) else {}, depth + 1))
        return made

    def _new_name(self, taken: dict[str, Json]) -> str:
        name = self.random.choice([*_WORDS, *(f"{each}x" for each in taken), *(each[:-1] for each in taken)])
        return name

    def _array(self, schema: dict[str, Json], depth: int) -> list[Json]:
        items = schema.get("items")
        prefix = items if isinstance(items, list) else schema.get("prefixItems") or []
        rest = schema.get("additionalItems", {}) if isinstance(items, list) else ({} if items is None else items)
        low = schema.get("minItems") if isinstance(schema.get("minItems"), int) else 0
        high = schema.get("maxItems") if isinstance(schema.get("maxItems"), int) else low + 3
        spread = min(high, low + 3) if depth < 6 else low
        length = self.random.choice([low, self.random.randint(low, max(low, spread)), min(high, low + 40) if depth < 2 else low])
        if rest is False:
            length = min(length, len(prefix))
        made = [self._value(prefix[n] if n < len(prefix) else rest, depth + 1) for n in range(min(length, 60))]
        if "contains" in schema and self.random.random() < 0.9:
            made.insert(self.random.randint(0, len(made)), self._value(schema["contains"], depth + 1))
        return made

    def _string(self, schema: dict[str, Json]) -> str:
        low = schema.get("minLength") if isinstance(schema.get("minLength"), int) else 0
        high = schema.get("maxLength") if isinstance(schema.get("maxLength"), int) else None
        if isinstance(schema.get("pattern"), str):
            text = self._matching(schema["pattern"])
        elif schema.get("format") in _FORMATS and self.random.random() < 0.95:
            text = self.random.choice(_FORMATS[schema["format"]])
        else:
            text = self.random.choice(_WORDS)
            while len(text) < low:
                text += self.random.choice(_WORDS) + "z"
            if low and self.random.random() < 0.5:
                text = text[:low]
            if high is not None and (len(text) > high or self.random.random() < 0.2):
                text = (text + "y" * min(high, 3_000))[: min(high, 3_000)]
        return text

    def _integer(self, schema: dict[str, Json]) -> int:
        low, high = self._bounds(schema)
        step = schema.get("multipleOf")
        picks = [0, 1, -1, 7, 100, 2**31, -(10**12), 10**25, self.random.randint(-1000, 1000)]
        if low is not None or high is not None:
            near = [n for n in (low, high) if n is not None]
            picks = [int(n) + d for n in near for d in (-1, 0, 1, 2, 10)]
            if low is not None and high is not None and int(high) > int(low):
                picks += [self.random.randint(int(low), int(high)) for _ in range(8)]
        value = self.random.choice(picks)
        if isinstance(step, int) and step > 0:
            value -= value % step
        return value

    def _number(self, schema: dict[str, Json]) -> Json:
        if self.random.random() < 0.3 or "multipleOf" in schema:
            return self._integer(schema)
        low, high = self._bounds(schema)
        if low is not None and high is not None:
            return self.random.choice([low, high, self.random.uniform(low, high), round(self.random.uniform(low, high), 2), low + (high - low) * 1e-9])
        if low is None and high is None:
            return self.random.choice([0.0, -0.0, 0.5, -2.75, 1e-07, 3e22, 1.5e308, 1.7976931348623157e308, 5e-324, self.random.uniform(-1e6, 1e6)])
        edge = low if low is not None else high
        sign = 1 if low is not None else -1
        return edge + sign * self.random.choice([0, 1e-9, 0.1, 0.5, 1, 1e6, 1e20, self.random.random()])

    def _bounds(self, schema: dict[str, Json]) -> tuple[float | None, float | None]:
        found = []
        for words in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            given = [schema[word] for word in words if isinstance(schema.get(word), int | float) and not isinstance(schema.get(word), bool)]
            found.append((max(given) if words[0] == "minimum" else min(given)) if given else None)
        return found[0], found[1]

    def _matching(self, pattern: str) -> str:
        try:
            tree = parse(pattern)
        except PatternUnsupported:
            return self.random.choice(_WORDS)
        core = "".join(self._drawn(tree))
        left = "" if "^" in pattern or self.random.random() < 0.5 else self.random.choice(_WORDS)
        right = "" if "$" in pattern or self.random.random() < 0.5 else self.random.choice(_WORDS)
        return left + core + right

    def _drawn(self, tree: Pattern) -> Iterator[str]:
        match tree:
            case Char(members):
                low, high = self.random.choice(members.ranges)
                yield chr(self.random.randint(low, min(high, low + 60)))
            case Concat(items):
                for item in items:
                    yield from self._drawn(item)
            case Choice(items):
                yield from self._drawn(self.random.choice(items))
            case Repeat(item, low, high):
                top = low + 3 if high is None else min(high, low + 5)
                for _ in range(self.random.choice([low, self.random.randint(low, top), high if high is not None and high < 200 else low])):
                    yield from self._drawn(item)
            case Anchor() | Look():
                return

    # Spoiling.

    def _spoilt(self, value: Json, depth: int = 0) -> Json:
        inner: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
        if inner and depth < 6 and self.random.random() < 0.6:
            at = self.random.choice(inner)
            value[at] = self._spoilt(value[at], depth + 1)
            return value
        pick = self.random.random()
        if isinstance(value, dict):
            if value and pick < 0.4:
                del value[self.random.choice(inner)]
                return value
            if pick < 0.6:
                value[self.random.choice(["zz_extra", "", *(f"{name}_" for name in inner)])] = self.random.choice(_SCALARS)
                return value
        elif isinstance(value, list):
            if value and pick < 0.3:
                value.pop()
                return value
            if pick < 0.6:
                return value + [self.random.choice(value or _SCALARS)] * self.random.choice([1, 2, 30])
        elif isinstance(value, str):
            if pick < 0.3:
                return value[:-1] if value else "x"
            if pick < 0.6:
                return value + self.random.choice(["x", "-", '"', "\n", "Z" * 40])
            if pick < 0.75 and value:
                at = self.random.randrange(len(value))
                return value[:at] + self.random.choice("aZ0 -_.") + value[at + 1 :]
        elif isinstance(value, int | float) and not isinstance(value, bool) and pick < 0.7:
            return value + self.random.choice([1, -1, 0.5, -0.5, 1000, -1000, 1e12, -1e12])
        return self.random.choice(_SCALARS)


def _joined(one: dict[str, Json], other: dict[str, Json]) -> dict[str, Json]:
    result = dict(one)
    for word, value in other.items():
        known = result.get(word)
        if word in ("properties", "patternProperties") and isinstance(known, dict) and isinstance(value, dict):
            result[word] = {**known, **{name: sub if name not in known else {"allOf": [known[name], sub]} for name, sub in value.items()}}
        elif word == "required" and isinstance(known, list):
            result[word] = [*known, *value]
        elif word in ("minimum", "minLength", "minItems", "exclusiveMinimum") and known is not None:
            result[word] = max(known, value)
        elif word in ("maximum", "maxLength", "maxItems", "exclusiveMaximum") and known is not None:
            result[word] = min(known, value)
        elif word == "enum" and isinstance(known, list):
            result[word] = [each for each in known if each in value] or known
        elif word == "type" and {str(known), str(value)} == {"integer", "number"}:
            result[word] = "integer"
        elif word == "allOf" and isinstance(known, list):
            result[word] = [*known, *value]
        else:
            result[word] = value
    return result


def _finite(value: Json) -> bool:
    try:
        json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return False
    return True


def spellings(value: Json) -> dict[str, str]:
    """The same value as different writers put it."""
    return {
        "compact": json.dumps(value, separators=(",", ":"), ensure_ascii=False),
        "spaced": json.dumps(value),
        "indented": json.dumps(value, indent=2, ensure_ascii=False),
    }
