"""HPKE, and what binds a ciphertext to its event."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import cryptography_vectors
import orjson
import pytest
import rfc8785
from cryptography.hazmat.bindings._rust import openssl
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import SchemaViolation
from moot.xprotocol.events.event_composer import _SUITE, INFO_LABEL, content_hash, open_payload, seal
from moot.xprotocol.events.event_receiver import Accepted, Dropped, EventRejected
from moot.xprotocol.events.events import SIGNED_LABEL, SignedDirected, check_times, decode, verify_event
from moot.xprotocol.identity.keys import Identity, OpeningKey, RetiredKey, SigningKey
from tests.rows import for_each_row
from tests.xprotocol.people import (
    ALICE,
    BOB,
    CAROL,
    EVE,
    KIND,
    NOW,
    PAYLOAD,
    ReceivingEndpoint,
    call,
    signed_by,
)

HERE = Path(__file__).parent
VECTORS = Path(cryptography_vectors.__file__).parent


def read(raw: bytes) -> SignedDirected:
    signed = decode(raw)
    assert isinstance(signed, SignedDirected)
    return signed


def test_the_suite_is_the_one_of_rfc_9180() -> None:
    """Its vector for base mode, X25519, HKDF-SHA256 and ChaCha20-Poly1305."""
    cases = [
        case
        for case in json.loads((VECTORS / "HPKE/test-vectors.json").read_bytes())
        if (case["mode"], case["kem_id"], case["kdf_id"], case["aead_id"]) == (0, 0x20, 1, 3)
    ]
    assert len(cases) == 1
    for case in cases:
        info, enc = bytes.fromhex(case["info"]), bytes.fromhex(case["enc"])
        key = OpeningKey(bytes.fromhex(case["skRm"]))
        assert key.public.raw == bytes.fromhex(case["pkRm"])
        # The others are later messages of one context; an event is always the first of its own.
        first = case["encryptions"][0]
        opened = openssl.hpke._decrypt_with_aad(
            _SUITE, enc + bytes.fromhex(first["ct"]), key.point, info, bytes.fromhex(first["aad"])
        )
        assert opened == bytes.fromhex(first["pt"])


def vectors() -> list[Path]:
    """Our own event, and the shared one where it is at hand."""
    shared = Path(os.environ.get("MOOT_SHARED_DATA", HERE.parents[3] / "shared" / "data"))
    return [path for path in (HERE / "event_vector.json", shared / "xp1-event-vector.json") if path.exists()]


@pytest.mark.parametrize("path", vectors(), ids=lambda path: path.name)
def test_an_event_made_elsewhere_verifies_and_opens(path: Path) -> None:
    """Made with PyNaCl, rfc8785 and another HPKE, not with this code."""
    vector: dict[str, Any] = json.loads(path.read_bytes())
    bob = Identity(
        SigningKey(bytes.fromhex(vector["bob_ed25519_seed_hex"])),
        OpeningKey(bytes.fromhex(vector["bob_x25519_hex"])),
    )
    alice = SigningKey(bytes.fromhex(vector["alice_ed25519_seed_hex"]))
    signed = read(orjson.dumps(vector["event"]))
    assert (signed.event.sender, signed.event.recipient) == (alice.public.text, bob.key.text)
    check_times(signed.event, vector["now"])
    verify_event(signed)
    assert open_payload(signed, bob) == vector["plaintext"]
    assert SIGNED_LABEL + rfc8785.dumps(signed.covered) == bytes.fromhex(vector["signing_bytes_hex"])
    header = {name: signed.covered[name] for name in signed.covered.keys() - {"payload", "content_hash"}}
    assert INFO_LABEL + rfc8785.dumps(header) == bytes.fromhex(vector["hpke_info_hex"])


@pytest.mark.requirement("XP-2.2-10", "XP-2.1-2", "XP-11.1-10")
def test_only_the_recipient_opens_a_payload_and_nobody_reads_it_on_the_way() -> None:
    signed = read(call(payload={"path": "a very particular name"}).raw)
    assert b"particular" not in signed.raw
    assert open_payload(signed, BOB) == {"path": "a very particular name"}
    for other in (ALICE, CAROL, EVE):
        with pytest.raises(SchemaViolation):
            open_payload(signed, other)


@pytest.mark.requirement("XP-5.1-2")
def test_a_payload_sealed_for_another_key_does_not_open() -> None:
    """Neither under that key's name nor under ours."""
    header = {
        name: value for name, value in call().covered.items() if name not in ("payload", "content_hash")
    }
    sealed, digest = seal(orjson.dumps(PAYLOAD), header, CAROL.enc_key)
    mislabelled = header | {"payload": sealed, "content_hash": digest}
    named = mislabelled | {"enc_key": CAROL.enc_key.text}
    for covered, words in ((mislabelled, "does not open"), (named, "not ours")):
        signed = read(signed_by(ALICE, covered))
        verify_event(signed)
        with pytest.raises(SchemaViolation, match=words):
            open_payload(signed, BOB)


def test_what_was_sealed_before_a_rotation_still_opens() -> None:
    rotated = Identity(BOB.signing, OpeningKey(bytes(range(32))), (RetiredKey(BOB.opening, NOW),))
    assert open_payload(read(call().raw), rotated) == PAYLOAD
    forgotten = Identity(BOB.signing, OpeningKey(bytes(range(32))))
    with pytest.raises(SchemaViolation, match="not ours"):
        open_payload(read(call().raw), forgotten)


def test_a_ciphertext_signed_anew_by_somebody_else_does_not_open() -> None:
    """Eve cannot have Bob take Alice's request for hers, and so show her the answer."""
    stolen = call().covered
    theirs = stolen | {"sender": EVE.key.text, "sender_enc_key": EVE.enc_key.text}
    endpoint = ReceivingEndpoint()
    outcome = endpoint.receiver.receive(signed_by(EVE, theirs), NOW)
    assert isinstance(outcome, EventRejected)
    assert (outcome.fault.code, outcome.event.sender) == ("SCHEMA_VIOLATION", EVE.key.text)
    # Alice's own goes through all the same.
    assert isinstance(endpoint.receiver.receive(call().raw, NOW), Accepted)


def test_an_event_handed_on_to_somebody_else_is_not_taken() -> None:
    """Bob cannot pass Alice's words to Carol as if they were said to her."""
    carol = ReceivingEndpoint(identity=CAROL)
    assert carol.receiver.receive(call().raw, NOW) == Dropped("recipient", "for somebody else")
    answer = orjson.loads(call().raw) | {"recipient": CAROL.key.text, "enc_key": CAROL.enc_key.text}
    outcome = carol.receiver.receive(orjson.dumps(answer), NOW)
    assert isinstance(outcome, Dropped)
    assert outcome.reason == "id"


@for_each_row(
    ("member", "value"),
    [
        ("kind", "com.acme.filesystem.delete_file"),
        ("timestamp", NOW - 1),
        ("expires_at", NOW + 3601),
        ("nonce", "A" * 22),
        ("correlation_id", "c-2"),
        ("correlation_id", None),
        ("in_reply_to", "0" * 64),
        ("delegation", "0" * 64),
        ("sender_enc_key", EVE.enc_key.text),
    ],
)
def test_every_member_of_the_header_is_bound_to_the_ciphertext(member: str, value: Any) -> None:
    """Even the sender cannot put an old ciphertext into a new event."""
    signed = read(signed_by(ALICE, call().covered | {member: value}))
    verify_event(signed)
    with pytest.raises(SchemaViolation, match="does not open"):
        open_payload(signed, BOB)


def test_a_payload_that_does_not_fit_its_hash_or_its_spelling_is_not_opened() -> None:
    covered = call().covered
    for change, words in (
        ({"content_hash": content_hash(b"other")}, "content_hash"),
        ({"content_hash": "sha512:" + covered["content_hash"][7:]}, "content_hash"),
        ({"content_hash": covered["content_hash"].upper()}, "content_hash"),
        ({"payload": covered["payload"] + "="}, "base64url"),
        ({"payload": covered["payload"] + "\n"}, "base64url"),
        ({"payload": ""}, "content_hash"),
        ({"payload": "", "content_hash": "sha256:" + sha256(b"").hexdigest()}, "does not open"),
        ({"payload": "AA", "content_hash": "sha256:" + sha256(b"\0").hexdigest()}, "does not open"),
    ):
        signed = read(signed_by(ALICE, covered | change))
        verify_event(signed)
        with pytest.raises(SchemaViolation, match=words):
            open_payload(signed, BOB)


@for_each_row(
    "plaintext",
    [
        b"",
        b"{",
        b'{"a":1,"a":2}',
        b"\xff",
        b'"\\ud800"',
        b"[" * 100,
        b"[" * 65 + b"]" * 65,
        b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
    ],
)
def test_a_plaintext_that_two_readers_read_differently_is_refused(plaintext: bytes) -> None:
    header = {
        name: value for name, value in call().covered.items() if name not in ("payload", "content_hash")
    }
    sealed, digest = seal(plaintext, header, BOB.enc_key)
    signed = read(signed_by(ALICE, header | {"payload": sealed, "content_hash": digest}))
    with pytest.raises(SchemaViolation, match="not JSON"):
        open_payload(signed, BOB)


def test_the_same_payload_never_looks_the_same_twice() -> None:
    one, other = call(nonce=bytes(16)), call(nonce=bytes(16))
    assert one.covered["payload"] != other.covered["payload"]
    assert one.event.id != other.event.id


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.text(max_size=20) | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        max_size=5,
    )
)
def test_whatever_is_sealed_opens_to_the_same(payload: dict[str, Any]) -> None:
    try:
        json.dumps(payload, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    signed = read(call(payload=payload, kind=KIND).raw)
    verify_event(signed)
    assert open_payload(signed, BOB) == payload
