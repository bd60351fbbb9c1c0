"""Which calls are the same: to the same host, with the same method, params and key."""

from __future__ import annotations

import json
import time
from typing import Final

from moot.bridges.space.calls_file import RecordedCall
from moot.mcp.eras import JsonObject
from moot.participant.decisions.seen_proposal import RecordedProposal, SeenProposal
from moot.protocol.continuation import VARYING
from moot.protocol.operation import Json

# In `_meta` of a call: calls with different keys are different calls, and one with the same key is the same
# call for as long as it is known, also after its outcome was told.
IDEMPOTENCY_KEY: Final = "moot/idempotency_key"


def call_fingerprint(host: str, method: str, params: JsonObject, key: str | None = None) -> bytes:
    """What makes two calls the same; the order of members does not matter."""
    named = key_of(params) if key is None else key
    return json.dumps([host, method, without_meta(params), named], sort_keys=True).encode()


def call_fingerprint_of(record: RecordedCall) -> bytes:
    call = record.proposal
    return call_fingerprint(call.to, call.method, call.params, record.key)


def key_of(params: JsonObject) -> str:
    meta: Json = params.get("_meta")
    key = meta.get(IDEMPOTENCY_KEY) if isinstance(meta, dict) else None
    return key if isinstance(key, str) else ""


def without_meta(params: JsonObject) -> JsonObject:
    return {key: value for key, value in params.items() if key != "_meta"}


def without_input(params: JsonObject) -> JsonObject:
    """The params of a call that a repetition with the input for its tool has, too."""
    return {key: value for key, value in params.items() if key not in VARYING}


def record_of_seen(seen: SeenProposal) -> RecordedCall | None:
    """A proposal of ours that nobody wrote down here, made elsewhere in our name."""
    params = without_meta(seen.params)
    what = params.get("name", params.get("uri", seen.method))
    if len(seen.to) != 1 or not isinstance(what, str):
        return None
    proposal = RecordedProposal(
        id=seen.id, to=seen.to[0], method=seen.method, params=params, proposed_at=time.time()
    )
    return RecordedCall(proposal=proposal, what=what, params=params, key=key_of(seen.params))
