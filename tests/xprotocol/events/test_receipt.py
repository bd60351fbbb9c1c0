"""The order of checks: what is dropped in silence, what is answered, and what is never touched (D-76)."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import EventFault
from moot.protocol import base64url
from moot.xprotocol.events.access_rights import Access, AuthorizedCaller, grant
from moot.xprotocol.events.delegation import delegate
from moot.xprotocol.events.event_composer import open_payload, publish, reply, reply_fault
from moot.xprotocol.events.event_receiver import (
    EXPIRED_ANSWERED_SECONDS,
    Accepted,
    Dropped,
    EventRejected,
    KindTerms,
    PublicReceived,
)
from moot.xprotocol.events.events import (
    MAX_EVENT_BYTES,
    SIGNED_LABEL,
    SKEW_SECONDS,
    canonical_header,
    decode,
    verify_event,
)
from moot.xprotocol.events.key_statements import read_revocation
from moot.xprotocol.events.replay import ReplayCache
from moot.xprotocol.events.revocation import Revocations, revoke
from moot.xprotocol.identity.keys import Identity
from tests.rows import for_each_row
from tests.xprotocol.identity import curve
from tests.xprotocol.people import (
    ALICE,
    BOB,
    CAPABILITY,
    CAROL,
    EVE,
    KIND,
    NOW,
    PAYLOAD,
    ReceivingEndpoint,
    call,
    signed_by,
)

ENDED = NOW + 3600 + SKEW_SECONDS


def fault_of(outcome: object) -> str:
    assert isinstance(outcome, EventRejected), outcome
    return outcome.fault.code


def reason_of(outcome: object) -> str:
    assert isinstance(outcome, Dropped), outcome
    return outcome.reason


@pytest.mark.requirement("XP-5.1-5", "XP-8.1-1")
def test_arguments_and_results_are_the_same_at_both_ends() -> None:
    request = call(payload=PAYLOAD | {"odd": [1, 2.5, None, True, "\u2028", {"deep": [[]]}, 2**60]})
    bob, alice = ReceivingEndpoint(), ReceivingEndpoint(identity=ALICE, waiting=[request.event])
    taken = bob.receiver.receive(request.raw, NOW)
    assert isinstance(taken, Accepted)
    assert taken.payload == PAYLOAD | {"odd": [1, 2.5, None, True, "\u2028", {"deep": [[]]}, 2**60]}
    assert (taken.event, taken.caller) == (request.event, AuthorizedCaller(ALICE.key.text))
    result = {"content": "# Read me", "encoding": "utf-8", "mimeType": "text/markdown"}
    answer = reply(BOB, taken.event, KIND + ".result", result, now=NOW)
    outcome = alice.receiver.receive(answer.raw, NOW)
    assert isinstance(outcome, Accepted)
    assert outcome.payload == result


@pytest.mark.requirement("XP-5.1-1", "XP-11.1-8")
def test_a_tampered_event_is_dropped_before_anything_is_asked_or_opened() -> None:
    """Not even the sender's rate is touched: it would be somebody else's."""
    endpoint = ReceivingEndpoint()
    members = json.loads(call().raw)
    for name, value in (
        ("kind", "com.acme.filesystem.delete_file"),
        ("payload", members["payload"][:-4] + "AAAA"),
        ("content_hash", "sha256:" + "0" * 64),
        ("signature", "ed25519:" + "A" * 86),
        ("id", "0" * 64),
        ("nonce", "A" * 22),
    ):
        assert isinstance(endpoint.receiver.receive(orjson.dumps(members | {name: value}), NOW), Dropped)
    unsigned = {name: value for name, value in members.items() if name != "signature"}
    assert reason_of(endpoint.receiver.receive(orjson.dumps(unsigned), NOW)) == "malformed"
    assert (endpoint.counted, len(endpoint.seen_ids)) == ([], 0)


def steps() -> list[tuple[str, str]]:
    """What is wrong with an event, in the order of checks, and what comes of it."""
    return [
        ("size", "malformed"),
        ("json", "malformed"),
        ("types", "malformed"),
        ("recipient", "recipient"),
        ("future", "future"),
        ("id", "id"),
        ("signature", "signature"),
        ("revoked", "REVOKED"),
        ("too fast", "RATE_LIMITED"),
        ("expired", "EXPIRED"),
        ("hash", "SCHEMA_VIOLATION"),
        ("sealed", "SCHEMA_VIOLATION"),
        ("kind", "NOT_FOUND"),
        ("capability", "AUTHORIZATION_INSUFFICIENT"),
        ("schema", "SCHEMA_VIOLATION"),
    ]


def spoilt(faults: set[str]) -> tuple[ReceivingEndpoint, bytes, float]:
    """An event with all of these faults, and an office that minds them."""
    endpoint = ReceivingEndpoint()
    sender, recipient, now = ALICE, BOB, float(NOW)
    options: dict[str, Any] = {}
    if "capability" in faults:
        sender = CAROL
    if "recipient" in faults:
        recipient = EVE
    if "kind" in faults:
        options["kind"] = "com.acme.filesystem.unknown"
    if "schema" in faults:
        options["payload"] = {"encoding": "utf-8"}
    if "revoked" in faults:
        endpoint.access.revocations.add(read_revocation(revoke(sender, sender.key.text, now=NOW)))
    if "too fast" in faults:
        endpoint.waits[sender.key.text] = 2.5
    if "expired" in faults:
        now = ENDED
    if "future" in faults:
        options["now"] = now + 10_000
    covered = call(sender, recipient, **options).covered
    if "sealed" in faults:
        covered = covered | {"correlation_id": "another"}
    if "hash" in faults:
        covered = covered | {"content_hash": "sha256:" + "0" * 64}
    members = orjson.loads(signed_by(sender, covered))
    if "signature" in faults:
        members["signature"] = "ed25519:" + "A" * 86
    if "id" in faults:
        members["id"] = "0" * 64
    if "types" in faults:
        members["timestamp"] = "now"
    raw = orjson.dumps(members)
    if "json" in faults:
        raw = raw[:-1]
    if "size" in faults:
        raw += b" " * MAX_EVENT_BYTES
    return endpoint, raw, now


@for_each_row("place", range(len(steps())))
def test_the_first_fault_decides_and_alone_does_the_same(place: int) -> None:
    """Every check fails with all later ones failing too, and none of them is heard of."""
    fault, expected = steps()[place]
    later = {name for name, _ in steps()[place + 1 :]}
    for faults in ({fault}, {fault, *later}):
        # An event cannot be made in the future and be over, too.
        if "future" in faults and fault != "future":
            faults -= {"future"}
        # A flood of a revoked key is not answered at all.
        if fault == "revoked":
            faults -= {"too fast"}
        endpoint, raw, now = spoilt(faults)
        outcome = endpoint.receiver.receive(raw, now)
        found = outcome.reason if isinstance(outcome, Dropped) else fault_of(outcome)
        assert found == expected, faults


def test_what_passes_all_checks_fails_none() -> None:
    endpoint, raw, now = spoilt(set())
    assert isinstance(endpoint.receiver.receive(raw, now), Accepted)


def test_an_unknown_kind_is_answered_not_found() -> None:
    assert (
        fault_of(ReceivingEndpoint().receiver.receive(call(kind="com.acme.nothing").raw, NOW)) == "NOT_FOUND"
    )


def test_the_second_coming_of_an_event_is_dropped() -> None:
    """The same event may come by two relays; a replay by an attacker looks the same."""
    endpoint, raw = ReceivingEndpoint(), call().raw
    assert isinstance(endpoint.receiver.receive(raw, NOW), Accepted)
    assert reason_of(endpoint.receiver.receive(raw, NOW)) == "seen"
    # Spaced differently it is still the same event.
    assert reason_of(endpoint.receiver.receive(json.dumps(json.loads(raw)).encode(), NOW + 3600)) == "seen"
    assert endpoint.counted == [ALICE.key.text]


def test_a_second_signature_does_not_make_a_second_event() -> None:
    """Whoever holds the key can sign the same event with another nonce; only ids tell events apart."""
    endpoint, first = ReceivingEndpoint(), call()
    scalar = curve.scalar_of(ALICE.signing.secret())
    message = SIGNED_LABEL + canonical_header(first.covered)
    signature, _ = curve.signature(scalar, ALICE.key.raw, message, nonce=123_456_789)
    other = "ed25519:" + base64url.encode(signature)
    second = orjson.dumps(orjson.loads(first.raw) | {"signature": other})
    assert second != first.raw
    verify_event(decode(second))
    assert isinstance(endpoint.receiver.receive(first.raw, NOW), Accepted)
    assert reason_of(endpoint.receiver.receive(second, NOW)) == "seen"


def test_no_moment_lets_a_replay_through() -> None:
    """From the first second an event is good to the last one it is answered in."""
    endpoint, raw = ReceivingEndpoint(), call().raw
    assert isinstance(endpoint.receiver.receive(raw, NOW - SKEW_SECONDS), Accepted)
    for moment in range(NOW - SKEW_SECONDS, ENDED + EXPIRED_ANSWERED_SECONDS + 50, 7):
        # Others come and go, so that old ids are forgotten.
        endpoint.receiver.receive(call(CAROL, now=moment, ttl=1).raw, moment)
        assert reason_of(endpoint.receiver.receive(raw, moment)) in ("seen", "expired")
    # And with the clock set back.
    assert reason_of(endpoint.receiver.receive(raw, NOW)) == "seen"


def test_when_no_more_ids_can_be_kept_events_are_refused() -> None:
    endpoint = ReceivingEndpoint(seen_ids=ReplayCache(limit=1))
    assert isinstance(endpoint.receiver.receive(call().raw, NOW), Accepted)
    outcome = endpoint.receiver.receive(call().raw, NOW)
    assert fault_of(outcome) == "ENDPOINT_UNAVAILABLE"
    assert isinstance(outcome, EventRejected)
    assert outcome.fault.retry_after is not None
    assert outcome.fault.retry_after > 0


def test_an_event_that_was_too_fast_may_come_again() -> None:
    endpoint, raw = ReceivingEndpoint(), call().raw
    endpoint.waits[ALICE.key.text] = 1.5
    outcome = endpoint.receiver.receive(raw, NOW)
    assert fault_of(outcome) == "RATE_LIMITED"
    assert isinstance(outcome, EventRejected)
    assert outcome.fault.retry_after == 1.5
    endpoint.waits.clear()
    assert isinstance(endpoint.receiver.receive(raw, NOW + 2), Accepted)


def test_replays_do_not_use_up_the_victims_rate() -> None:
    endpoint, raw = ReceivingEndpoint(), call().raw
    for _ in range(5):
        endpoint.receiver.receive(raw, NOW)
    assert endpoint.counted == [ALICE.key.text]


def test_an_event_that_just_expired_is_told_once_and_an_old_one_never() -> None:
    endpoint, raw = ReceivingEndpoint(), call().raw
    assert fault_of(endpoint.receiver.receive(raw, ENDED)) == "EXPIRED"
    assert reason_of(endpoint.receiver.receive(raw, ENDED)) == "seen"
    assert reason_of(endpoint.receiver.receive(call().raw, ENDED + EXPIRED_ANSWERED_SECONDS)) == "expired"
    # Without so much as a look at the signature.
    forged = orjson.dumps(orjson.loads(call().raw) | {"signature": "ed25519:"})
    assert reason_of(endpoint.receiver.receive(forged, ENDED + EXPIRED_ANSWERED_SECONDS)) == "expired"
    assert reason_of(endpoint.receiver.receive(forged, ENDED)) == "signature"


@pytest.mark.parametrize(("ttl", "kept"), [(3600 - EXPIRED_ANSWERED_SECONDS, 1), (3600, 2)])
def test_an_event_that_just_expired_is_told_though_others_are_forgotten(ttl: int, kept: int) -> None:
    endpoint, later = ReceivingEndpoint(), ENDED + 15
    endpoint.receiver.receive(call(CAROL, ttl=ttl).raw, NOW)
    endpoint.receiver.receive(call(CAROL, now=later).raw, later)
    assert len(endpoint.seen_ids) == kept
    assert fault_of(endpoint.receiver.receive(call().raw, later)) == "EXPIRED"


def test_a_revoked_key_is_told_once_an_event_and_not_in_a_flood() -> None:
    endpoint, raw = ReceivingEndpoint(), call().raw
    endpoint.access.revocations.add(read_revocation(revoke(ALICE, ALICE.key.text, now=NOW)))
    assert fault_of(endpoint.receiver.receive(raw, NOW)) == "REVOKED"
    assert reason_of(endpoint.receiver.receive(raw, NOW)) == "seen"
    endpoint.waits[ALICE.key.text] = 1.0
    assert reason_of(endpoint.receiver.receive(call().raw, NOW)) == "revoked"


@pytest.mark.requirement("XP-5.2-5")
def test_an_answer_counts_only_from_whom_the_request_was_for() -> None:
    request = call()
    alice = ReceivingEndpoint(identity=ALICE, access=Access(own_key=ALICE.key.text), waiting=[request.event])
    answer = reply(BOB, request.event, KIND + ".result", {"content": "yes"}, now=NOW)
    forged = orjson.loads(answer.raw)
    forged["signature"] = "ed25519:" + "A" * 86
    assert reason_of(alice.receiver.receive(orjson.dumps(forged), NOW)) == "signature"
    eves = reply(EVE, request.event, KIND + ".result", {"content": "no"}, now=NOW)
    assert reason_of(alice.receiver.receive(eves.raw, NOW)) == "unexpected"
    outcome = alice.receiver.receive(answer.raw, NOW)
    assert isinstance(outcome, Accepted)
    assert (outcome.payload, outcome.event.in_reply_to) == ({"content": "yes"}, request.event.id)


def test_answers_that_were_asked_for_are_not_too_many() -> None:
    """Whoever asks a thousand things of one endpoint must hear a thousand answers."""
    request = call()
    alice = ReceivingEndpoint(identity=ALICE, waiting=[request.event], waits={BOB.key.text: 1.0})
    answer = reply(BOB, request.event, KIND + ".result", {}, now=NOW)
    assert isinstance(alice.receiver.receive(answer.raw, NOW), Accepted)
    assert alice.counted == []
    unasked = reply(BOB, call().event, KIND + ".result", {}, now=NOW)
    assert reason_of(alice.receiver.receive(unasked.raw, NOW)) == "answer"
    assert alice.counted == [BOB.key.text]


def test_answers_are_never_answered() -> None:
    """Or two endpoints that disagree would go on for ever."""
    alice = ReceivingEndpoint(identity=ALICE, access=Access(own_key=ALICE.key.text))
    request = call().event
    for event in (
        reply(BOB, request, KIND + ".result", {}, now=NOW),
        reply_fault(BOB, request, EventFault("no"), now=NOW),
        call(BOB, ALICE, kind="xp.error"),
    ):
        for now in (NOW, ENDED):
            assert isinstance(alice.receiver.receive(event.raw, now), Dropped)
    alice.waits[BOB.key.text] = 1.0
    assert isinstance(alice.receiver.receive(reply(BOB, request, KIND, {}, now=NOW).raw, NOW), Dropped)


@pytest.mark.requirement("XP-5.1-9")
def test_whoever_is_refused_can_read_why_and_nobody_else_can() -> None:
    request = call(CAROL)
    endpoint = ReceivingEndpoint()
    outcome = endpoint.receiver.receive(request.raw, NOW)
    assert isinstance(outcome, EventRejected)
    answer = reply_fault(BOB, outcome.event, outcome.fault, now=NOW)
    assert b"AUTHORIZATION" not in answer.raw
    carol = ReceivingEndpoint(identity=CAROL, waiting=[request.event])
    received = carol.receiver.receive(answer.raw, NOW)
    assert isinstance(received, Accepted)
    assert received.payload == {
        "code": "AUTHORIZATION_INSUFFICIENT",
        "message": f"this needs the capability {CAPABILITY}",
        "in_reply_to": request.event.id,
    }


def test_proofs_are_taken_out_of_the_payload_before_the_contract_sees_it() -> None:
    proof = orjson.loads(grant(BOB, CAROL.key.text, [CAPABILITY], ends=NOW + 99, now=NOW).raw)
    endpoint = ReceivingEndpoint()
    seen: list[Any] = []
    endpoint.kinds[KIND] = KindTerms(CAPABILITY, lambda payload: seen.append(dict(payload)))
    outcome = endpoint.receiver.receive(call(CAROL, payload=PAYLOAD | {"proofs": [proof]}).raw, NOW)
    assert isinstance(outcome, Accepted)
    assert outcome.payload == PAYLOAD
    assert seen == [PAYLOAD]


@pytest.mark.parametrize("proofs", ["text", [], {}, None, [1], [{"v": "xp1"}], ["xp.capability.grant"]])
def test_an_argument_that_is_only_called_proofs_stays_an_argument(proofs: Any) -> None:
    outcome = ReceivingEndpoint().receiver.receive(call(payload=PAYLOAD | {"proofs": proofs}).raw, NOW)
    assert isinstance(outcome, Accepted)
    assert outcome.payload == PAYLOAD | {"proofs": proofs}


def test_a_contract_with_proofs_of_its_own_keeps_them() -> None:
    proof = orjson.loads(grant(BOB, CAROL.key.text, [CAPABILITY], ends=NOW + 99, now=NOW).raw)
    endpoint = ReceivingEndpoint()
    endpoint.kinds[KIND] = KindTerms(CAPABILITY, own_proofs=True)
    payload = PAYLOAD | {"proofs": [proof]}
    outcome = endpoint.receiver.receive(call(payload=payload).raw, NOW)
    assert isinstance(outcome, Accepted)
    assert outcome.payload == payload
    assert (
        fault_of(endpoint.receiver.receive(call(CAROL, payload=payload).raw, NOW))
        == "AUTHORIZATION_INSUFFICIENT"
    )


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def test_the_context_of_a_trace_is_taken_out_and_gives_no_right() -> None:
    endpoint = ReceivingEndpoint()
    outcome = endpoint.receiver.receive(call(payload=PAYLOAD | {"_meta": TRACE}).raw, NOW)
    assert isinstance(outcome, Accepted)
    assert (outcome.payload, outcome.trace) == (PAYLOAD, TRACE)
    refused = endpoint.receiver.receive(call(CAROL, payload=PAYLOAD | {"_meta": TRACE}).raw, NOW)
    assert fault_of(refused) == "AUTHORIZATION_INSUFFICIENT"


@pytest.mark.parametrize("meta", ["text", {}, None, [1], {"traceparent": 1}, TRACE | {"other": "x"}])
def test_any_other_meta_is_an_argument(meta: Any) -> None:
    outcome = ReceivingEndpoint().receiver.receive(call(payload=PAYLOAD | {"_meta": meta}).raw, NOW)
    assert isinstance(outcome, Accepted)
    assert (outcome.payload, outcome.trace) == (PAYLOAD | {"_meta": meta}, None)


def test_a_contract_with_meta_of_its_own_keeps_it() -> None:
    endpoint = ReceivingEndpoint()
    endpoint.kinds[KIND] = KindTerms(CAPABILITY, own_meta=True)
    outcome = endpoint.receiver.receive(call(payload=PAYLOAD | {"_meta": TRACE}).raw, NOW)
    assert isinstance(outcome, Accepted)
    assert outcome.payload == PAYLOAD | {"_meta": TRACE}


@pytest.mark.parametrize("payload", [[], "text", 5, [PAYLOAD]])
def test_a_request_whose_payload_is_no_object_is_refused(payload: Any) -> None:
    assert (
        fault_of(ReceivingEndpoint().receiver.receive(call(payload=payload).raw, NOW)) == "SCHEMA_VIOLATION"
    )


def test_kinds_that_ask_for_no_capability_are_for_everybody() -> None:
    endpoint = ReceivingEndpoint()
    endpoint.kinds["xp.schema.describe"] = KindTerms(None)
    outcome = endpoint.receiver.receive(
        call(EVE, kind="xp.schema.describe", payload={"intent": "x"}).raw, NOW
    )
    assert isinstance(outcome, Accepted)
    assert outcome.caller == AuthorizedCaller(EVE.key.text)


def test_public_events_are_heard_as_often_as_they_come_and_never_answered() -> None:
    endpoint = ReceivingEndpoint()
    announce = publish(CAROL, "xp.endpoint.announce", {"display_name": "C"}, now=NOW)
    for _ in range(2):
        outcome = endpoint.receiver.receive(announce.raw, NOW)
        assert isinstance(outcome, PublicReceived)
        assert outcome.signed.event == announce.event
    assert endpoint.counted == []
    assert reason_of(endpoint.receiver.receive(announce.raw, ENDED)) == "expired"
    forged = orjson.loads(announce.raw)
    forged["payload"]["display_name"] = "D"
    assert reason_of(endpoint.receiver.receive(orjson.dumps(forged), NOW)) == "id"
    given_away = delegate(CAROL, EVE.key.text, ["com.acme.x"], ends=NOW + 10**6, now=NOW)
    assert isinstance(endpoint.receiver.receive(given_away.raw, NOW + 10**5), PublicReceived)


def test_what_a_revoked_key_states_is_not_heard() -> None:
    endpoint = ReceivingEndpoint()
    own = revoke(CAROL, CAROL.key.text, now=NOW)
    outcome = endpoint.receiver.receive(own.raw, NOW)
    assert isinstance(outcome, PublicReceived)
    endpoint.access.revocations.add(read_revocation(outcome.signed))
    later = publish(CAROL, "xp.endpoint.announce", {}, now=NOW)
    assert reason_of(endpoint.receiver.receive(later.raw, NOW)) == "revoked"


def test_answers_are_opened_with_an_older_key_too_but_not_with_anothers() -> None:
    request = call()
    answer = reply(BOB, request.event, KIND + ".result", {"n": 1}, now=NOW)
    assert open_payload(answer, ALICE) == {"n": 1}
    stranger = Identity(ALICE.signing, CAROL.opening)
    endpoint = ReceivingEndpoint(identity=stranger, waiting=[request.event])
    assert reason_of(endpoint.receiver.receive(answer.raw, NOW)) == "answer"


@given(st.binary(max_size=200), st.floats(allow_nan=False))
def test_whatever_arrives_whenever_nothing_is_raised(raw: bytes, now: float) -> None:
    assert isinstance(ReceivingEndpoint().receiver.receive(raw, now), Dropped)


def test_config_may_revoke_keys_outright() -> None:
    endpoint = ReceivingEndpoint(
        access=Access(
            own_key=BOB.key.text,
            access={ALICE.key.text: frozenset({CAPABILITY})},
            revocations=Revocations([ALICE.key.text]),
        )
    )
    assert fault_of(endpoint.receiver.receive(call().raw, NOW)) == "REVOKED"
