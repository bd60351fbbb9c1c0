"""Sealing and opening payloads: HPKE (RFC 9180) in base mode, bound to the event around it.

Base mode proves nobody; the signature does. What ties the two together is `info`, which holds every member
of the event but those that come out of sealing: whoever takes a ciphertext out of one event and signs another
around it, with another sender, recipient, kind or time, gives the recipient something that does not open.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from moot.errors import InvalidJson, SchemaViolation
from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.protocol.strict_json import CONTAINERS, check_depth, parse_any_depth
from moot.xprotocol.events.canonical import canonical_header, sorted_json
from moot.xprotocol.events.events import SignedDirected
from moot.xprotocol.identity.keys import Identity, SealingKey

INFO_LABEL: Final = b"xprotocol/xp1/hpke\0"
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def seal(plaintext: bytes, header: dict[str, Json], enc_key: SealingKey) -> tuple[str, str]:
    """`payload` and `content_hash` for an event with these other members (without id and signature)."""
    sealed = _SUITE.encrypt(plaintext, enc_key.point, INFO_LABEL + canonical_header(header))
    return base64url.encode(sealed), content_hash(sealed)


def open_payload(signed: SignedDirected, identity: Identity) -> Json:
    """The payload of a verified event; raises SchemaViolation when it does not open or is no JSON.

    Nothing may act on the outcome unless `verify_event` has passed: sealing proves no sender.
    """
    plaintext = open_bytes(signed, identity)
    try:
        payload = parse_any_depth(plaintext)
        # Most payloads are flat, which is seen quicker than brackets are counted.
        if payload.__class__ is not dict or not CONTAINERS.isdisjoint(map(type, payload.values())):
            check_depth(plaintext, payload)
    except InvalidJson as fault:
        raise SchemaViolation(f"the payload is not JSON: {fault.message}") from None
    return payload


def open_bytes(signed: SignedDirected, identity: Identity) -> bytes:
    """`open_payload` before anything is parsed."""
    event = signed.event
    try:
        sealed = base64url.decode(event.payload)
    except ValueError as fault:
        raise SchemaViolation(f"payload is {fault}") from None
    if content_hash(sealed) != event.content_hash:
        raise SchemaViolation("content_hash is not the hash of the payload")
    key = identity.opening_key(event.enc_key)
    if key is None:
        raise SchemaViolation(
            "sealed for a key that is not ours: look up this endpoint's encryption key anew"
        )
    header = signed.covered.copy()
    del header["payload"], header["content_hash"]
    try:
        return _SUITE.decrypt(sealed, key.point, INFO_LABEL + sorted_json(header))
    except (InvalidTag, ValueError):
        raise SchemaViolation("the payload does not open: it was sealed for another event or key") from None


def content_hash(sealed: bytes) -> str:
    return "sha256:" + sha256(sealed).hexdigest()
