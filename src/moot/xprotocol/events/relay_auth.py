"""How a client proves to a relay which key it holds (xp1, Relay; the shape is that of NIP-42).

The relay sends a fresh challenge, the client signs it together with the relay's address. Without the address
a hostile relay could hand on the challenge of another one, and be there whoever came to it. The label in
front keeps such a signature from ever being that of an event.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from moot.errors import InvalidJson, InvalidKey, UnverifiedEvent, UsageError
from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.protocol.strict_json import parse_any_depth
from moot.xprotocol.events.events import (
    LARGEST_INTEGER,
    SIGNATURE_PREFIX,
    SKEW_SECONDS,
    canonical_header,
    read_signature,
)
from moot.xprotocol.identity.keys import Identity, is_valid_signature, signing_point, verify_key

AUTH_KIND: Final = "xp.relay.auth"
AUTH_LABEL: Final = b"xprotocol/xp1/auth\0"
# A proof has some 400 bytes; addresses may be long.
MAX_PROOF_BYTES: Final = 4_096
CHALLENGE_BYTES: Final = 32
_PORTS: Final = {"ws": 80, "wss": 443}


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client answers to a challenge."""

    v: Literal["xp1"]
    kind: Literal["xp.relay.auth"]
    sender: str
    relay: str
    challenge: str
    timestamp: int
    signature: str


def relay_address(url: str) -> str:
    """The one spelling of a relay's address, for comparing; raises UsageError for what is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"{url[:200]!r} is no relay's address; one looks like wss://relay.example") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise UsageError(f"{url[:200]!r} is no relay's address; one looks like wss://relay.example")
    if parts.username is not None or parts.password is not None:
        raise UsageError("a relay's address holds no user or password: keys prove who connects")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or _PORTS[parts.scheme]}{parts.path.rstrip('/')}"


def prove(identity: Identity, relay: str, challenge: str, *, now: float) -> bytes:
    """The proof that `relay`, which was dialled under this address, gets for its challenge."""
    members: dict[str, Json] = {
        "v": "xp1",
        "kind": AUTH_KIND,
        "sender": identity.key.text,
        "relay": relay_address(relay),
        "challenge": challenge,
        "timestamp": int(now),
    }
    signature = identity.signing.sign(AUTH_LABEL + canonical_header(members))
    members["signature"] = SIGNATURE_PREFIX + base64url.encode(signature)
    return canonical_header(members)


def proven_key(raw: bytes, *, relays: Collection[str], challenge: str, now: float) -> str:
    """The key that a proof proves; raises UnverifiedEvent, whose message says what to change.

    `relays` are the addresses under which this relay is known, as `relay_address` spells them.
    """
    if len(raw) > MAX_PROOF_BYTES:
        raise UnverifiedEvent("malformed", f"a proof of {len(raw)} bytes; {MAX_PROOF_BYTES} is the most")
    try:
        members = parse_any_depth(raw)
        proof = msgspec.convert(members, Proof)
    except (InvalidJson, msgspec.ValidationError) as fault:
        raise UnverifiedEvent("malformed", f"no proof: {str(fault)[:200]}") from None
    if proof.challenge != challenge:
        raise UnverifiedEvent("challenge", "not an answer to the challenge of this connection")
    if proof.relay not in relays:
        raise UnverifiedEvent("relay", "made for another relay: this one is known as " + ", ".join(relays))
    if not 0 <= proof.timestamp <= LARGEST_INTEGER or abs(now - proof.timestamp) > SKEW_SECONDS:
        raise UnverifiedEvent("time", f"made more than {SKEW_SECONDS} s away from this relay's clock")
    covered = {name: value for name, value in members.items() if name != "signature"}
    try:
        point = signing_point(proof.sender)
        signature = read_signature(proof.signature)
        if not is_valid_signature(point, AUTH_LABEL + canonical_header(covered), signature):
            raise UnverifiedEvent("signature", "the signature does not belong to this key and challenge")
        verify_key(proof.sender)
    except InvalidKey as fault:
        raise UnverifiedEvent("key", str(fault)) from None
    return proof.sender
