"""MCPx v0.1 on the wire (MCPx 3, D002): METHOD and CONTEXT are part of the kind, correlation is one string.

m3p differs from it in the grammar of kinds only (D-51), so `LegacyDialect` serves both and each brings a
reader (wire kind to canonical kind and claim) and a writer (the spellings to try, best first). Nothing is
written that its own dialect would not read back as the same kind; then there is no copy at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from moot.errors import InvalidEnvelope, MalformedEnvelope
from moot.protocol.dialects.translation import (
    MCPX_PROTOCOL,
    UNKNOWN_METHOD,
    encode_notice_fields,
    note_origin,
    operation_for_copy,
    read_kind_member,
    read_members,
    translate_copy,
)
from moot.protocol.envelope import (
    DEFAULT_LIMITS,
    MAX_CORRELATIONS,
    MAX_EXTENDED_KIND_CHARS,
    MAX_KIND_CHARS,
    DialectName,
    Envelope,
    EnvelopeLimits,
    check_kind,
    check_names,
    read_object,
)
from moot.protocol.kinds import KINDS, MCPX_WORDS, OPERATION_KINDS
from moot.protocol.operation import Json, Operation
from moot.protocol.ordinary_envelope import read_envelope
from moot.protocol.payloads import GATEWAY, GatewayNotice

NO_CLAIM: Final = Operation(None, None)
# Wire kinds that are kept with their meaning: methods times tools, at each connection of a busy space.
_KINDS_KEPT: Final = 4_096


class KindReading(NamedTuple):
    """What a wire kind means: the canonical kind, and the operation it claims to be about."""

    kind: str
    claim: Operation


class LegacyDialect(msgspec.Struct, frozen=True, eq=False):
    """A dialect whose protocol is `mcpx/v0.1` on the wire, with its grammar of kinds."""

    name: DialectName
    read_kind: Callable[[str], KindReading]
    spellings: Callable[[str, Operation], Iterator[str]]
    # Kinds that were accepted, and what they mean.
    _known_kinds: dict[str, KindReading] = msgspec.field(default_factory=dict)

    @property
    def protocol(self) -> str:
        return MCPX_PROTOCOL

    def decode(
        self,
        raw: bytes,
        limits: EnvelopeLimits = DEFAULT_LIMITS,
        *,
        accept_protocols: frozenset[str] = frozenset(),
    ) -> Envelope:
        """The envelope in these bytes; raises MalformedEnvelope, and nothing else, if there is none."""
        size = len(raw)
        if size <= limits.max_bytes and size >> 1 <= limits.max_containers:
            found = read_envelope(raw, self.name, self._known_kinds)
            if found is not None:
                return found
        return self.decode_slow(raw, limits, accept_protocols)

    def decode_slow(self, raw: bytes, limits: EnvelopeLimits, accept_protocols: frozenset[str]) -> Envelope:
        """The same, however it is written."""
        fields = read_object(raw, limits)
        try:
            members = read_members(fields, MCPX_PROTOCOL, accept_protocols=accept_protocols)
            wire_kind = read_kind_member(fields, MAX_EXTENDED_KIND_CHARS)
            kind, claim = self.read_kind(wire_kind)
            # D-08 for the canonical kind too, or a copy for MEW would not be MEW.
            check_kind(kind, MAX_KIND_CHARS)
            self._keep_kind(wire_kind, KindReading(kind, claim))
            correlation_id = _read_correlation(fields, kind)
        except MalformedEnvelope as fault:
            note_origin(fault, fields)
            raise
        return Envelope(
            self.name,
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
            wire_kind,
            claim,
        )

    def _keep_kind(self, wire_kind: str, meant: KindReading) -> None:
        # Longer ones are URIs, which seldom come twice.
        if len(wire_kind) <= MAX_KIND_CHARS:
            if len(self._known_kinds) >= _KINDS_KEPT:
                self._known_kinds.clear()
            self._known_kinds[wire_kind] = meant

    def encode(
        self, envelope: Envelope, *, operation: Operation | None = None, proposer: str | None = None
    ) -> bytes | None:
        """The sender's own bytes, or the translated copy; None when this dialect has no words for the kind.

        `operation` is what the request did that a response answers, `proposer` whose proposal that fulfilled.
        """
        if envelope.dialect == self.name:
            return envelope.raw
        kind = self.spelling(envelope.kind, operation_for_copy(envelope, operation))
        if kind is None:
            return None
        correlation = _encode_correlation(envelope.kind, envelope.correlation_id)
        to = _addressees(envelope, proposer)
        return translate_copy(envelope, self.name, kind=kind, correlation=correlation, to=to)

    def encode_notice(self, notice: GatewayNotice) -> bytes | None:
        """The gateway's own message; None for what this dialect does not know (D-23)."""
        kind = self.spelling(notice.kind, Operation(UNKNOWN_METHOD, None))
        payload = _notice_payload(notice)
        if kind is None or payload is None:
            return None
        return encode_notice_fields(
            notice,
            self.name,
            kind=kind,
            sender=GATEWAY,
            correlation_id=notice.correlation_id[0] if notice.correlation_id else None,
            payload=payload,
        )

    def spelling(self, kind: str, operation: Operation) -> str | None:
        """The first spelling that this dialect itself reads as this kind and no other operation."""
        for wire_kind in self.spellings(kind, operation):
            try:
                check_kind(wire_kind, MAX_EXTENDED_KIND_CHARS)
                reading = self.read_kind(wire_kind)
            except InvalidEnvelope:
                continue
            if reading.kind == kind and _agrees(reading.claim, operation, kind):
                return wire_kind
        return None


def _agrees(claim: Operation, operation: Operation, kind: str) -> bool:
    if kind not in OPERATION_KINDS:
        return claim == NO_CLAIM
    # D002: the short kind says less, but nothing wrong.
    return claim.method == operation.method and claim.context in (None, operation.context)


def _addressees(envelope: Envelope, proposer: str | None) -> Sequence[str] | None:
    """D-30: a copy names the proposer too, whoever left it out. None: as the original has it."""
    if envelope.kind != "mcp/response" or proposer is None:
        return None
    # A broadcast reaches the proposer as it is.
    return None if not envelope.to or proposer in envelope.to else [*envelope.to, proposer]


# Correlation: one string where MEW has a list.


def _read_correlation(fields: Mapping[str, Json], kind: str) -> Sequence[str]:
    several: list[str] = fields.get("x_correlation_ids", [])
    try:
        check_names(several, "x_correlation_ids", MAX_CORRELATIONS)
    except InvalidEnvelope:
        several = []  # a member of the sender's own making, not ours to refuse
    if "correlation_id" not in fields:
        # D-29: on the copy of a proposal they are alone.
        return several if several and kind == "mcp/proposal" else ()
    first = fields["correlation_id"]
    if first.__class__ is not str:
        raise InvalidEnvelope("correlation_id must be a string")
    check_names([first], "correlation_id", 1)
    return several if several[:1] == [first] else [first]


def _encode_correlation(kind: str, correlation_id: Sequence[str]) -> dict[str, Json]:
    several = list(correlation_id)
    if kind == "mcp/proposal":
        # D-29: MCPx proposals start a thread; what MEW correlates them to is in a field of its own.
        return {"correlation_id": None, "x_correlation_ids": several or None}
    return {
        "correlation_id": several[0] if several else None,
        "x_correlation_ids": several if len(several) > 1 else None,
    }


# What the gateway sends.


def _notice_payload(notice: GatewayNotice) -> Mapping[str, Json] | None:
    """Section 6: members are shown with id and capabilities, streams not at all, invitations to nobody."""
    payload = notice.payload
    if notice.kind == "system/welcome":
        shown = {
            "you": _member(payload["you"]),
            "participants": [_member(participant) for participant in payload["participants"]],
        }
        return shown | {name: payload[name] for name in ("extensions", "more") if name in payload}
    if notice.kind == "moot/roster-page":
        page = {"participants": [_member(participant) for participant in payload["participants"]]}
        return page | {"next": payload["next"]} if "next" in payload else page
    if notice.kind == "system/presence":
        if payload["event"] == "invited":
            return None
        return {**payload, "participant": _member(payload["participant"])}
    return payload


def _member(member: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in member.items() if name in ("id", "capabilities")}


# Kinds (D-47): BASE[:METHOD[:CONTEXT]], a base of the table standing for itself.

_CANONICAL: Final[Mapping[str, str]] = {word: kind for kind, word in MCPX_WORDS.items()}
# D-44: names of the draft's list that its sections replaced; the gateway speaks neither.
_BARE: Final = frozenset({"presence", "system"})


def read_kind(wire_kind: str) -> KindReading:
    """The canonical kind of an MCPx kind; raises InvalidEnvelope for what is none."""
    base, colon, rest = wire_kind.partition(":")
    if base in OPERATION_KINDS:
        method, second_colon, context = rest.partition(":")
        if not method or (second_colon and not context):
            raise InvalidEnvelope(f"kind must be {base}:METHOD or {base}:METHOD:CONTEXT, no part empty")
        return KindReading(base, Operation(method, context or None))
    if base == "mcp":
        raise InvalidEnvelope("kind mcp is of MCPx v0.0: write mcp/request:METHOD")
    if base in MCPX_WORDS:
        raise InvalidEnvelope(f"kind {base} is spelled as in MEW: write {MCPX_WORDS[base]}")
    kind = _CANONICAL.get(base, base)
    if not colon:
        return KindReading(kind, NO_CLAIM)
    # A reader that splits at the colon would take it for the kind before it.
    if kind in KINDS or base in _BARE:
        raise InvalidEnvelope(f"kind {base} takes no METHOD")
    return KindReading(wire_kind, NO_CLAIM)


def spellings(kind: str, operation: Operation) -> Iterator[str]:
    """How MCPx can write a kind, best first."""
    if kind in OPERATION_KINDS:
        if operation.method is not None:
            if operation.context is not None:
                yield f"{kind}:{operation.method}:{operation.context}"
            yield f"{kind}:{operation.method}"
    elif kind not in _BARE:
        yield MCPX_WORDS.get(kind, kind)


MCPX: Final = LegacyDialect("mcpx", read_kind, spellings)
