"""Keywords for which no grammar is made: it says so, and is wider than the schema (decision 0282)."""

from __future__ import annotations

import pytest

from moot.protocol.operation import Json
from tests.xprotocol.grammar.checking import assert_noted

_A = {"type": "object", "properties": {"a": {"type": "integer"}}}
_CASES: list[tuple[str, Json, list[str], list[str]]] = [
    ("multipleOf", {"type": "integer", "multipleOf": 5, "minimum": 0}, ["5", "7"], ["-5", '"x"']),
    ("contains", {"type": "array", "contains": {"type": "null"}}, ["[null]", "[]", "[1]"], ["{}"]),
    ("not", {"type": "string", "not": {"const": "root"}}, ['"roo"', '"root"'], ["1"]),
    (
        "then",
        {**_A, "if": {"required": ["a"]}, "then": {"properties": {"b": {}}}},
        ["{}", '{"a":1,"b":2}'],
        ['{"a":""}'],
    ),
    ("else", {**_A, "if": {}, "else": {"properties": {"b": {}}}}, ['{"b":2}'], ['{"c":2}']),
    ("dependentRequired", {**_A, "dependentRequired": {"a": ["b"]}}, ['{"a":1}'], ['{"a":""}']),
    (
        "dependentSchemas",
        {**_A, "dependentSchemas": {"a": {"properties": {"b": {}}, "required": ["b"]}}},
        ['{"a":1,"b":2}', '{"a":1}'],
        ['{"a":""}', '{"c":1}'],
    ),
    (
        "dependencies",
        {**_A, "dependencies": {"a": {"properties": {"b": {}}}}},
        ['{"a":1,"b":2}'],
        ['{"c":1}'],
    ),
    ("unevaluatedProperties", {**_A, "unevaluatedProperties": False}, ['{"a":1}'], ['{"a":""}']),
    (
        "unevaluatedItems",
        {"type": "array", "prefixItems": [{"type": "integer"}], "unevaluatedItems": False},
        ["[1]", "[1,2]"],
        ['["x"]'],
    ),
    (
        "oneOf",
        {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 9}]},
        ["-1", "5", "10"],
        ['"x"'],
    ),
]


@pytest.mark.parametrize(("word", "schema", "texts", "others"), _CASES, ids=[case[0] for case in _CASES])
def test_it_is_noted_and_nothing_valid_is_refused(
    word: str, schema: Json, texts: list[str], others: list[str]
) -> None:
    assert_noted(schema, word, texts, not_=others)
