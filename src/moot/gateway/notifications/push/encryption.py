"""Sealing a message for one browser (RFC 8291): the push service in between reads nothing of it. Pure.

The browser's key and a key that is made for this one message agree on a secret; what the browser alone knows
besides (`auth`) is mixed in. The result is one record of the encoding `aes128gcm` (RFC 8188).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SALT_BYTES: Final = 16
AUTH_BYTES: Final = 16
# RFC 8030: a push service takes this many bytes at least; some take no more.
MAX_BODY_BYTES: Final = 4_096
_RECORD_BYTES: Final = 4_096
_POINT_BYTES: Final = 65
_TAG_BYTES: Final = 16
# Of the last record.
_DELIMITER: Final = b"\x02"
MAX_MESSAGE_BYTES: Final = MAX_BODY_BYTES - SALT_BYTES - 4 - 1 - _POINT_BYTES - _TAG_BYTES - len(_DELIMITER)


class BrowserKeys(NamedTuple):
    """What a browser gave away when it subscribed: its public key, and the secret of this subscription."""

    public: ec.EllipticCurvePublicKey
    auth: bytes


def read_browser_keys(public: bytes, auth: bytes) -> BrowserKeys:
    """Raises ValueError unless these are an uncompressed point on P-256 and a secret of 16 bytes."""
    if len(public) != _POINT_BYTES or len(auth) != AUTH_BYTES:
        raise ValueError("wrong length")
    return BrowserKeys(ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public), auth)


def seal(message: bytes, keys: BrowserKeys, *, own_key: ec.EllipticCurvePrivateKey, salt: bytes) -> bytes:
    """The body of a request to the push service. `own_key` and `salt` are new for every message."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message has at most {MAX_MESSAGE_BYTES} bytes")
    own_public = point_of(own_key.public_key())
    shared = own_key.exchange(ec.ECDH(), keys.public)
    info = b"WebPush: info\0" + point_of(keys.public) + own_public
    secret = _derive(shared, keys.auth, info, 32)
    content_key = _derive(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(secret, salt, b"Content-Encoding: nonce\0", 12)
    header = salt + struct.pack(">IB", _RECORD_BYTES, len(own_public)) + own_public
    return header + AESGCM(content_key).encrypt(nonce, message + _DELIMITER, None)


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as it stands in messages: an uncompressed point."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)
