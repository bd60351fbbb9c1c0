"""MEW v0.4 on the wire (MEW 3): the canonical dialect, so there is little to translate.

`decode` runs once for every message of every member. Envelopes as nearly all clients send them are read by
the compiled scanner (`ordinary_envelope`). Whatever it hesitates at goes the careful way, which names the
fault or accepts it, so the quick way never refuses anything and both give the same envelope.
"""

from __future__ import annotations

from typing import Final

from moot.errors import InvalidEnvelope, MalformedEnvelope
from moot.protocol.dialects.translation import (
    MEW_PROTOCOL,
    encode_notice_fields,
    note_origin,
    read_kind_member,
    read_members,
    translate_copy,
)
from moot.protocol.envelope import (
    DEFAULT_LIMITS,
    MAX_CORRELATIONS,
    MAX_KIND_CHARS,
    DialectName,
    Envelope,
    EnvelopeLimits,
    check_names,
    read_object,
    rewrite,
)
from moot.protocol.kinds import KINDS, OLD_SPELLINGS
from moot.protocol.operation import Json, Operation
from moot.protocol.ordinary_envelope import read_envelope
from moot.protocol.payloads import GatewayNotice

_KNOWN_KINDS: Final = {kind: (kind, None) for kind in KINDS}


class MewDialect:
    """MEW v0.4. It has no state; use the one instance, `MEW`."""

    __slots__ = ()
    name: Final[DialectName] = "mew"
    protocol: Final = MEW_PROTOCOL

    # `accept_protocols` is not keyword-only: CPython pays for every keyword that is left out.
    def decode(
        self,
        raw: bytes,
        limits: EnvelopeLimits = DEFAULT_LIMITS,
        accept_protocols: frozenset[str] = frozenset(),
    ) -> Envelope:
        """The envelope in these bytes; raises MalformedEnvelope, and nothing else, if there is none."""
        size = len(raw)
        # Each object or array takes two bytes at least, so that most messages need no count.
        if size <= limits.max_bytes and size >> 1 <= limits.max_containers:
            found = read_envelope(raw, "mew", _KNOWN_KINDS)
            if found is not None:
                return found
        return decode_slow(raw, limits, accept_protocols)

    def encode(
        self, envelope: Envelope, *, operation: Operation | None = None, proposer: str | None = None
    ) -> bytes | None:
        """The sender's own bytes, or the translated copy; MEW has a word for every kind."""
        del operation, proposer  # MEW has neither METHOD nor proposer to show
        if envelope.dialect == "mew":
            return envelope.raw
        correlation = {"correlation_id": list(envelope.correlation_id) or None, "x_correlation_ids": None}
        return translate_copy(envelope, "mew", kind=envelope.kind, correlation=correlation)

    def encode_notice(self, notice: GatewayNotice) -> bytes | None:
        return encode_notice_fields(
            notice,
            "mew",
            kind=notice.kind,
            sender=notice.sender,
            correlation_id=list(notice.correlation_id),
            payload=notice.payload,
        )


MEW: Final = MewDialect()


def check_canonical_kind(kind: str) -> None:
    """D-93: what MCPx would read as a request must not pass for a vendor kind here."""
    if kind.startswith(OLD_SPELLINGS):
        base = kind.partition(":")[0]
        raise InvalidEnvelope(
            f"kind {kind!r} is spelled as in MCPx: write {base!r}, the method goes into payload.method"
        )


def decode_slow(raw: bytes, limits: EnvelopeLimits, accept_protocols: frozenset[str]) -> Envelope:
    """The envelope in these bytes, however it is written; raises MalformedEnvelope if there is none."""
    fields = read_object(raw, limits)
    try:
        members = read_members(fields, MEW_PROTOCOL, accept_protocols=accept_protocols)
        kind = read_kind_member(fields, MAX_KIND_CHARS)
        check_canonical_kind(kind)
        correlation_id: Json = fields.get("correlation_id", ())
        if correlation_id.__class__ is str:
            # D-07: what older clients send; receivers may count on the list.
            correlation_id = [correlation_id]
            raw = rewrite(raw, {"correlation_id": correlation_id})
        if correlation_id != ():
            check_names(correlation_id, "correlation_id", MAX_CORRELATIONS)
    except MalformedEnvelope as fault:
        note_origin(fault, fields)
        raise
    return Envelope(
        "mew",
        kind,
        members.id,
        members.ts,
        members.sender,
        members.to,
        correlation_id,
        members.context,
        members.payload,
        raw,
        members.missing,
        kind,
    )
