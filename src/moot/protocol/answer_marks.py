"""Marks of answers, where MCP has room for them.

    moot/outcome: unknown    error.data                   nobody knows what came of the call (D-99)
    moot/not-offered         error.data, result._meta,    what was asked for is not offered here, and nothing
                             payload of mcp/reject        was run (MEW 3.3.2: by a host that never could)

A host passes some calls on, as a bridge does to an MCP server. When no readable answer came back, the call
may have been carried out or not; the host answers with an error all the same, and says so. A member may have
several connections (D-22), and a request reaches all of them: by the other mark the gateway tells "not at
this connection" from an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.protocol.operation import Json, JsonValue, UnreadPayload

_KEY: Final = "moot/outcome"
_UNKNOWN: Final = "unknown"
NOT_OFFERED: Final = "moot/not-offered"
_REASONS: Final = {
    "host_left": "its host left before it answered",
    "host_removed": "its host was removed before it answered",
    "timed_out": "its host did not answer in time",
    "cancelled": "the call was cancelled",
    "gateway_restarted": "the gateway restarted before its host answered",
    "host_does_not_know": "its host got no answer that it could read",
}


def unknown_outcome() -> dict[str, Json]:
    """The data of an error with the mark."""
    return {_KEY: _UNKNOWN}


def unknown_reason(reason: JsonValue) -> str:
    """Why it is unknown, as `moot/outcome` and the gateway's record of a proposal name it, in words."""
    return _REASONS.get(str(reason), "no answer came")


def says_unknown(error: JsonValue) -> bool:
    """Whether a JSON-RPC error says that nobody knows whether the call was carried out."""
    data = error.get("data") if isinstance(error, dict) else None
    return isinstance(data, dict) and data.get(_KEY) == _UNKNOWN


def mark_error(data: Json) -> Json:
    """The data of an error with the mark `NOT_OFFERED`; data that is no object stays as it is."""
    if data is None:
        return {NOT_OFFERED: True}
    return {**data, NOT_OFFERED: True} if isinstance(data, dict) else data


def mark_result(result: Mapping[str, Json]) -> dict[str, Json]:
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), NOT_OFFERED: True}}


def says_not_offered(kind: str, payload: UnreadPayload) -> bool:
    """Whether a payload of this kind has the mark `NOT_OFFERED`."""
    if kind == "mcp/reject":
        return payload.get(NOT_OFFERED) is True
    error, result = payload.get("error"), payload.get("result")
    if isinstance(error, dict):
        marked = error.get("data")
    else:
        marked = result.get("_meta") if isinstance(result, dict) else None
    return isinstance(marked, dict) and marked.get(NOT_OFFERED) is True
