"""Texts around the edge of what is ordinary: `make soak` runs millions of them, the tests some thousands.

Each case takes ordinary envelopes apart. What must hold is in `check_case`: the compiled scanner accepts
nothing that the careful way would not read in the same way. The first violation ends the walk with the bytes
that caused it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from hashlib import sha256
from random import Random

import orjson

from moot.errors import InvalidEnvelope, InvalidJson
from moot.protocol import strict_json
from moot.protocol._scan_envelope import is_plain, read_envelope
from moot.protocol.dialects import M3P, MCPX, MEW
from moot.protocol.dialects.mcpx import LegacyDialect
from moot.protocol.dialects.mew import decode_slow
from moot.protocol.envelope import DEFAULT_LIMITS, DialectName, Envelope
from moot.protocol.fingerprint import _decoder as fingerprint_decoder
from moot.protocol.fingerprint import fingerprint_of
from moot.protocol.operation import Json
from tests.protocol.corpus import TS, call, text
from tests.protocol.mutations import mutate

MEMBERS = frozenset({"protocol", "id", "ts", "from", "kind", "payload"})
OPTIONAL = frozenset({"to", "correlation_id", "context"})


def with_payload(payload: bytes) -> bytes:
    """An envelope with this for its payload, byte for byte."""
    return text("mew", "chat")[:-1] + b',"payload":' + payload + b"}"


def in_payload(value: bytes) -> bytes:
    """An envelope with this for a value in its payload, byte for byte."""
    return with_payload(b'{"a":' + value + b"}")


def encoded(**members: Json) -> bytes:
    """A chat, with some members as given; `...` leaves one out."""
    return text("mew", "chat", **({"payload": {"text": "hi"}} | members))


# Ordinary envelopes, where mutations start.
SEEDS: tuple[bytes, ...] = (
    encoded(),
    encoded(payload={}, to=["bob", "carol-2"], correlation_id=["e0"]),
    encoded(payload={"text": "ünïcödé \u2028 😀", "format": "plain"}, from_="jürgen", to=[]),
    encoded(payload=call(), ts="2026-02-28T23:59:59.999Z", kind="mcp/proposal"),
    encoded(payload={"n": [0, -1, 2.5, 123456789012345, True, False, None, [], {}, [[{"a": [{}]}]]]}),
    in_payload(rb'"\"\\\/\b\f\n\r\t\u00e9\u0000 \ud7ff\ue000"'),
    in_payload(b'{"a":{"b":1,"c":[{"a":1,"b":2},{"a":1}]},"b":"a"}'),
    encoded().replace(b",", b" ,\t").replace(b":{", b" : \r{ ") + b" \r",
    b'{ "payload" : {"a" : 1, "aa" : 2, "ab" : 3} , "kind" : "chat" , "correlation_id" : [ "a" , "b" ] ,'
    b' "from" : "a" , "ts" : "2026-01-31T12:00:00.000001+00:00" , "id" : "~ !" , "protocol" : "mew/v0.4" }',
    encoded(payload={"token_count": 3}, kind="reasoning/thought", context="plan/step é"),
    # MCPx and m3p
    encoded(payload=call(), protocol="mcpx/v0.1", kind="mcp/request:tools/call:write_file", to=["bob"]),
    encoded(payload={}, protocol="mcpx/v0.1", kind="mcp/response:tools/list", correlation_id="e0"),
    encoded(payload=call(), protocol="mcpx/v0.1", kind="mcp.request.tools/call:write_file", context="a"),
)

# Pieces that have meaning somewhere: structure, escapes, members, numbers at the edges.
_TOKENS: tuple[bytes, ...] = tuple(
    token.encode() if isinstance(token, str) else token
    for token in (
        *'{}[]:,"\\/.# \r\t\n0-+eEZ', "\0", "\x7f", '""', "{}", "[]", "null", "true", "nul", "-0", "00", "1.",
        "1e5", "0.1", "123456789012345", "1234567890123456", "NaN", "Infinity", ',"a":1', '"a":1,', '"a" :1,',
        ',"b":{}', '"\\u0061":1,', ',"id":"e2"', '"kind":"chat",', ',"kind" :"chat"', ',"to":[]',
        '"to":["a"],', ',"payload":{}', ',"context":"c"', '"correlation_id":"a",', "\\", "\\\\", '\\"',
        "\\u0000", "\\ud800", "\\ud83d\\ude00", "\\uDFFF", "\\u00", "\\x", "\u0085", "\u2028", "é", "😀",
        "\ufeff", "+00:00", ".5", ".1234567890123456", "mew/v0.3", "chat", TS, b"\xff", b"\xc0\xaf",
        b"\xed\xa0\x80", b"\xc3", b"[" * 25, b'{"a":' * 25, b"," + b'"a",' * 33, b"x" * 257,
    )
)  # fmt: skip

_VALUES: tuple[bytes, ...] = tuple(
    value.encode()
    for value in (
        '""', '"a"', '"b"', '"id"', '"é"', '" "', '"\\n"', '"\\\\"', '"\\u00e9"', '"\\ud800"', '"\\uD7FF"',
        '"\x7f"', "0", "-0", "-1", "0.5", "00", "1.", "-", "1e5", "9" * 15, "9" * 16, "-" + "9" * 15 + ".5",
        "null", "true", "false", "nul", "[]", "{}", "[ ]", "{ }", '{"a":1}', '{"a":1,"b":2}', '{"a":1,"a":1}',
        "[1,2]", "[1,]", '["a" , "b"]', "[[[]]]", "[" * 23 + "]" * 23, "[" * 22 + "]" * 22,
        "{" + ",".join(f'"k{each}":{each}' for each in range(24)) + "}",
        "{" + ",".join(f'"k{each}":{each}' for each in range(25)) + "}",
    )
)  # fmt: skip


def run_scan_envelope_soak(cases: int, seed: int) -> str:
    """Runs that many cases and says how they went; raises AssertionError on the first violation."""
    output = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes(cases, seed).items()))
    return f"scan_envelope soak: {cases} cases from seed {seed}: {output}"


def outcomes(cases: int, seed: int) -> Counter[str]:
    """What became of that many cases; raises AssertionError on the first violation."""
    random = Random(seed)
    counted: Counter[str] = Counter()
    for _ in range(cases):
        raw = mutated(random)
        try:
            counted[check_case(raw)] += 1
        except BaseException as fault:
            raise AssertionError(f"seed {seed}, {raw!r}: {fault!r}") from fault
    return counted


def mutated(random: Random) -> bytes:
    """An ordinary envelope after one to three mishaps."""
    raw = bytearray(random.choice(SEEDS))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        match random.randrange(12):
            case 0:
                _double_a_member(random, raw)
            case 1:
                # Between two tokens more is taken than elsewhere, so that is where most edges are.
                at = raw.find(
                    random.choice((b'"', b",", b":", b"{", b"}", b"[", b"]")), random.randrange(len(raw) + 1)
                )
                raw[at + 1 : at + 1] = random.choice(_TOKENS)
            case 2 | 3:
                # Harmless nearly everywhere.
                at = random.randrange(len(raw) + 1)
                raw[at:at] = random.choice((b" ", b"\r", b"\t", b"7", b"x", "é".encode()))
            case 4 | 5:
                _change_a_value(random, raw)
            case _:
                mutate(random, raw, _TOKENS, random.choice(SEEDS))
    return bytes(raw)


def _double_a_member(random: Random, raw: bytearray) -> None:
    """What stands between two commas stands somewhere else as well."""
    commas = [at for at, byte in enumerate(raw) if byte == ord(",")]
    if len(commas) > 1:
        one = random.randrange(len(commas) - 1)
        copy = raw[commas[one] : commas[one + 1]]
        at = random.choice(commas)
        raw[at:at] = copy


def _change_a_value(random: Random, raw: bytearray) -> None:
    """Behind a colon or a comma stands something else, mostly in the payload."""
    start = raw.find(b'"payload"') if random.random() < 0.8 else -1
    at = random.choice([place for place, byte in enumerate(raw) if byte in b":," and place > start] or [0])
    rest = re.compile(rb'\s*("[^"]*"|[^",:{}\[\]]+)').match(raw, at + 1)
    if rest is not None:
        raw[rest.start() : rest.end()] = random.choice(_VALUES)


def read_ordinary(raw: bytes, dialect: DialectName) -> Envelope | None:
    """As the scanner reads it whatever its kind, which stands between two quotes."""
    kinds = [each.decode(errors="replace") for each in raw.split(b'"')]
    return read_envelope(raw, dialect, {kind: (kind, None) for kind in kinds})


def check_case(raw: bytes) -> str:
    """Every rule for one text; answers what became of it."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        assert read_ordinary(raw, "mew") is read_ordinary(raw, "mcpx") is None
        return "no text"
    _check_plain(raw)
    found = read_ordinary(raw, "mew") or read_ordinary(raw, "mcpx")
    if found is None:
        return "not ordinary"
    # The fast path knows only kinds and senders that are not empty, so none may be found empty.
    assert all((found.id, found.ts, found.sender, found.kind))
    assert read_envelope(raw, found.dialect, {}) is None
    assert b"\n" not in raw, "a record of the journal is one line"
    fields = strict_json.parse(raw)
    assert fields == orjson.loads(raw)
    assert fields.keys() - OPTIONAL == MEMBERS
    if fields["protocol"] == MEW.protocol:
        careful = [_decode_carefully(raw)]
        assert read_ordinary(raw, "mcpx") is None
    else:
        careful = [_decode_carefully(raw, dialect) for dialect in (MCPX, M3P)]
    for envelope in careful:
        if envelope is not None:
            meant = {envelope.wire_kind: (envelope.kind, envelope.claim)}
            assert read_envelope(raw, envelope.dialect, meant) == envelope
            assert fingerprint_of(envelope) == fingerprint_of_bytes(raw)
            dialect = MEW if envelope.dialect == "mew" else MCPX if envelope.dialect == "mcpx" else M3P
            # Twice, since kinds of these are kept.
            assert dialect.decode(raw) == dialect.decode(raw) == envelope
    return "ordinary" if any(careful) else "left to the caller"


def _check_plain(raw: bytes) -> None:
    """Of an accepted text both say the same; nothing else is asked about."""
    with suppress(InvalidJson):
        strict_json.parse(raw)
        assert is_plain(raw) == strict_json.is_plain_in_python(raw)


def fingerprint_of_bytes(raw: bytes) -> str:
    """The fingerprint of an accepted envelope by the careful way alone."""
    payload = fingerprint_decoder.decode(raw.decode())["payload"]
    body = {"method": payload.get("method"), "params": payload.get("params", {})}
    return sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _decode_carefully(raw: bytes, legacy: LegacyDialect | None = None) -> Envelope | None:
    """What the careful way reads; None where it refuses, which has to be for the kind."""
    try:
        return (decode_slow if legacy is None else legacy.decode_slow)(raw, DEFAULT_LIMITS, frozenset())
    except InvalidEnvelope as fault:
        if not str(fault).startswith("kind "):
            raise
        return None
