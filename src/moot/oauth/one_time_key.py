"""Seals what one program hands to another over a channel that others read and that is written down.

The receiver makes a key for one message and forgets it with that message: whoever reads the channel later,
and gets hold of the receiver then, cannot open it any more. X25519, HKDF-SHA256, ChaCha20-Poly1305.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from moot.oauth.oauth_settings import SignInFailed

_PURPOSE: Final = b"moot sign-in 1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class OneTimeKey:
    """A key for one message."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()

    @property
    def public(self) -> str:
        return _encode(self._private.public_key().public_bytes_raw())

    def open(self, sealed: str, about: str) -> bytes:
        """What was sealed with the public half, about the same; raises SignInFailed."""
        try:
            raw = _decode(sealed)
            sender, rest = raw[:_KEY_BYTES], raw[_KEY_BYTES:]
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(sender))
            cipher = _cipher(shared, sender, self._private.public_key().public_bytes_raw())
            return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], about.encode())
        except (ValueError, InvalidTag):
            raise SignInFailed("what was sealed for this sign-in cannot be opened: begin again") from None


def seal(public: str, data: bytes, about: str) -> str:
    """Seal data for whoever has the private half; raises SignInFailed when this is no key."""
    own = X25519PrivateKey.generate()
    sender = own.public_key().public_bytes_raw()
    try:
        receiver = _decode(public)
        shared = own.exchange(X25519PublicKey.from_public_bytes(receiver))
    except ValueError:
        raise SignInFailed("the bridge gave no key to seal with") from None
    nonce = os.urandom(_NONCE_BYTES)
    return _encode(sender + nonce + _cipher(shared, sender, receiver).encrypt(nonce, data, about.encode()))


def seal_subject(id: str, person: str) -> str:
    """What a sealed message is about: it opens for this sign-in of this participant alone."""
    return f"{id} {person}"


def _cipher(shared: bytes, sender: bytes, receiver: bytes) -> ChaCha20Poly1305:
    derived = HKDF(SHA256(), length=32, salt=sender + receiver, info=_PURPOSE).derive(shared)
    return ChaCha20Poly1305(derived)


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    # Characters that are none of base64 are a ValueError, also those that are not ASCII.
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
