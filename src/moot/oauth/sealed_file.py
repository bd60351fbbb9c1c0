"""The content of a file, encrypted with a key that is kept elsewhere (ChaCha20-Poly1305)."""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_MARK: Final = b"moot sealed 1\n"
_NONCE_BYTES: Final = 12


class CannotOpen(Exception):
    """The key is another one, or somebody changed the file."""


def is_sealed(data: bytes) -> bool:
    return data.startswith(_MARK)


def seal_file(key: bytes, data: bytes, name: str) -> bytes:
    """What to write to the file of this name; under another name it cannot be opened."""
    nonce = os.urandom(_NONCE_BYTES)
    return _MARK + nonce + ChaCha20Poly1305(key).encrypt(nonce, data, _MARK + name.encode())


def open_file(key: bytes, data: bytes, name: str) -> bytes:
    """What was sealed; raises CannotOpen."""
    rest = data[len(_MARK) :]
    try:
        cipher = ChaCha20Poly1305(key)
        return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _MARK + name.encode())
    except (InvalidTag, ValueError):
        raise CannotOpen from None
