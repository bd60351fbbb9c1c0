"""Keys that prove nothing, and keys that have two spellings."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_sign_seed_keypair

from moot.errors import InvalidKey
from moot.protocol import base64url
from moot.xprotocol.identity.keys import (
    SMALL_ORDER_U,
    SMALL_ORDER_Y,
    SealingKey,
    SigningKey,
    VerifyKey,
    check_sealing_point,
    check_signing_point,
    check_signing_point_fully,
    sealing_key,
    sealing_point,
    signing_point,
    verify_key,
)
from tests.rows import for_each_row
from tests.xprotocol.identity import curve
from tests.xprotocol.identity.curve import P

SMALL = curve.small_order_points()

# Every 32 bytes that a lenient decoder takes for a point of small order: the eight themselves, x = 0 with
# its sign set, and y + p for the two y that are small enough, with both signs.
SMALL_ORDER_ED25519 = sorted(
    {curve.encoded(point) for point in SMALL}
    | {(y | sign << 255).to_bytes(32, "little") for y in (1, P - 1, P, P + 1) for sign in (0, 1)}
)
# The same for X25519: u of each, u + p where that fits, and the highest bit, which is ignored.
SMALL_ORDER_X25519 = sorted(
    {
        (u + more | top << 255).to_bytes(32, "little")
        for u in SMALL_ORDER_U
        for more in (0, P)
        if u + more < 2**255
        for top in (0, 1)
    }
)


def test_there_are_eight_points_of_small_order_and_we_list_each_of_them() -> None:
    """Found by arithmetic of our own, not copied from a list."""
    assert len(set(SMALL)) == 8
    assert {y for _, y in SMALL} == SMALL_ORDER_Y
    # u = (1 + y) / (1 - y); the neutral point has none and stands for u = 0 on the ladder.
    mapped = {(1 + y) * pow(1 - y, -1, P) % P for _, y in SMALL if y != 1}
    assert mapped <= SMALL_ORDER_U
    # The rest of the list, u = -1, lies on the twist.
    assert SMALL_ORDER_U - mapped == {P - 1}


def test_each_listed_x25519_key_makes_every_shared_secret_zero() -> None:
    """What makes them dangerous: `cryptography` itself refuses the exchange, but takes the key."""
    secret = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    for raw in SMALL_ORDER_X25519:
        with pytest.raises(ValueError):
            secret.exchange(X25519PublicKey.from_public_bytes(raw))


def test_a_key_of_small_order_lets_one_signature_hold_for_every_message_elsewhere() -> None:
    """The reason for all this: another library takes the neutral point, and R = it, S = 0 always fits."""
    neutral = (1).to_bytes(32, "little")
    fixed = neutral + bytes(32)
    Ed25519PublicKey.from_public_bytes(neutral).verify(fixed, b"one message")
    Ed25519PublicKey.from_public_bytes(neutral).verify(fixed, b"any other")
    assert not VerifyKey("", neutral).verifies(b"one message", fixed)


@for_each_row("raw", SMALL_ORDER_ED25519, ids=bytes.hex)
def test_ed25519_keys_of_small_order_are_refused(raw: bytes) -> None:
    text = "ed25519:" + base64url.encode(raw)
    for check in (check_signing_point, check_signing_point_fully, VerifyKey.of):
        with pytest.raises(InvalidKey):
            check(raw)
    for parse in (signing_point, verify_key, VerifyKey.parse):
        with pytest.raises(InvalidKey):
            parse(text)


@for_each_row("raw", SMALL_ORDER_X25519, ids=bytes.hex)
def test_x25519_keys_of_small_order_are_refused(raw: bytes) -> None:
    text = "x25519:" + base64url.encode(raw)
    for refuses in (lambda: check_sealing_point(raw), lambda: SealingKey.of(raw)):
        with pytest.raises(InvalidKey):
            refuses()
    for parse in (sealing_point, sealing_key, SealingKey.parse):
        with pytest.raises(InvalidKey):
            parse(text)


@for_each_row("beyond", range(19))
def test_coordinates_that_have_a_smaller_spelling_are_refused(beyond: int) -> None:
    for sign in (0, 1):
        raw = (P + beyond | sign << 255).to_bytes(32, "little")
        with pytest.raises(InvalidKey):
            check_signing_point(raw)
        with pytest.raises(InvalidKey):
            check_sealing_point(raw)


@given(st.binary(min_size=32, max_size=32))
def test_an_x25519_key_with_the_ignored_bit_set_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidKey):
        check_sealing_point(raw[:31] + bytes([raw[31] | 0x80]))


def test_points_off_the_curve_or_outside_the_main_subgroup_are_refused_by_the_full_check() -> None:
    off = next(y for y in range(2, 100) if not curve.with_y(y))
    with pytest.raises(InvalidKey):
        VerifyKey.of(off.to_bytes(32, "little"))
    good, _ = crypto_sign_seed_keypair(hashlib.sha256(b"mixed").digest())
    check_signing_point_fully(good)
    for point in SMALL[1:]:
        mixed = curve.encoded(curve.add(curve.decoded(good), point))
        # Not of small order, so that only the full check sees it.
        check_signing_point(mixed)
        with pytest.raises(InvalidKey):
            VerifyKey.of(mixed)


@given(st.binary(min_size=32, max_size=32))
def test_every_key_that_is_made_passes(seed: bytes) -> None:
    public, _ = crypto_sign_seed_keypair(seed)
    check_signing_point_fully(public)
    check_sealing_point(X25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw())


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_keys_of_another_length_are_refused(length: int) -> None:
    for check in (check_signing_point, check_sealing_point):
        with pytest.raises(InvalidKey):
            check(b"\x05" * length)


def test_signatures_with_a_nonce_of_small_order_or_a_large_s_are_refused() -> None:
    """Malleability: S + L fits the same equation."""
    key = SigningKey(hashlib.sha256(b"malleable").digest())
    signature = key.sign(b"message")
    assert key.public.verifies(b"message", signature)
    s = int.from_bytes(signature[32:], "little")
    larger = signature[:32] + (s + curve.ORDER).to_bytes(32, "little")
    assert not key.public.verifies(b"message", larger)
    for point in SMALL:
        assert not key.public.verifies(b"message", curve.encoded(point) + signature[32:])
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(key.public.raw).verify(larger, b"message")
