"""The compiled scanner accepts nothing that the decoder would not read in the same way (D-83)."""

from __future__ import annotations

import json
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.protocol._scan_envelope import MAX_NAME_BYTES, MAX_NAMES
from moot.protocol.dialects.mew import MEW
from moot.protocol.envelope import DEFAULT_LIMITS, Envelope
from moot.protocol.operation import Json
from tests.examples import examples
from tests.protocol.corpus import REFUSALS, TS, Refusal
from tests.protocol.scan_envelope_soak import (
    SEEDS,
    check_case,
    encoded,
    in_payload,
    outcomes,
    read_ordinary,
    with_payload,
)
from tests.rows import for_each_row

SOME = settings(max_examples=examples(50), derandomize=True, deadline=None)

# The scanner's own bounds; wider or deeper is not wrong, only not ordinary.
LEVELS = 24
KEYS = 24
DIGITS = 15

CHAT = encoded()
# Every character of it counts: no spaces, no free text.
TIGHT = encoded(payload={"a": [1, {"b": None}]}, to=["bob"], correlation_id=["e0"])


def swapped(old: bytes, new: bytes, *, within: bytes = CHAT) -> bytes:
    """The text with one thing changed, which must be there."""
    assert within.count(old) == 1
    return within.replace(old, new)


def is_ordinary(raw: bytes) -> bool:
    return read_ordinary(raw, "mew") is not None or read_ordinary(raw, "mcpx") is not None


def keys(count: int) -> bytes:
    return json.dumps({f"k{each}": each for each in range(count)}).encode()


ORDINARY: dict[str, bytes] = {
    **{f"seed {number}": seed for number, seed in enumerate(SEEDS)},
    "compact": CHAT,
    "with spaces": json.dumps(json.loads(CHAT)).encode(),
    "spaces wherever they may stand": swapped(b'"id":"e1",', b' \t\r"id" \t\r: \t\r"e1" \t\r, \t\r')
    + b" \t\r",
    "members in reverse": json.dumps(dict(reversed(json.loads(CHAT).items()))).encode(),
    "an empty payload": with_payload(b"{}"),
    "an empty payload with a space": with_payload(b"{ }"),
    "an empty list with a space": in_payload(b"[ ]"),
    "an empty key": with_payload(b'{"":1}'),
    "keys that begin alike": with_payload(b'{"a":1,"aa":2,"":3,"A":4}'),
    "one key on two levels": with_payload(b'{"a":{"a":{"a":[{"a":1},{"a":1}]}}}'),
    "keys that look alike": with_payload('{"é":1,"e\u0301":2}'.encode()),
    "members of an envelope as keys": with_payload(b'{"id":1,"kind":2,"payload":{"protocol":3}}'),
    "all short escapes": in_payload(rb'"\"\\\/\b\f\n\r\t"'),
    "an escaped quote at the end": in_payload(rb'"\""'),
    "an escaped backslash at the end": in_payload(rb'"\\"'),
    "a structure in a string": in_payload(rb'"}],{[:\",\"id\":\"e2\""'),
    "UTF-8": in_payload('"é € 😀 \u2028 \u0085 \ufeff"'.encode()),
    "escaped characters": in_payload(rb'"\u0000\u00e9\u20AC\uFFFF"'),
    "the neighbours of surrogates": in_payload(rb'"\ud7ff\uD7FF\ue000\uE000"'),
    "a delete in a string": in_payload(b'"\x7f"'),
    "words": in_payload(b"[true,false,null]"),
    "numbers": in_payload(b"[0,-0,1,-1,10,0.5,-0.25,1.10,999999999999999,0.123456789012345]"),
    "as many digits as may be": in_payload(b"-" + b"9" * DIGITS + b"." + b"9" * DIGITS),
    "as deep as may be": with_payload(b'{"a":' + b"[" * (LEVELS - 1) + b"]" * (LEVELS - 1) + b"}"),
    "as wide as may be": with_payload(keys(KEYS)),
    "a long list": in_payload(json.dumps(list(range(1000))).encode()),
    "to nobody": encoded(to=[]),
    "to somebody": encoded(to=["bob"]),
    "to many": encoded(to=["bob"] * MAX_NAMES),
    "to a long name": encoded(to=["b" * MAX_NAME_BYTES]),
    "to a foreign name": encoded(to=["jürgen"]),
    "correlated": encoded(correlation_id=["e0", "e-1"]),
    "both lists, spaced": json.dumps(
        {**json.loads(CHAT), "to": ["a", "b"], "correlation_id": ["c"]}
    ).encode(),
    "an id of all that is printable": encoded(
        id="".join(map(chr, range(0x20, 0x7F))).translate({34: 33, 92: 33})
    ),
    "a foreign sender": encoded(from_="jürgen"),
    "a vendor's kind": encoded(kind="acme/v1.2/run"),
    "ts in milliseconds": encoded(ts="2026-01-31T12:00:00.123Z"),
    "ts in nanoseconds": encoded(ts="2026-01-31T12:00:00.123456789Z"),
    "ts as exact as may be": encoded(ts="2026-01-31T12:00:00." + "1" * DIGITS + "+00:00"),
    "ts with UTC as a zone": encoded(ts="2026-01-31T12:00:00+00:00"),
    "a context": encoded(context="a/b é"),
    "a context as long as may be": encoded(context="c" * 1024),
    "ts at the end of a year": encoded(ts="2026-12-31T23:59:59Z"),
    "ts at the end of February": encoded(ts="2026-02-28T00:00:00Z"),
    "ts from isoformat": encoded(ts="2026-01-31T12:00:00.123456+00:00"),
}

NOT_ORDINARY: dict[str, bytes] = {
    "a doubled key": with_payload(b'{"a":1,"a":2}'),
    "a doubled key with the same value": with_payload(b'{"a":1,"a":1}'),
    "a doubled key, spaced": with_payload(b'{ "a" : 1 ,\t"a"\r: 1 }'),
    "a doubled key, far apart": with_payload(b'{"a":1,"b":{"a":2,"c":[]},"c":"a","a":3}'),
    "a doubled key inside": in_payload(b'{"b":{"c":1,"c":2}}'),
    "a doubled key in a list": in_payload(b'[{"a":1},{"b":1,"b":2}]'),
    "a doubled key at the bottom": in_payload(b"[" * 20 + b'{"b":1,"b" :2}' + b"]" * 20),
    "a doubled empty key": with_payload(b'{"":1,"":2}'),
    "a doubled foreign key": with_payload('{"é":1,"é":2}'.encode()),
    "the last key doubled": with_payload(keys(KEYS - 1)[:-1] + b',"k22":0}'),
    "a key doubled by an escape": with_payload(rb'{"a":1,"\u0061":2}'),
    "an escaped key": with_payload(rb'{"\u0061":1}'),
    "a key with an escaped quote": with_payload(rb'{"a\"":1}'),
    "a member's name escaped": swapped(b'"kind"', rb'"\u006bind"'),
    "a lone surrogate": in_payload(rb'"\ud800"'),
    "a lone second half": in_payload(rb'"\uDFFF"'),
    "surrogates in reverse": in_payload(rb'"\udc00\ud800"'),
    "a lone surrogate as a key": with_payload(rb'{"\uDBFF":1}'),
    "a pair of surrogates": in_payload(rb'"\ud83d\ude00"'),
    "an unknown escape": in_payload(rb'"\x41"'),
    "an escape in capitals": in_payload(rb'"\N"'),
    "three hex digits": in_payload(rb'"\u00e"'),
    "no hex digit": in_payload(rb'"\u00g0"'),
    "NaN": in_payload(b"NaN"),
    "Infinity": in_payload(b"Infinity"),
    "minus Infinity": in_payload(b"-Infinity"),
    "an exponent": in_payload(b"1e5"),
    "an exponent in capitals": in_payload(b"1E5"),
    "an exponent behind a fraction": in_payload(b"1.5e-5"),
    "an exponent of zero": in_payload(b"0e1"),
    "too many digits": in_payload(b"1" * (DIGITS + 1)),
    "too many digits behind a sign": in_payload(b"-" + b"1" * (DIGITS + 1)),
    "too many digits behind the point": in_payload(b"1." + b"1" * (DIGITS + 1)),
    "a leading zero": in_payload(b"01"),
    "a leading zero behind a sign": in_payload(b"-01"),
    "a double zero": in_payload(b"00"),
    "a plus": in_payload(b"+1"),
    "only a sign": in_payload(b"-"),
    "two signs": in_payload(b"--1"),
    "no digit before the point": in_payload(b".5"),
    "no digit behind the point": in_payload(b"1."),
    "two points": in_payload(b"1.2.3"),
    "a hexadecimal number": in_payload(b"0x10"),
    "half a word": in_payload(b"tru"),
    "more than a word": in_payload(b"nulll"),
    "a word in capitals": in_payload(b"True"),
    "no value": in_payload(b""),
    "two values": in_payload(b"1 2"),
    "a comma behind the last key": with_payload(b'{"a":1,}'),
    "a comma behind the last element": in_payload(b"[1,]"),
    "a comma behind the last member": CHAT[:-1] + b",}",
    "a comma behind the last name": swapped(b'["bob"]', b'["bob",]', within=TIGHT),
    "a comma before the first member": b"{," + CHAT[1:],
    "only a comma": in_payload(b"[,]"),
    "two commas": in_payload(b"[1,,2]"),
    "two colons": swapped(b'"id":', b'"id"::'),
    "no colon": swapped(b'"id":', b'"id"'),
    "a bracket for a brace": in_payload(b"[1}"),
    "a brace for a bracket": in_payload(b'{"a":1]'),
    "a bare key": with_payload(b"{a:1}"),
    "a number as a key": with_payload(b"{1:1}"),
    "single quotes": swapped(b'"e1"', b"'e1'"),
    "a comment": CHAT + b"/**/",
    "a byte order mark": b"\xef\xbb\xbf" + CHAT,
    "a space before it": b" " + CHAT,
    "garbage behind it": CHAT + b"x",
    "a brace behind it": CHAT + b"}",
    "two of them": CHAT + CHAT,
    "two of them in a list": b"[" + CHAT + b"," + CHAT + b"]",
    "a list": b"[" + CHAT + b"]",
    "a form feed for a space": swapped(b'"id":', b'"id":\x0c'),
    "a wide space": swapped(b'"id":', '"id":\u00a0'.encode()),
    "nothing": b"",
    "an empty object": b"{}",
    "an older protocol": encoded(protocol="mew/v0.3"),
    "another protocol": encoded(protocol="mcpx/v0.2"),
    "MCPx with a list": encoded(protocol="mcpx/v0.1", correlation_id=["e0"]),
    "MCPx with a correlation too long": encoded(protocol="mcpx/v0.1", correlation_id="c" * 257),
    "MCPx with several correlations": encoded(protocol="mcpx/v0.1", x_correlation_ids=["e0"]),
    "a longer protocol": encoded(protocol="mew/v0.40"),
    "no protocol": encoded(protocol=""),
    "an unknown member": encoded(x_vendor=1),
    "an empty context": encoded(context=""),
    "a long context": encoded(context="c" * 1025),
    "a context of null": encoded(context=None),
    "a context with an escape": encoded(context="a\n"),
    "an empty name of a member": CHAT[:-1] + b',"":1}',
    "a member in capitals": swapped(b'"kind"', b'"Kind"'),
    "too many levels": with_payload(b'{"a":' + b"[" * LEVELS + b"]" * LEVELS + b"}"),
    "too many objects in each other": with_payload(b'{"a":' * (LEVELS + 1) + b"1" + b"}" * (LEVELS + 1)),
    "levels without end": with_payload(b'{"a":' * 100_000),
    "lists without end": in_payload(b"[" * 100_000),
    "too many keys": with_payload(keys(KEYS + 1)),
    "an id of nothing": encoded(id=""),
    "an id too long": encoded(id="i" * 257),
    "an id outside of ASCII": encoded(id="é"),
    "an id with a delete": encoded(id="a\x7f"),
    "an id with an escape": encoded(id='"'),
    "a sender of nothing": encoded(from_=""),
    "a sender too long": encoded(from_="a" * 257),
    "a sender with an escape": encoded(from_="a\\b"),
    "a kind of nothing": encoded(kind=""),
    "a kind with an escape": encoded(kind="cha\t"),
    "too many names": encoded(to=["bob"] * (MAX_NAMES + 1)),
    "too many correlations": encoded(correlation_id=["e0"] * (MAX_NAMES + 1)),
    "a name of nothing": encoded(to=["bob", ""]),
    "a name too long": encoded(to=["b" * (MAX_NAME_BYTES + 1)]),
    "a foreign name of too many bytes": encoded(to=["é" * (MAX_NAME_BYTES // 2 + 1)]),
    "a name with an escape": encoded(correlation_id=["a\\"]),
    "a list among names": encoded(to=[["bob"]]),
    "a number among names": encoded(to=["bob", 1]),
    "one name without its list": encoded(correlation_id="e0"),
    "to null": encoded(to=None),
    "a date": encoded(ts="2026-01-31"),
    "ts of nothing": encoded(ts=""),
    "a day that is none": encoded(ts="2026-02-30T12:00:00Z"),
    "a day that only some years have": encoded(ts="2028-02-29T12:00:00Z"),
    "a day too many": encoded(ts="2026-04-31T12:00:00Z"),
    "a day of nothing": encoded(ts="2026-01-00T12:00:00Z"),
    "a month too many": encoded(ts="2026-13-01T12:00:00Z"),
    "an hour too many": encoded(ts="2026-01-31T24:00:00Z"),
    "a minute too many": encoded(ts="2026-01-31T12:60:00Z"),
    "a leap second": encoded(ts="2026-12-31T23:59:60Z"),
    "no T between": encoded(ts="2026-01-31 12:00:00Z"),
    "no dash between": encoded(ts="2026/01/31T12:00:00Z"),
    "letters for a time": encoded(ts="x" * 19 + "Z"),
    "foreign letters for a time": encoded(ts="é" * 9 + "-.5Z"),
    "ts without a zone": encoded(ts="2026-01-31T12:00:00"),
    "ts with a small z": encoded(ts="2026-01-31T12:00:00z"),
    "ts with an empty fraction": encoded(ts="2026-01-31T12:00:00.Z"),
    "ts too exact": encoded(ts="2026-01-31T12:00:00." + "1" * (DIGITS + 1) + "Z"),
    "ts with a comma": encoded(ts="2026-01-31T12:00:00,5Z"),
    "ts in another zone": encoded(ts="2026-01-31T12:00:00+01:00"),
    "ts west of nowhere": encoded(ts="2026-01-31T12:00:00-00:00"),
    "ts with half a zone": encoded(ts="2026-01-31T12:00:00+00"),
    "ts with two zones": encoded(ts="2026-01-31T12:00:00Z+00:00"),
    "ts with more behind it": encoded(ts=TS + " "),
    "a payload of null": with_payload(b"null"),
    "a payload of a list": with_payload(b"[]"),
    "a payload of a string": with_payload(b'"{}"'),
}
for _member in ("protocol", "id", "ts", "from_", "kind", "payload"):
    _name = _member.removesuffix("_")
    NOT_ORDINARY[f"{_name} missing"] = encoded(**{_member: ...})
    NOT_ORDINARY[f"{_name} null"] = encoded(**{_member: None})
    NOT_ORDINARY[f"{_name} a number"] = encoded(**{_member: 1})
    NOT_ORDINARY[f"{_name} a list"] = encoded(**{_member: ["a"]})
for _name, _value in json.loads(TIGHT).items():
    _again = f'"{_name}":{json.dumps(_value)}'.encode()
    NOT_ORDINARY[f"{_name} twice"] = TIGHT[:-1] + b"," + _again + b"}"
    NOT_ORDINARY[f"{_name} twice, spaced"] = b"{\t" + _again.replace(b":", b" : ", 1) + b" ," + TIGHT[1:]


@pytest.mark.parametrize("name", ["moot.protocol._scan_envelope", "moot.gateway.hosting._fast_path"])
def test_the_compiled_part_is_there(name: str) -> None:
    """It is optional for users, so a build that fails says nothing; here it has to be noticed."""
    found = find_spec(name)
    assert found is not None
    assert found.origin is not None
    assert found.origin.endswith(tuple(EXTENSION_SUFFIXES))


@for_each_row("raw", ORDINARY.values(), ids=ORDINARY)
def test_what_clients_send_is_ordinary_and_decoded_alike(raw: bytes) -> None:
    assert check_case(raw) == "ordinary"


@for_each_row("raw", NOT_ORDINARY.values(), ids=NOT_ORDINARY)
def test_what_one_has_to_look_at_is_not_ordinary(raw: bytes) -> None:
    assert not is_ordinary(raw)


@for_each_row("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_what_the_decoder_refuses_is_not_ordinary_or_left_to_the_caller(refusal: Refusal) -> None:
    """The caller has looked at the size, and the protocol of the other dialects is no mistake to them."""
    is_theirs = b'"protocol":"mcpx/v0.1"' in refusal.raw
    assert len(refusal.raw) > DEFAULT_LIMITS.max_bytes or is_theirs or check_case(refusal.raw) != "ordinary"
    with pytest.raises(refusal.error):
        MEW.decode(refusal.raw)


def test_members_are_found_wherever_they_stand() -> None:
    payload = {"id": "x", "ts": "x", "from": "x", "kind": "x", "payload": {"id": "x"}}
    for raw in (
        encoded(payload=payload),
        encoded(protocol=..., payload=payload)[:-1] + b',"protocol":"mew/v0.4"}',
    ):
        assert read_ordinary(raw, "mew") == Envelope(
            "mew", "chat", "e1", TS, "alice", (), (), None, payload, raw, wire_kind="chat"
        )


def test_no_envelope_is_ordinary_before_its_last_byte() -> None:
    for raw in (TIGHT, *(seed.rstrip() for seed in SEEDS)):
        assert is_ordinary(raw)
        assert [end for end in range(len(raw)) if is_ordinary(raw[:end])] == []


@for_each_row("byte", [0, *range(1, 9), *range(0x0B, 0x0D), *range(0x0E, 0x20)])
def test_a_control_character_is_ordinary_nowhere(byte: int) -> None:
    for at in range(len(TIGHT) + 1):
        assert not is_ordinary(TIGHT[:at] + bytes([byte]) + TIGHT[at:])


def test_a_line_feed_is_ordinary_nowhere() -> None:
    """The decoder takes it between tokens, but a record of the journal is one line."""
    raw = CHAT + b"\n"
    assert MEW.decode(raw).raw == raw
    for seed in SEEDS:
        assert [at for at in range(len(seed) + 1) if is_ordinary(seed[:at] + b"\n" + seed[at:])] == []


def test_a_kind_is_left_to_the_caller() -> None:
    for raw in (encoded(kind="mcp/request:tools/call"), encoded(kind="k" * 257), encoded(kind="a\x7f")):
        assert check_case(raw) == "left to the caller"


def test_twenty_thousand_mishaps_make_nothing_ordinary_that_is_not() -> None:
    counted = outcomes(20_000, seed=7)
    # Were nearly all of them broken or all of them whole, the comparison would say little.
    assert 2_000 < counted["ordinary"] < 10_000


numbers = st.integers(-(10**DIGITS) + 1, 10**DIGITS - 1)
wild_numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=12)


def payloads(
    leaves: st.SearchStrategy[Json], keys: st.SearchStrategy[str]
) -> st.SearchStrategy[dict[str, Json]]:
    values: st.SearchStrategy[Json] = st.recursive(
        st.none() | st.booleans() | texts | leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )
    return st.dictionaries(keys, values, max_size=6)


def written(payload: Json, separators: tuple[str, str], ensure_ascii: bool) -> bytes:
    return with_payload(json.dumps(payload, separators=separators, ensure_ascii=ensure_ascii).encode())


separators = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\r: ")])


@SOME
@given(payloads(wild_numbers, texts), separators, st.booleans())
def test_any_payload_is_decoded_alike_if_it_is_ordinary(
    payload: dict[str, Json], separators: tuple[str, str], ensure_ascii: bool
) -> None:
    raw = written(payload, separators, ensure_ascii)
    if check_case(raw) == "ordinary":
        assert MEW.decode(raw).payload == payload


@SOME
@given(payloads(numbers, names), separators)
def test_a_payload_of_words_lists_and_short_numbers_is_ordinary(
    payload: dict[str, Json], separators: tuple[str, str]
) -> None:
    assert check_case(written(payload, separators, ensure_ascii=False)) == "ordinary"


@SOME
@given(st.permutations(list(json.loads(TIGHT).items())), separators)
def test_members_may_stand_in_any_order(members: list[tuple[str, Json]], separators: tuple[str, str]) -> None:
    assert check_case(json.dumps(dict(members), separators=separators).encode()) == "ordinary"
