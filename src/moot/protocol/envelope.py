"""One message of a space, decoded, checked and ready to be forwarded byte for byte (MEW 3, D-05 to D-07).

`Envelope` is the canonical MEW view of what a member sent, with the sender's own bytes beside it. A
member of the same dialect gets those bytes; nothing is written again unless a field is missing
(D-05: filled), a lone correlation id stands without its list (D-07) or a logical name is addressed (D-19).
Then only that member of the JSON object changes, and all others keep their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal

import msgspec
import orjson

from moot.errors import InvalidEnvelope
from moot.protocol import strict_json
from moot.protocol.operation import Json, Operation, Payload

DialectName = Literal["mew", "mcpx", "m3p"]

NO_PAYLOAD: Final[dict[str, Json]] = {}


# An id or a name: a UUID has 36 characters, a URN some more.
MAX_ID_CHARS: Final = 256
# D-08: a MEW kind.
MAX_KIND_CHARS: Final = 256
# MCPx and m3p kinds carry method and context, which may be a URI of 1 KiB (D002) and more.
MAX_EXTENDED_KIND_CHARS: Final = 2048
# The path of a sub-context.
MAX_CONTEXT_CHARS: Final = 1024
# Entries of `to`.
MAX_RECIPIENTS: Final = 1024
# Entries of `correlation_id`: a summary of many analyses names them all.
MAX_CORRELATIONS: Final = 256


class EnvelopeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large one envelope may be. Every refusal names the limit it hit."""

    # 1 MiB: what common WebSocket servers allow one message; bulk data belongs into streams.
    max_bytes: int = 1 << 20
    # Objects and arrays: parsing costs by these. A megabyte of tool definitions has some 30,000.
    max_containers: int = strict_json.MAX_CONTAINERS


DEFAULT_LIMITS: Final = EnvelopeLimits()
# For what was accepted once, under whatever limits held then.
ANY_SIZE: Final = EnvelopeLimits(**dict.fromkeys(EnvelopeLimits.__struct_fields__, 1 << 62))


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A member's message. `kind`, `correlation_id` and the rest are as MEW has them, in every dialect."""

    dialect: DialectName
    kind: str
    id: str  # "" while missing
    ts: str  # "" while missing
    sender: str  # "" while missing
    to: Sequence[str]
    correlation_id: Sequence[str]
    context: str | None
    payload: Payload
    raw: bytes
    missing: tuple[str, ...] = ()
    wire_kind: str = ""  # as sent; equals `kind` in MEW
    claim: Operation | None = None  # METHOD and CONTEXT in the kind; None for MEW, which has no such thing


def read_object(raw: bytes, limits: EnvelopeLimits) -> dict[str, Json]:
    """The one top-level JSON object of a message, fields not yet looked at."""
    if len(raw) > limits.max_bytes:
        raise InvalidEnvelope(f"{len(raw)} bytes are more than max_bytes {limits.max_bytes}")
    fields = strict_json.parse(raw, max_containers=limits.max_containers)
    if fields.__class__ is not dict:
        raise InvalidEnvelope("an envelope is one JSON object")
    members: dict[str, Json] = fields
    return members


# The field checks. They are functions of one field each, so that all dialects share them.

_RFC3339 = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?"
    r"([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def check_id(value: Json) -> None:
    if value.__class__ is not str or not value:
        raise InvalidEnvelope("id must be a non-empty string")
    if len(value) > MAX_ID_CHARS:
        raise InvalidEnvelope(f"id is longer than {MAX_ID_CHARS} characters")
    if not value.isprintable() and _CONTROL.search(value):
        raise InvalidEnvelope("id holds control characters")


def check_timestamp(value: Json) -> None:
    """MEW 3: an RFC 3339 timestamp."""
    if value.__class__ is not str or len(value) > 64 or _RFC3339.fullmatch(value) is None:
        raise InvalidEnvelope("ts must be an RFC 3339 timestamp such as 2026-01-31T12:00:00Z")
    if value[8:10] > "28":
        try:
            datetime(int(value[:4]) or 4, int(value[5:7]), int(value[8:10]), tzinfo=UTC)
        except ValueError:
            raise InvalidEnvelope(f"ts names a day that does not exist: {value[:10]}") from None


def check_kind(value: Json, longest: int) -> None:
    """D-08: 1 to 256 characters, no control characters; what they mean is not ours to judge."""
    if value.__class__ is not str or not value:
        raise InvalidEnvelope("kind must be a non-empty string")
    if len(value) > longest:
        raise InvalidEnvelope(f"kind is longer than {longest} characters")
    if not value.isprintable() and _CONTROL.search(value):
        raise InvalidEnvelope("kind holds control characters")


def check_names(value: Json, field: str, most: int) -> None:
    """`to` and `correlation_id`: lists of non-empty strings."""
    if value.__class__ is not list:
        raise InvalidEnvelope(f"{field} must be an array of strings")
    if len(value) > most:
        raise InvalidEnvelope(f"{field} has more than {most} entries")
    for name in value:
        if name.__class__ is not str or not name or len(name) > MAX_ID_CHARS:
            raise InvalidEnvelope(f"{field} must hold non-empty strings of at most {MAX_ID_CHARS} characters")


def check_payload(value: Json) -> None:
    if value.__class__ is not dict:
        raise InvalidEnvelope("payload must be an object")


def check_context(value: Json) -> None:
    if value.__class__ is not str or len(value) > MAX_CONTEXT_CHARS:
        raise InvalidEnvelope(f"context must be a string of at most {MAX_CONTEXT_CHARS} characters")


# Writing: the fewest bytes changed.

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rewrite(raw: bytes, changes: Mapping[str, Json]) -> bytes:
    """The same object with some members replaced (None: removed); all other members keep their bytes.

    New members come last. `raw` must have been accepted by `strict_json.parse`.
    """
    parts: list[bytes] = []
    left = dict(changes)
    for name, value in _members.decode(raw).items():
        if name in left:
            replacement = left.pop(name)
            if replacement is not None:
                parts.append(orjson.dumps(name) + b":" + strict_json.encode(replacement))
        else:
            parts.append(orjson.dumps(name) + b":" + bytes(value))
    parts += [
        orjson.dumps(name) + b":" + strict_json.encode(value)
        for name, value in left.items()
        if value is not None
    ]
    return b"{" + b",".join(parts) + b"}"


def append_members(raw: bytes, members: Mapping[str, Json]) -> bytes:
    """The same bytes with members added before the closing brace; none of them may be there already."""
    return raw.rstrip(b" \t\r\n")[:-1] + b"," + strict_json.encode(dict(members))[1:]


def fill_missing(envelope: Envelope, *, protocol: str, id: str, ts: str, sender: str) -> Envelope:
    """D-05: absent protocol, id, ts and from are filled; what was given stays as it was."""
    if not envelope.missing:
        return envelope
    values = {"protocol": protocol, "id": id, "ts": ts, "from": sender}
    raw = append_members(envelope.raw, {name: values[name] for name in envelope.missing})
    return msgspec.structs.replace(
        envelope,
        id=envelope.id or id,
        ts=envelope.ts or ts,
        sender=envelope.sender or sender,
        raw=raw,
        missing=(),
    )


def readdress(envelope: Envelope, to: Sequence[str]) -> Envelope:
    """D-19: the same envelope addressed to runtime ids."""
    return msgspec.structs.replace(envelope, to=to, raw=rewrite(envelope.raw, {"to": list(to)}))


def rfc3339(now: float) -> str:
    """A time as the wire has it, in UTC to the millisecond."""
    microseconds = round(now % 1 * 1_000_000)
    second = int(now // 1)
    if microseconds == 1_000_000:
        second, microseconds = second + 1, 0
    return f"{_rfc3339_second(second)}.{microseconds // 1000:03}Z"


@lru_cache(maxsize=4)
def _rfc3339_second(second: int) -> str:
    # Most of the work is the same for thousands of messages.
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]
