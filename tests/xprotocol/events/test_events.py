"""Events: who made them, and everything that is not one."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import VerifyKey as NaclVerifyKey

from moot.errors import EventExpired, InvalidKey, MalformedEvent, UnverifiedEvent, UsageError
from moot.protocol import base64url
from moot.xprotocol.events.event_composer import answers, compose, open_payload, publish, reply, reply_fault
from moot.xprotocol.events.events import (
    MAX_EVENT_BYTES,
    MAX_LIFETIME_SECONDS,
    MAX_PUBLIC_EVENT_BYTES,
    MAX_PUBLIC_VALUES,
    PUBLIC_KINDS,
    SIGNED_LABEL,
    SKEW_SECONDS,
    SignedDirected,
    SignedPublic,
    canonical_json,
    check_times,
    decode,
    verify_event,
)
from moot.xprotocol.events.faults import fault
from moot.xprotocol.identity.keys import is_valid_signature
from tests.rows import for_each_row
from tests.xprotocol.events.event_soak import run_event_soak
from tests.xprotocol.identity import curve
from tests.xprotocol.people import ALICE, BOB, CAROL, EVE, KIND, NOW, PAYLOAD, call, signed_by

ANNOUNCE = "xp.endpoint.announce"


def announce(**more: Any) -> SignedPublic:
    return publish(ALICE, ANNOUNCE, {"display_name": "Acme", "mcp_sources": []}, **{"now": NOW} | more)


@pytest.mark.requirement("XP-2.2-9", "XP-6.1-2", "XP-11.1-9")
def test_whatever_is_made_verifies_under_its_sender_by_other_means_too() -> None:
    for signed in (call(), announce(), reply(BOB, call().event, KIND + ".result", {}, now=NOW)):
        verify_event(decode(signed.raw))
        covered = {k: v for k, v in json.loads(signed.raw).items() if k not in ("id", "signature")}
        canonical = canonical_json(covered)
        assert signed.event.id == sha256(canonical).hexdigest()
        key = base64url.decode(signed.event.sender.removeprefix("ed25519:"))
        signature = base64url.decode(signed.event.signature.removeprefix("ed25519:"))
        NaclVerifyKey(key).verify(SIGNED_LABEL + canonical, signature)


@pytest.mark.requirement("XP-5.2-2", "XP-5.2-3")
def test_a_call_goes_from_one_key_to_another_sealed_and_signed() -> None:
    signed = decode(call(delegation="ab" * 32).raw)
    assert isinstance(signed, SignedDirected)
    event = signed.event
    assert (event.v, event.kind) == ("xp1", KIND)
    assert (event.sender, event.recipient) == (ALICE.key.text, BOB.key.text)
    assert (event.sender_enc_key, event.enc_key) == (ALICE.enc_key.text, BOB.enc_key.text)
    assert (event.correlation_id, event.in_reply_to, event.delegation) == ("c-1", None, "ab" * 32)
    assert len(base64url.decode(event.nonce)) == 16
    assert event.enc == "HPKE-Base-X25519-SHA256-ChaCha20Poly1305"
    verify_event(signed)
    assert open_payload(signed, BOB) == PAYLOAD


@pytest.mark.requirement("XP-3.1-8")
def test_an_event_lives_for_an_hour_or_as_long_as_it_is_told() -> None:
    assert call(now=NOW + 0.9).event.timestamp == NOW
    assert call().event.expires_at == NOW + 3600
    assert call(ttl=5).event.expires_at == NOW + 5
    assert announce(ttl=MAX_LIFETIME_SECONDS).event.expires_at == NOW + 86_400
    for ttl in (0, -1, MAX_LIFETIME_SECONDS + 1):
        with pytest.raises(UsageError, match="lives for"):
            call(ttl=ttl)


@pytest.mark.requirement("XP-5.1-7", "XP-5.1-9")
def test_an_answer_is_for_the_caller_alone_and_belongs_to_its_request() -> None:
    request = call().event
    answer = reply(BOB, request, KIND + ".result", {"content": "text"}, now=NOW)
    assert answer.event.kind == KIND + ".result"
    assert (answer.event.sender, answer.event.recipient) == (BOB.key.text, ALICE.key.text)
    assert answer.event.enc_key == request.sender_enc_key
    assert (answer.event.in_reply_to, answer.event.correlation_id) == (request.id, "c-1")
    assert open_payload(answer, ALICE) == {"content": "text"}
    assert answers(answer.event, request)
    for other in (BOB, CAROL, EVE):
        assert _opens(answer, other) is None


def _opens(signed: SignedDirected, identity: Any) -> Any:
    try:
        return open_payload(signed, identity)
    except Exception:  # noqa: BLE001
        return None


def test_an_answer_by_somebody_else_or_about_something_else_is_none() -> None:
    request, kind = call().event, KIND + ".result"
    assert not answers(reply(EVE, request, kind, {}, now=NOW).event, request)
    assert not answers(reply(BOB, call().event, kind, {}, now=NOW).event, request)
    assert not answers(reply(BOB, request, "com.acme.other.result", {}, now=NOW).event, request)
    assert not answers(reply(BOB, request, KIND, {}, now=NOW).event, request)
    for change in ({"correlation_id": "c-2"}, {"correlation_id": None}, {"recipient": CAROL}):
        options: dict[str, Any] = {"correlation_id": "c-1", "recipient": ALICE} | change
        other = call(BOB, kind=kind, in_reply_to=request.id, **options)
        assert not answers(other.event, request)


def test_a_fault_is_told_in_an_xp_error() -> None:
    request = call().event
    answer = reply_fault(BOB, request, fault("RATE_LIMITED", retry_after=1.5), now=NOW)
    assert answer.event.kind == "xp.error"
    assert answers(answer.event, request)
    assert open_payload(answer, ALICE) == {
        "code": "RATE_LIMITED",
        "message": "Rate limit exceeded",
        "in_reply_to": request.id,
        "retry_after": 1.5,
    }
    answer = reply_fault(BOB, request, EventExpired("too late"), now=NOW)
    assert open_payload(answer, ALICE) == {
        "code": "EXPIRED",
        "message": "too late",
        "in_reply_to": request.id,
    }


@pytest.mark.requirement("XP-11.1-10")
def test_events_with_a_recipient_are_sealed_and_public_ones_are_of_fixed_kinds() -> None:
    """D-70."""
    for kind in PUBLIC_KINDS:
        assert isinstance(decode(publish(ALICE, kind, {"any": 1.5}, now=NOW).raw), SignedPublic)
        with pytest.raises(UsageError, match="public"):
            call(kind=kind)
    with pytest.raises(UsageError, match="not public"):
        publish(ALICE, KIND, {}, now=NOW)
    assert orjson.loads(announce().raw)["payload"] == {"display_name": "Acme", "mcp_sources": []}
    # And nobody else can make one, signed or not.
    open_call = announce().covered | {"kind": KIND}
    sealed_announce = call().covered | {"kind": ANNOUNCE}
    unsealed_call = announce().covered | {"kind": KIND, "recipient": BOB.key.text}
    for covered in (open_call, sealed_announce, unsealed_call):
        with pytest.raises(MalformedEvent):
            decode(signed_by(ALICE, covered))


@for_each_row(
    ("options", "error"),
    [
        ({"kind": ""}, UsageError),
        ({"kind": "k" * 257}, UsageError),
        ({"kind": "a\nb"}, UsageError),
        ({"correlation_id": ""}, UsageError),
        ({"correlation_id": "c" * 257}, UsageError),
        ({"in_reply_to": "5"}, UsageError),
        ({"delegation": "X" * 64}, UsageError),
        ({"nonce": bytes(15)}, UsageError),
        ({"payload": {"text": "x" * MAX_EVENT_BYTES}}, UsageError),
    ],
)
def test_what_nobody_would_accept_is_not_sent(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call(**options)


def test_bad_keys_are_not_sent_to() -> None:
    for recipient, enc_key in ((BOB.enc_key.text, BOB.enc_key.text), (BOB.key.text, BOB.key.text), ("", "")):
        with pytest.raises(InvalidKey):
            compose(ALICE, KIND, {}, recipient=recipient, enc_key=enc_key, now=NOW)


def test_a_public_payload_that_has_no_canonical_form_or_is_too_large_is_not_sent() -> None:
    with pytest.raises(UsageError, match="cannot be sent"):
        publish(ALICE, ANNOUNCE, {"n": 2**60}, now=NOW)
    with pytest.raises(UsageError, match="8192 values"):
        publish(ALICE, ANNOUNCE, {"n": [0] * MAX_PUBLIC_VALUES}, now=NOW)
    with pytest.raises(UsageError, match="the most"):
        publish(ALICE, ANNOUNCE, {"text": "x" * MAX_PUBLIC_EVENT_BYTES}, now=NOW)


def test_times_have_bounds() -> None:
    """xp1: timestamp ≤ now + 300 s, now < expires_at + 300 s, lifetime ≤ 24 h."""
    event = call().event
    check_times(event, NOW - SKEW_SECONDS)
    with pytest.raises(UnverifiedEvent, match="future"):
        check_times(event, NOW - SKEW_SECONDS - 1)
    check_times(event, NOW + 3600 + SKEW_SECONDS - 1)
    with pytest.raises(EventExpired):
        check_times(event, NOW + 3600 + SKEW_SECONDS)
    for lifetime in (0, -1, MAX_LIFETIME_SECONDS + 1):
        odd = decode(signed_by(ALICE, call().covered | {"expires_at": NOW + lifetime}))
        with pytest.raises(UnverifiedEvent, match="lifetime"):
            check_times(odd.event, NOW)


def test_statements_are_read_after_their_journey_and_announcements_are_not() -> None:
    later = NOW + 10 * MAX_LIFETIME_SECONDS
    for kind in PUBLIC_KINDS - {ANNOUNCE}:
        check_times(publish(ALICE, kind, {}, now=NOW).event, later)
    with pytest.raises(EventExpired):
        check_times(announce().event, later)


ALTERNATIVES: dict[str, list[Any]] = {
    "v": ["xp2", "XP1", "", None, 1],
    "kind": ["com.acme.filesystem.write_file", KIND + " ", "", "xp.error", ANNOUNCE, None, 5],
    "sender": [BOB.key.text, EVE.key.text, ALICE.enc_key.text, "ed25519:" + "A" * 43, "", None],
    "recipient": [CAROL.key.text, ALICE.key.text, BOB.enc_key.text, "", None],
    "timestamp": [NOW + 1, NOW - 1, 0, -1, str(NOW), None, True, 2**53, 2**70],
    "expires_at": [NOW + 3601, NOW + 86_400, NOW, 0, -1, 1.5, str(NOW), None, False, 2**53],
    "nonce": ["A" * 22, "A" * 21, "A" * 23, "", None, 5],
    "correlation_id": ["c-2", "", None, 5, "c-1 "],
    "sender_enc_key": [EVE.enc_key.text, ALICE.key.text, "x25519:" + "A" * 43, "", None],
    "enc": ["HPKE-Base-P256-SHA256-AES128GCM", "none", "", None],
    "enc_key": [ALICE.enc_key.text, BOB.key.text, "x25519:" + "A" * 43, "", None],
    "payload": ["", "AAAA", {}, [], None, 5],
    "content_hash": ["sha256:" + "0" * 64, "", None, 5],
    "id": ["0" * 64, "", None, 5],
    "signature": ["ed25519:" + "A" * 86, "ed25519:", "", None, 5],
    "in_reply_to": ["0" * 64, "5", 5],
    "delegation": ["0" * 64, "5", 5],
    "extra": ["unknown", None],
}


def refused(raw: bytes) -> bool:
    """Whether nobody would take this for an event of its sender."""
    try:
        verify_event(decode(raw))
    except UnverifiedEvent:
        return True
    return False


def rehashed(members: dict[str, Any]) -> dict[str, Any]:
    """With an id that fits, as everybody can make it."""
    covered = {name: value for name, value in members.items() if name not in ("id", "signature")}
    try:
        return members | {"id": sha256(canonical_json(covered)).hexdigest()}
    except MalformedEvent:
        return members


@pytest.mark.requirement("XP-11.1-8", "XP-5.1-1")
def test_no_member_can_be_changed_left_out_or_added() -> None:
    for members in (json.loads(call().raw), json.loads(announce().raw)):
        assert not refused(json.dumps(members).encode())
        changed = []
        for name, values in ALTERNATIVES.items():
            # null is another way to leave an optional member out, but not after signing.
            changed += [
                members | {name: value} for value in values if name not in members or members[name] != value
            ]
            if name in members:
                changed.append({each: members[each] for each in members if each != name})
        assert len(changed) > 70
        for each in changed:
            assert refused(json.dumps(each).encode()), each
            if each.get("id") == members["id"]:
                assert refused(json.dumps(rehashed(each)).encode()), each


@pytest.mark.parametrize(
    "name", ["id", "signature", "payload", "content_hash", "nonce", "sender", "recipient"]
)
def test_not_one_character_of_a_member_can_be_changed(name: str) -> None:
    members = json.loads(call().raw)
    text = members[name]
    for place in range(len(text)):
        for other in {"A", "g", "0", "-", "=", "+", " ", "é"} - {text[place]}:
            spoilt = members | {name: text[:place] + other + text[place + 1 :]}
            assert refused(orjson.dumps(spoilt)), (place, other)
            if name not in ("id", "signature") and place % 8 == 0:
                assert refused(orjson.dumps(rehashed(spoilt))), (place, other)


@given(st.integers(min_value=0), st.integers(0, 7))
def test_not_one_bit_of_the_bytes_can_be_flipped(place: int, bit: int) -> None:
    raw = bytearray(FIXED)
    raw[place % len(raw)] ^= 1 << bit
    assert refused(bytes(raw))


FIXED = call().raw


@pytest.mark.requirement("XP-11.3-8")
def test_the_signature_of_another_key_or_event_does_not_hold() -> None:
    members, other = json.loads(call().raw), json.loads(call().raw)
    assert refused(json.dumps(members | {"signature": other["signature"]}).encode())
    theirs = json.loads(signed_by(EVE, call().covered))
    assert refused(json.dumps(theirs).encode())
    # Signed without the label, as something else could have been.
    canonical = canonical_json({k: v for k, v in members.items() if k not in ("id", "signature")})
    bare = "ed25519:" + base64url.encode(ALICE.signing.sign(canonical))
    assert refused(json.dumps(members | {"signature": bare}).encode())


def test_other_spellings_of_a_signature_are_refused() -> None:
    members = json.loads(call().raw)
    signature = members["signature"]
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    stray = signature[:-1] + last[last.index(signature[-1]) + 1]
    for spelling in (
        signature + "=",
        signature + "==",
        signature + "\n",
        signature[8:],
        stray,
        " " + signature,
    ):
        with pytest.raises(UnverifiedEvent):
            verify_event(decode(orjson.dumps(members | {"signature": spelling})))


@pytest.mark.parametrize("spelling", [b"1780000000.0", b"1.78e9", b"1780000000e0"])
def test_a_time_spelt_as_a_fraction_is_refused_though_it_has_the_same_canonical_form(spelling: bytes) -> None:
    raw = call().raw.replace(b'"timestamp":1780000000', b'"timestamp":' + spelling)
    assert spelling in raw
    with pytest.raises(MalformedEvent, match="timestamp"):
        decode(raw)


def test_null_in_an_optional_member_is_as_good_as_none() -> None:
    covered = call(correlation_id=None).covered
    assert "correlation_id" not in covered
    signed = decode(
        signed_by(ALICE, covered | {"correlation_id": None, "in_reply_to": None, "delegation": None})
    )
    verify_event(signed)
    assert (signed.event.correlation_id, signed.event.in_reply_to, signed.event.delegation) == (None,) * 3
    public = decode(signed_by(ALICE, announce().covered | {"recipient": None}))
    verify_event(public)
    assert isinstance(public, SignedPublic)


def test_members_that_stand_twice_are_refused() -> None:
    raw = call().raw
    for name, value in json.loads(raw).items():
        twice = raw[:-1] + b"," + orjson.dumps(name) + b":" + orjson.dumps(value) + b"}"
        with pytest.raises(MalformedEvent, match="duplicate"):
            decode(twice)


@pytest.mark.parametrize("key", [1, 2**255 - 20, 0, 2**255 - 19, 2**255 - 18])
def test_senders_of_small_order_are_refused_though_a_signature_could_fit(key: int) -> None:
    sender = "ed25519:" + base64url.encode(key.to_bytes(32, "little"))
    covered = call().covered | {"sender": sender}
    canonical = canonical_json(covered)
    forged = covered | {
        "id": sha256(canonical).hexdigest(),
        "signature": "ed25519:" + base64url.encode((1).to_bytes(32, "little") + bytes(32)),
    }
    with pytest.raises(UnverifiedEvent):
        verify_event(decode(orjson.dumps(forged)))


@for_each_row("member", ["sender_enc_key", "enc_key"])
@for_each_row("key", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 + 9])
def test_x25519_keys_of_small_order_or_odd_spelling_are_refused_in_an_event(member: str, key: int) -> None:
    """Answers are sealed for `sender_enc_key` without another look."""
    text = "x25519:" + base64url.encode(key.to_bytes(32, "little"))
    with pytest.raises(MalformedEvent, match=member):
        decode(signed_by(ALICE, call().covered | {member: text}))


def test_a_sender_outside_the_main_subgroup_is_refused_though_the_library_lets_it_sign() -> None:
    """A key plus a point of order 8: every eighth signature of it holds, for some verifiers more."""
    scalar = curve.scalar_of(ALICE.signing.secret())
    torsion = next(point for point in curve.small_order_points() if curve.times(4, point) != curve.NEUTRAL)
    raw_key = curve.encoded(curve.add(curve.decoded(ALICE.key.raw), torsion))
    covered = call().covered | {"sender": "ed25519:" + base64url.encode(raw_key)}
    message = SIGNED_LABEL + canonical_json(covered)
    for nonce in range(1, 1_000):
        signature, challenge = curve.signature(scalar, raw_key, message, nonce)
        # Reduced as a verifier does it: then the point of order 8 falls out of the equation.
        if challenge % curve.ORDER % 8 == 0:
            break
    assert is_valid_signature(raw_key, message, signature)
    members = covered | {
        "id": sha256(message[len(SIGNED_LABEL) :]).hexdigest(),
        "signature": "ed25519:" + base64url.encode(signature),
    }
    with pytest.raises(UnverifiedEvent, match="main subgroup") as refused_event:
        verify_event(decode(orjson.dumps(members)))
    assert refused_event.value.reason == "key"


@for_each_row(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b'"xp1"',
        b"{}",
        b"{",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"[" * 200_000,
        b'{"recipient":' + b"[" * 200_000,
        b'{"payload":' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}",
        b" " * (MAX_EVENT_BYTES + 1),
        b'{"recipient":"\\ud800"}',
        b'{"recipient":"x","timestamp":1e400}',
    ],
)
def test_bytes_that_are_no_event_are_refused_as_such(raw: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode(raw)


def test_size_has_bounds() -> None:
    raw = call(payload={"text": "x" * 700_000}).raw
    assert len(raw) < MAX_EVENT_BYTES
    verify_event(decode(raw))
    with pytest.raises(MalformedEvent, match="the most"):
        decode(raw + b" " * (MAX_EVENT_BYTES - len(raw) + 1))
    with pytest.raises(MalformedEvent, match="public event of"):
        decode(signed_by(ALICE, announce().covered | {"payload": {"t": "x" * MAX_PUBLIC_EVENT_BYTES}}))


def test_a_public_payload_of_many_small_values_is_refused_before_it_costs_anything() -> None:
    most = MAX_PUBLIC_VALUES - 2
    taken: list[Any] = [{"n": [0] * most}, {str(n): 0 for n in range(most)}, {"n": [[0]] * (most // 2)}]
    for payload in taken:
        verify_event(decode(publish(ALICE, ANNOUNCE, payload, now=NOW).raw))
    refused: list[Any] = [
        {"n": [0] * (most + 1)},
        {str(n): 0 for n in range(most + 2)},
        {"n": [{"a": 0}] * most},
    ]
    for payload in refused:
        with pytest.raises(MalformedEvent, match="8192 values"):
            decode(signed_by(ALICE, announce().covered | {"payload": payload}))


def test_a_deep_public_payload_is_refused() -> None:
    deep: Any = {}
    for _ in range(80):
        deep = {"a": deep}
    with pytest.raises(MalformedEvent, match="deeper"):
        decode(signed_by(ALICE, announce().covered | {"payload": deep}))


@given(
    st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_whatever_the_bytes_they_are_an_event_or_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode(raw)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(ALTERNATIVES)), json_values, min_size=1, max_size=4))
def test_whatever_stands_in_the_members_nothing_else_is_raised(change: dict[str, Any]) -> None:
    members = json.loads(FIXED) | change
    if members == json.loads(FIXED):
        return
    assert refused(json.dumps(members).encode())


@given(
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=40).filter(
        lambda kind: kind.isprintable() and kind not in PUBLIC_KINDS
    ),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    st.integers(0, 2**40),
    st.integers(1, MAX_LIFETIME_SECONDS),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), st.integers(), max_size=4),
)
def test_whatever_can_be_made_arrives(
    kind: str, correlation_id: str | None, now: int, ttl: int, payload: dict[str, Any]
) -> None:
    made = call(kind=kind, correlation_id=correlation_id, now=now, ttl=ttl, payload=payload)
    read = decode(made.raw)
    assert isinstance(read, SignedDirected)
    assert read == made
    check_times(read.event, now)
    verify_event(read)
    assert open_payload(read, BOB) == payload


def test_three_thousand_spoilt_events_are_dropped() -> None:
    """`make soak` tries more."""
    assert run_event_soak(3_000, seed=1).startswith("3,000 spoilt events dropped")
