"""What counts as the same call when a proposal is fulfilled (D-28)."""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from hashlib import sha256
from subprocess import run
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moot.errors import InvalidJson
from moot.protocol import strict_json
from moot.protocol.fingerprint import fingerprint
from moot.protocol.ordinary_envelope import is_plain, plain_fingerprint
from tests.examples import examples
from tests.rows import for_each_row


def of(payload: str) -> str:
    """The fingerprint of an envelope with this payload text, which the gateway would accept."""
    raw = f'{{"kind":"mcp/request","payload":{payload}}}'.encode()
    strict_json.parse(raw)
    return fingerprint(raw)


def of_argument(text: str) -> str:
    return of(f'{{"method":"tools/call","params":{{"name":"pay","arguments":{{"x":{text}}}}}}}')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"method":"m","params":{}}', '{"method":"m"}'),
        ('{"method":"m"}', '{"method":"m","jsonrpc":"2.0","id":7}'),
        ('{"method":"m","params":{"a":1,"b":2}}', '{"params":{"b":2,"a":1},"method":"m"}'),
        ('{ "method" : "m" }', '{"method":"m"}'),
        ("{}", '{"method":null,"params":{}}'),
    ],
)
def test_bodies_that_make_the_same_call_are_equal(one: str, other: str) -> None:
    """D-28, D-29: method and params count; key order, spaces and the JSON-RPC frame do not."""
    assert of(one) == of(other)


@for_each_row(
    ("one", "other"),
    [
        ('{"method":"m"}', '{"method":"M"}'),
        ('{"method":"m"}', '{"method":"m "}'),
        ('{"method":"m"}', '{"method":"m","params":[]}'),
        ('{"method":"m"}', '{"method":"m","params":null}'),
        ('{"method":"m"}', '{"method":["m"]}'),
        ('{"method":"m","params":{"a":null}}', '{"method":"m","params":{}}'),
        ('{"method":"m","params":{"a":{"b":1}}}', '{"method":"m","params":{"a":{"b":1,"c":2}}}'),
        ('{"method":"m","params":{"a":1,"b":2}}', '{"method":"m","params":{"a":2,"b":1}}'),
        ('{"method":"m","params":{"a":"1:2"}}', '{"method":"m","params":{"a":"1","2":""}}'),
    ],
)
def test_bodies_that_make_another_call_differ(one: str, other: str) -> None:
    """D-28."""
    assert of(one) != of(other)


@for_each_row(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("1", "1e0"),
        ("1000", "1E+3"),
        ("0", "-0"),
        ("0", "0.000"),
        ("0.1", "1e-1"),
        ("1e22", "1E22"),
        ("9007199254740991", "9007199254740991.0"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ('"a"', r'"\u0061"'),
        ('"😀"', r'"\ud83d\ude00"'),
        (r'"\t"', r'"\u0009"'),
    ],
)
def test_one_value_has_many_spellings(one: str, other: str) -> None:
    """RFC 8785: numbers as doubles, strings as characters."""
    assert of_argument(one) == of_argument(other)


@for_each_row(
    ("one", "other"),
    [
        ("1", "true"),
        ("0", "false"),
        ("0", "null"),
        ("1", '"1"'),
        ("9007199254740992", "9007199254740993"),
        ("9007199254740992", "9007199254740993.0"),
        ("9007199254740993", '"9007199254740993"'),
        ("-9007199254740992", "-9007199254740993"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("0", "1e-400"),
        ("0", "-1e-400"),
        ("1.7976931348623157e308", "1.7976931348623158e308"),
        ("5e-324", "4e-324"),
        ('"é"', '"e\u0301"'),
        ('"K"', '"\u212a"'),
        ('"a"', '"a\u200b"'),
    ],
)
def test_values_that_some_reader_tells_apart_differ(one: str, other: str) -> None:
    """D-28: numbers that no double holds are compared token by token, and text is never normalised."""
    assert of_argument(one) != of_argument(other)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def _shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(value[key]) for key in sorted(value, reverse=True)}
    return [_shuffled(item) for item in value] if isinstance(value, list) else value


def _text(value: Any, **style: Any) -> str | None:
    """The value as JSON text, or None where the gateway would not take it."""
    text = json.dumps(value, **style)
    try:
        strict_json.parse(text.encode("utf-8", "surrogatepass"))
    except InvalidJson:
        return None
    return text


@settings(derandomize=True, max_examples=examples(25), deadline=None)
@given(value=json_values)
def test_order_spaces_and_escapes_never_matter(value: Any) -> None:
    """D-28: whatever the value, and no accepted text makes the hash fail."""
    plain = _text(value)
    if plain is not None:
        spelled_otherwise = _text(_shuffled(value), ensure_ascii=False, indent=2)
        assert spelled_otherwise is not None
        assert of_argument(plain) == of_argument(spelled_otherwise)


def _of_the_careful_way(raw: bytes) -> str:
    payload = json.loads(raw)["payload"]
    body = {"method": payload.get("method"), "params": payload.get("params", {})}
    return sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@settings(derandomize=True, max_examples=examples(100), deadline=None)
@given(
    params=st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**17), 10**17)
        | st.text(st.characters(max_codepoint=0x80)),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(st.characters(max_codepoint=0x7F), max_size=3), inner, max_size=4)
        ),
        max_leaves=12,
    ),
    ensure_ascii=st.booleans(),
)
def test_a_text_that_all_coders_read_alike_has_the_same_hash_by_each(params: Any, ensure_ascii: bool) -> None:
    """Fingerprints are kept in snapshots and compared between gateways."""
    payload = json.dumps({"method": "m", "params": params}, ensure_ascii=ensure_ascii)
    raw = f'{{"kind":"mcp/request","payload":{payload}}}'.encode()
    found = plain_fingerprint(raw, json.loads(payload))
    assert (found is not None) == is_plain(raw)
    assert (found or fingerprint(raw)) == fingerprint(raw) == _of_the_careful_way(raw)


def test_a_python_that_has_openssl_built_in_hashes_the_same() -> None:
    """As those that uv installs: there is no file of `_hashlib` whose OpenSSL could be found."""
    raw, payload = b'{"payload":{"method":"m"}}', {"method": "m"}
    code = (
        "import _hashlib; del _hashlib.__file__; from moot.protocol._scan_envelope import plain_fingerprint;"
        f"print(plain_fingerprint({raw!r}, {payload!r}))"
    )
    ran = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert ran.stdout.strip() == plain_fingerprint(raw, payload) == fingerprint(raw)


@for_each_row(
    "value, plain",
    [
        ('{"path":"a.2.txt","e":[1,-0,true,false,null]}', False),
        ('{"path":"a.2.txt -1e5","e":[1,20,true,false,null],"t":"\\n\\"\\/"}', True),
        ("999999999999999", True),
        ("1000000000000000", False),
        ("-1", False),
        ("1.0", False),
        ("1e2", False),
        ("1E2", False),
        ('"\\u0041"', False),
        ('"é"', False),
        ('"\x7f"', False),
    ],
)
def test_which_texts_are_plain(value: str, plain: bool) -> None:
    raw = f'{{"a":{value}}}'.encode()
    assert is_plain(raw) is strict_json.is_plain_in_python(raw) is plain


def _exact(value: Any) -> Any:
    """A form that is equal exactly where the values are: true is not 1, and numbers keep all digits."""
    if isinstance(value, dict):
        return ("object", frozenset((key, _exact(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(_exact, value)))
    return (type(value).__name__, value)


numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@settings(derandomize=True, max_examples=examples(40), deadline=None)
@given(one=numbers, other=numbers | st.just("9007199254740993") | st.just("0"))
def test_equal_fingerprints_mean_equal_numbers(one: str, other: str) -> None:
    """D-28: whoever computes in decimals runs what was reviewed too."""
    try:
        same = of_argument(one) == of_argument(other)
    except InvalidJson:
        return
    assert not same or Decimal(one) == Decimal(other)


@settings(derandomize=True, max_examples=examples(25), deadline=None)
@given(one=json_values, other=json_values)
def test_equal_fingerprints_mean_equal_values(one: Any, other: Any) -> None:
    """D-28: no two different bodies share a hash."""
    texts = [text for value in (one, other) if (text := _text(value)) is not None]
    if len(texts) == 2:
        read = [_exact(json.loads(text, parse_int=Decimal, parse_float=Decimal)) for text in texts]
        assert of_argument(texts[0]) != of_argument(texts[1]) or read[0] == read[1]


@given(
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,16})(\.[0-9]{1,17})?([eE][+-]?(0|[1-9][0-9]?|[12][0-9]{2}))?\Z"),
    st.data(),
)
@settings(max_examples=examples(30))
def test_numbers_seen_at_a_glance_are_told_apart_as_by_arithmetic(text: str, data: st.DataObject) -> None:
    """Two spellings have one fingerprint if and only if they are one number, or one double with no other.

    Whole numbers from 2**53 on are compared by their digits, so there one number may have two.
    """
    value = Decimal(text)
    shifted = data.draw(st.sampled_from([value, value + 1, value * 10, -value]))
    other = f"{shifted:e}"
    # Larger than any double: refused before it gets here.
    assume(math.isfinite(float(text)) and math.isfinite(float(other)))
    same = value == shifted
    is_safe = max(abs(value), abs(shifted)) < 2**53
    if is_safe and value == Decimal(repr(float(text))) and shifted == Decimal(repr(float(other))):
        assert (of_argument(text) == of_argument(other)) == same
    elif not same:
        assert of_argument(text) != of_argument(other)
