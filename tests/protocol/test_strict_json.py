"""JSON that every reader reads alike (D-83)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.errors import InvalidJson
from moot.protocol import strict_json
from moot.protocol.operation import Json
from tests.examples import examples
from tests.protocol.corpus import NOT_JSON, Refusal
from tests.rows import for_each_row

FEW = settings(max_examples=examples(50), derandomize=True, deadline=None)

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.requirement("MEW-3-1")
@for_each_row("refusal", NOT_JSON, ids=lambda refusal: refusal.name)
def test_text_that_readers_could_disagree_on_is_refused_with_its_reason(refusal: Refusal) -> None:
    """D-83."""
    with pytest.raises(InvalidJson) as caught:
        strict_json.parse(refusal.raw)
    assert refusal.says in caught.value.message


def test_a_fault_is_placed_by_characters_in_text_and_by_bytes_where_there_is_none() -> None:
    with pytest.raises(InvalidJson, match="at character 6"):
        strict_json.parse('{"éü":}'.encode())
    with pytest.raises(InvalidJson, match="at byte 4"):
        strict_json.parse('{"é'.encode() + b"\xff")


@FEW
@given(values)
def test_compact_and_spaced_text_of_a_value_are_read_as_that_value(value: Json) -> None:
    assert strict_json.parse(strict_json.encode(value)) == value
    assert strict_json.parse(json.dumps(value, indent=2).encode()) == value
    assert strict_json.parse(json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()) == value


@FEW
@given(st.binary(max_size=40) | texts.map(str.encode))
def test_any_bytes_are_a_value_or_invalid_json(raw: bytes) -> None:
    try:
        value = strict_json.parse(raw)
    except InvalidJson:
        return
    assert value == json.loads(raw)


@pytest.mark.parametrize("spaces", [b"", b" "], ids=["quick", "exact"])
def test_sixty_four_levels_pass_and_one_more_does_not(spaces: bytes) -> None:
    """D-83, on the quick way and on the exact one."""
    assert strict_json.parse(b"[" * 64 + spaces + b"]" * 64) is not None
    with pytest.raises(InvalidJson, match="deeper than 64 levels"):
        strict_json.parse(b"[" * 65 + spaces + b"]" * 65)


def test_brackets_inside_strings_are_no_levels() -> None:
    assert strict_json.parse(strict_json.encode({"text": "[{" * 500})) == {"text": "[{" * 500}


def test_many_small_containers_side_by_side_are_not_deep() -> None:
    assert strict_json.parse(b"[" + b",".join([b"[{}]"] * 200) + b"]") == [[{}]] * 200


def test_integers_keep_every_digit_on_the_way_in_and_out() -> None:
    for number in (2**53 + 1, 2**64, -(2**64), 10**4299):
        assert strict_json.parse(b"%d" % number) == number
        assert strict_json.encode([number]) == b"[%d]" % number


def test_the_longest_integer_may_have_a_sign_besides() -> None:
    assert strict_json.parse(b"-" + b"9" * 4300) == -int("9" * 4300)
    with pytest.raises(InvalidJson, match="4300 digits"):
        strict_json.parse(b"-" + b"9" * 4301)


def test_escaped_pairs_of_surrogates_are_one_character() -> None:
    assert strict_json.parse(rb'"\ud83d\ude00"') == "😀"
    assert strict_json.parse(rb'"\\ud83d"') == r"\ud83d"


@pytest.mark.parametrize(
    ("value", "levels"),
    [(1, 0), ("[[", 0), ([], 1), ({}, 1), ([[], {"a": []}], 3), ({"a": 1, "b": {"c": [1]}}, 3)],
)
def test_depth_counts_containers_inside_each_other(value: Json, levels: int) -> None:
    assert not strict_json.nests_deeper(value, max(levels, 1))
    if levels > 1:
        assert strict_json.nests_deeper(value, levels - 1)


def test_not_a_number_is_never_written() -> None:
    with pytest.raises(ValueError):
        strict_json.encode([10**30, float("nan")])


@given(st.lists(st.sampled_from(["1.5", "-0.0e-7", "1E5", "12e+3", "7", "-40", "true", '"2.5e3 \\" 1.0"'])))
def test_numbers_with_a_fraction_or_an_exponent_are_counted_once_each(values: list[str]) -> None:
    raw = f"[{', '.join(values)}]".encode()
    count = sum(isinstance(value, float) for value in json.loads(raw))
    assert not strict_json.has_more_decimals(raw, count)
    assert count == 0 or strict_json.has_more_decimals(raw, count - 1)
