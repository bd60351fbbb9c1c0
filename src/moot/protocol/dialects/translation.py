"""What the dialects have in common (dialects.md sections 5 and 6).

Reading: every envelope has the same members apart from `kind` and `correlation_id`, which each dialect
reads itself. Writing: a member of another dialect gets a copy made here. A copy differs from the
original only in the members named in `translate_copy`; all others, the payload included, keep their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from moot.errors import InvalidEnvelope, InvalidPattern, MalformedEnvelope, ProtocolMismatch
from moot.protocol import strict_json
from moot.protocol.envelope import (
    MAX_EXTENDED_KIND_CHARS,
    MAX_ID_CHARS,
    MAX_RECIPIENTS,
    NO_PAYLOAD,
    DialectName,
    Envelope,
    check_context,
    check_id,
    check_kind,
    check_names,
    check_payload,
    check_timestamp,
    rewrite,
)
from moot.protocol.operation import CONTEXT_PATHS, Json, Operation, Payload, operation_of
from moot.protocol.patterns import Capability, read_capability
from moot.protocol.payloads import GatewayNotice

MEW_PROTOCOL: Final = "mew/v0.4"
MCPX_PROTOCOL: Final = "mcpx/v0.1"
# D-51: m3p changes the grammar of kinds and nothing else.
PROTOCOLS: Final[Mapping[DialectName, str]] = {
    "mew": MEW_PROTOCOL,
    "mcpx": MCPX_PROTOCOL,
    "m3p": MCPX_PROTOCOL,
}

# D-50: what the third level of a dotted chat kind means for the text.
CHAT_FORMATS: Final[Mapping[str, str]] = {"chat.message.text": "plain", "chat.message.markdown": "markdown"}

# Where members write capabilities, which every dialect shows in its own notation.
CAPABILITY_LISTS: Final[Mapping[str, str]] = {
    "capability/grant": "capabilities",
    "capability/revoke": "capabilities",
    "space/invite": "initial_capabilities",
}

# Section 2: the METHOD of a response to a request that nobody remembers.
UNKNOWN_METHOD: Final = "unknown"


# Reading.


class Members(NamedTuple):
    """The members that all dialects read alike; "" for those in `missing`."""

    id: str
    ts: str
    sender: str
    to: Sequence[str]
    context: str | None
    payload: Payload
    missing: tuple[str, ...]


def read_members(fields: Mapping[str, Json], protocol: str, *, accept_protocols: frozenset[str]) -> Members:
    """All but kind and correlation, each one checked; raises a MalformedEnvelope that names the member."""
    # A null is a value of the wrong type here, not an absent one: readers differ on what it would mean.
    if "protocol" in fields:
        check_protocol(fields["protocol"], protocol, accept_protocols)
    if "id" in fields:
        check_id(fields["id"])
    if "ts" in fields:
        check_timestamp(fields["ts"])
    if "from" in fields:
        check_sender(fields["from"])
    if "to" in fields:
        check_names(fields["to"], "to", MAX_RECIPIENTS)
    if "context" in fields:
        check_context(fields["context"])
    if "payload" in fields:
        check_payload(fields["payload"])
    return Members(
        id=fields.get("id", ""),
        ts=fields.get("ts", ""),
        sender=fields.get("from", ""),
        to=fields.get("to", ()),
        context=fields.get("context"),
        payload=fields.get("payload", NO_PAYLOAD),
        missing=tuple(name for name in ("protocol", "id", "ts", "from") if name not in fields),
    )


def check_protocol(value: Json, protocol: str, accept_protocols: frozenset[str]) -> None:
    """D-06: this connection's protocol, or another one that the configuration admits."""
    if value.__class__ is not str:
        raise InvalidEnvelope("protocol must be a string")
    if value != protocol and value not in accept_protocols:
        raise ProtocolMismatch(f"protocol is {value[:64]!r}, but this connection speaks {protocol!r}")


def check_sender(value: Json) -> None:
    if value.__class__ is not str or not value or len(value) > MAX_ID_CHARS:
        raise InvalidEnvelope(f"from must be a non-empty string of at most {MAX_ID_CHARS} characters")


def read_kind_member(fields: Mapping[str, Json], longest: int) -> str:
    if "kind" not in fields:
        raise InvalidEnvelope("kind is missing")
    check_kind(fields["kind"], longest)
    kind: str = fields["kind"]
    return kind


def note_origin(fault: MalformedEnvelope, fields: Mapping[str, Json]) -> None:
    """D-42: what could be read of a refused envelope goes into the answer, so that its sender knows which."""
    with suppress(InvalidEnvelope):
        check_id(fields.get("id"))
        fault.about = fields["id"]
    with suppress(InvalidEnvelope):
        fault.kind = read_kind_member(fields, MAX_EXTENDED_KIND_CHARS)


# Writing.


def translate_copy(
    envelope: Envelope,
    dialect: DialectName,
    *,
    kind: str,
    correlation: Mapping[str, Json],
    to: Sequence[str] | None = None,
) -> bytes:
    """The envelope as members of another dialect get it; `kind` and `correlation` are in its form already."""
    changes: dict[str, Json] = {"protocol": PROTOCOLS[dialect], "kind": kind, **correlation}
    if to is not None:
        changes["to"] = list(to)
    payload = _payload_for(envelope, dialect)
    if payload is not None:
        changes["payload"] = payload
    # Last, and whatever the sender wrote there itself: only the gateway states where a copy comes from.
    changes["x_origin"] = {"protocol": PROTOCOLS[envelope.dialect], "kind": envelope.wire_kind}
    return rewrite(envelope.raw, changes)


def operation_for_copy(envelope: Envelope, asked: Operation | None) -> Operation:
    """What METHOD and CONTEXT a copy has to carry: facts first, then what a legacy sender claims."""
    if envelope.kind == "mcp/response":
        if asked is not None and asked.method is not None:
            return asked
        return _claimed(envelope) or Operation(UNKNOWN_METHOD, None)
    facts = operation_of(envelope.payload)
    return facts if facts.method is not None else _claimed(envelope) or facts


def _claimed(envelope: Envelope) -> Operation | None:
    claim = envelope.claim
    if claim is None or claim.method is None:
        return None
    return claim if claim.method in CONTEXT_PATHS else Operation(claim.method, None)


def _payload_for(envelope: Envelope, dialect: DialectName) -> dict[str, Json] | None:
    """The payload where a copy's differs from the original's: capability lists, and the format of a chat."""
    member = CAPABILITY_LISTS.get(envelope.kind)
    if member is not None:
        held = envelope.payload.get(member)
        if isinstance(held, list):
            return {**envelope.payload, member: _views(held, envelope.dialect, dialect)}
    elif envelope.dialect == "m3p" and "format" not in envelope.payload:
        text_format = CHAT_FORMATS.get(envelope.wire_kind)
        if text_format is not None:
            return {**envelope.payload, "format": text_format}
    return None


def _views(held: list[Json], place: DialectName, notation: DialectName) -> list[Json]:
    shown: list[Json] = []
    for entry in held:
        try:
            shown += read_capability(entry, place=place).view(notation)
        except InvalidPattern:
            # D-53: what cannot be written in that notation is left out, never guessed at.
            continue
    return shown


def encode_notice_fields(
    notice: GatewayNotice,
    dialect: DialectName,
    *,
    kind: str,
    sender: str,
    correlation_id: str | Sequence[str] | None,
    payload: Mapping[str, Json],
) -> bytes:
    """A message of the gateway's own, in the order of members that the specs' examples have."""
    members: dict[str, Json] = {
        "protocol": PROTOCOLS[dialect],
        "id": notice.id,
        "ts": notice.ts,
        "from": sender,
    }
    if notice.to:
        members["to"] = list(notice.to)
    members["kind"] = kind
    if correlation_id:
        members["correlation_id"] = correlation_id
    members["payload"] = show_capabilities(payload, dialect)
    return strict_json.encode(members)


def show_capabilities(value: Json, notation: DialectName) -> Json:
    """The same value, each Capability in a list replaced by what this notation shows of it."""
    if isinstance(value, Mapping):
        return {name: show_capabilities(item, notation) for name, item in value.items()}
    if isinstance(value, list | tuple):
        shown: list[Json] = []
        for item in value:
            if isinstance(item, Capability):
                shown += item.view(notation)
            else:
                shown.append(show_capabilities(item, notation))
        return shown
    return value
