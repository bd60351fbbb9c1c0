"""Ed25519 keys sign and verify, X25519 keys seal and open; an identity holds one pair of each.

The pairs are drawn independently of each other: deriving one from the other saves 32 bytes and ties the
fate of signatures to that of ciphertexts. The text forms, `ed25519:` and `x25519:` with 43 characters, are
the only ones that leave a process; secrets leave it through the key file alone. They are in no repr, no text
and no pickle, and comparing two of them takes the same time wherever they differ.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hmac import compare_digest
from typing import Final, NoReturn, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from nacl.bindings import (
    crypto_sign,
    crypto_sign_ed25519_pk_to_curve25519,
    crypto_sign_open,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import BadSignatureError

from moot.errors import InvalidKey, UsageError
from moot.protocol import base64url
from moot.xprotocol.identity.points import (
    KEY_BYTES,
    check_sealing_point,
    check_signing_point,
    check_signing_point_fully,
)

SIGNATURE_BYTES: Final = 64
SIGNING_PREFIX: Final = "ed25519:"
SEALING_PREFIX: Final = "x25519:"
# Parsed forms kept at hand: some hundred bytes each, and more peers than one process talks to at a time.
CACHED_KEYS: Final = 4_096


@lru_cache(maxsize=CACHED_KEYS)
def signing_point(text: str) -> bytes:
    """The bytes of an `ed25519:` text after the cheap check; raises InvalidKey."""
    raw = _point(text, SIGNING_PREFIX)
    check_signing_point(raw)
    return raw


@lru_cache(maxsize=CACHED_KEYS)
def sealing_point(text: str) -> bytes:
    """The bytes of an `x25519:` text; raises InvalidKey."""
    raw = _point(text, SEALING_PREFIX)
    check_sealing_point(raw)
    return raw


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """A public Ed25519 key: it identifies somebody."""

    text: str
    raw: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the text form, after the full check; raises InvalidKey."""
        return cls.of(signing_point(text))

    @classmethod
    def of(cls, raw: bytes) -> Self:
        check_signing_point_fully(raw)
        return cls(SIGNING_PREFIX + base64url.encode(raw), raw)

    def verifies(self, message: bytes, signature: bytes) -> bool:
        return is_valid_signature(self.raw, message, signature)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class SealingKey:
    """A public X25519 key: events for somebody are sealed with it."""

    text: str
    raw: bytes = field(repr=False)
    point: X25519PublicKey = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the text form; raises InvalidKey."""
        raw = sealing_point(text)
        return cls(text, raw, X25519PublicKey.from_public_bytes(raw))

    @classmethod
    def of(cls, raw: bytes) -> Self:
        return cls.parse(SEALING_PREFIX + base64url.encode(raw))

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=CACHED_KEYS)
def verify_key(text: str) -> VerifyKey:
    """`VerifyKey.parse`, cached: the full check is as slow as a signature."""
    return VerifyKey.parse(text)


@lru_cache(maxsize=CACHED_KEYS)
def sealing_key(text: str) -> SealingKey:
    """`SealingKey.parse`, cached."""
    return SealingKey.parse(text)


def is_valid_signature(raw_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is one of `message` by the key with these bytes.

    libsodium also refuses keys and nonces of small order and an S that is not reduced, so nobody but the
    holder of the key can make a second signature out of a first.
    """
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + message, raw_key)
    except BadSignatureError:
        return False
    return True


class _Guarded:
    """Base of classes that hold a secret: they refuse to show, copy or serialise it."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is not pickled or copied: it leaves through the key file only"
        )

    def __getstate__(self) -> NoReturn:
        self.__reduce_ex__(None)


class SigningKey(_Guarded):
    """A secret Ed25519 key."""

    __slots__ = ("_expanded", "_seed", "public")

    def __init__(self, seed: bytes) -> None:
        _check_secret(seed)
        raw, self._expanded = crypto_sign_seed_keypair(seed)
        self._seed = bytes(seed)
        self.public: Final = VerifyKey(SIGNING_PREFIX + base64url.encode(raw), raw)

    @classmethod
    def generate(cls, random: Callable[[int], bytes] = os.urandom) -> Self:
        return cls(random(KEY_BYTES))

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature."""
        return crypto_sign(message, self._expanded)[:SIGNATURE_BYTES]

    def secret(self) -> bytes:
        """The seed, for the key file and nothing else."""
        return self._seed

    def __repr__(self) -> str:
        return f"<SigningKey of {self.public.text}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigningKey) and compare_digest(self._seed, other._seed)

    def __hash__(self) -> int:
        return hash(self.public)


class OpeningKey(_Guarded):
    """A secret X25519 key."""

    __slots__ = ("_raw", "point", "public")

    def __init__(self, raw: bytes) -> None:
        _check_secret(raw)
        self._raw = bytes(raw)
        self.point: Final = X25519PrivateKey.from_private_bytes(self._raw)
        self.public: Final = SealingKey.of(self.point.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, random: Callable[[int], bytes] = os.urandom) -> Self:
        return cls(random(KEY_BYTES))

    def secret(self) -> bytes:
        """The scalar as it was generated, for the key file and nothing else."""
        return self._raw

    def __repr__(self) -> str:
        return f"<OpeningKey of {self.public.text}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpeningKey) and compare_digest(self._raw, other._raw)

    def __hash__(self) -> int:
        return hash(self.public)


@dataclass(frozen=True, slots=True)
class RetiredKey:
    """An X25519 key that only opens what was sealed before it was replaced."""

    opening: OpeningKey
    retired_at: int


@dataclass(frozen=True, slots=True)
class Identity:
    """One Ed25519 and one X25519 pair (XP 6.1), and older X25519 keys for what is still on its way."""

    signing: SigningKey
    opening: OpeningKey
    retired: tuple[RetiredKey, ...] = ()
    _by_text: dict[str, OpeningKey] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keys = [self.opening, *(older.opening for older in self.retired)]
        derived = crypto_sign_ed25519_pk_to_curve25519(self.signing.public.raw)
        for key in keys:
            if key.public.raw == derived or compare_digest(key.secret(), self.signing.secret()):
                raise UsageError("the X25519 key is made from the Ed25519 key; draw it independently")
        by_text = {key.public.text: key for key in keys}
        if len(by_text) != len(keys):
            raise UsageError("the same X25519 key twice in one identity")
        object.__setattr__(self, "_by_text", by_text)

    @classmethod
    def generate(cls, random: Callable[[int], bytes] = os.urandom) -> Self:
        """Both pairs, generated one after the other from `random`."""
        return cls(SigningKey.generate(random), OpeningKey.generate(random))

    @property
    def key(self) -> VerifyKey:
        """The public key that identifies this identity."""
        return self.signing.public

    @property
    def enc_key(self) -> SealingKey:
        """The public key that others seal events for this identity with."""
        return self.opening.public

    def opening_key(self, enc_key: str) -> OpeningKey | None:
        """The secret that opens what was sealed for `enc_key`, be it the current one or an older one."""
        return self._by_text.get(enc_key)


def _point(text: str, prefix: str) -> bytes:
    if not text.startswith(prefix):
        raise InvalidKey(f"a key of this type is written {prefix} and 43 characters of base64url")
    # Before decoding: the text may be as long as a message.
    if len(text) != len(prefix) + 43:
        raise InvalidKey(f"{prefix} is followed by {len(text) - len(prefix)} characters instead of 43")
    try:
        return base64url.decode(text[len(prefix) :])
    except ValueError as fault:
        raise InvalidKey(f"what follows {prefix} is {fault}") from None


def _check_secret(raw: bytes) -> None:
    # The message must not hold what was given: it may be a secret in a wrong form.
    if not isinstance(raw, bytes) or len(raw) != KEY_BYTES:
        raise UsageError(f"a secret key has {KEY_BYTES} bytes")
