"""allOf, anyOf, oneOf, not, if, and references: several schemas at one place."""

from __future__ import annotations

import json

from moot.protocol.operation import Json
from tests.xprotocol.grammar.checking import assert_exact, assert_lets_through, assert_noted


def test_all_of_is_merged() -> None:
    schema = {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string", "maxLength": 3}}},
            {"properties": {"a": {"minimum": 5}, "b": {"pattern": "^x"}}},
        ]
    }
    assert_exact(
        schema,
        ['{"a":5}', '{"a":7,"b":"xab"}'],
        not_=['{"a":4}', '{"b":"x"}', '{"a":5,"b":"xabc"}', '{"a":5,"b":"a"}'],
    )


def test_all_of_with_a_closed_schema_forbids_what_the_others_declare() -> None:
    """additionalProperties only knows the properties beside it."""
    schema = {
        "properties": {"a": {"type": "null"}},
        "allOf": [{"type": "object", "properties": {"b": {"type": "null"}}, "additionalProperties": False}],
    }
    assert_exact(schema, ["{}", '{"b":null}'], not_=['{"a":null}'])


def test_any_of_beside_properties() -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["kind"],
        "anyOf": [
            {"properties": {"kind": {"const": "box"}}, "required": ["size"]},
            {"properties": {"kind": {"const": "dot"}, "colour": {"enum": ["red"]}}},
        ],
    }
    assert_exact(
        schema,
        ['{"kind":"box","size":1}', '{"kind":"dot"}', '{"kind":"dot","size":2,"colour":"red"}'],
        not_=['{"kind":"box"}', '{"kind":"cat","size":1}', '{"kind":"box","size":1,"colour":"red"}'],
    )


def test_any_of_required_groups() -> None:
    properties = {name: {"type": "string"} for name in ("id", "name", "mail")}
    schema = {
        "type": "object",
        "properties": properties,
        "anyOf": [{"required": ["id"]}, {"required": ["name", "mail"]}],
    }
    assert_exact(
        schema,
        ['{"id":"1"}', '{"name":"n","mail":"m"}', '{"id":"1","mail":"m"}'],
        not_=["{}", '{"name":"n"}'],
    )


def test_one_of_that_can_be_told_apart_is_exact() -> None:
    assert_exact(
        {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "number"}}]},
        ['"q"', "[1.5]"],
        not_=["1", '["q"]'],
    )
    tagged = {
        "oneOf": [
            {"type": "object", "properties": {"t": {"const": t}, "v": v}, "required": ["t", "v"]}
            for t, v in (("int", {"type": "integer"}), ("text", {"type": "string"}))
        ]
    }
    assert_exact(
        tagged, ['{"t":"int","v":1}', '{"t":"text","v":"a"}'], not_=['{"t":"int","v":"a"}', '{"t":"x","v":1}']
    )


def test_one_of_that_cannot_be_told_apart_is_noted() -> None:
    schema = {
        "oneOf": [
            {"type": "string", "format": "date"},
            {"type": "string", "format": "date-time"},
            {"type": "string"},
        ]
    }
    assert_noted(schema, "oneOf", ['"x"', '"2024-01-01"'], not_=["1"])


def test_references_with_escaped_steps_and_siblings() -> None:
    schema: Json = {
        "$defs": {
            "a/b": {"type": "string", "maxLength": 2},
            "c~d": {"type": "integer"},
            "e f": {"type": "null"},
            "%": True,
        },
        "type": "object",
        "properties": {
            "x": {"$ref": "#/$defs/a~1b", "minLength": 2},
            "y": {"$ref": "#/$defs/c~0d", "minimum": 3},
            "z": {"$ref": "#/$defs/e%20f"},
        },
    }
    assert_exact(
        schema, ['{"x":"ab","y":3,"z":null}'], not_=['{"x":"a"}', '{"x":"abc"}', '{"y":2}', '{"z":1}']
    )


def test_in_draft_7_nothing_counts_beside_a_reference() -> None:
    schema: Json = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"s": {"type": "string"}},
        "properties": {"x": {"$ref": "#/definitions/s", "maxLength": 1}},
        "type": "object",
    }
    assert_exact(schema, ['{"x":"abc"}'], not_=['{"x":1}'])


def test_anchors_and_references_to_properties() -> None:
    schema: Json = {
        "type": "object",
        "properties": {
            "a": {"$anchor": "here", "type": "integer"},
            "b": {"$ref": "#here"},
            "c": {"$ref": "#/properties/a"},
        },
    }
    assert_exact(schema, ['{"a":1,"b":2,"c":3}'], not_=['{"b":"x"}', '{"c":"x"}'])


TREE: Json = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
    "additionalProperties": False,
}


def test_recursion_is_recursive_rules() -> None:
    value: Json = {"name": "leaf"}
    for _ in range(30):
        value = {"name": "n", "children": [value, {"name": "x", "children": []}]}
    assert_exact(
        TREE, [json.dumps(value), '{"name":"a"}'], not_=['{"children":[]}', '{"name":"a","children":[{}]}']
    )


def test_recursion_through_all_of_and_definitions() -> None:
    schema: Json = {
        "$defs": {
            "base": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
            "node": {
                "allOf": [
                    {"$ref": "#/$defs/base"},
                    {"properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}},
                ]
            },
        },
        "$ref": "#/$defs/node",
    }
    assert_exact(
        schema,
        ['{"id":1}', '{"id":1,"next":{"id":2,"next":null}}'],
        not_=['{"next":null}', '{"id":1,"next":{}}'],
    )


def test_a_union_of_objects_of_which_only_one_recurses() -> None:
    """Engines with a greedy lexer must not take the plain one for a token and then be stuck with it."""
    schema: Json = {
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]},
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "c": {"type": "integer"}},
                "required": ["a", "c"],
            },
            {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        ]
    }
    texts = [
        '{"a":"x"}',
        '{"a":"x","b":[{}]}',
        '{"a":"x","c":1}',
        '{"a":{"a":{"a":"x","c":2}}}',
        '{"a": {"a": "x"}}',
    ]
    assert_exact(schema, texts, not_=['{"a":1}', '{"a":"x","c":"y"}', '{"c":1}'])


def test_what_refers_only_to_itself_says_nothing() -> None:
    assert_lets_through(
        {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x", "type": "string"}, ['"a"'], not_=["1"]
    )
    assert_noted({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, "anyOf", ['"a"', "1"])


def test_too_many_combinations_are_noted_and_left_wider() -> None:
    """Twelve times two choices would be 4,096 objects."""
    choices = [{"anyOf": [{"required": [f"a{n}"]}, {"required": [f"b{n}"]}]} for n in range(12)]
    properties = {f"{letter}{n}": {"type": "null"} for n in range(12) for letter in "ab"}
    schema = {"type": "object", "properties": properties, "allOf": choices}
    assert_noted(schema, "anyOf", ["{}", '{"a0":null}'], not_=['{"a0":1}'])
