"""XP 4.4: arrays, listed values, booleans, null, type lists, and schemas that say little or nothing."""

from __future__ import annotations

import json

import pytest

from moot.protocol.operation import Json
from tests.rows import for_each_row
from tests.xprotocol.grammar.checking import assert_exact, assert_lets_through, assert_noted

ANYTHING = ["null", "true", "[]", "{}", '"x"', "-1.5e3", '[{"a":[null,{}]},"\\u00e9"]', "0", '{"":""}']
NO_JSON = [
    "",
    "nul",
    "[1,]",
    "{,}",
    '{"a":}',
    "'x'",
    "01",
    "1.",
    ".5",
    "+1",
    "NaN",
    '"\n"',
    '"\\x"',
    '"\\ud800"',
    "[1 2]",
]


@pytest.mark.requirement("XP-4.4-3")
@for_each_row(
    ("schema", "texts", "others"),
    [
        (
            {"type": "object", "properties": {"a": {"type": "integer"}}},
            ['{"a":1}', "{}"],
            ['{"a":"1"}', "[]"],
        ),
        (
            {"type": "string"},
            ['""', '"a\\"b"', '"é"', '"\\u0000"', '"\\ud83d\\ude00"'],
            ["1", '"', '"\\ud83d"'],
        ),
        (
            {"type": "number"},
            ["0", "-0.0", "1.5", "1e-07", "12e"[:2], "1.7976931348623157e+308"],
            ['"1"', "1e999", "--1"],
        ),
        (
            {"type": "integer"},
            ["0", "-7", "100000000000000000000", "1.0", "-3.00", "1e5", "12e5", "1.5e3", "0.5e1", "3e+22"],
            ["1.5", "007", "-", "1e-5", "1.25e1", "1.", "1e400"],
        ),
        ({"type": "boolean"}, ["true", "false"], ["null", "True", "0"]),
        ({"type": "null"}, ["null"], ["None", "{}", '"null"']),
        ({"enum": ["a", 1, None]}, ['"a"', "1", "null"], ['"b"', "2", "true"]),
        (
            {"type": "array", "items": {"type": "integer"}},
            ["[]", "[1]", "[1, 2]"],
            ["[1,]", '["1"]', "[", "{}"],
        ),
        ({"type": "object", "required": ["a"]}, ['{"a":1}'], ["{}"]),
    ],
    ids=["object", "string", "number", "integer", "boolean", "null", "enum", "array", "required"],
)
def test_one_grammar_per_type(schema: Json, texts: list[str], others: list[str]) -> None:
    assert_exact(schema, texts, not_=others)


@pytest.mark.parametrize(
    "schema", [{}, True, {"title": "Anything", "description": "at all"}, {"x-unknown": 1}]
)
def test_a_schema_that_says_nothing_takes_any_json_and_nothing_else(schema: Json) -> None:
    assert_exact(schema, ANYTHING, not_=NO_JSON)


def test_items_without_a_word_take_anything() -> None:
    for schema in ({"type": "array", "items": {}}, {"type": "array"}, {"type": "array", "items": True}):
        assert_exact(schema, ["[]", *(f"[{text}]" for text in ANYTHING), '[1,"a",{}]'], not_=["[,]", "{}"])
    assert_exact({"type": "array", "items": False}, ["[]"], not_=["[1]", "[[]]"])


def test_a_false_member_is_not_there() -> None:
    schema = {"type": "object", "properties": {"a": False, "b": {"not": {}}, "c": {"type": "null"}}}
    assert_exact(schema, ["{}", '{"c":null}'], not_=['{"a":1}', '{"b":1}'])


def test_type_lists() -> None:
    assert_exact({"type": ["string", "null"]}, ['"x"', "null"], not_=["1", "[]"])
    bounds = {"type": ["integer", "string"], "minimum": 3, "maxLength": 2}
    assert_exact(bounds, ["3", '"ab"', "10"], not_=["2", '"abc"', "null", "3.5"])


def test_an_untyped_schema_bounds_only_what_its_keywords_are_about() -> None:
    """JSON Schema: `minimum` says nothing about strings."""
    assert_exact({"minimum": 5}, ["5", '"x"', "null", "{}"], not_=["4", "-1"])
    assert_exact({"properties": {"a": {"type": "null"}}}, ["1", '{"a":null}', "[]"], not_=['{"a":1}'])
    assert_exact({"maxItems": 1}, ["[1]", "7"], not_=["[1,2]"])


@pytest.mark.requirement("XP-B-3")
def test_an_array_takes_none_one_or_several_items() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert_exact(schema, ["[]", "[1]", "[1,2,3]", "[1, 2]"], not_=["[1,]", "[,1]", '["a"]', "{}"])


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0), (0, 1), (1, 1), (2, 5), (3, None), (0, 2_000), (1_950, 2_100)]
)
def test_array_lengths(low: int, high: int | None) -> None:
    schema = {"type": "array", "items": {"enum": [7]}, "minItems": low}
    if high is not None:
        schema["maxItems"] = high
    inside = [low, low if high is None else high]
    outside = [low - 1] * (low > 0) + [high + 1 for high in [high] if high is not None]
    assert_exact(schema, [json.dumps([7] * n) for n in inside], not_=[json.dumps([7] * n) for n in outside])


def test_a_fixed_beginning_of_an_array() -> None:
    pair: Json = [{"type": "integer"}, {"type": "string"}]
    assert_exact(
        {"type": "array", "prefixItems": pair},
        ["[]", "[1]", '[1,"a"]', '[1,"a",null]'],
        not_=['["a"]', "[1,2]"],
    )
    closed = {"type": "array", "prefixItems": pair, "items": False, "minItems": 1}
    assert_exact(closed, ["[1]", '[1, "a"]'], not_=["[]", '[1,"a",2]'])
    counted = {"type": "array", "prefixItems": pair, "items": {"type": "null"}, "minItems": 3, "maxItems": 4}
    assert_exact(
        counted,
        ['[1,"a",null]', '[1,"a",null,null]'],
        not_=['[1,"a"]', '[1,"a",null,null,null]', '[1,"a",1]'],
    )
    before_2020 = {
        "type": "array",
        "items": pair,
        "additionalItems": False,
        "$schema": "http://json-schema.org/draft-07/schema#",
    }
    assert_exact(before_2020, ["[]", '[1,"a"]'], not_=['[1,"a",2]', '["a"]'])


def test_an_item_that_must_be_among_the_others() -> None:
    schema = {"type": "array", "items": {"type": ["integer", "string"]}, "contains": {"type": "string"}}
    assert_exact(schema, ['["a"]', '[1,"a",2]', '["a","b"]'], not_=["[]", "[1]", "[null]"])
    few = {**schema, "maxItems": 3}
    assert_exact(few, ['[1,"a"]', '["a"]', '[1,2,"a"]'], not_=["[1]", "[1,2,3]", '["a",1,2,3]'])
    many = {**schema, "prefixItems": [{"const": 1}], "minItems": 300}
    assert_noted(many, "contains", ["[" + ",".join(["1"] * 300) + "]"], not_=["[1]"])


def test_items_that_satisfy_a_schema_are_counted() -> None:
    schema = {"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 3}
    assert_exact(
        schema,
        ["[1,1]", '[1,"x",1,1.0]', "[0,1,0,1,0]", "[[],1,true,1]"],
        not_=["[]", "[1]", "[1,0]", "[1,1,1,1]", "[1,0,1,1.00,1]"],
    )
    none = {"contains": {"type": "string"}, "minContains": 0, "maxContains": 0}
    assert_exact(none, ["[]", "[1,2]", '"x"'], not_=['["x"]', '[1,"x"]'])
    both = {"type": "array", "allOf": [{"contains": {"const": 1}}, {"contains": {"const": 2}}]}
    assert_exact(both, ["[1,2]", "[2,0,1]"], not_=["[1]", "[2,2]", "[]"])


def test_unique_items_are_left_to_validation() -> None:
    assert_noted(
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "uniqueItems",
        ["[1,2]", "[1,1]"],
    )
    assert_exact({"type": "array", "uniqueItems": True, "maxItems": 1}, ["[]", "[1]"], not_=["[1,1]"])


def test_listed_values_of_every_type() -> None:
    values: Json = [
        None,
        True,
        0,
        -2.5,
        1e22,
        1e-07,
        3.0,
        "",
        'q"\\\n\té😀\x7f',
        [1, [None]],
        {"a": {"b": [True]}, "é": 1},
    ]
    texts = [json.dumps(v) for v in values] + [json.dumps(v, ensure_ascii=False) for v in values]
    texts += ["3", "1e-7", "0.0000001", "1E22", '{ "a": {"b": [ true ]}, "é": 1 }', '"q\\"\\\\\\n\\té😀\x7f"']
    assert_exact(
        {"enum": values},
        texts,
        not_=["false", "1", "[]", "{}", '"q"', "[1,[null]", "-2", '{"a":{"b":[true]}}'],
    )
    for value in values:
        assert_exact({"const": value}, [json.dumps(value)], not_=['"other"', "[[]]"])


def test_listed_values_that_other_keywords_refuse_are_out() -> None:
    assert_exact({"type": "string", "enum": ["a", "bb", None, 1]}, ['"a"', '"bb"'], not_=["null", "1"])
    assert_exact(
        {"enum": ["a", "bb", "c1"], "pattern": "^[a-z]+$", "minLength": 2}, ['"bb"'], not_=['"a"', '"c1"']
    )
    assert_exact(
        {"enum": [1, 2, 3, 2.5, True], "minimum": 2, "type": "integer"}, ["2", "3"], not_=["1", "2.5", "true"]
    )
    assert_exact(
        {"enum": [[1], [1, 2], ["a"]], "items": {"type": "integer"}, "minItems": 2},
        ["[1,2]"],
        not_=["[1]", '["a"]'],
    )
    assert_exact({"enum": [1, True], "const": True}, ["true"], not_=["1"])


def test_no_text_gets_through_that_is_no_json() -> None:
    """Lone surrogates, raw control characters, numbers that no double holds: not JSON to everyone."""
    assert_lets_through(
        {}, ['"\\u0041\\ud83d\\ude00"'], not_=['"\\udc00"', '"\\ud83dx"', '"\x00"', "1e400", "-1e309"]
    )
