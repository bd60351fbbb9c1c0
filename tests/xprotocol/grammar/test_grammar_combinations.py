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


def test_one_of_required_groups_means_exactly_one() -> None:
    """A real tool: either a connection string, or host, user and password."""
    names = ("url", "host", "user")
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "oneOf": [{"required": ["url"]}, {"required": ["host", "user"]}],
    }
    assert_exact(
        schema,
        ['{"url":"u"}', '{"host":"h","user":"u"}', '{"url":"u","host":"h"}', '{"url":"u","user":"x"}'],
        not_=["{}", '{"host":"h"}', '{"url":"u","host":"h","user":"x"}'],
    )


def test_one_of_numbers_keeps_out_what_both_take() -> None:
    assert_exact(
        {"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 10}]}, ["4", "11"], not_=["5", "7", "10"]
    )
    assert_exact({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, ['"a"', '"c"'], not_=['"b"', '"d"'])


def test_one_of_that_cannot_be_told_apart_is_noted() -> None:
    schema = {
        "oneOf": [
            {"type": "string", "format": "date"},
            {"type": "string", "format": "date-time"},
            {"type": "string"},
        ]
    }
    assert_noted(schema, "oneOf", ['"x"', '"2024-01-01"'], not_=["1"])


def test_not_in_the_ways_that_people_use_it() -> None:
    assert_exact({"not": {"type": "string"}}, ["1", "null", "{}"], not_=['"x"'])
    assert_exact({"type": "string", "not": {"const": "root"}}, ['"roo"', '"roots"', '""'], not_=['"root"'])
    assert_exact({"enum": [1, 2, 3], "not": {"enum": [2]}}, ["1", "3"], not_=["2"])
    forbids = {"type": "object", "properties": {"a": {}, "b": {}}, "not": {"required": ["a", "b"]}}
    assert_exact(forbids, ["{}", '{"a":1}', '{"b":1}'], not_=['{"a":1,"b":2}'])
    assert_exact({"type": "integer", "not": {"minimum": 5}}, ["4", "-1"], not_=["5"])
    assert_exact({"type": "boolean", "not": {"const": True}}, ["false"], not_=["true"])
    some = {"type": "array", "not": {"items": {"type": "null"}}}
    assert_exact(some, ["[1]", "[null,1]"], not_=["[]", "[null]", "{}"])
    assert_exact({"not": {"type": "integer"}}, ["1.5", "-0.25", "1e-5", '"x"'], not_=["1", "0", "1.0", "2e3"])
    within = {"type": "number", "exclusiveMinimum": 2, "maximum": 4, "not": {"type": "integer"}}
    near = ["3", "3.0", "2.99999999999999999999", "3.00000000000000000001"]
    assert_exact(within, ["2.5", "2.999999", "3.001"], not_=[*near, "2", "4", "1.5", "4.5", "3e0"])
    assert_noted({**within, "minimum": 2.5}, "not", ["2.5", "3"], not_=["2.25"])


def test_if_then_else() -> None:
    schema = {
        "type": "object",
        "properties": {"country": {"enum": ["us", "de"]}, "zip": {"type": "string"}},
        "required": ["country", "zip"],
        "if": {"properties": {"country": {"const": "us"}}},
        "then": {"properties": {"zip": {"pattern": "^\\d{5}$"}}},
        "else": {"properties": {"zip": {"pattern": "^D-"}}},
    }
    assert_exact(
        schema,
        ['{"country":"us","zip":"12345"}', '{"country":"de","zip":"D-1"}'],
        not_=['{"country":"us","zip":"D-1"}', '{"country":"de","zip":"12345"}'],
    )
    vague: dict[str, Json] = {
        "type": "array",
        "if": {"contains": {"const": 1}},
        "then": {"maxItems": 1},
        "else": {"maxItems": 2},
    }
    assert_exact(vague, ["[1]", "[2,3]", "[]"], not_=["[1,2,3]", "[1,2]", "[2,1]", "[2,3,4]"])
    vague["if"] = {"uniqueItems": True}
    assert_noted(vague, "if", ["[1]", "[2,2]", "[1,2]"], not_=["[1,2,3]"])


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
