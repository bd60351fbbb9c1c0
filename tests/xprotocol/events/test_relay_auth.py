"""Proofs for relays: one key, one relay, one connection, one moment."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import UnverifiedEvent, UsageError
from moot.xprotocol.events.relay_auth import prove, proven_key, relay_address
from tests.rows import for_each_row
from tests.xprotocol.people import ALICE, EVE, NOW, call

RELAY = "wss://relay.example"
HERE = (relay_address(RELAY),)


def test_a_proof_proves_the_key_that_made_it() -> None:
    proof = prove(ALICE, "wss://RELAY.example:443/", "challenge", now=NOW)
    assert proven_key(proof, relays=HERE, challenge="challenge", now=NOW + 299) == ALICE.key.text


@for_each_row(
    ("reason", "change"),
    [
        ("challenge", {"challenge": "other"}),
        ("relay", {"relay": "wss://other.example:443"}),
        ("signature", {"sender": EVE.key.text}),
        ("signature", {"timestamp": NOW - 1}),
        ("signature", {"signature": "ed25519:AAAA"}),
        ("signature", {"signature": call().event.signature}),
        ("malformed", {"extra": 1}),
        ("malformed", {"timestamp": 1.5}),
        ("malformed", {"kind": "xp.relay.other"}),
        ("key", {"sender": "ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}),
    ],
)
def test_whatever_is_changed_in_a_proof_makes_it_void(reason: str, change: dict[str, object]) -> None:
    proof = orjson.loads(prove(ALICE, RELAY, "challenge", now=NOW)) | change
    with pytest.raises(UnverifiedEvent) as refusal:
        proven_key(orjson.dumps(proof), relays=HERE, challenge="challenge", now=NOW)
    assert refusal.value.reason == reason


@pytest.mark.parametrize("now", [NOW - 301, NOW + 301])
def test_a_proof_is_good_for_minutes(now: int) -> None:
    with pytest.raises(UnverifiedEvent, match="clock"):
        proven_key(prove(ALICE, RELAY, "c", now=NOW), relays=HERE, challenge="c", now=now)


@given(st.binary(max_size=300))
def test_whatever_comes_proves_a_key_or_is_unverified(raw: bytes) -> None:
    with pytest.raises(UnverifiedEvent):
        proven_key(raw, relays=HERE, challenge="c", now=NOW)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://localhost", "ws://localhost:80"),
        ("wss://Relay.Example/", "wss://relay.example:443"),
        ("ws://[::1]:8765/xp/", "ws://[::1]:8765/xp"),
        ("wss://relay.example:443/?a=b", "wss://relay.example:443"),
    ],
)
def test_an_address_has_one_spelling(url: str, address: str) -> None:
    assert relay_address(url) == address
    assert relay_address(address) == address


@pytest.mark.parametrize(
    "url", ["", "relay.example", "https://relay.example", "ws://", "ws://a:b@c", "ws://a:x"]
)
def test_what_is_no_address_of_a_relay_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="relay"):
        relay_address(url)
