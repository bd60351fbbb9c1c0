"""The mark of an error whose sender does not know what came of a call (D-99).

A host passes some calls on, as a bridge does to an MCP server. When no readable answer came back, the call
may have been carried out or not. The host answers with an error all the same, and says so in its data:
`{"moot/outcome": "unknown"}`.
"""

from __future__ import annotations

from typing import Any, Final

from moot.protocol.operation import Json

_KEY: Final = "moot/outcome"
_UNKNOWN: Final = "unknown"
_REASONS: Final = {
    "host_left": "its host left before it answered",
    "host_removed": "its host was removed before it answered",
    "timed_out": "its host did not answer in time",
    "cancelled": "the call was cancelled",
    "gateway_restarted": "the gateway restarted before its host answered",
    "host_does_not_know": "its host got no answer that it could read",
}


def unknown_outcome(data: Any = None) -> dict[str, Any]:
    """The data of an error with the mark, beside the data that it has otherwise."""
    others = data if isinstance(data, dict) else {} if data is None else {"data": data}
    return {**others, _KEY: _UNKNOWN}


def unknown_reason(reason: Json) -> str:
    """Why it is unknown, as `moot/outcome` and the gateway's record of a proposal name it, in words."""
    return _REASONS.get(str(reason), "no answer came")


def says_unknown(error: Json) -> bool:
    """Whether a JSON-RPC error says that nobody knows whether the call was carried out."""
    data = error.get("data") if isinstance(error, dict) else None
    return isinstance(data, dict) and data.get(_KEY) == _UNKNOWN
