"""Making events: nothing leaves unsigned, and nothing with a recipient leaves unsealed (XP 11.1).

The time comes in as an argument; so may the nonce. HPKE draws its own randomness, as it must.
"""

from __future__ import annotations

import math
import os
from hashlib import sha256
from typing import Final

import msgspec
import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from moot.errors import EventFault, InvalidJson, MalformedEvent, SchemaViolation, UsageError
from moot.protocol import base64url
from moot.protocol.operation import Json, Payload
from moot.protocol.strict_json import CONTAINERS, check_depth, encode, parse_any_depth
from moot.xprotocol.contracts.contracts import ERROR_KIND
from moot.xprotocol.events.events import (
    DEFAULT_TTL_SECONDS,
    MAX_EVENT_BYTES,
    MAX_LIFETIME_SECONDS,
    MAX_PUBLIC_EVENT_BYTES,
    NONCE_BYTES,
    PUBLIC_KINDS,
    SEALED_WITH,
    SIGNATURE_PREFIX,
    SIGNED_LABEL,
    VERSION,
    DirectedEvent,
    PublicEvent,
    SignedDirected,
    SignedPublic,
    canonical_header,
    canonical_json,
    check_values,
    check_words,
    sorted_json,
)
from moot.xprotocol.events.faults import Fault, error_payload
from moot.xprotocol.identity.keys import Identity, SealingKey, sealing_key, signing_point

RESULT_SUFFIX: Final = ".result"


# Sealing and opening payloads: HPKE (RFC 9180) in base mode, bound to the event around it.
#
# Base mode proves nobody; the signature does. What ties the two together is `info`, which holds every
# member of the event but those that come out of sealing: whoever takes a ciphertext out of one event and
# signs another around it, with another sender, recipient, kind or time, gives the recipient something that
# does not open.

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


def compose(
    identity: Identity,
    kind: str,
    payload: Json,
    *,
    recipient: str,
    enc_key: str,
    now: float,
    ttl: int = DEFAULT_TTL_SECONDS,
    correlation_id: str | None = None,
    in_reply_to: str | None = None,
    delegation: str | None = None,
    nonce: bytes | None = None,
) -> SignedDirected:
    """An event for `recipient`, sealed for its `enc_key`, and signed.

    Raises InvalidKey for a bad key text and UsageError for whatever else cannot be sent.
    """
    if kind in PUBLIC_KINDS:
        raise UsageError(f"{kind} is public: publish it, it has no recipient")
    signing_point(recipient)
    sealed_for = sealing_key(enc_key)
    header = _header(
        identity,
        kind,
        now=now,
        ttl=ttl,
        correlation_id=correlation_id,
        in_reply_to=in_reply_to,
        delegation=delegation,
        nonce=nonce,
    )
    header["recipient"] = recipient
    header["enc"] = SEALED_WITH
    header["enc_key"] = enc_key
    covered = header.copy()
    covered["payload"], covered["content_hash"] = seal(encode(payload), header, sealed_for)
    canonical = sorted_json(covered)
    members = _signed(identity, covered, canonical)
    # The canonical bytes, with id and signature behind the last member: quicker than writing all anew.
    raw = b'%b,"id":"%b","signature":"%b"}' % (
        canonical[:-1],
        members["id"].encode(),
        members["signature"].encode(),
    )
    _check_size(raw, MAX_EVENT_BYTES)
    return SignedDirected(msgspec.convert(members, DirectedEvent), raw, covered)


def publish(
    identity: Identity,
    kind: str,
    payload: Payload,
    *,
    now: float,
    ttl: int = DEFAULT_TTL_SECONDS,
    delegation: str | None = None,
    nonce: bytes | None = None,
) -> SignedPublic:
    """A public event, signed and readable by everybody; raises UsageError for what cannot be one (D-70)."""
    if kind not in PUBLIC_KINDS:
        raise UsageError(f"{kind} is not public: give it a recipient, and it is sealed")
    covered = _header(identity, kind, now=now, ttl=ttl, delegation=delegation, nonce=nonce)
    covered["payload"] = payload
    try:
        check_values(payload)
        members = _signed(identity, covered, canonical_json(covered))
    except MalformedEvent as fault:
        raise UsageError(f"the payload of {kind} cannot be sent: {fault.message}") from None
    # Not the canonical bytes: they spell a fraction beyond 2^53 as an integer, which readers refuse.
    raw = orjson.dumps(members)
    _check_size(raw, MAX_PUBLIC_EVENT_BYTES)
    return SignedPublic(msgspec.convert(members, PublicEvent), raw, covered)


def reply(
    identity: Identity,
    request: DirectedEvent,
    kind: str,
    payload: Json,
    *,
    now: float,
    ttl: int = DEFAULT_TTL_SECONDS,
) -> SignedDirected:
    """The answer to a request: for its sender alone, in the same conversation (XP 5.1)."""
    return compose(
        identity,
        kind,
        payload,
        recipient=request.sender,
        enc_key=request.sender_enc_key,
        now=now,
        ttl=ttl,
        correlation_id=request.correlation_id,
        in_reply_to=request.id,
    )


def reply_fault(
    identity: Identity,
    request: DirectedEvent,
    fault: Fault | EventFault,
    *,
    now: float,
    ttl: int = DEFAULT_TTL_SECONDS,
) -> SignedDirected:
    """The `xp.error` that answers a request."""
    payload = error_payload(Fault(fault.code, fault.message, fault.retry_after), request.id)
    return reply(identity, request, ERROR_KIND, payload, now=now, ttl=ttl)


def answers(reply_event: DirectedEvent, request: DirectedEvent) -> bool:
    """Whether a verified event answers a request of ours: about it, and from whom it was for."""
    return (
        reply_event.in_reply_to == request.id
        and reply_event.sender == request.recipient
        and reply_event.recipient == request.sender
        and reply_event.correlation_id == request.correlation_id
        and reply_event.kind in (request.kind + RESULT_SUFFIX, ERROR_KIND)
    )


def _header(
    identity: Identity,
    kind: str,
    *,
    now: float,
    ttl: int,
    correlation_id: str | None = None,
    in_reply_to: str | None = None,
    delegation: str | None = None,
    nonce: bytes | None = None,
) -> dict[str, Json]:
    if not 0 < ttl <= MAX_LIFETIME_SECONDS:
        raise UsageError(f"an event lives for 1 to {MAX_LIFETIME_SECONDS} s, not {ttl}")
    if nonce is None:
        nonce = os.urandom(NONCE_BYTES)
    elif len(nonce) != NONCE_BYTES:
        raise UsageError(f"a nonce has {NONCE_BYTES} bytes")
    try:
        check_words(kind, correlation_id, in_reply_to, delegation)
    except MalformedEvent as fault:
        raise UsageError(fault.message) from None
    timestamp = math.floor(now)
    header: dict[str, Json] = {
        "v": VERSION,
        "kind": kind,
        "sender": identity.key.text,
        "timestamp": timestamp,
        "expires_at": timestamp + ttl,
        "nonce": base64url.encode(nonce),
        "sender_enc_key": identity.enc_key.text,
    }
    # Absent rather than null: both are allowed, and absent is shorter.
    if correlation_id is not None:
        header["correlation_id"] = correlation_id
    if in_reply_to is not None:
        header["in_reply_to"] = in_reply_to
    if delegation is not None:
        header["delegation"] = delegation
    return header


def _signed(identity: Identity, covered: dict[str, Json], canonical: bytes) -> dict[str, Json]:
    members = covered.copy()
    members["id"] = sha256(canonical).hexdigest()
    signature = identity.signing.sign(SIGNED_LABEL + canonical)
    members["signature"] = SIGNATURE_PREFIX + base64url.encode(signature)
    return members


def _check_size(raw: bytes, most: int) -> None:
    if len(raw) > most:
        raise UsageError(f"an event of {len(raw)} bytes; {most} is the most: send less at once")
