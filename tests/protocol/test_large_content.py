"""Large values leave a message, are named by their hashes, and come back as they were."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.errors import InvalidRequest
from moot.protocol import strict_json
from moot.protocol.large_content import CONTENT_KEY, MAX_PARTS, parts_of, put_back, take_out, too_large_result
from tests.examples import examples

LONG = "ä" * 3_000_000
MAX = 1 << 19


def test_a_long_text_of_a_result_leaves_its_beginning_its_size_and_its_hash() -> None:
    result = {"content": [{"type": "text", "text": LONG}], "structuredContent": {"result": LONG}}
    taken = take_out(result, is_result=True, max_bytes=MAX)
    digest = sha256(LONG.encode()).hexdigest()
    assert list(taken.values) == [digest]
    text = taken.body["content"][0]["text"]
    assert text.startswith("ääää")
    assert "6,000,000 bytes in all" in text
    assert digest in text
    assert len(strict_json.encode(taken.body)) < 20_000
    assert put_back(taken.body, taken.values, is_result=True) == result


def test_a_place_in_arguments_holds_an_object_that_no_pattern_takes_for_the_text() -> None:
    params = {"name": "write", "arguments": {"path": "a", "text": LONG}, "_meta": {"progressToken": 1}}
    taken = take_out(params, is_result=False, max_bytes=MAX)
    shown = taken.body["arguments"]["text"][CONTENT_KEY]
    assert taken.body["arguments"]["path"] == "a"
    assert shown["bytes"] == 6_000_000
    assert shown["begins_with"] == LONG[:2_000]
    assert taken.body["_meta"]["progressToken"] == 1
    assert put_back(taken.body, taken.values, is_result=False) == params


def test_base64_becomes_empty_and_not_a_part_of_itself() -> None:
    result = {"content": [{"type": "image", "data": "AAAA" * 500_000, "mimeType": "image/png"}]}
    taken = take_out(result, is_result=True, max_bytes=MAX)
    assert taken.body["content"][0]["data"] == ""
    assert put_back(taken.body, taken.values, is_result=True) == result


@pytest.mark.parametrize(
    "result",
    [
        {"structuredContent": {"rows": [[n, str(n)] for n in range(100_000)]}, "content": []},
        {"content": [{"type": "text", "text": "x" * 20_000} for _ in range(MAX_PARTS + 9)]},
        {"content": [{"type": "text", "text": "x" * 10_000} for _ in range(200)], "isError": True},
    ],
    ids=["many small values", "many long texts", "many texts that are not long"],
)
def test_what_has_no_long_texts_leaves_as_a_whole_member(result: dict[str, Any]) -> None:
    taken = take_out(result, is_result=True, max_bytes=MAX)
    assert len(strict_json.encode(taken.body)) <= MAX
    assert len(parts_of(taken.body)) <= MAX_PARTS
    assert taken.body.get("isError") == result.get("isError")
    assert isinstance(taken.body["content"], list)
    assert put_back(taken.body, taken.values, is_result=True) == result


@pytest.mark.parametrize(
    "listed",
    [
        7,
        [7],
        [{"at": [], "sha256": "0" * 64, "bytes": 1}],
        [{"at": ["_meta", "x"], "sha256": "0" * 64, "bytes": 1}],
        [{"at": ["a"], "sha256": "../" * 20, "bytes": 1}],
        [{"at": ["a"], "sha256": "0" * 64, "bytes": -1}],
        [{"at": [None], "sha256": "0" * 64, "bytes": 1}],
        [{"at": ["a"], "sha256": "0" * 64, "bytes": 1}] * (MAX_PARTS + 1),
    ],
)
def test_what_names_no_value_is_refused(listed: Any) -> None:
    with pytest.raises(InvalidRequest):
        parts_of({"a": "", "_meta": {CONTENT_KEY: listed}})


def test_another_value_than_the_hash_names_is_refused_and_so_is_a_place_that_is_not_there() -> None:
    taken = take_out({"a": LONG}, is_result=True, max_bytes=MAX)
    (digest,) = taken.values
    with pytest.raises(InvalidRequest, match="not the one that its hash names"):
        put_back(taken.body, {digest: b"other"}, is_result=True)
    del taken.body["a"]
    with pytest.raises(InvalidRequest, match="has no place"):
        put_back(taken.body, taken.values, is_result=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "rm a.txt"},
        {"text": {CONTENT_KEY: {"sha256": "0" * 64, "bytes": 6_000_000, "begins_with": LONG[:2_000]}}},
        {"text": {CONTENT_KEY: {"sha256": "", "bytes": 6_000_000, "begins_with": "harmless"}}},
        {},
    ],
)
def test_params_that_show_something_else_than_they_stand_for_are_refused(arguments: dict[str, Any]) -> None:
    taken = take_out({"name": "run", "arguments": {"text": LONG}}, is_result=False, max_bytes=MAX)
    (digest,) = taken.values
    if CONTENT_KEY in (shown := arguments.get("text", {})) and not shown[CONTENT_KEY]["sha256"]:
        shown[CONTENT_KEY]["sha256"] = digest
    with pytest.raises(InvalidRequest, match="not the one that it shows"):
        put_back(taken.body | {"arguments": arguments}, taken.values, is_result=False)


def test_a_tool_whose_result_is_too_large_has_run() -> None:
    result = too_large_result(99_000_000, 33_554_432)
    assert result["content"][0]["text"].startswith("The tool ran. Its result of 99,000,000 bytes")
    assert "isError" not in result


_TEXTS = st.one_of(st.text(max_size=5), st.integers(16_000, 40_000).map(lambda size: "é" * size))
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(-9, 9), st.none(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=examples(25), deadline=None)
@given(
    body=st.dictionaries(st.sampled_from(["content", "x", "arguments", "data"]), _VALUES),
    result=st.booleans(),
)
def test_everything_comes_back_as_it_was(body: dict[str, Any], result: bool) -> None:
    taken = take_out(body, is_result=result, max_bytes=4_096)
    assert put_back(taken.body, taken.values, is_result=result) == body
