"""Five to forty branches: whatever is given up, a grammar refuses no value of its schema."""

from __future__ import annotations

import cProfile
import json
from collections.abc import Callable

import pytest

from moot.protocol.operation import Json
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.grammar import GrammarRefused, compile_grammar
from tests.xprotocol.grammar.checking import assert_loads

COUNTS = (5, 9, 10, 17, 40)


def if_then(count: int) -> tuple[Json, list[Json]]:
    """Each branch declares members of its own, one of them required."""
    branches = [
        {
            "if": {"properties": {"kind": {"const": f"k{n}"}}, "required": ["kind"]},
            "then": {
                "properties": {f"size{n}": {"type": "integer"}, f"name{n}": {"type": "string"}},
                "required": [f"size{n}"],
            },
        }
        for n in range(count)
    ]
    schema = {"type": "object", "properties": {"kind": {"type": "string"}}, "allOf": branches}
    values = [{"kind": f"k{n}", f"size{n}": n, f"name{n}": "x"} for n in range(count)]
    return schema, [{"kind": "other"}, {}, *values]


def if_then_else_nested(count: int) -> tuple[Json, list[Json]]:
    """A chain: each else holds the next if."""
    schema: dict[str, Json] = {"properties": {"last": {"type": "boolean"}}}
    for n in reversed(range(count)):
        schema = {
            "if": {"properties": {"kind": {"const": f"k{n}"}}, "required": ["kind"]},
            "then": {"properties": {f"deep{n}": {"type": "object"}}, "required": [f"deep{n}"]},
            "else": schema,
        }
    whole = {"type": "object", "properties": {"kind": {"type": "string"}}, **schema}
    return whole, [{"kind": "no", "last": True}, *({"kind": f"k{n}", f"deep{n}": {}} for n in range(count))]


def dependent_schemas(count: int) -> tuple[Json, list[Json]]:
    names = [f"card{n}" for n in range(count)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "dependentSchemas": {
            name: {"properties": {f"{name}_address": {"type": "string"}}, "required": [f"{name}_address"]}
            for name in names
        },
    }
    values: list[Json] = [{name: 1, f"{name}_address": "here"} for name in names]
    both = {names[0]: 1, names[1]: 2, f"{names[0]}_address": "a", f"{names[1]}_address": "b"}
    return schema, [{}, both, *values]


def any_of_beside(count: int) -> tuple[Json, list[Json]]:
    """Several anyOf at one place, which multiply, each with members of its own."""
    groups = [
        {
            "anyOf": [
                {"properties": {f"m{n}_{way}": {"type": "integer"}}, "required": [f"m{n}_{way}"]}
                for way in "ab"
            ]
        }
        for n in range(count)
    ]
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "allOf": groups}
    values: list[Json] = [{"id": "x", **{f"m{n}_{way}": n for n in range(count)}} for way in "ab"]
    return schema, values


def one_of_in_then(count: int) -> tuple[Json, list[Json]]:
    branches = [
        {
            "if": {"required": [f"t{n}"]},
            "then": {
                "oneOf": [
                    {"properties": {f"u{n}": {"const": "left"}}, "required": [f"u{n}"]},
                    {"properties": {f"v{n}": {"const": "right"}}, "required": [f"v{n}"]},
                ]
            },
        }
        for n in range(count)
    ]
    schema = {
        "type": "object",
        "properties": {f"t{n}": {"type": "boolean"} for n in range(count)},
        "allOf": branches,
    }
    ways: list[Json] = [{"t0": True, "u0": "left"}, {"t1": False, "v1": "right"}]
    return schema, [{}, *ways, {f"t{count - 1}": True, f"v{count - 1}": "right"}]


KINDS = (if_then, if_then_else_nested, dependent_schemas, any_of_beside, one_of_in_then)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("made", KINDS, ids=lambda made: made.__name__)
def test_no_value_is_refused_however_many_branches_there_are(
    made: Callable[[int], tuple[Json, list[Json]]], count: int
) -> None:
    schema, values = made(count)
    validator = Validator(schema)
    grammar = compile_grammar(schema)
    loaded = assert_loads(grammar.text)
    for value in values:
        assert validator.accepts(value), value
        text = json.dumps(in_order(value, schema), separators=(",", ":"))
        for name, judge in loaded.items():
            assert judge.accepts(text), f"{name} refuses {text} ({grammar.exactness}) {grammar.notes}"


def in_order(value: Json, schema: Json) -> Json:
    """Members in the order in which the schema declares them."""
    text = json.dumps(schema)
    return {name: value[name] for name in sorted(value, key=lambda name: text.find(f'"{name}": {{'))}


def many_places(count: int) -> Json:
    """Each of several members costs as much as one schema may."""
    return {
        "type": "object",
        "properties": {f"q{n}": any_of_beside(9)[0] for n in range(count)}
        | {f"r{n}": dependent_schemas(9)[0] for n in range(count)},
    }


@pytest.mark.parametrize(
    "schema",
    [dependent_schemas(9)[0], any_of_beside(9)[0], many_places(4)],
    ids=["dependencies", "choices", "many places"],
)
def test_a_small_schema_takes_no_more_than_so_much_work(schema: Json) -> None:
    """Work in calls of functions, which no other program on the machine changes.

    The second one took 12 s for its 1.4 KB, in some 40 million calls.
    """
    with cProfile.Profile(builtins=False) as profile:
        grammar = compile_grammar(schema)
    calls = sum(each.callcount for each in profile.getstats())
    assert calls < 6_000_000, calls
    assert_loads(grammar.text)


def test_numbers_that_are_too_long_to_write_are_refused_with_a_reason() -> None:
    bounds = {"type": "number", "minimum": 1.23456789e-300, "maximum": 9.87654321e300}
    with pytest.raises(GrammarRefused, match="too deep to be written"):
        compile_grammar({"type": "object", "properties": {"n": bounds}})
