"""Events of the xp1 profile: their members, and the proof of who sent them.

The profile is ours (D-58): the document that this one builds on is not published. An event is one flat JSON
object. Its canonical bytes without `id` and `signature` give both: `id` is their SHA-256, `signature` is made
over a label and them. A *directed* event has a `recipient` and is always sealed (see `payload_seal`); a
*public* one has none, is of a few fixed kinds, and everybody reads its payload (D-70).

`expires_at` says how long an event travels. What a delegation, a grant or a revocation states lasts as its
payload says, so those three are read after their journey, too.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
import orjson
import rfc8785

from moot.errors import EventExpired, InvalidJson, InvalidKey, MalformedEvent, UnverifiedEvent
from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.protocol.strict_json import CONTAINERS, check_depth, parse_any_depth
from moot.xprotocol.identity.keys import is_valid_signature, sealing_point, signing_point, verify_key

VERSION: Final = "xp1"
SEALED_WITH: Final = "HPKE-Base-X25519-SHA256-ChaCha20Poly1305"
SIGNED_LABEL: Final = b"xprotocol/xp1/event\0"

ANNOUNCE: Final = "xp.endpoint.announce"
DELEGATE: Final = "xp.key.delegate"
REVOKE: Final = "xp.key.revoke"
GRANT: Final = "xp.capability.grant"
# Whoever could choose what is public could have somebody send a call that everybody reads.
PUBLIC_KINDS: Final = frozenset({ANNOUNCE, DELEGATE, REVOKE, GRANT})
LASTING_KINDS: Final = frozenset({DELEGATE, REVOKE, GRANT})

# What a WebSocket library takes as one message by default; base64 leaves 750 KiB for the payload.
MAX_EVENT_BYTES: Final = 1 << 20
# The exact encoder is slow, and works before any signature is checked: 1 µs a value, and half a µs for every
# character that is escaped. Within these bounds nobody makes it work for more than some 40 ms.
MAX_PUBLIC_EVENT_BYTES: Final = 128 << 10
MAX_PUBLIC_VALUES: Final = 8_192
MAX_KIND_CHARS: Final = 256
MAX_CORRELATION_CHARS: Final = 256
NONCE_BYTES: Final = 16

# The profile's numbers.
SKEW_SECONDS: Final = 300
MAX_LIFETIME_SECONDS: Final = 86_400
# XP 3.1: `relay.event_ttl_seconds`.
DEFAULT_TTL_SECONDS: Final = 3_600

_HEX_64 = re.compile("[0-9a-f]{64}", re.ASCII)
_NONCE_CHARS: Final = 22
SIGNATURE_PREFIX: Final = "ed25519:"


# The one byte string that stands for a JSON value (RFC 8785), which is what gets hashed and signed.
#
# Two ways to the same bytes. `rfc8785` follows the RFC to the letter and is slow. `orjson` with sorted keys
# is some 40 times faster and gives the same bytes as long as nothing stands in the value that the two write
# differently; `canonical_header` looks for that first:
#
# - member names beyond ASCII: the RFC sorts by UTF-16 code units, `orjson` by UTF-8;
# - fractions: the RFC writes them as JavaScript does, 1.0 as 1 and 1e16 as 10000000000000000;
# - integers that a double cannot hold: every other implementation would round them.

# RFC 7493: beyond it two integers can be the same double.
LARGEST_INTEGER: Final = 2**53 - 1

_SORTED: Final = orjson.OPT_SORT_KEYS
# Without bool: it is an int to Python, but not on the wire.
_FLAT: Final = frozenset({str, int, type(None)})


def canonical_header(members: dict[str, Json]) -> bytes:
    """The canonical bytes of a flat object of texts, integers and nulls; raises MalformedEvent for others."""
    if not _FLAT.issuperset(map(type, members.values())):
        raise MalformedEvent("only text, whole numbers and null stand in a directed event")
    if not "".join(members).isascii():
        raise MalformedEvent("a member's name beyond ASCII, whose place in the order readers dispute")
    for value in members.values():
        if value.__class__ is int and not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise MalformedEvent("an integer beyond 2^53 - 1, which readers round differently")
    return sorted_json(members)


def sorted_json(members: dict[str, Json]) -> bytes:
    """`canonical_header` without its look, for members that were seen to be fit in another way."""
    try:
        return orjson.dumps(members, option=_SORTED)
    except orjson.JSONEncodeError:
        raise MalformedEvent("a text that is not UTF-8") from None


def canonical_json(value: Json) -> bytes:
    """The canonical bytes of any JSON value; raises MalformedEvent when it has none."""
    try:
        return rfc8785.dumps(value)
    except RecursionError:
        raise MalformedEvent("nested too deeply") from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        # A lone surrogate in a member's name escapes `rfc8785` as UnicodeEncodeError.
        raise MalformedEvent("no canonical form: a number or a text that JSON cannot hold exactly") from None


class DirectedEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event for one recipient; `payload` is what HPKE made of it."""

    v: Literal["xp1"]
    kind: str
    sender: str
    recipient: str
    timestamp: int
    expires_at: int
    nonce: str
    # Where an answer is sealed to, so that nobody has to look it up.
    sender_enc_key: str
    enc: Literal["HPKE-Base-X25519-SHA256-ChaCha20Poly1305"]
    # Which of the recipient's keys this is sealed for.
    enc_key: str
    payload: str
    content_hash: str
    id: str
    signature: str
    # Chosen by whoever starts a conversation, and repeated in every event that belongs to it.
    correlation_id: str | None = None
    # The id of the request that this answers.
    in_reply_to: str | None = None
    # The id of the xp.key.delegate by which the sender acts for somebody else (XP 6.4).
    delegation: str | None = None


class PublicEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event for everybody; `payload` stands there as it is."""

    v: Literal["xp1"]
    kind: str
    sender: str
    timestamp: int
    expires_at: int
    nonce: str
    payload: dict[str, Any]
    id: str
    signature: str
    recipient: None = None
    sender_enc_key: str | None = None
    correlation_id: str | None = None
    in_reply_to: str | None = None
    # Of a delegation: the one that its signer was delegated to by.
    delegation: str | None = None


class SignedDirected(msgspec.Struct, frozen=True):
    """A directed event, the bytes that it travels as, and the members that its signature covers."""

    event: DirectedEvent
    raw: bytes
    covered: dict[str, Json]


class SignedPublic(msgspec.Struct, frozen=True):
    """A public event, the bytes that it travels as, and the members that its signature covers."""

    event: PublicEvent
    raw: bytes
    covered: dict[str, Json]


Event = DirectedEvent | PublicEvent
Signed = SignedDirected | SignedPublic


def decode(raw: bytes) -> Signed:
    """Read an event: size, JSON, types. Nothing is proven yet; raises MalformedEvent."""
    if len(raw) > MAX_EVENT_BYTES:
        raise MalformedEvent(f"an event of {len(raw)} bytes; {MAX_EVENT_BYTES} is the most")
    try:
        members = parse_any_depth(raw)
        signed = read(members, raw)
        if signed.__class__ is SignedPublic:
            # In the others nothing nests: `read` has seen to that.
            check_depth(raw, members)
    except InvalidJson as fault:
        raise MalformedEvent(fault.message) from None
    return signed


def read(members: Json, raw: bytes) -> Signed:
    """`decode` for members that were parsed already, such as a proof inside a payload."""
    if members.__class__ is not dict:
        raise MalformedEvent("an event is a JSON object")
    is_directed = members.get("recipient") is not None
    try:
        if is_directed:
            directed = msgspec.convert(members, DirectedEvent)
        else:
            public = msgspec.convert(members, PublicEvent)
    except msgspec.ValidationError as fault:
        raise MalformedEvent(str(fault)[:200]) from None
    covered = members.copy()
    del covered["id"], covered["signature"]
    if is_directed:
        _check_common(directed)
        _check_directed(directed)
        return SignedDirected(directed, raw, covered)
    _check_common(public)
    _check_public(public, raw)
    return SignedPublic(public, raw, covered)


def check_times(event: Event, now: float) -> None:
    """Raises UnverifiedEvent for times that make no sense, EventExpired when the event's time is over."""
    lifetime = event.expires_at - event.timestamp
    if not 0 < lifetime <= MAX_LIFETIME_SECONDS:
        raise UnverifiedEvent(
            "lifetime", f"a lifetime of {lifetime} s; 1 to {MAX_LIFETIME_SECONDS} is allowed"
        )
    if event.timestamp > now + SKEW_SECONDS:
        raise UnverifiedEvent("future", "made in the future: one of the two clocks is wrong")
    if now >= event.expires_at + SKEW_SECONDS and event.kind not in LASTING_KINDS:
        raise EventExpired(f"the event expired at {event.expires_at}")


def verify_event(signed: Signed) -> None:
    """Prove that the sender made this event as it is: id, key, signature. Raises UnverifiedEvent."""
    event = signed.event
    if signed.__class__ is SignedDirected:
        # `read` let only texts, whole numbers of a safe size and null through, under names of ours.
        covered = sorted_json(signed.covered)
    else:
        covered = canonical_json(signed.covered)
    if sha256(covered).hexdigest() != event.id:
        raise UnverifiedEvent("id", "the id is not the hash of the event")
    try:
        point = signing_point(event.sender)
        if not is_valid_signature(point, SIGNED_LABEL + covered, read_signature(event.signature)):
            raise UnverifiedEvent("signature", "the signature does not belong to this event and sender")
        # Only now, because it is slow: a forger shall not have us do it.
        verify_key(event.sender)
    except InvalidKey as fault:
        raise UnverifiedEvent("key", str(fault)) from None


def read_signature(text: str) -> bytes:
    """The bytes of a signature as it is written; raises UnverifiedEvent."""
    try:
        if text.startswith(SIGNATURE_PREFIX):
            return base64url.decode(text[len(SIGNATURE_PREFIX) :])
    except ValueError:
        pass
    raise UnverifiedEvent("signature", "a signature is written ed25519: and 86 characters of base64url")


def check_words(
    kind: str, correlation_id: str | None, in_reply_to: str | None, delegation: str | None
) -> None:
    """Raises MalformedEvent for what no event may hold in these members."""
    if not 0 < len(kind) <= MAX_KIND_CHARS or not kind.isprintable():
        raise MalformedEvent(f"kind: 1 to {MAX_KIND_CHARS} printable characters")
    if correlation_id is not None and not 0 < len(correlation_id) <= MAX_CORRELATION_CHARS:
        raise MalformedEvent(f"correlation_id: 1 to {MAX_CORRELATION_CHARS} characters")
    if in_reply_to is not None and _HEX_64.fullmatch(in_reply_to) is None:
        raise MalformedEvent("in_reply_to: the id of an event")
    if delegation is not None and _HEX_64.fullmatch(delegation) is None:
        raise MalformedEvent("delegation: the id of an xp.key.delegate event")


def _check_common(event: Event) -> None:
    check_words(event.kind, event.correlation_id, event.in_reply_to, event.delegation)
    if not (0 <= event.timestamp <= LARGEST_INTEGER and 0 <= event.expires_at <= LARGEST_INTEGER):
        raise MalformedEvent("timestamp, expires_at: whole seconds since 1970")
    try:
        signing_point(event.sender)
        if event.sender_enc_key is not None:
            sealing_point(event.sender_enc_key)
        nonce = base64url.decode(event.nonce) if len(event.nonce) == _NONCE_CHARS else b""
    except (InvalidKey, ValueError) as fault:
        raise MalformedEvent(f"sender, sender_enc_key or nonce: {fault}") from None
    if len(nonce) != NONCE_BYTES:
        raise MalformedEvent(f"nonce: {NONCE_BYTES} bytes in base64url")
    if _HEX_64.fullmatch(event.id) is None:
        raise MalformedEvent("id: 64 hexadecimal digits in lower case")


def _check_directed(event: DirectedEvent) -> None:
    if event.kind in PUBLIC_KINDS:
        raise MalformedEvent(f"{event.kind} is public and has no recipient")
    try:
        signing_point(event.recipient)
        sealing_point(event.enc_key)
    except InvalidKey as fault:
        raise MalformedEvent(f"recipient or enc_key: {fault}") from None


def _check_public(event: PublicEvent, raw: bytes) -> None:
    if event.kind not in PUBLIC_KINDS:
        raise MalformedEvent("no recipient, and not of a kind that is public")
    if len(raw) > MAX_PUBLIC_EVENT_BYTES:
        raise MalformedEvent(f"a public event of {len(raw)} bytes; {MAX_PUBLIC_EVENT_BYTES} is the most")
    check_values(event.payload)


def check_values(payload: Json) -> None:
    """Raises MalformedEvent when a public payload holds too many values."""
    found, level = 1, [payload]
    while level:
        inner: list[Json] = []
        for container in level:
            inner += container.values() if container.__class__ is dict else container
            if found + len(inner) > MAX_PUBLIC_VALUES:
                raise MalformedEvent(f"a public event with more than {MAX_PUBLIC_VALUES} values")
        found += len(inner)
        level = [value for value in inner if value.__class__ in CONTAINERS]
