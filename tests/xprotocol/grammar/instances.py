"""Values that satisfy a schema and values that do not. jsonschema_rs tells which is which.

The sampler guesses from the keywords and keeps what the validator confirms, so a wrong guess costs a try and
nothing else. Members come in the schema's order, and undeclared ones only where a grammar offers them (D-66).
"""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from moot.protocol.operation import Json
from tests.xprotocol.grammar.drawing import (
    WORDS,
    count_of,
    draw_integer,
    draw_match,
    draw_number,
    draw_string,
)
from tests.xprotocol.grammar.spoiling import SCALARS, spoil

_OBJECT_WORDS = (
    *("properties", "required", "additionalProperties", "patternProperties"),
    *("minProperties", "propertyNames"),
)
_ARRAY_WORDS = ("items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems")
_STRING_WORDS = ("pattern", "format", "minLength", "maxLength")
_NUMBER_WORDS = ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum")
_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas")
_CLOSING = (
    *("properties", "patternProperties", "required", "$ref", "$dynamicRef"),
    *("allOf", "anyOf", "oneOf", "if"),
)
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
# Deeper than this nothing more is guessed.
_DEPTH = 12
# A value of more places than this is given up: required members may refer to themselves, many at a time.
_PLACES = 1_000


def validator(schema: Json) -> Any | None:
    """What tells the truth about values, or `None` if the schema is malformed."""
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True)
    except (ValueError, TypeError):
        return None


def _without_newer_words(schema: Json) -> Json:
    """The schema as drafts up to 7 read it."""
    if isinstance(schema, list):
        return [_without_newer_words(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: _without_newer_words(value)
        for word, value in schema.items()
        if not (word.startswith("unevaluated") or word in ("dependentSchemas", "dependentRequired"))
    }


def closed(schema: Json, *, in_place: bool = False) -> Json:
    """The schema without room for members that it does not declare, however it is satisfied."""
    if not isinstance(schema, dict):
        return schema
    if "draft-0" in str(schema.get("$schema")):
        schema = _without_newer_words(schema)
    result: dict[str, Json] = {}
    for word, value in schema.items():
        inner = word in _IN_PLACE
        if word in _MAPS and isinstance(value, dict):
            result[word] = {name: closed(sub, in_place=inner or "def" in word) for name, sub in value.items()}
        elif isinstance(value, list) and word in ("allOf", "anyOf", "oneOf", "prefixItems", "items"):
            result[word] = [closed(sub, in_place=inner) for sub in value]
        elif word in ("items", "additionalProperties", "contains", "not", "if", "then", "else"):
            result[word] = closed(value, in_place=inner)
        elif word != "$schema":
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
        # Of the value that is being made.
        self.places = 0

    def valid(self, count: int, tries: int = 12) -> list[Json]:
        found: list[Json] = []
        for attempt in range(count * tries):
            self.places = 0
            value = self._value(self.schema, 0)
            if self._is_promised(value) and _is_json(value):
                found.append(value)
                if len(found) == count:
                    break
            if attempt > 3 * tries and not found:
                break
        return found

    def invalid(self, seeds: list[Json], count: int) -> list[Json]:
        """Values near the valid ones that the schema refuses."""
        found: list[Json] = []
        starts = seeds or [self._value(self.schema, 0)]
        for _ in range(count * 6):
            value = spoil(json.loads(json.dumps(self.random.choice(starts))), self.random)
            if _is_json(value) and not self.truth.is_valid(value):
                found.append(value)
                if len(found) == count:
                    break
        return found

    def _is_promised(self, value: Json) -> bool:
        """Whether it is valid without members that are undeclared where it is valid."""
        if not self.truth.is_valid(value) or not (self.closed is None or self.closed.is_valid(value)):
            return False
        # A multiple is promised without an exponent, and Python writes 3e+22 for its own float.
        return "e+" not in json.dumps(value) or '"multipleOf"' not in json.dumps(self.schema)

    def _value(self, schema: Json, depth: int) -> Json:
        self.places += 1
        if self.places > _PLACES:
            return None
        if not isinstance(schema, dict) or depth > _DEPTH:
            return self._anything(depth)
        schema = self._merged(schema)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self.random.choice(schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            kind = self.random.choice(kind)
        match self._guessed_type(schema) if kind is None else kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return draw_string(schema, self.random)
            case "integer":
                return draw_integer(schema, self.random)
            case "number":
                return draw_number(schema, self.random)
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
            ("array", _ARRAY_WORDS),
            ("string", _STRING_WORDS),
            ("number", _NUMBER_WORDS),
        ):
            if any(word in schema for word in words) and self.random.random() < 0.8:
                return kind
        return None

    def _merged(self, schema: dict[str, Json]) -> dict[str, Json]:
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
                condition, follow = merged.pop("if"), self.random.random() < 0.5
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
            return {self.random.choice(WORDS): self._anything(depth + 1) for _ in range(2)}
        return self.random.choice(SCALARS)

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
                name = draw_match(pattern, self.random)
                if name not in properties and jsonschema_rs.is_valid({"pattern": pattern}, name):
                    made.setdefault(name, self._value(sub, depth + 1))
        self._add_undeclared(made, schema, properties, depth)
        return made

    def _add_undeclared(
        self, made: dict[str, Json], schema: dict[str, Json], properties: dict[str, Json], depth: int
    ) -> None:
        inner = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        bare = not any(word in schema for word in _OBJECT_WORDS[:4])
        if depth >= 5 or not (inner or inner == {} or bare) or self.random.random() > 0.6:
            return
        for _ in range(self.random.choice([1, 1, 2, count_of(schema, "minProperties") or 1])):
            endings = [*(f"{each}x" for each in properties), *(each[:-1] for each in properties)]
            name = self.random.choice([*WORDS, *endings])
            if "propertyNames" in schema:
                name = self._value(schema["propertyNames"], depth)
            if isinstance(name, str) and name not in properties:
                made.setdefault(name, self._value(inner if isinstance(inner, dict) else {}, depth + 1))

    def _array(self, schema: dict[str, Json], depth: int) -> list[Json]:
        items = schema.get("items")
        prefix = items if isinstance(items, list) else schema.get("prefixItems") or []
        rest = {} if items is None else items
        if isinstance(items, list):
            rest = schema.get("additionalItems", {})
        low = count_of(schema, "minItems") or 0
        high = count_of(schema, "maxItems")
        most = low + 3 if high is None else high
        spread = min(most, low + 3) if depth < 6 else low
        many = min(most, low + 40) if depth < 2 else low
        length = self.random.choice([low, self.random.randint(low, max(low, spread)), many])
        if rest is False:
            length = min(length, len(prefix))
        here = [prefix[n] if n < len(prefix) else rest for n in range(min(length, 60))]
        made = [self._value(each, depth + 1) for each in here]
        if "contains" in schema and self.random.random() < 0.9:
            made.insert(self.random.randint(0, len(made)), self._value(schema["contains"], depth + 1))
        return made


def _joined(one: dict[str, Json], other: dict[str, Json]) -> dict[str, Json]:
    result = dict(one)
    for word, value in other.items():
        known = result.get(word)
        if (
            word in ("properties", "patternProperties")
            and isinstance(known, dict)
            and isinstance(value, dict)
        ):
            both = {name: {"allOf": [known[name], sub]} for name, sub in value.items() if name in known}
            result[word] = {**known, **value, **both}
        elif word in ("required", "allOf") and isinstance(known, list):
            result[word] = [*known, *value]
        elif word in ("minimum", "minLength", "minItems", "exclusiveMinimum") and known is not None:
            result[word] = max(known, value)
        elif word in ("maximum", "maxLength", "maxItems", "exclusiveMaximum") and known is not None:
            result[word] = min(known, value)
        elif word == "enum" and isinstance(known, list):
            result[word] = [each for each in known if each in value] or known
        elif word == "type" and {str(known), str(value)} == {"integer", "number"}:
            result[word] = "integer"
        else:
            result[word] = value
    return result


def _is_json(value: Json) -> bool:
    try:
        json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return False
    return True


def respelled(value: Json, chance: random.Random, *, exponents: bool, shuffled: bool) -> str:
    """The same value with other white space, numbers in other notations, and members in any order."""

    def gap() -> str:
        return chance.choice(["", "", " ", "\n  "])

    def text(value: Json) -> str:
        if isinstance(value, dict):
            members = list(value.items())
            if shuffled:
                chance.shuffle(members)
            row = [f"{json.dumps(name)}:{gap()}{text(each)}" for name, each in members]
            return "{" + gap() + ("," + gap()).join(row) + (gap() if row else "") + "}"
        if isinstance(value, list):
            row = [text(each) for each in value]
            return "[" + gap() + ("," + gap()).join(row) + (gap() if row else "") + "]"
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
            digits = str(value)
            forms = [digits, f"{digits}.0", f"{digits}.000"]
            if exponents:
                bare = digits.rstrip("0") or "0"
                forms += [f"{digits}e0", f"{bare}e{len(digits) - len(bare)}" if value else "0E+0"]
            return chance.choice(forms)
        return json.dumps(value)

    return text(value)


def spellings(value: Json) -> dict[str, str]:
    """The same value as different writers put it."""
    return {
        "compact": json.dumps(value, separators=(",", ":"), ensure_ascii=False),
        "spaced": json.dumps(value),
        "indented": json.dumps(value, indent=2, ensure_ascii=False),
    }
