"""A long random walk around the decoders: `make soak` runs millions of steps, the tests a few thousand.

Each case takes good envelopes apart, or makes JSON or bytes from nothing, and lets one dialect read them.
What must hold is in the `_check_…` functions, one rule each; the first violation ends the walk with the
bytes that caused it.
"""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from random import Random

from moot.errors import InvalidEnvelope, KindPayloadMismatch, MalformedEnvelope
from moot.protocol.agreement import check_agreement
from moot.protocol.dialects import DIALECTS, Dialect
from moot.protocol.dialects.mcpx import LegacyDialect
from moot.protocol.dialects.mew import decode_slow
from moot.protocol.dialects.translation import CAPABILITY_LISTS, CHAT_FORMATS, operation_for_copy
from moot.protocol.envelope import DEFAULT_LIMITS, Envelope, fill_missing
from moot.protocol.frames import is_frame, read_frame
from moot.protocol.kinds import KINDS, OPERATION_KINDS, is_reserved
from moot.protocol.operation import Json, Operation
from tests.protocol.corpus import REFUSALS, SEEDS, TS
from tests.protocol.mutations import mutate

_DIALECTS: tuple[Dialect, ...] = tuple(DIALECTS.values())
_ASKED = Operation("resources/read", "file:///a:b.c")

# Pieces that have meaning somewhere: separators, members, kinds, numbers at the edges of types.
_TOKENS: tuple[bytes, ...] = tuple(
    token.encode() if isinstance(token, str) else token
    for token in (
        *'{}[]:,"\\/.# \n\t0-+eE',
        '""', "{}", "[]", "null", "true", "-0", "1e999", "1E5", "0.1", "9007199254740993",
        "18446744073709551616", "NaN", '"kind":', '"to":', '"payload":{}', ',"id":"e2"',
        '"correlation_id":"a"', '"x_correlation_ids":["a"]',
        "\\u0000", "\\ud800", "\\udc00", "\\u006b", "\\/", "\x7f", "\u0085", "\u2028", "é", "😀",
        b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"[" * 70, b'{"a":' * 70,
        ":tools/call", ":unknown", "mcpx.ext.", ".proposal", ".markdown", "mcp/request", "mcp.request.",
        "system",
    )
)  # fmt: skip

_KIND_PARTS = (
    *KINDS, "mcp", "mcpx", "chat", "message", "text", "markdown", "request", "response", "proposal",
    "withdraw", "ext", "system", "presence", "tools/call", "tools/list", "unknown", "read_file",
    "file:///a:b.c", "a", "ü", "", *"/.:/.:", " ", "\u200b", "*",
)  # fmt: skip

_VALUES: tuple[Json, ...] = (
    None, True, 0, -1, 1.5, 10**30, "", "a", "ü", "a\nb", "\x7f", TS, "2026-02-29T00:00:00Z", "x" * 300,
    [], ["a"], ["a", "b"], [1], [[]], {}, {"a": 1}, {"method": "tools/call", "params": {"name": "a"}},
    "mew/v0.4", "mcpx/v0.1", "tools/call", "tools/list", "read_file", {"name": "read_file"},
    {"ref": {"uri": "u"}},
)  # fmt: skip

_MEMBERS = (
    "protocol", "id", "ts", "from", "to", "kind", "correlation_id", "context", "payload",
    "x_correlation_ids", "x_origin", "extra",
)  # fmt: skip


def run_decoder_soak(cases: int, seed: int) -> str:
    """Runs that many cases and says how they went; raises AssertionError on the first violation."""
    random = Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(cases):
        dialect = random.choice(_DIALECTS)
        raw = _made(random, dialect)
        try:
            outcomes[check_case(dialect, raw)] += 1
        except BaseException as fault:
            raise AssertionError(f"seed {seed}, {dialect.name}, {raw!r}: {fault!r}") from fault
    output = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    return f"decoder soak: {cases} cases from seed {seed}: {output}"


# How cases are made.


def _made(random: Random, dialect: Dialect) -> bytes:
    match random.randrange(9):
        case 0:
            return random.randbytes(random.randrange(64))
        case 8:
            return _with_other_time(random, dialect)
        case 1:
            return _from_tokens(random)
        case 2 | 3:
            return _with_other_values(random, dialect)
        case 4:
            return _with_other_kind(random, dialect)
        case _:
            return _mutated(random, dialect)


def _from_tokens(random: Random) -> bytes:
    return b"".join(random.choice(_TOKENS) for _ in range(random.randrange(1, 12)))


def _seed_of(random: Random, dialect: Dialect) -> bytes:
    # Now and then another dialect's envelope, or one that is bad already.
    if random.random() < 0.1:
        return random.choice(REFUSALS).raw[:2000]
    name = dialect.name if random.random() < 0.9 else random.choice(_DIALECTS).name
    return random.choice(SEEDS[name])


def _with_other_values(random: Random, dialect: Dialect) -> bytes:
    fields = json.loads(random.choice(SEEDS[dialect.name]))
    for _ in range(random.randrange(1, 3)):
        place = fields if random.random() < 0.6 else fields.get("payload")
        if not isinstance(place, dict):
            place = fields
        name = random.choice(_MEMBERS if place is fields else ("method", "params", "format", "capabilities"))
        if random.random() < 0.2:
            place.pop(name, None)
        else:
            place[name] = deepcopy(random.choice(_VALUES))
    return _written(random, fields)


def _with_other_kind(random: Random, dialect: Dialect) -> bytes:
    fields = json.loads(random.choice(SEEDS[dialect.name]))
    fields["kind"] = "".join(random.choice(_KIND_PARTS) for _ in range(random.randrange(1, 6)))
    if random.random() < 0.3 and isinstance(fields.get("payload"), dict):
        fields["payload"]["method"] = "".join(
            random.choice(_KIND_PARTS) for _ in range(random.randrange(1, 3))
        )
    return _written(random, fields)


def _with_other_time(random: Random, dialect: Dialect) -> bytes:
    fields = json.loads(random.choice(SEEDS[dialect.name]))
    ts = list(random.choice((TS, "2026-02-28T23:59:59.999Z", "0001-12-29T00:00:00.000+01:00")))
    for _ in range(random.randrange(3)):
        at = random.randrange(len(ts))
        ts[at : at + random.randrange(3)] = random.choice("0123456789-:TtZz.,+W ") * random.randrange(3)
    fields["ts"] = "".join(ts)
    return _written(random, fields)


def _written(random: Random, fields: dict[str, Json]) -> bytes:
    if random.random() < 0.2:
        names = list(fields)
        random.shuffle(names)
        fields = {name: fields[name] for name in names}
    ascii_only = random.random() < 0.2
    separators = (", ", ": ") if random.random() < 0.2 else (",", ":")
    return json.dumps(fields, ensure_ascii=ascii_only, separators=separators).encode()


def _mutated(random: Random, dialect: Dialect) -> bytes:
    raw = bytearray(_seed_of(random, dialect))
    for _ in range(random.randrange(1, 4)):
        mutate(random, raw, _TOKENS, _seed_of(random, dialect))
    return bytes(raw)


# What must hold.


def check_case(dialect: Dialect, raw: bytes) -> str:
    """Every rule for one message; answers what became of it."""
    _check_frame(raw)
    try:
        outcome: Envelope | MalformedEnvelope = dialect.decode(raw)
    except MalformedEnvelope as refusal:
        outcome = refusal
    _check_careful_way(dialect, raw, outcome)
    if isinstance(outcome, MalformedEnvelope):
        assert outcome.message
        return outcome.code
    envelope = outcome
    _check_same_value(dialect, envelope)
    envelope = _check_completion(dialect, envelope)
    if is_reserved(envelope.kind):
        return "reserved"  # the space refuses it, so nobody gets a copy
    agrees = _agrees(envelope, None) and _agrees(envelope, _ASKED)
    for other in _DIALECTS:
        if other is not dialect:
            _check_copy(envelope, dialect, other, agrees)
    return "accepted"


def _check_frame(raw: bytes) -> None:
    if is_frame(raw):
        try:
            frame = read_frame(raw, binary=True, max_bytes=1 << 20)
        except InvalidEnvelope:
            return
        assert frame.raw == f"#{frame.stream_id}#".encode() + frame.data


def _check_careful_way(dialect: Dialect, raw: bytes, expected: Envelope | MalformedEnvelope) -> None:
    """The quick way of a decoder never differs from the careful one."""
    careful = dialect.decode_slow if isinstance(dialect, LegacyDialect) else decode_slow
    try:
        slowly: Envelope | MalformedEnvelope = careful(raw, DEFAULT_LIMITS, frozenset())
    except MalformedEnvelope as refusal:
        slowly = refusal
    if isinstance(expected, MalformedEnvelope):
        assert isinstance(slowly, MalformedEnvelope)
        assert (slowly.code, str(slowly)) == (expected.code, str(expected))
    else:
        assert slowly == expected


def _check_same_value(dialect: Dialect, envelope: Envelope) -> None:
    """Another reader of the bytes that are passed on sees what was checked, and nothing twice."""
    fields = json.loads(envelope.raw, object_pairs_hook=_unique, parse_constant=_no_constant)
    assert fields["kind"] == envelope.wire_kind
    assert fields.get("payload", {}) == envelope.payload
    for name, value in (("id", envelope.id), ("ts", envelope.ts), ("from", envelope.sender)):
        assert (name not in fields) == (name in envelope.missing)
        assert fields.get(name, "") == value
    assert list(fields.get("to", ())) == list(envelope.to)
    assert fields.get("context") == envelope.context
    if dialect.name == "mew":
        assert list(fields.get("correlation_id", ())) == list(envelope.correlation_id)
    elif "correlation_id" in fields:
        assert envelope.correlation_id[0] == fields["correlation_id"]


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def _no_constant(name: str) -> Json:
    raise AssertionError(name)


def _check_completion(dialect: Dialect, envelope: Envelope) -> Envelope:
    """D-05: filling in leaves every given byte where it was."""
    whole = fill_missing(envelope, protocol=dialect.protocol, id="filled", ts=TS, sender="filler")
    assert whole.raw.startswith(envelope.raw.rstrip(b" \t\r\n")[:-1])
    again = dialect.decode(whole.raw)
    assert again == whole
    assert not again.missing
    return whole


def _agrees(envelope: Envelope, asked: Operation | None) -> bool:
    try:
        check_agreement(envelope, asked=asked)
    except KindPayloadMismatch:
        return False
    return True


def _check_copy(envelope: Envelope, dialect: Dialect, other: Dialect, agrees: bool) -> None:
    """Whatever another dialect is told means the same there, or it is told nothing."""
    raw = other.encode(envelope, operation=_ASKED, proposer="proposer")
    if raw is None:
        assert other.name != "mew"
        return
    copy = other.decode(raw)
    assert not copy.missing
    assert (copy.kind, copy.id, copy.ts, copy.sender) == (
        envelope.kind,
        envelope.id,
        envelope.ts,
        envelope.sender,
    )
    assert list(copy.correlation_id) == list(envelope.correlation_id)
    assert copy.context == envelope.context
    assert list(copy.to)[: len(envelope.to)] == list(envelope.to)
    assert set(copy.to) - set(envelope.to) <= {"proposer"}
    if envelope.kind in CAPABILITY_LISTS:
        assert copy.payload.keys() == envelope.payload.keys()
    elif envelope.wire_kind in CHAT_FORMATS:
        assert dict(envelope.payload) | {"format": copy.payload["format"]} == copy.payload
    else:
        assert copy.payload == envelope.payload
    members = json.loads(raw)
    assert members["x_origin"] == {"protocol": dialect.protocol, "kind": envelope.wire_kind}
    if other.name != "mew":
        if envelope.kind in OPERATION_KINDS:
            answer = operation_for_copy(envelope, _ASKED)
            assert copy.claim is not None
            assert copy.claim.method == answer.method
            assert copy.claim.context in (None, answer.context)
        if agrees and (dialect.name != "mew" or envelope.correlation_id):
            assert _agrees(copy, _ASKED)
    back = dialect.encode(copy, operation=_ASKED)
    # A kind that the payload contradicts has no way back through MEW, where there is only the payload.
    assert back is not None or not agrees
    assert back is None or dialect.decode(back).kind == envelope.kind
