"""Payloads against their schemas, in words that repeat nothing of the payload."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import SchemaViolation
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.contracts.payload_validation import (
    MAX_MESSAGE_CHARS,
    MAX_PATH_CHARS,
    MAX_PROBLEMS,
    PayloadProblem,
    Validator,
)
from tests.rows import for_each_row

SECRET = "hunter2-hunter2"


@for_each_row(
    ("schema", "value", "path", "message"),
    [
        ({"type": "string"}, 5, "", "has to be string"),
        ({"type": ["string", "null"]}, 5, "", "has to be null or string"),
        ({"required": ["b"]}, {}, "", "lacks the member 'b'"),
        ({"properties": {"a": {"enum": [1]}}}, {"a": SECRET}, "/a", "is none of the values listed"),
        ({"properties": {"a": {"const": 1}}}, {"a": SECRET}, "/a", "is not the one value allowed"),
        ({"items": {"minimum": 3}}, [5, 1], "/1", "has to be at least 3"),
        ({"maximum": 3}, 4, "", "has to be at most 3"),
        ({"exclusiveMinimum": 3}, 3, "", "has to be more than 3"),
        ({"exclusiveMaximum": 3}, 3, "", "has to be less than 3"),
        ({"multipleOf": 3}, 4, "", "has to be a multiple of 3"),
        ({"minLength": 30}, SECRET, "", "has to have at least 30 characters"),
        ({"maxLength": 3}, SECRET, "", "has to have at most 3 characters"),
        ({"minItems": 1}, [], "", "has to have at least 1 items"),
        ({"maxItems": 0}, [SECRET], "", "has to have at most 0 items"),
        ({"uniqueItems": True}, [SECRET, SECRET], "", "has the same item twice"),
        ({"additionalProperties": False}, {"extra": SECRET}, "", "has members that are not declared"),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"extra": SECRET},
            "",
            "has members that are not declared: extra",
        ),
        ({"pattern": "^x"}, SECRET, "", "does not fit pattern"),
        ({"anyOf": [{"type": "null"}]}, SECRET, "", "fits none of the alternatives"),
        ({"oneOf": [{}, {}]}, SECRET, "", "does not fit oneOf"),
        ({"not": {}}, SECRET, "", "does not fit not"),
        (False, SECRET, "", "is not allowed here"),
        ({"properties": {"a/b~": {"type": "null"}}}, {"a/b~": SECRET}, "/a~1b~0", "has to be null"),
    ],
)
def test_a_problem_says_where_and_what_is_asked_and_never_what_was_sent(
    schema: Json, value: Json, path: str, message: str
) -> None:
    problems = Validator(schema).problems(value)
    assert problems == [PayloadProblem(path, message)]
    assert SECRET not in str(problems[0])


def test_what_fits_has_no_problems() -> None:
    assert Validator({"type": "object", "required": ["a"]}).problems({"a": 1}) == []
    assert Validator({"type": "integer"}).accepts(5)
    assert not Validator({"type": "integer"}).accepts("5")
    assert Validator({"maximum": 2**80}).accepts(2**80)


def test_formats_are_notes() -> None:
    """JSON Schema 2020-12; a server that takes it keeps getting it."""
    for draft in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"):
        assert Validator({"$schema": draft, "format": "uri"}).problems("example.com") == []


def test_problems_are_few_and_short() -> None:
    wide = {f"name-{n}-{'x' * 500}": n for n in range(2_000)}
    problems = Validator({"additionalProperties": {"type": "string"}}).problems(wide)
    assert len(problems) == MAX_PROBLEMS
    assert all(len(problem.path) <= MAX_PATH_CHARS for problem in problems)
    undeclared = Validator({"additionalProperties": False}).problems(wide)
    assert all(len(problem.message) <= MAX_MESSAGE_CHARS for problem in undeclared)
    deep: Json = 1
    schema: Json = {"type": "string"}
    for _ in range(30):
        deep, schema = {"a" * 20: deep}, {"properties": {"a" * 20: schema}}
    assert len(Validator(schema).problems(deep)[0].path) <= MAX_PATH_CHARS


def test_a_check_raises_one_bounded_line() -> None:
    check = Validator({"properties": {name: {"type": "null"} for name in "abcde"}}).check
    check({"a": None})
    with pytest.raises(SchemaViolation) as fault:
        check(dict.fromkeys("abcde", SECRET))
    assert str(fault.value) == "/a has to be null; /b has to be null; /c has to be null (and 2 more)"
    with pytest.raises(SchemaViolation, match="payload lacks the member 'x'"):
        Validator({"required": ["x"]}).check({})


def test_nothing_is_ever_fetched() -> None:
    with pytest.raises(ContractRefused, match="not present"):
        Validator({"$ref": "http://127.0.0.1:9/schema"})


def test_a_hostile_pattern_gives_up_instead_of_running_on() -> None:
    """Plain patterns are linear; look-ahead and back-references count their steps."""
    for pattern in (r"^(a+)+$", r"^(a|aa)*(?=b)c$", r"(a*)*\1b"):
        validator = Validator({"items": {"pattern": pattern}})
        started = time.process_time()
        assert validator.problems(["a" * 5_000 + "!"] * 20)
        assert time.process_time() - started < 5


def test_what_is_not_json_is_a_problem_not_a_crash() -> None:
    assert Validator({}).problems(object()) == [PayloadProblem("", "cannot be read as JSON")]
    assert not Validator({"type": "object"}).accepts(object())


@given(
    st.text(min_size=8), st.sampled_from(["enum", "const", "pattern", "type", "maxLength", "anyOf", "not"])
)
def test_values_never_stand_in_a_problem(secret: str, keyword: str) -> None:
    schema: Json = {
        "enum": {"enum": [1]},
        "const": {"const": 1},
        "pattern": {"pattern": "^$"},
        "type": {"type": "integer"},
        "maxLength": {"maxLength": 1},
        "anyOf": {"anyOf": [{"type": "null"}]},
        "not": {"not": {"type": "string"}},
    }[keyword]
    (problem,) = Validator({"properties": {"a": schema}}).problems({"a": secret})
    assert problem.path == "/a"
    assert (
        secret not in problem.message
        or secret in Validator({"properties": {"a": schema}}).problems({"a": "q" * 9})[0].message
    )
