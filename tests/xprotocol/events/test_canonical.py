"""The bytes that are hashed and signed (RFC 8785)."""

from __future__ import annotations

import json
import struct
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import MalformedEvent
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import (
    LARGEST_INTEGER,
    SignedPublic,
    canonical_header,
    canonical_json,
    decode,
    verify_event,
)
from tests.rows import for_each_row
from tests.xprotocol.people import ALICE, NOW, call

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.text(st.characters(max_codepoint=127), max_size=12)
integers = st.integers(-LARGEST_INTEGER, LARGEST_INTEGER)
flat = st.dictionaries(names, texts | integers | st.none(), max_size=12)
values = st.recursive(
    texts | integers | st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(flat)
def test_headers_have_the_bytes_of_the_oracle(members: dict[str, Any]) -> None:
    assert canonical_header(members) == rfc8785.dumps(members)


@given(st.dictionaries(texts, values, max_size=8))
def test_the_quick_way_gives_the_oracles_bytes_or_refuses(members: dict[str, Any]) -> None:
    """Nothing that the two would write differently gets past the look."""
    try:
        quick = canonical_header(members)
    except MalformedEvent:
        return
    assert quick == rfc8785.dumps(members)


@for_each_row(
    "members",
    [
        # Sorted differently: U+FB33 comes after U+1F600 in UTF-16 and before it in UTF-8.
        {"\U0001f600": "", "\ufb33": ""},
        {"\u00f6": ""},
        {"n": 1.0},
        {"n": 1e16},
        {"n": 0.5},
        {"n": float("nan")},
        {"n": 2**53},
        {"n": -(2**53)},
        {"n": 2**64},
        {"n": True},
        {"n": []},
        {"n": {}},
        {"n": "\ud800"},
    ],
)
def test_what_the_two_encoders_could_write_differently_is_refused_in_a_header(
    members: dict[str, Any],
) -> None:
    with pytest.raises(MalformedEvent):
        canonical_header(members)


def test_the_refused_ones_do_differ() -> None:
    """The guard is not there for nothing."""
    for members in ({"\U0001f600": "", "\ufb33": ""}, {"n": 1.0}, {"n": 1e16}):
        assert orjson.dumps(members, option=orjson.OPT_SORT_KEYS) != rfc8785.dumps(members)


# RFC 8785, appendix B: a double as its bits, and how it is written.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@for_each_row(("bits", "text"), NUMBERS.items())
def test_numbers_are_written_as_the_rfc_says(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number) == text.encode()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 2**53, -(2**53), 10**40])
def test_numbers_that_have_no_canonical_form_are_refused(number: float) -> None:
    with pytest.raises(MalformedEvent):
        canonical_json({"n": [number]})


def test_the_rfcs_example_comes_out_as_printed() -> None:
    """RFC 8785, 3.2.2 and 3.2.3."""
    text = (
        r'{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],'
        r'"string":"\u20ac$\u000F\u000aA\'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}'
    ).replace(r"\'", "'")
    assert (
        canonical_json(json.loads(text))
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )


def test_members_are_sorted_by_utf_16() -> None:
    """RFC 8785, 3.2.3."""
    words = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    order = [words[name] for name in json.loads(canonical_json(words))]
    assert [word.split()[0] for word in order] == [
        "Carriage", "One", "Control", "Latin", "Euro", "Emoji:", "Hebrew",
    ]  # fmt: skip


def test_lone_surrogates_and_endless_nesting_have_no_canonical_form() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("\ud800", {"\udfff": 1}, deep):
        with pytest.raises(MalformedEvent):
            canonical_json(value)


def test_a_directed_event_is_signed_over_the_oracles_bytes() -> None:
    signed = call(correlation_id='control \x00\x1f\x7f, quotes "\\/, \u2028 and \U0001f600')
    assert canonical_header(signed.covered) == rfc8785.dumps(signed.covered)
    verify_event(decode(signed.raw))


@given(st.dictionaries(texts, values, max_size=4))
def test_public_payloads_may_hold_whatever_has_a_canonical_form(payload: dict[str, Any]) -> None:
    """However the bytes are spaced on the way: what is signed is the value."""
    signed = publish(ALICE, "xp.endpoint.announce", payload, now=NOW)
    spaced = json.dumps(json.loads(signed.raw), indent=1, ensure_ascii=True).encode()
    for raw in (signed.raw, spaced):
        read = decode(raw)
        assert isinstance(read, SignedPublic)
        verify_event(read)
        assert read.event.payload == payload
