"""Integers and numbers within bounds, in every notation that JSON writers use."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import jsonschema_rs

from moot.protocol.operation import Json
from moot.xprotocol.grammar import compile_grammar
from tests.rows import for_each_row
from tests.xprotocol.grammar.checking import assert_exact, assert_lets_through, assert_noted
from tests.xprotocol.grammar.derivations import Derivations
from tests.xprotocol.grammar.judges import judges

BOUNDS: list[dict[str, Any]] = [
    {"minimum": 0},
    {"minimum": 1, "maximum": 100},
    {"maximum": -5},
    {"minimum": -20, "maximum": 7},
    {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"minimum": 10, "exclusiveMinimum": 10, "maximum": 1_999},
    {"minimum": 0.5, "maximum": 0.75},
    {"minimum": -90.25, "maximum": 90.125},
    {"exclusiveMinimum": -1e-3, "maximum": 1e6},
    {"minimum": 99, "maximum": 101},
    {"minimum": 12_345, "maximum": 67_890},
    {"minimum": 1e20},
    {"exclusiveMaximum": 1e-9},
    {"minimum": 3, "maximum": 3},
    {"maximum": 0},
    {"exclusiveMinimum": -1, "exclusiveMaximum": 1},
    {"minimum": 0.1, "exclusiveMaximum": 0.3},
    {"maximum": 1e-30, "exclusiveMinimum": 0},
    {"minimum": -1e-300, "maximum": 1.5e300},
]
# Bounds with no integer between them.
NO_INTEGER = [BOUNDS[4], BOUNDS[6], BOUNDS[16], BOUNDS[17]]


def numbers_near(bounds: dict[str, Any], generator: random.Random) -> list[float]:
    found: list[float] = [0, -0.0, 1, -1, 0.5, 1e-7, 1e22, 5e-324, 1.7976931348623157e308]
    for edge in bounds.values():
        found += [edge, math.nextafter(edge, math.inf), math.nextafter(edge, -math.inf), -edge]
        found += [edge + step * sign for step in (1, 0.1, 0.001, 10, 1e5) for sign in (1, -1)]
        found += [edge * generator.uniform(0, 3) for _ in range(8)]
        found += [round(edge * generator.uniform(0, 3), 2) for _ in range(8)]
    return found


CASES = [
    (kind, bounds)
    for kind in ("number", "integer")
    for bounds in BOUNDS
    if kind == "number" or bounds not in NO_INTEGER
]


@for_each_row(("kind", "bounds"), CASES, ids=json.dumps)
def test_bounds_hold_on_both_sides(kind: str, bounds: dict[str, Any]) -> None:
    schema: Json = {"type": kind, **bounds}
    truth = jsonschema_rs.validator_for(schema)
    grammar = compile_grammar(schema)
    assert grammar.exactness == "exact"
    engines = judges(grammar.text)
    for value in numbers_near(bounds, random.Random(5)):
        whole = float(value).is_integer()
        spelled = str(int(value)) if kind == "integer" and whole else json.dumps(value)
        if kind == "integer" and (not whole or abs(value) > 1e300):
            continue
        for name, judge in engines.items():
            assert judge.accepts(spelled) == truth.is_valid(value), (name, spelled)
    derivations = Derivations(grammar.text, seed=9)
    for _ in range(60):
        text = derivations.text()
        assert truth.is_valid(json.loads(text)), text


def test_a_bound_that_is_out_stays_out_however_many_digits_come() -> None:
    """To a reader of doubles, 0.99999999999999999 is 1."""
    schema = {"type": "number", "exclusiveMaximum": 1, "minimum": 0}
    assert_exact(
        schema,
        ["0.9999999999999999", "9.999999999999999e-1"],
        not_=["0.99999999999999999", "1", "1.0", "1e0"],
    )
    assert_exact(
        {"type": "number", "exclusiveMinimum": 0}, ["5e-324", "0.0001"], not_=["0", "-0.0", "0.000", "-1"]
    )


def test_the_spellings_of_other_writers() -> None:
    """Python writes 1e-05 and 1e+16, JavaScript 1e-7 and 1e+21, Rust 1e16."""
    schema = {"type": "number", "minimum": -1e30, "maximum": 1e30}
    texts = [
        "1e-05",
        "1e-7",
        "1e+16",
        "1e16",
        "1E5",
        "-2.5e-10",
        "0.00001",
        "12345.678",
        "-0.0",
        "1e+21",
        "9e29",
    ]
    assert_exact(schema, texts, not_=["1e31", "-1.5e30", "1e+030", "01", "1.e5", "10e400"])
    assert_exact({"type": "number"}, texts, not_=["1e309", "Infinity", "1.8e308"])


def test_multiples_that_can_be_said() -> None:
    assert_exact(
        {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 20}, ["0", "15", "20"], not_=["3", "25"]
    )
    assert_exact({"type": "integer", "multipleOf": 25}, ["0", "25", "-175", "1000"], not_=["5", "110"])
    assert_exact(
        {"type": "integer", "multipleOf": 2, "minimum": 1}, ["2", "10", "128"], not_=["0", "3", "-2"]
    )
    assert_exact({"type": "number", "multipleOf": 1}, ["3", "3.0", "-7"], not_=["3.5"])
    assert_exact({"type": "integer", "multipleOf": 0.5}, ["3", "4"], not_=["3.5"])
    assert_exact(
        {"type": "integer", "multipleOf": 1.5, "minimum": 0, "maximum": 10},
        ["0", "3", "6", "9"],
        not_=["2", "4"],
    )


def test_multiples_that_cannot_are_noted() -> None:
    assert_noted({"type": "integer", "multipleOf": 97}, "multipleOf", ["97", "98"], not_=["7.5"])
    assert_noted({"type": "number", "multipleOf": 1e-5}, "multipleOf", ["1e-05", "0.075"], not_=['"x"'])
    assert_noted({"type": "integer", "multipleOf": 7, "minimum": 50}, "multipleOf", ["56", "57"], not_=["49"])


def test_multiples_are_divided_digit_by_digit() -> None:
    seven = [str(7 * n) for n in (1, 2, 3, 10, 99, 12345, 142857142857)]
    assert_exact(
        {"type": "integer", "multipleOf": 7}, ["0", "-14", "21.0", *seven], not_=["8", "-1", "22", "07"]
    )
    assert_exact({"multipleOf": 30, "minimum": 0}, ["0", "30", "60.00", "900"], not_=["-30", "10", "45", "3"])
    cents = {"type": "number", "multipleOf": 0.01, "minimum": 0}
    assert_exact(cents, ["0", "0.07", "19.99", "4.350", "1e16", "12e5"], not_=["0.075", "-1", "1.001"])
    assert_exact({**cents, "minimum": 0.01}, ["0.01", "3"], not_=["0", "0.00"])
    assert_exact({"type": "number", "multipleOf": 1.5}, ["4.5", "0", "-3", "1.50"], not_=["35", "1", "4.55"])


def test_numbers_that_must_not_be() -> None:
    assert_exact(
        {"type": "integer", "not": {"enum": [0, 5, -3]}},
        ["1", "4", "6", "-1", "-2", "-30"],
        not_=["0", "5", "-3"],
    )
    within = {"type": "integer", "minimum": 1, "not": {"const": 1}}
    assert_exact(within, ["2", "10"], not_=["1", "0"])
    half = {"type": "number", "minimum": 0, "maximum": 1, "not": {"const": 0.5}}
    assert_exact(half, ["0", "0.25", "0.51", "5.1e-1", "1.0"], not_=["0.5", "0.50", "5e-1", "1.5"])
    assert_exact({"type": "integer", "minimum": 3, "maximum": 3, "not": {"const": 4}}, ["3"], not_=["4"])


def test_exclusive_bounds_as_draft_4_wrote_them() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 3,
        "exclusiveMinimum": True,
    }
    assert_exact(schema, ["4"], not_=["3"])


def test_integers_may_be_long_but_not_longer_than_a_double() -> None:
    assert_exact({"type": "integer"}, ["9" * 308, "-" + "1" * 200], not_=["9" * 309])


@for_each_row(
    ("schema", "texts", "others"),
    [
        ({"const": 1}, ["1", "1.0", "1e0", "1.00E+00"], ["true", "1.01", "10", "1e1"]),
        ({"const": 1200000}, ["1200000", "1.2e6", "12e5", "1200000.0"], ["12e6", "1.2e5"]),
        ({"enum": [0]}, ["0", "-0", "0.0", "0e5"], ["false", "0.1"]),
        ({"const": 30}, ["30", "30.0", "30e0", "30.00E+00", "3e1"], ["3", "30e1", "3e0", "300e0", "30e"]),
        ({"enum": [-12.5, 12]}, ["-12.5e0", "-12.50E0", "-1.25e1", "12e0", "1.2e1"], ["12.5", "-12e0"]),
        ({"enum": [1.5, -2e-7]}, ["1.5", "1.50", "1.5e0", "-2e-7", "-0.0000002"], ["1.51", "2e-7"]),
        (
            {"type": "number"},
            ["12e5", "12.5E-3", "0.5e3", "100e0", "0e0"],
            ["1e999", "123456e305", "e5", "1e"],
        ),
        (
            {"type": "number", "minimum": 1, "maximum": 1000},
            ["12e1", "100e1", "1e3"],
            ["101e1", "12e2", "1e4"],
        ),
        (
            {"type": "integer", "minimum": 5, "maximum": 1200},
            ["5.0", "12e2", "1200.00", "1e3", "10e0"],
            ["13e2", "4.0", "5.5", "1e4"],
        ),
        ({"type": "integer", "minimum": 20}, ["2e1", "12e5", "20.0"], ["1e1", "19e0", "-2e5"]),
        ({"type": "integer", "maximum": -3}, ["-3.0", "-12e5"], ["-2e0", "3", "12e5", "-0"]),
    ],
)
def test_numbers_in_the_notations_that_json_has(schema: Json, texts: list[str], others: list[str]) -> None:
    assert_exact(schema, texts, not_=others)


def test_to_draft_4_an_integer_has_only_digits() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}
    assert_exact(schema, ["1", "-20"], not_=["1.0", "1e5"])


def test_draft_4_speaks_of_how_an_integer_is_written() -> None:
    """12E0 is no integer there: where integers are not wanted it is fine, and the grammar lets it through."""
    for schema in ({"not": {"type": "integer"}}, {"type": "number", "not": {"type": "integer"}}):
        fours = {"$schema": "http://json-schema.org/draft-04/schema#", **schema}
        assert_noted(fours, "draft 4", ["12E0", "12.0", "1.5"])
        assert_lets_through(schema, ["1.5"], not_=["12E0", "12.0", "12"])
    fours = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}
    assert_exact(fours, ["12"], not_=["12E0", "12.0"])
