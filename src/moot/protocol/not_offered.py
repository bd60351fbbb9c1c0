"""The mark of an answer that says: what was asked for is not offered here, and nothing was run.

A member may have several connections (D-22), and a request reaches all of them. By this mark the gateway
tells "not at this connection" from an answer. It stands where MCP has room for it:

    an error            error.data
    a result            result._meta
    mcp/reject          the payload: a host that could never run what is proposed (MEW 3.3.2)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.protocol.operation import Json

NOT_OFFERED: Final = "moot/not-offered"


def mark_error(data: Json) -> Json:
    """The data of an error with the mark; data that is no object stays as it is."""
    if data is None:
        return {NOT_OFFERED: True}
    return {**data, NOT_OFFERED: True} if isinstance(data, dict) else data


def mark_result(result: Mapping[str, Json]) -> dict[str, Json]:
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), NOT_OFFERED: True}}


def says_not_offered(kind: str, payload: Mapping[str, Json]) -> bool:
    """Whether a payload of this kind has the mark."""
    if kind == "mcp/reject":
        return payload.get(NOT_OFFERED) is True
    error, result = payload.get("error"), payload.get("result")
    if isinstance(error, dict):
        marked = error.get("data")
    else:
        marked = result.get("_meta") if isinstance(result, dict) else None
    return isinstance(marked, dict) and marked.get(NOT_OFFERED) is True
