"""What gets no grammar, and why; what is malformed but can be lived with; and how long it all takes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from moot.protocol.operation import Json
from moot.xprotocol.grammar import GrammarRefused, compile_grammar
from moot.xprotocol.grammar.grammar_limits import MEMBERS, NOTES, SCHEMA_BYTES, SCHEMA_DEPTH, TEXT_CHARACTERS
from tests.rows import for_each_row
from tests.xprotocol.grammar.checking import assert_lets_through, assert_loads, assert_noted


def nested(depth: int) -> Json:
    schema: Json = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


@for_each_row(
    ("schema", "word"),
    [
        (False, "no value"),
        ({"not": {}}, "no value"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "no value"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "no value"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "no value"),
        ({"enum": []}, "no value"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no value"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "no value"),
        ({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]}, "no value"),
        ({"type": "array", "items": False, "minItems": 1}, "no value"),
        ({"type": "object", "properties": {"me": {"$ref": "#"}}, "required": ["me"]}, "no value"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "no value"),
        ({"$ref": "https://example.com/schema.json"}, "leads out of the schema"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "leads out of the schema"),
        ({"$ref": "#/$defs/missing"}, "leads to nothing"),
        ({"$ref": "#nowhere"}, "anchor"),
        ({"maximum": float("inf")}, "NaN"),
        ({"const": "\ud800"}, "surrogate"),
        ({"description": "x" * SCHEMA_BYTES}, "longer than"),
        (nested(SCHEMA_DEPTH), "nested deeper"),
    ],
    ids=str,
)
def test_refused_with_a_reason(schema: Json, word: str) -> None:
    with pytest.raises(GrammarRefused, match=word) as refused:
        compile_grammar(schema)
    assert refused.value.reason


def test_a_member_that_cannot_be_is_left_out_without_refusing_the_object() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/never"}, "b": {"type": "null"}},
        "$defs": {
            "never": {"type": "object", "properties": {"x": {"$ref": "#/$defs/never"}}, "required": ["x"]}
        },
    }
    assert_lets_through(schema, ["{}", '{"b":null}'], not_=['{"a":{}}'])


@for_each_row(
    "schema",
    [
        {"type": "any"},
        {"type": []},
        {"properties": {"a": "string"}},
        {"properties": ["a"]},
        {"required": True},
        {"enum": "a"},
        {"minimum": "1"},
        {"maxLength": -1},
        {"pattern": 5},
        {"anyOf": []},
        {"items": "string"},
        {"additionalProperties": "no"},
        {"dependentRequired": []},
        {"multipleOf": 0},
        "string",
        None,
        [],
    ],
    ids=str,
)
def test_what_makes_no_sense_is_ignored_and_noted(schema: Json) -> None:
    grammar = compile_grammar(schema)
    assert grammar.exactness == "superset"
    assert grammar.notes
    assert_lets_through(schema, ["{}", "1", '"x"', '{"a":1}' if not isinstance(schema, dict) else "null"])


def test_notes_are_bounded_and_say_where() -> None:
    properties = {
        f"p{n}": {"type": "array", "uniqueItems": True, "maxItems": n + 2} for n in range(NOTES + 20)
    }
    notes = compile_grammar({"type": "object", "properties": properties}).notes
    assert len(notes) == NOTES + 1
    assert notes[0] == "p0: uniqueItems is not enforced"
    assert notes[-1] == "and 20 more"


def wide(count: int) -> Json:
    return {
        "type": "object",
        "properties": {f"p{n}": {"type": "array", "items": nested(3)} for n in range(count)},
    }


HEAVY: dict[str, Any] = {
    "many members": wide(2_000),
    "as many members as allowed": wide(MEMBERS),
    "deep": nested(45),
    "many patterns": {
        "properties": {f"p{n}": {"pattern": f"^(?=.*{n})(?=.*[a-z])(?!.*x).{{8,40}}$"} for n in range(12)}
    },
    "large pattern": {"type": "string", "pattern": "^" + "(a|b|c)*" * 300 + "(?!x)$", "maxLength": 50},
    "counted twice": {"type": "string", "pattern": "^([a-z]{1,300}-){1,300}$", "minLength": 7},
    "many ways": {"anyOf": [{"properties": {f"p{n}": {"const": m}}} for n in range(18) for m in range(18)]},
    "one of many": {"oneOf": [{"required": [f"p{n}"]} for n in range(40)]},
    "ways of ways": {
        "allOf": [{"oneOf": [{"minimum": n}, {"maximum": n + 5}, {"multipleOf": n + 2}]} for n in range(12)]
    },
    "counted members": {
        "type": "object",
        "properties": {f"p{n}": True for n in range(500)},
        "minProperties": 250,
    },
    "many listed values": {"enum": [f"value number {n}" for n in range(5_000)]},
    "overlapping names": {
        "patternProperties": {f"a.*{n}": {"type": "integer"} for n in range(12)},
        "additionalProperties": True,
    },
    "mutual recursion": {
        "$defs": {
            f"d{n}": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": f"#/$defs/d{(n * 7 + 3) % 60}"}},
                    {"$ref": f"#/$defs/d{(n + 1) % 60}"},
                ]
            }
            for n in range(60)
        },
        "$ref": "#/$defs/d0",
    },
}


@pytest.mark.parametrize("name", HEAVY)
def test_hostile_schemas_cost_bounded_time_and_load_or_are_refused(name: str) -> None:
    """The bound is loose for a busy machine; it is there to catch what never ends."""
    start = time.process_time()
    reason, text = "", ""
    try:
        text = compile_grammar(HEAVY[name]).text
    except GrammarRefused as refused:
        reason = refused.reason
    assert time.process_time() - start < 30
    assert bool(reason) == (name == "many members")
    if not reason:
        assert len(text) <= TEXT_CHARACTERS
        assert_loads(text)


def test_a_schema_may_be_noted_in_several_places() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "uniqueItems": True},
            "b": {"type": "integer", "multipleOf": 97},
        },
    }
    assert_noted(schema, "a: uniqueItems", ["{}"])
    assert_noted(schema, "b: multipleOf", ["{}"])
