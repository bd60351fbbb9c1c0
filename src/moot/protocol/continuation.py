"""A tool that asks its caller: the call is answered `input_required`, and made again with the input (MCP).

The second request is part of the same call: its method and params are the same, but for the input, the
server's `requestState`, and `_meta`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from moot.protocol.fingerprint import fingerprint
from moot.protocol.operation import Json

# Params in which a call and its continuation may differ.
VARYING: Final = frozenset({"inputResponses", "requestState", "_meta"})


def wanted_input(result: Json) -> str | None:
    """What a result asks its caller for, as a hash of its `requestState`; None if it asks for nothing."""
    if not isinstance(result, dict) or result.get("resultType") != "input_required":
        return None
    return _hash(result)


def given_input(params: Json) -> str | None:
    """What these params answer, as `wanted_input` names it; None if they give no input."""
    if not isinstance(params, dict) or params.keys().isdisjoint({"inputResponses", "requestState"}):
        return None
    return _hash(params)


def is_same_call(first: bytes, second: bytes) -> bool:
    """Whether two envelopes make the same call, whatever input they carry."""
    return fingerprint(first, without=VARYING) == fingerprint(second, without=VARYING)


def _hash(fields: Mapping[str, Json]) -> str:
    state = fields.get("requestState")
    return hashlib.sha256(state.encode() if isinstance(state, str) else b"").hexdigest()
