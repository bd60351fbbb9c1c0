"""Our own envelopes as bytes, in the dialect of the connection (MEW 3, MCPx 3.1, D002)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import orjson

from moot.errors import EnvelopeTooLarge, UsageError
from moot.protocol.dialects.mcpx import NO_CLAIM, LegacyDialect
from moot.protocol.dialects.translation import MEW_PROTOCOL, UNKNOWN_METHOD
from moot.protocol.envelope import EnvelopeLimits, rfc3339
from moot.protocol.kinds import OPERATION_KINDS
from moot.protocol.operation import Json, Operation, Payload, operation_of
from moot.protocol.strict_json import encode

NOTHING_MORE: Final[Mapping[str, str]] = MappingProxyType({})


def new_id() -> str:
    """A new id that nobody can guess, so that nobody can use it first (D-07)."""
    return os.urandom(16).hex()


class Clock:
    """Makes `ts` of what we send; all but the milliseconds is computed once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._start = ""

    def now(self) -> str:
        second, millisecond = divmod(time.time_ns() // 1_000_000, 1_000)
        if second != self._second:
            self._second = second
            self._start = rfc3339(second).removesuffix("000Z")
        return f"{self._start}{millisecond:03}Z"


def claim_of(kind: str, payload: Payload, request_operation: Operation | None) -> Operation:
    """The METHOD and CONTEXT of a legacy kind; `request_operation` is what a response answers."""
    if kind not in OPERATION_KINDS:
        return NO_CLAIM
    if kind == "mcp/response":
        if request_operation is None or request_operation.method is None:
            return Operation(UNKNOWN_METHOD, None)
        return request_operation
    return operation_of(payload)


def encode_envelope(
    legacy: LegacyDialect | None,
    *,
    id: str,
    ts: str,
    sender: str,
    kind: str,
    to: Sequence[str],
    about: Sequence[str],
    context: str | None,
    payload: Json,
    claim: Operation,
    limits: EnvelopeLimits,
    more: Mapping[str, str] = NOTHING_MORE,
) -> bytes:
    """One envelope; raises UsageError for what no envelope can hold. `legacy` is None for MEW.

    `more`: members that nobody has to understand.
    """
    members: dict[str, Json] = {"protocol": MEW_PROTOCOL, "id": id, "ts": ts, "from": sender}
    if to:
        members["to"] = list(to)
    if legacy is None:
        members["kind"] = kind
        if about:
            members["correlation_id"] = list(about)
    else:
        members["protocol"] = legacy.protocol
        members["kind"] = _kind_in(legacy, kind, claim)
        # D-29: an MCPx proposal starts a thread. Elsewhere one string, the others beside it (dialects.md 5).
        if about and kind != "mcp/proposal":
            members["correlation_id"] = about[0]
            if len(about) > 1:
                members["x_correlation_ids"] = list(about)
    if context:
        members["context"] = context
    members["payload"] = payload
    if more:
        members |= more
    try:
        raw = orjson.dumps(members)
    except orjson.JSONEncodeError:
        raw = _encode_slowly(members)
    if len(raw) > limits.max_bytes:
        raise EnvelopeTooLarge(len(raw), limits.max_bytes)
    return raw


def _encode_slowly(members: dict[str, Json]) -> bytes:
    try:
        return encode(members)
    except (TypeError, ValueError, RecursionError) as fault:
        raise UsageError(f"the payload holds something that is not JSON: {fault}") from None


def _kind_in(legacy: LegacyDialect, kind: str, claim: Operation) -> str:
    spelling = legacy.spelling(kind, claim)
    if spelling is None:
        raise UsageError(f"{legacy.name} has no kind for {kind}")
    return spelling
