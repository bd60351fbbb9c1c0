"""XP 4.4: what several schemas of one place declare together, and keywords that only some drafts have."""

from __future__ import annotations

from moot.protocol.operation import Json
from tests.rows import for_each_row
from tests.xprotocol.grammar.checking import assert_exact, assert_noted

A: Json = {"properties": {"a": {"type": "integer"}}}
B: Json = {"properties": {"b": {"type": "integer"}}}


def test_unevaluated_members_are_those_that_the_schema_around_takes_in() -> None:
    outside = {"type": "object", "allOf": [A], **B, "unevaluatedProperties": False}
    assert_exact(outside, ["{}", '{"b":2,"a":1}', '{"a":1}'], not_=['{"c":1}', '{"a":"x"}'])
    # In allOf it sees neither its cousins nor what stands around it.
    inside = {"type": "object", **A, "allOf": [{**B, "unevaluatedProperties": False}]}
    assert_exact(inside, ["{}", '{"b":1}'], not_=['{"a":1}', '{"a":1,"b":1}', '{"c":1}'])
    cousins = {"type": "object", "allOf": [A, {"unevaluatedProperties": False}]}
    assert_exact(cousins, ["{}"], not_=['{"a":1}', '{"z":1}'])


def test_what_an_inner_schema_lets_through_is_evaluated() -> None:
    inner = {"type": "object", "allOf": [{"unevaluatedProperties": True}], "unevaluatedProperties": False}
    assert_exact(inner, ["{}", '{"z":1}'], not_=["[]"])
    additional = {"type": "object", "allOf": [{"additionalProperties": {"type": "null"}}]}
    closed = {**additional, "unevaluatedProperties": False}
    assert_exact(closed, ['{"z":null}'], not_=['{"z":1}'])


def test_only_the_branches_that_hold_evaluate() -> None:
    needs_a = {**A, "required": ["a"]}
    needs_b = {**B, "required": ["b"]}
    either = {"type": "object", "anyOf": [needs_a, needs_b], "unevaluatedProperties": False}
    assert_exact(
        either, ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'], not_=["{}", '{"a":1,"b":"x"}', '{"a":1,"c":1}']
    )
    chosen = {
        "type": "object",
        "if": {"properties": {"k": {"const": 1}}, "required": ["k"]},
        "then": A,
        "else": {"properties": {"k": {}, **B["properties"]}},
        "unevaluatedProperties": False,
    }
    assert_exact(
        chosen, ['{"k":1,"a":1}', '{"k":2,"b":1}', '{"b":1}'], not_=['{"k":1,"b":1}', '{"k":2,"a":1}']
    )
    refuses = {"type": "object", **B, "not": {"not": A}, "unevaluatedProperties": False}
    assert_exact(refuses, ["{}", '{"b":1}'], not_=['{"a":1}', '{"a":"x"}'])
    some = {"type": "object", **B, "dependentSchemas": {"b": A}, "unevaluatedProperties": False}
    assert_exact(some, ["{}", '{"b":1}', '{"b":1,"a":2}'], not_=['{"a":2}', '{"b":1,"a":"x"}'])


def test_unevaluated_items() -> None:
    tuple_ = {"type": "array", "prefixItems": [{"const": "a"}], "unevaluatedItems": False}
    longer = {**tuple_, "allOf": [{"prefixItems": [True, {"type": "integer"}]}]}
    assert_exact(longer, ["[]", '["a"]', '["a",1]'], not_=['["a",1,2]', '["a","b"]', '["b"]'])
    either = {**tuple_, "anyOf": [{"prefixItems": [True, {"type": "integer"}]}, {"maxItems": 1}]}
    assert_exact(either, ['["a"]', '["a",1]'], not_=['["a",1,2]'])
    found = {"type": "array", "contains": {"type": "string"}, "unevaluatedItems": {"type": "integer"}}
    assert_exact(found, ['["x"]', '[1,"x",2]'], not_=["[1]", '["x",null]'])
    all_of_them = {"type": "array", "allOf": [{"items": {"type": "integer"}}], "unevaluatedItems": False}
    assert_exact(all_of_them, ["[1,2]"], not_=['["x"]'])


def test_too_many_branches_that_evaluate_are_noted() -> None:
    branches = [{"properties": {f"m{n}": {"type": "integer"}}, "required": [f"m{n}"]} for n in range(12)]
    schema = {"type": "object", "anyOf": branches, "unevaluatedProperties": False}
    assert_noted(schema, "unevaluatedProperties", ['{"m0":1}', '{"m3":1,"m7":2}'], not_=["{}"])


def test_members_of_two_branches_stand_together() -> None:
    """The schema does not forbid it, and whoever wrote `anyOf` and not `oneOf` may mean it."""
    needs_a = {**A, "required": ["a"]}
    needs_b = {**B, "required": ["b"]}
    schema = {"type": "object", "anyOf": [needs_a, needs_b]}
    assert_exact(schema, ['{"a":1}', '{"b":1}', '{"a":1,"b":2}'], not_=["{}", '{"c":1}', '{"a":"x"}'])
    beside = {"type": "object", "properties": {"k": {"type": "null"}}, "anyOf": [needs_b, needs_a]}
    assert_exact(beside, ['{"k":null,"b":1,"a":1}', '{"b":1,"a":1}'], not_=['{"k":null}'])
    nested = {"type": "object", "anyOf": [needs_a, {"anyOf": [needs_b, {"required": ["c"]}]}]}
    assert_exact(nested, ['{"a":1,"b":1}', '{"a":1}', '{"b":1}'], not_=["{}"])


def test_branches_that_exclude_each_other_lend_no_members() -> None:
    kinds = [
        {"properties": {"kind": {"const": name}, name: {"type": "integer"}}, "required": ["kind"]}
        for name in "xy"
    ]
    schema = {"type": "object", "anyOf": kinds}
    assert_exact(schema, ['{"kind":"x","x":1}', '{"kind":"y","y":1}'], not_=['{"kind":"x","y":1}', "{}"])
    closed = {"type": "object", "anyOf": [{**A, "additionalProperties": False}, {**B, "required": ["b"]}]}
    assert_exact(closed, ['{"a":1}', '{"b":1}'], not_=['{"a":1,"c":1}'])


@for_each_row(
    ("draft", "schema", "texts", "others"),
    [
        ("", {"dependencies": {"a": ["b"]}}, ['{"a":1,"b":2}', '{"b":2}'], ['{"a":1}']),
        ("draft-07", {"dependencies": {"a": {"required": ["b"]}}}, ['{"a":1,"b":2}'], ['{"a":1}']),
        ("draft-07", {"dependentRequired": {"a": ["b"]}}, ['{"a":1}'], []),
        (
            "draft-07",
            {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
            ['{"a":1,"b":2}'],
            ['{"a":1}'],
        ),
        ("draft-06", {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, ['{"a":1}'], []),
        ("draft-04", {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, ['{"a":1}'], []),
        ("draft-04", {"propertyNames": {"maxLength": 1}}, ['{"a":1}'], []),
        ("draft-07", {"unevaluatedProperties": False}, ['{"a":1}'], []),
    ],
)
def test_keywords_count_in_the_drafts_that_have_them(
    draft: str, schema: dict[str, Json], texts: list[str], others: list[str]
) -> None:
    dialect = {"$schema": f"http://json-schema.org/{draft}/schema#"} if draft else {}
    members: Json = {"properties": {"a": {}, "b": {}}}
    assert_exact({**dialect, "type": "object", **members, **schema}, texts, not_=others)


def test_draft_4_knows_neither_const_nor_contains() -> None:
    dialect = {"$schema": "http://json-schema.org/draft-04/schema#"}
    assert_exact({**dialect, "const": 1}, ["1", "2"])
    assert_exact({**dialect, "type": "array", "contains": {"const": 1}}, ["[]", "[2]"])
