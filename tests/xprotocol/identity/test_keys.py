"""Keys, their text forms, and what they do not tell."""

from __future__ import annotations

import copy
import dataclasses
import logging
import pickle
import traceback
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import cryptography_vectors
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_sign_ed25519_sk_to_curve25519, crypto_sign_seed_keypair

from moot.errors import InvalidKey, UsageError
from moot.protocol import base64url
from moot.xprotocol.identity.keys import Identity, OpeningKey, RetiredKey, SealingKey, SigningKey, VerifyKey

VECTORS = Path(cryptography_vectors.__file__).parent
SEED = bytes(range(32))
OTHER = bytes(range(100, 132))
seeds = st.binary(min_size=32, max_size=32)


def rfc8032() -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """Seed, public key, message, signature: RFC 8032's own, and a thousand of the authors' more."""
    for line in (VECTORS / "asymmetric/Ed25519/sign.input").read_text().splitlines():
        secret, public, message, signed = (bytes.fromhex(part) for part in line.split(":")[:4])
        yield secret[:32], public, message, signed[:64]


def test_signatures_are_those_of_rfc_8032() -> None:
    """All lengths of messages from 0 to 255, then every tenth."""
    cases = list(rfc8032())
    assert len(cases) == 1024
    for seed, public, message, signature in [*cases[:256], *islice(cases, 256, None, 10)]:
        key = SigningKey(seed)
        assert key.public.raw == public
        assert key.sign(message) == signature
        assert VerifyKey.of(public).verifies(message, signature)
        assert not VerifyKey.of(public).verifies(message + b"!", signature)


@given(seeds, st.binary(max_size=100))
def test_signatures_are_those_of_another_library(seed: bytes, message: bytes) -> None:
    assert SigningKey(seed).sign(message) == Ed25519PrivateKey.from_private_bytes(seed).sign(message)


@given(seeds, st.binary(max_size=50), st.integers(0, 64 * 8 - 1))
def test_one_flipped_bit_of_a_signature_and_it_holds_no_more(seed: bytes, message: bytes, bit: int) -> None:
    key = SigningKey(seed)
    signature = bytearray(key.sign(message))
    signature[bit // 8] ^= 1 << bit % 8
    assert not key.public.verifies(message, bytes(signature))


def test_signatures_of_another_length_do_not_hold() -> None:
    key = SigningKey(SEED)
    signature = key.sign(b"m")
    for wrong in (b"", signature[:63], signature + b"\0", signature[1:]):
        assert not key.public.verifies(b"m", wrong)


@given(seeds, seeds)
def test_text_forms_read_back(one: bytes, other: bytes) -> None:
    signing, opening = SigningKey(one), OpeningKey(other)
    assert len(signing.public.text) == len("ed25519:") + 43
    assert VerifyKey.parse(signing.public.text) == signing.public == VerifyKey.of(signing.public.raw)
    assert len(opening.public.text) == len("x25519:") + 43
    assert SealingKey.parse(opening.public.text) == opening.public == SealingKey.of(opening.public.raw)
    assert str(signing.public) == signing.public.text
    assert str(opening.public) == opening.public.text


def spoilt(text: str) -> list[str]:
    prefix, _, body = text.partition(":")
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    after = last[last.index(body[-1]) + 1]
    return [
        body,
        f"{prefix}{body}",
        f"{prefix.upper()}:{body}",
        f"{prefix}::{body}",
        f" {text}",
        f"{text} ",
        f"{text}\n",
        f"{text}=",
        text[:-1],
        f"{text}A",
        # The two lowest bits of the last character stand for nothing.
        text[:-1] + after,
        f"{prefix}:" + body.replace(body[0], "+", 1),
        f"{prefix}:" + "A" * 10_000,
        f"{prefix}:",
        "",
    ]


def test_other_spellings_of_a_key_are_refused() -> None:
    for text in spoilt(SigningKey(SEED).public.text):
        with pytest.raises(InvalidKey):
            VerifyKey.parse(text)
    for text in spoilt(OpeningKey(SEED).public.text):
        with pytest.raises(InvalidKey):
            SealingKey.parse(text)
    with pytest.raises(InvalidKey):
        SealingKey.parse(SigningKey(SEED).public.text)
    with pytest.raises(InvalidKey):
        VerifyKey.parse(OpeningKey(SEED).public.text)


@pytest.mark.requirement("XP-1.4-1", "XP-6.1-1")
def test_an_identity_has_two_pairs_that_are_drawn_independently() -> None:
    drawn = iter([SEED, OTHER])
    identity = Identity.generate(lambda size: next(drawn)[:size])
    assert (identity.signing.secret(), identity.opening.secret()) == (SEED, OTHER)
    assert identity == Identity(SigningKey(SEED), OpeningKey(OTHER))
    assert identity.key.text.startswith("ed25519:")
    assert identity.enc_key.text.startswith("x25519:")
    assert Identity.generate().key != Identity.generate().key


def test_an_x25519_key_made_from_the_ed25519_key_is_refused() -> None:
    _, expanded = crypto_sign_seed_keypair(SEED)
    for derived in (SEED, crypto_sign_ed25519_sk_to_curve25519(expanded)):
        with pytest.raises(UsageError, match="independently"):
            Identity(SigningKey(SEED), OpeningKey(derived))
        with pytest.raises(UsageError, match="independently"):
            Identity(SigningKey(SEED), OpeningKey(OTHER), (RetiredKey(OpeningKey(derived), 1),))


def test_an_identity_finds_the_key_that_opens_and_only_its_own() -> None:
    old, new = OpeningKey(SEED), OpeningKey(OTHER)
    identity = Identity(SigningKey(bytes(32)), new, (RetiredKey(old, 5),))
    assert identity.opening_key(new.public.text) is new
    assert identity.opening_key(old.public.text) is old
    assert identity.enc_key == new.public
    assert identity.opening_key(OpeningKey(bytes([7] * 32)).public.text) is None
    with pytest.raises(UsageError, match="twice"):
        Identity(SigningKey(bytes(32)), new, (RetiredKey(new, 5),))


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33), "0" * 32, bytearray(32), None])
def test_secrets_of_another_form_are_refused_without_showing_them(secret: bytes) -> None:
    for make in (SigningKey, OpeningKey):
        with pytest.raises(UsageError) as refused:
            make(secret)
        assert repr(secret) not in str(refused.value) or not secret


def forms_of(secret: bytes) -> list[str]:
    return [secret.hex(), base64url.encode(secret), repr(secret)[2:-1], str(list(secret))[1:-1]]


def test_secrets_are_in_no_text_no_log_and_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    identity = Identity(SigningKey(SEED), OpeningKey(OTHER), (RetiredKey(OpeningKey(bytes([9] * 32)), 1),))
    things = [identity, identity.signing, identity.opening, identity.retired, identity.retired[0]]
    answer = [f"{thing}{thing!r}{[thing]}{(thing, 1)}" for thing in things]
    with caplog.at_level(logging.DEBUG):
        for thing in things:
            logging.getLogger("test").info("%s %r", thing, thing, extra={"thing": thing})
    answer.append(caplog.text)
    answer += [str(vars(record)) for record in caplog.records]
    try:
        raise RuntimeError(identity, identity.signing)
    except RuntimeError as fault:
        answer.append("".join(traceback.format_exception(fault)))
    text = "".join(answer)
    assert identity.key.text in text
    for secret in (SEED, OTHER, bytes([9] * 32)):
        for form in forms_of(secret):
            assert form not in text


@pytest.mark.parametrize(
    "secret", [SigningKey(SEED), OpeningKey(SEED), Identity(SigningKey(SEED), OpeningKey(OTHER))]
)
def test_secrets_are_not_pickled_or_copied_out(secret: SigningKey | OpeningKey | Identity) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="key file"):
            pickle.dumps(secret, protocol)
    with pytest.raises(TypeError):
        copy.deepcopy(secret)
    if isinstance(secret, Identity):
        with pytest.raises(TypeError):
            dataclasses.asdict(secret)
    else:
        assert not hasattr(secret, "__dict__")
        with pytest.raises(TypeError):
            copy.copy(secret)


def test_secrets_are_equal_when_their_bytes_are() -> None:
    assert SigningKey(SEED) == SigningKey(SEED)
    assert SigningKey(SEED) != SigningKey(OTHER)
    assert OpeningKey(SEED) == OpeningKey(SEED)
    assert OpeningKey(SEED) != OpeningKey(OTHER)
    assert SigningKey(SEED) != OpeningKey(SEED)
    assert len({SigningKey(SEED), SigningKey(SEED), OpeningKey(SEED), OpeningKey(SEED)}) == 2
