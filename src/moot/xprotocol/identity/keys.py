"""Ed25519 keys sign and verify, X25519 keys seal and open; an identity holds one pair of each.

The pairs are drawn independently of each other: deriving one from the other saves 32 bytes and ties the
fate of signatures to that of ciphertexts. The text forms, `ed25519:` and `x25519:` with 43 characters, are
the only ones that leave a process; secrets leave it through the key file alone. They are in no repr, no text
and no pickle, and comparing two of them takes the same time wherever they differ.

Which 32 bytes are a public key that may be used at all: a signature under an Ed25519 key of small order
proves nothing, since one signature can fit every message. An X25519 key of small order makes every shared
secret zero. And a point that has a second encoding would be two keys to whoever compares texts. Libraries
differ in which of these they refuse, so we look ourselves. The cheap check (canonical, not of small order) is
for whatever arrives, before anything is verified. The full check (on the curve, in the main subgroup) costs
as much as a signature; it is for keys that somebody is about to rely on.
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
    crypto_core_ed25519_is_valid_point,
    crypto_sign,
    crypto_sign_ed25519_pk_to_curve25519,
    crypto_sign_open,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import BadSignatureError

from moot.errors import InvalidKey, UsageError
from moot.protocol import base64url

KEY_BYTES: Final = 32

# The prime of Curve25519; a coordinate at or above it has a smaller encoding.
_PRIME: Final = 2**255 - 19
_SIGN_BIT: Final = 1 << 255

# y of the two pairs of points of order 8 on edwards25519; the sign of x distinguishes the members of a pair.
_Y_OF_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# With both signs of x: order 1 (y = 1), 2 (y = -1), 4 (y = 0), 8.
SMALL_ORDER_Y: Final = frozenset({0, 1, _PRIME - 1, _Y_OF_ORDER_8, _PRIME - _Y_OF_ORDER_8})

# u of the points of order 8 on Curve25519 and its twist.
_U_OF_ORDER_8: Final = 0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0
_U_OF_ORDER_8_TWISTED: Final = 0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F
# Orders 1 and 2 (u = 0), 4 (u = 1), 4 on the twist (u = -1), 8.
SMALL_ORDER_U: Final = frozenset({0, 1, _PRIME - 1, _U_OF_ORDER_8, _U_OF_ORDER_8_TWISTED})


def check_signing_point(raw: bytes) -> None:
    """Raises InvalidKey unless `raw` is encoded like an Ed25519 key and is not one of small order."""
    _check_length(raw)
    y = int.from_bytes(raw, "little") & (_SIGN_BIT - 1)
    if y >= _PRIME:
        raise InvalidKey("an Ed25519 key in a spelling that is not canonical")
    if y in SMALL_ORDER_Y:
        raise InvalidKey("an Ed25519 key of small order: its signatures prove nothing")


def check_signing_point_fully(raw: bytes) -> None:
    """Raises InvalidKey unless `raw` is a point of the main subgroup, canonically encoded. Slow."""
    check_signing_point(raw)
    if not crypto_core_ed25519_is_valid_point(raw):
        raise InvalidKey("not an Ed25519 key: no point of the main subgroup of its curve")


def check_sealing_point(raw: bytes) -> None:
    """Raises InvalidKey unless `raw` is a canonical X25519 key that is not of small order.

    Every other coordinate is a good one: it lies on the curve or on its twist, and both are safe (RFC 7748).
    """
    _check_length(raw)
    u = int.from_bytes(raw, "little")
    # X25519 ignores the highest bit, so a key with it set is another encoding, too.
    if u >= _PRIME:
        raise InvalidKey("an X25519 key in a spelling that is not canonical")
    if u in SMALL_ORDER_U:
        raise InvalidKey("an X25519 key of small order: whatever is sealed to it is open to everybody")


def _check_length(raw: bytes) -> None:
    if len(raw) != KEY_BYTES:
        raise InvalidKey(f"a key has {KEY_BYTES} bytes, not {len(raw)}")


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
