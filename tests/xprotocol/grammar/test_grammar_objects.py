"""XP 4.4 and D-66: members in the schema's order, optional ones there or not, never a comma too many."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from moot.protocol.operation import Json
from moot.xprotocol.grammar import compile_grammar
from tests.xprotocol.grammar.checking import assert_exact, assert_lets_through, assert_noted
from tests.xprotocol.grammar.derivations import Derivations
from tests.xprotocol.grammar.judges import judges

READ_FILE: Json = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Relative path to the file"},
        "encoding": {"type": "string", "enum": ["utf-8", "base64"], "default": "utf-8"},
    },
    "required": ["path"],
}


@pytest.mark.requirement("XP-4.4-7")
def test_an_optional_member_may_be_absent_and_leaves_no_comma() -> None:
    assert_exact(
        READ_FILE,
        ['{"path":"x"}', '{"path":"x","encoding":"utf-8"}', '{"path": "x", "encoding": "base64"}'],
        not_=[
            '{"path":"x",}',
            "{}",
            '{"encoding":"utf-8"}',
            '{"path":"x","encoding":"latin-1"}',
            '{"path":"x"',
        ],
    )


@pytest.mark.requirement("XP-4.4-5", "XP-4.4-6")
def test_a_thousand_random_texts_have_the_required_member_and_listed_values() -> None:
    derivations = Derivations(compile_grammar(READ_FILE).text, seed=44)
    for _ in range(1_000):
        value = json.loads(derivations.text())
        assert isinstance(value["path"], str)
        assert value.get("encoding", "utf-8") in ("utf-8", "base64")


def test_any_selection_of_optional_members_is_accepted_in_order_and_no_other_order() -> None:
    """Five members, the second and the fourth required: eight selections."""
    names = ["a", "b", "c", "d", "e"]
    schema = {"type": "object", "properties": {n: {"type": "integer"} for n in names}, "required": ["b", "d"]}
    engines = judges(compile_grammar(schema).text)
    for size in range(6):
        for chosen in combinations(names, size):
            text = json.dumps(dict.fromkeys(chosen, 1))
            for judge in engines.values():
                assert judge.accepts(text) == ({"b", "d"} <= set(chosen)), text
    assert not any(judge.accepts('{"d": 1, "b": 1}') for judge in engines.values())


def test_an_object_of_optional_members_may_be_empty() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
    assert_exact(
        schema,
        ["{}", "{ }", "{\n}", '{"a":null}', '{"b": null}', '{\n  "a": null,\n  "b": null\n}'],
        not_=['{,"b":null}', '{"a":null,,"b":null}', '{"a":null "b":null}', '{"b":null,"a":null}', "{}}"],
    )


def test_size_grows_with_the_number_of_members_and_not_faster() -> None:
    def size(count: int) -> int:
        properties = {f"member{n}": {"type": "string"} for n in range(count)}
        return len(compile_grammar({"type": "object", "properties": properties}).text)

    assert size(200) - size(100) == pytest.approx(size(300) - size(200), rel=0.1)


def test_five_hundred_optional_members_load_and_match() -> None:
    properties = {f"m{n}": {"type": "boolean"} for n in range(500)}
    schema = {"type": "object", "properties": properties}
    assert_exact(
        schema, ['{"m0":true,"m250":false,"m499":true}', '{"m499":true}'], not_=['{"m499":true,"m0":true}']
    )


def test_undeclared_members_need_additional_properties() -> None:
    """D-66: absent means none offered; true or a schema means offered, after the declared ones."""
    declared = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert_exact(declared, ['{"a":1}'], not_=['{"a":1,"b":2}', '{"b":2}'])
    assert_exact({**declared, "additionalProperties": False}, ['{"a":1}'], not_=['{"a":1,"b":2}'])
    assert_exact(
        {**declared, "additionalProperties": True},
        ['{"a":1,"b":[{}]}', '{"b":null}', '{"ab":1,"":2}', "{}", '{"a":1,"é":1,"\\u00e9x":2}'],
        not_=['{"a":"x"}', '{"b":1,"a":"x"}', '{"\\u0061":"x"}'],
    )
    assert_exact(
        {**declared, "additionalProperties": {"type": "boolean"}},
        ['{"a":1,"b":true}', '{"c":false}'],
        not_=['{"a":1,"b":2}', '{"a":true}'],
    )


def test_an_object_that_declares_nothing_takes_any_members() -> None:
    assert_exact({"type": "object"}, ["{}", '{"a":{"b":[1,"x",null]}}'], not_=["[]", '"x"', '{"a"}'])
    assert_exact({"type": "object", "properties": {}}, ["{}"], not_=['{"a":1}'])


def test_a_required_name_without_a_schema_takes_anything() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"]}
    assert_exact(schema, ['{"b":null}', '{"a":1,"b":[2]}'], not_=['{"a":1}', "{}"])


def test_pattern_properties_take_names_that_match_and_only_those() -> None:
    schema = {
        "type": "object",
        "properties": {"x-id": {"type": "integer"}},
        "patternProperties": {"^x-": {"type": ["string", "integer"]}, "n$": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert_exact(
        schema,
        ['{"x-id":1}', '{"x-a":"s"}', '{"x-a":"s","on":3}', '{"x-n":4}', "{}"],
        not_=['{"x-n":"s"}', '{"x-id":"s"}', '{"y":1}', '{"on":"s"}'],
    )


def test_many_patterns_of_names_are_left_wider_and_never_narrower() -> None:
    patterns = {f"{letter}": {"type": "integer", "minimum": n} for n, letter in enumerate("abcd")}
    schema = {"type": "object", "patternProperties": patterns, "additionalProperties": False}
    texts = ['{"a":0}', '{"abcd":3}', '{"xb":1,"d":3}', "{}"]
    assert_noted(schema, "patternProperties", texts, not_=['{"x":1}', '{"d":2}'])


def test_a_pattern_that_cannot_be_read_shuts_nobody_out() -> None:
    schema = {
        "type": "object",
        "patternProperties": {r"^(.)\1$": {"type": "integer"}},
        "additionalProperties": False,
        "required": ["aa"],
    }
    assert_noted(schema, "patternProperties", ['{"aa":1}', '{"aa":1,"bb":2}'], not_=["{}"])


def test_property_names_bound_the_undeclared_ones() -> None:
    schema = {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z]{1,3}$"},
        "additionalProperties": {"type": "null"},
    }
    assert_exact(schema, ["{}", '{"abc":null}'], not_=['{"abcd":null}', '{"":null}', '{"A":null}'])
    listed = {
        "type": "object",
        "propertyNames": {"enum": ["a", "b"]},
        "additionalProperties": {"type": "null"},
    }
    assert_exact(listed, ['{"a":null}', '{"b":null,"a":null}'], not_=['{"c":null}'])


def test_members_are_counted_where_the_schema_says_so() -> None:
    properties = {name: {"type": "integer"} for name in "abc"}
    at_least = {"type": "object", "properties": properties, "minProperties": 2}
    assert_exact(at_least, ['{"a":1,"c":2}', '{"a":1,"b":1,"c":1}'], not_=["{}", '{"b":1}'])
    at_most = {"type": "object", "properties": properties, "required": ["b"], "maxProperties": 2}
    assert_exact(
        at_most, ['{"b":1}', '{"a":1,"b":1}', '{"b":1,"c":1}'], not_=['{"a":1,"b":1,"c":1}', '{"a":1}']
    )
    assert_noted(
        {"type": "object", "minProperties": 2, "additionalProperties": {"type": "null"}},
        "minProperties",
        ['{"a":null,"b":null}'],
        not_=['{"a":null}'],
    )


def test_names_are_escaped_and_may_come_as_escapes() -> None:
    names = ['say "hi"', "back\\slash", "new\nline", "é", "日本", "😀", "", "a/b", "x\x7fy", "\x01"]
    schema = {"type": "object", "properties": {n: {"type": "null"} for n in names}, "required": names}
    value = dict.fromkeys(names)
    assert_exact(schema, [json.dumps(value), json.dumps(value, ensure_ascii=False)])


def test_nested_objects_and_the_white_space_of_pretty_printers() -> None:
    schema = {
        "type": "object",
        "properties": {
            "o": {
                "type": "object",
                "properties": {
                    "l": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"v": {"type": "number"}}},
                    }
                },
            }
        },
    }
    value = {"o": {"l": [{"v": 1.5}, {}]}}
    spellings = [json.dumps(value, indent=indent) for indent in (None, 0, 2, 4, "\t")]
    assert_exact(
        schema, [*spellings, json.dumps(value, separators=(",", ":"))], not_=['{"o"  :{}}', '{   "o":{}}']
    )


def test_what_depends_on_a_member() -> None:
    schema = {
        "type": "object",
        "properties": {"card": {"type": "string"}, "address": {"type": "string"}, "zip": {"type": "string"}},
        "dependentRequired": {"card": ["address"]},
    }
    assert_exact(
        schema,
        ["{}", '{"address":"x"}', '{"card":"1","address":"x"}', '{"zip":"1"}'],
        not_=['{"card":"1"}', '{"card":"1","zip":"2"}'],
    )
    legacy = {
        **schema,
        "$schema": "http://json-schema.org/draft-07/schema#",
        "dependencies": {"card": ["zip"]},
    }
    assert_lets_through(legacy, ['{"card":"1","zip":"2"}'], not_=['{"card":"1","address":"x"}'])
