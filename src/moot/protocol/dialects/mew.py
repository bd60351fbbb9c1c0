"""MEW v0.4 on the wire (MEW 3): the canonical dialect, so there is little to translate.

`decode` runs once for every message of every member. Its quick way takes the envelope that nearly all
clients send (all members there, a kind of the table, nothing unknown) and asks only what can be seen
at a glance. Whatever it hesitates at goes the careful way, which names the fault or accepts it, so the
quick way never refuses anything and both give the same envelope.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orjson import dumps, loads

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
    MAX_CONTEXT_CHARS,
    MAX_CORRELATIONS,
    MAX_ID_CHARS,
    MAX_KIND_CHARS,
    MAX_RECIPIENTS,
    DialectName,
    Envelope,
    EnvelopeLimits,
    check_names,
    read_object,
    rewrite,
)
from moot.protocol.kinds import KINDS, OLD_SPELLINGS
from moot.protocol.operation import Json, Operation
from moot.protocol.payloads import GatewayNotice
from moot.protocol.strict_json import CONTAINERS, accept_differing, check_containers, check_depth

# Seconds that a checked timestamp has named, and what JavaScript's clock and most others end them with.
_seconds: set[str] = set()
_SECONDS_KEPT: Final = 4_096
_ENDS_OF_SECONDS: Final = frozenset({"Z", *(f".{millisecond:03d}Z" for millisecond in range(1_000))})


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
        fields: Json = None
        try:
            size = len(raw)
            if size <= limits.max_bytes:
                # Each takes two bytes at least, so that most messages need no count.
                if size >> 1 > limits.max_containers:
                    check_containers(raw, limits.max_containers)
                value = loads(raw)
                # The same bytes again: no key occurs twice, no digit is lost (see strict_json).
                again = dumps(value)
                fields = value if again == raw else accept_differing(raw, value, again)
            id = fields["id"]
            ts = fields["ts"]
            sender = fields["from"]
            kind = fields["kind"]
            payload = fields["payload"]
            if (
                kind in KINDS
                and fields["protocol"] == MEW_PROTOCOL
                and id.isprintable()
                and sender.__class__ is str
                and id
                and sender
                and len(id) + len(sender) <= MAX_ID_CHARS
                # A second that the careful way has seen; all of a busy moment share one.
                and ts[:19] in _seconds
                and ts[19:] in _ENDS_OF_SECONDS
            ):
                for value in payload.values():
                    if value.__class__ is not str and value.__class__ in CONTAINERS:
                        check_depth(raw, fields)
                        break
                if len(fields) == 6:
                    return Envelope("mew", kind, id, ts, sender, (), (), None, payload, raw, (), kind)
                optional = _read_optional_fast(fields)
                if optional is not None:
                    to, correlation_id, context = optional
                    return Envelope(
                        "mew", kind, id, ts, sender, to, correlation_id, context, payload, raw, (), kind
                    )
        except (LookupError, TypeError, AttributeError, ValueError):
            # A member is absent or not what it should be, or this is no JSON; the slow path finds out which.
            pass
        return _decode_slow(raw, fields, limits, accept_protocols)

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


def _decode_slow(
    raw: bytes, fields: Json, limits: EnvelopeLimits, accept_protocols: frozenset[str]
) -> Envelope:
    if fields.__class__ is not dict:
        fields = read_object(raw, limits)  # mostly raises, and says why
    check_depth(raw, fields)
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
    if members.ts:
        if len(_seconds) >= _SECONDS_KEPT:
            _seconds.clear()
        _seconds.add(members.ts[:19])
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


def _read_optional_fast(
    fields: dict[str, Json],
) -> tuple[Sequence[str], Sequence[str], str | None] | None:
    """`to`, `correlation_id` and `context` if they are as they should be and nothing else is there."""
    members = 6
    to: Json = fields.get("to")
    correlation_id: Json = fields.get("correlation_id")
    for names, most in ((to, MAX_RECIPIENTS), (correlation_id, MAX_CORRELATIONS)):
        if names is None:
            continue
        if names.__class__ is not list or len(names) > most:
            return None
        for name in names:
            if name.__class__ is not str or not 0 < len(name) <= MAX_ID_CHARS:
                return None
        members += 1
    context: Json = fields.get("context")
    if context.__class__ is str and len(context) <= MAX_CONTEXT_CHARS:
        members += 1
    if len(fields) != members:
        # One more is unknown, a null or not as it should be.
        return None
    return () if to is None else to, () if correlation_id is None else correlation_id, context
