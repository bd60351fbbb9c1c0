"""MEW v0.4 on the wire (MEW 3): the canonical dialect, so there is little to translate.

`decode` runs once for every message of every member. Its quick way takes the envelope that nearly all
clients send (all members there, a kind of the table, nothing unknown) and asks only what can be seen
at a glance. Whatever it hesitates at goes the careful way, which names the fault or accepts it, so the
quick way never refuses anything and both give the same envelope.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from moot.errors import InvalidEnvelope, MalformedEnvelope
from moot.protocol.dialects.translation import (
    MEW_PROTOCOL,
    copied,
    note_origin,
    notice_bytes,
    read_kind_member,
    read_members,
)
from moot.protocol.envelope import (
    DEFAULT_LIMITS,
    DialectName,
    Envelope,
    EnvelopeLimits,
    check_names,
    read_object,
    rewrite,
)
from moot.protocol.jsontext import CONTAINERS, check_depth, parse_any_depth
from moot.protocol.kinds import KINDS, OLD_SPELLINGS
from moot.protocol.operation import Json, Operation
from moot.protocol.payloads import Notice

_NOBODY: Final = ()


class Mew:
    """MEW v0.4. It has no state; use the one instance, `MEW`."""

    __slots__ = ()
    name: Final[DialectName] = "mew"
    protocol: Final = MEW_PROTOCOL

    def decode(
        self,
        raw: bytes,
        limits: EnvelopeLimits = DEFAULT_LIMITS,
        *,
        accept_protocols: frozenset[str] = frozenset(),
    ) -> Envelope:
        """The envelope in these bytes; raises MalformedEnvelope, and nothing else, if there is none."""
        fields: Json = parse_any_depth(raw) if len(raw) <= limits.max_bytes else None
        if fields.__class__ is not dict:
            fields = read_object(raw, limits)  # raises, and says why
        get = fields.get
        kind, id, ts, sender, payload = get("kind"), get("id"), get("ts"), get("from"), get("payload")
        longest = limits.id_chars
        if not (
            get("protocol") == MEW_PROTOCOL
            and kind.__class__ is str
            and kind in KINDS
            and id.__class__ is str
            and 0 < len(id) <= longest
            and id.isprintable()
            and sender.__class__ is str
            and 0 < len(sender) <= longest
            and payload.__class__ is dict
            and ts.__class__ is str
            and _is_plain_timestamp(ts)
        ):
            return _decode_carefully(raw, fields, limits, accept_protocols)

        members = 6
        to = get("to", _NOBODY)
        if to is not _NOBODY:
            members += 1
            if not _are_names(to, limits.max_recipients, longest):
                return _decode_carefully(raw, fields, limits, accept_protocols)
        correlation_id = get("correlation_id", _NOBODY)
        if correlation_id is not _NOBODY:
            members += 1
            if not _are_names(correlation_id, limits.max_correlations, longest):
                return _decode_carefully(raw, fields, limits, accept_protocols)
        # Anything left over is `context`, a null or unknown, and then the whole depth counts.
        if len(fields) != members:
            return _decode_carefully(raw, fields, limits, accept_protocols)
        for value in payload.values():
            if value.__class__ in CONTAINERS:
                check_depth(raw, fields)
                break
        return Envelope("mew", kind, id, ts, sender, to, correlation_id, None, payload, raw, (), kind)

    def encode(
        self, envelope: Envelope, *, operation: Operation | None = None, proposer: str | None = None
    ) -> bytes | None:
        """The sender's own bytes, or the translated copy; MEW has a word for every kind."""
        if envelope.dialect == "mew":
            return envelope.raw
        correlation = {"correlation_id": list(envelope.correlation_id) or None, "x_correlation_ids": None}
        return copied(envelope, "mew", kind=envelope.kind, correlation=correlation)

    def encode_notice(self, notice: Notice) -> bytes | None:
        return notice_bytes(
            notice,
            "mew",
            kind=notice.kind,
            sender=notice.sender,
            correlation_id=list(notice.correlation_id),
            payload=notice.payload,
        )


MEW: Final = Mew()


def check_canonical_kind(kind: str) -> None:
    """D-93: what MCPx would read as a request must not pass for a vendor kind here."""
    if kind.startswith(OLD_SPELLINGS):
        base = kind.partition(":")[0]
        raise InvalidEnvelope(
            f"kind {kind!r} is spelled as in MCPx: write {base!r}, the method goes into payload.method"
        )


def _decode_carefully(
    raw: bytes, fields: dict[str, Json], limits: EnvelopeLimits, accept_protocols: frozenset[str]
) -> Envelope:
    check_depth(raw, fields)
    try:
        members = read_members(fields, MEW_PROTOCOL, accept_protocols=accept_protocols, limits=limits)
        kind = read_kind_member(fields, limits.kind_chars)
        check_canonical_kind(kind)
        correlation_id: Json = fields.get("correlation_id", _NOBODY)
        if correlation_id.__class__ is str:
            # D-07: what older clients send; receivers may count on the list.
            correlation_id = [correlation_id]
            raw = rewrite(raw, {"correlation_id": correlation_id})
        if correlation_id is not _NOBODY:
            check_names(correlation_id, "correlation_id", limits.max_correlations, limits)
    except MalformedEnvelope as fault:
        note_origin(fault, fields, limits)
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


def _are_names(value: Json, most: int, longest: int) -> bool:
    if value.__class__ is not list or len(value) > most:
        return False
    for name in value:  # noqa: SIM110  (a loop is half the price of a generator)
        if name.__class__ is not str or not 0 < len(name) <= longest:
            return False
    return True


def _is_plain_timestamp(ts: str) -> bool:
    """Whether it is `YYYY-MM-DDThh:mm:ssZ`, with or without milliseconds, and a day that exists."""
    # One slice takes every third character from the fifth on: all the separators at once.
    separators = ts[4:20:3]
    if separators == "--T::.":
        if len(ts) != 24 or ts[23] != "Z":
            return False
    elif separators != "--T::Z" or len(ts) != 20:
        return False
    try:
        datetime.fromisoformat(ts)
    except ValueError:
        return False
    # Python 3.14 takes hour 24 for midnight, RFC 3339 does not.
    return ts[11:13] != "24"
