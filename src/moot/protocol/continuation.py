"""A tool that asks its caller: the call is answered `input_required`, and made again with the input (MCP).

The second request is part of the same call: its method and params are the same, but for the input, the
server's `requestState`, and `_meta`. What `_meta` says of large values of the params is the same too.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from moot.protocol.fingerprint import fingerprint
from moot.protocol.large_content import CONTENT_KEY
from moot.protocol.operation import JsonValue, UnreadPayload

# Params in which a call and its continuation may differ.
VARYING: Final = frozenset({"inputResponses", "requestState", "_meta"})


def wanted_input(result: JsonValue) -> str | None:
    """What a result asks its caller for, as a hash of its `requestState`; None if it asks for nothing."""
    if not isinstance(result, dict) or result.get("resultType") != "input_required":
        return None
    return _hash(result)


def given_input(params: JsonValue) -> str | None:
    """What these params answer, as `wanted_input` names it; None if they give no input."""
    if not isinstance(params, dict) or params.keys().isdisjoint({"inputResponses", "requestState"}):
        return None
    return _hash(params)


def is_same_call(first: bytes, second: bytes) -> bool:
    """Whether two envelopes make the same call, whatever input they carry."""
    return fingerprint(first, without=VARYING) == fingerprint(second, without=VARYING) and (
        _large_values(first) == _large_values(second)
    )


def _large_values(raw: bytes) -> set[str]:
    """What `_meta` says of large values, but for those of the input; as text, where true is not 1."""
    params = json.loads(raw)["payload"].get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    listed = meta.get(CONTENT_KEY) if isinstance(meta, dict) else None
    entries = listed if isinstance(listed, list) else [listed]
    return {json.dumps(entry, sort_keys=True) for entry in entries if not _is_of_input(entry)}


def _is_of_input(entry: JsonValue) -> bool:
    match entry:
        case {"at": [str(first), *_]}:
            return first in VARYING
    return entry is None


def _hash(fields: UnreadPayload) -> str:
    state = fields.get("requestState")
    return hashlib.sha256(state.encode() if isinstance(state, str) else b"").hexdigest()
