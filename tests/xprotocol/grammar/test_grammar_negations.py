"""Opposites of schemas, listed values held against nested schemas, assertions in odd places of patterns."""

from __future__ import annotations

import json

from moot.protocol.operation import Json
from tests.rows import for_each_row
from tests.xprotocol.grammar.checking import assert_exact, assert_lets_through, assert_noted


@for_each_row(
    ("opposite", "inside", "outside"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["1", "{}"], ['"x"', "null"]),
        ({"allOf": [{"type": "number"}, {"minimum": 5}]}, ["4", '"x"'], ["5", "6"]),
        ({"$ref": "#/$defs/text"}, ["1", "null"], ['"x"']),
        ({"not": {"type": "string"}}, ['"x"'], ["1", "null"]),
        ({"type": "string", "minLength": 2}, ["1", '"a"', '""'], ['"ab"']),
        ({"type": "string", "maxLength": 2}, ["1", '"abc"'], ['"ab"', '""']),
        ({"type": "array", "minItems": 2}, ["[]", "[1]", "1"], ["[1,2]"]),
        ({"type": "array", "maxItems": 1}, ["[1,2]", "1"], ["[]", "[1]"]),
        ({"type": "number", "exclusiveMaximum": 3}, ["3", "4", '"x"'], ["2"]),
        ({"type": "number", "maximum": 3}, ["3.5", "4"], ["3", "2.5"]),
        ({"properties": {"a": {"const": 1}}, "required": ["a"]}, ['{"a":2}', "{}"], ['{"a":1}', "7"]),
        ({"enum": [None, True, "x"]}, ["false", '"y"', '"xx"', "1"], ["null", "true", '"x"']),
        (False, ["1", "{}", "null"], []),
        ({"anyOf": [{"required": ["a"]}, {"type": "string"}]}, ["{}"], ['{"a":1}', '"x"', "1"]),
    ],
    ids=str,
)
def test_not_means_the_opposite(opposite: Json, inside: list[str], outside: list[str]) -> None:
    properties: Json = {"a": {"type": "integer"}}
    schema = {"not": opposite, "properties": properties, "$defs": {"text": {"type": "string"}}}
    assert_lets_through(schema, inside, not_=outside)


def test_what_has_no_opposite_is_noted() -> None:
    opposites: list[Json] = [
        {"format": "date"},
        {"type": "integer", "multipleOf": 3},
        {"items": {"uniqueItems": True}},
        {"prefixItems": [{}], "items": {"type": "string"}},
        {"unevaluatedProperties": False},
        {"additionalProperties": False},
        {"oneOf": [{"minimum": 1}, {"maximum": 5}]},
        {"properties": {"a": {"items": {"multipleOf": 3}}}},
        {"anyOf": [{"uniqueItems": True}]},
        {"allOf": [{"patternProperties": {"a": {}}}]},
    ]
    for opposite in opposites:
        assert_noted({"not": opposite}, "not", ["1", '"x"'])


def test_member_counts_have_opposites() -> None:
    properties = {name: {"type": "null"} for name in "ab"}
    one = {"type": "object", "properties": properties, "not": {"minProperties": 2}}
    assert_exact(one, ["{}", '{"a":null}'], not_=['{"a":null,"b":null}'])
    two = {"type": "object", "properties": properties, "not": {"maxProperties": 1}}
    assert_exact(two, ['{"a":null,"b":null}'], not_=["{}", '{"a":null}'])


def test_listed_objects_and_arrays_are_held_against_what_stands_beside_them() -> None:
    values: Json = [{"a": 1}, {"a": "x"}, {"b": 1}, {"a": 1, "b": [1, 1]}, [1, 1], [1, 2], ["x"], {}]
    beside: Json = {
        "properties": {"a": {"type": "integer"}, "b": {"uniqueItems": True}},
        "required": ["a"],
        "minProperties": 1,
        "maxProperties": 2,
        "uniqueItems": True,
        "items": {"type": "integer"},
        "minItems": 1,
        "additionalProperties": False,
    }
    inside = ['{"a":1}', "[1,2]"]
    outside = [
        json.dumps(value) for value in values if json.dumps(value, separators=(",", ":")) not in inside
    ]
    assert_exact({"enum": values, **beside}, inside, not_=outside)


def test_listed_values_beside_what_we_cannot_read_are_kept_and_noted() -> None:
    assert_noted(
        {"enum": ["aa", "ab"], "pattern": r"^(.)\1$"}, "listed values", ['"aa"', '"ab"'], not_=['"b"']
    )
    assert_noted(
        {"enum": [[1], [2]], "contains": {"const": 1}}, "listed values", ["[1]", "[2]"], not_=["[3]"]
    )


@for_each_row(
    ("pattern", "found", "missing"),
    [
        (r"a\b-", ["a-", "xa-y"], ["a", "ab-"]),
        (r"a\Bb", ["ab"], ["a b"]),
        (r"a\bb|c", ["c"], ["ab"]),
        (r"\b-a", ["b-a"], ["-a", " -a"]),
        (r"a-\b", ["a-b"], ["a-", "a-!"]),
        (r"^\ba", ["a", "ab"], ["-a"]),
        (r"a\b$", ["a", "-a"], ["a-"]),
        ("a^b|c", ["c"], ["ab"]),
        ("a$b|c", ["c"], ["ab"]),
        ("(^a|b)c", ["ac", "xbc"], ["xac"]),
        ("a(b$|c)", ["xab", "acx"], ["abx"]),
        ("$", ["", "a"], []),
        ("^", ["", "a"], []),
        ("(?<=b)$", ["b", "ab"], ["ba", ""]),
        (r"^\cA\v\f\0?$", ["\x01\v\f"], ["x"]),
        (r"^\u{1F600}$", ["😀"], ["x"]),
        (r"^\ud83d\ude00$", ["😀"], ["x"]),
        (r"^[\b\-\]]$", ["\b", "-", "]"], ["b"]),
        (r"^\P{L}+$", ["12-"], ["a1"]),
        (r"^[\p{L}\d]+$", ["aé1"], ["-"]),
        ("^(?<year>[0-9]{4})(?P<rest>x*?)$", ["2024", "2024xx"], ["24"]),
        ("^a{2}{2}$", ["aaaa"], ["aa"]),
        ("^[a-z&]+$", ["a&z"], ["A"]),
    ],
)
def test_patterns_with_odd_parts(pattern: str, found: list[str], missing: list[str]) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert_exact(schema, [json.dumps(text) for text in found], not_=[json.dumps(text) for text in missing])


@for_each_row(
    "pattern",
    [
        *(
            "a?^b",
            "ab$c?",
            r"[ab-]\b[ab-]",
            "(?=a)b",
            "a(?!b)",
            "(?:^a)*",
            r"^\p{Nope}$",
            "^[b-a]$",
            "^[]a]$",
        ),
        *(
            r"^\xZZ$",
            r"^\u{110000}$",
            r"^\ud800$",
            "^[[a]]$",
            "^[a&&b]$",
            r"^\c1$",
            "^a{1",
            "*a",
            "^(a",
            "a)",
        ),
        *("(" * 50 + ")" * 50, "a" * 5_000, r"^[\w-z]$", "^\\", "(?>a)", "|".join(["^a", "b$"] * 40)),
    ],
)
def test_patterns_beyond_us_are_noted_and_let_everything_through(pattern: str) -> None:
    assert_noted({"type": "string", "pattern": pattern}, "is not enforced", ['""', '"anything"'], not_=["1"])
