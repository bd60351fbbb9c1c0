"""The key by which push services know this gateway (RFC 8292, VAPID), in a file of the data folder.

A browser subscribes for this key, and its push service takes messages that are signed with it alone. So who
loses the file loses all subscriptions: people turn notifications on again, which the console tells them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from moot.errors import UsageError
from moot.gateway.notifications.push.encryption import point_of
from moot.private_files import read_secret
from moot.protocol import base64url
from moot.resilience.atomic_file import write_atomically

# RFC 8292 allows 24 hours; half of that leaves room for clocks that are wrong.
_VALID_SECONDS: Final = 12 * 3_600
_HEADER: Final = base64url.encode(b'{"typ":"JWT","alg":"ES256"}')
_NUMBER_BYTES: Final = 32


class VapidKey:
    """Signs requests to push services."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        # As it is in the file, and in what gateways of a cluster share.
        self.pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # As browsers and push services take it.
        self.public = base64url.encode(point_of(key.public_key()))

    def authorization(self, endpoint: str, contact: str, now: float) -> str:
        """The value of the header for a request to this address; `contact` is whom the service may ask."""
        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int(now) + _VALID_SECONDS,
            "sub": contact,
        }
        signed = f"{_HEADER}.{base64url.encode(msgspec.json.encode(claims))}"
        r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = r.to_bytes(_NUMBER_BYTES, "big") + s.to_bytes(_NUMBER_BYTES, "big")
        return f"vapid t={signed}.{base64url.encode(signature)}, k={self.public}"


def open_vapid_key(file: Path) -> VapidKey:
    """The key in this file, which is made if there is none; raises OSError, UsageError."""
    try:
        content = read_secret(file, what="a key")
    except FileNotFoundError:
        return _make(file)
    return read_vapid_key(content, str(file))


def read_vapid_key(content: bytes, where: str) -> VapidKey:
    """Raises UsageError."""
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(
            f"{where} holds no key of Web Push. Put it back from a backup; or remove it to have another one"
            " made, for which people turn notifications on again"
        )
    return VapidKey(key)


def _make(file: Path) -> VapidKey:
    key = VapidKey(ec.generate_private_key(ec.SECP256R1()))
    try:
        write_atomically(file, key.pem, replace=False)
    except FileExistsError:
        # Another one was quicker.
        return open_vapid_key(file)
    return key
