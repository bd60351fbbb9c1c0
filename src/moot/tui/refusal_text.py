"""Why something was refused, and what a person can do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from moot.protocol.envelope import Envelope
from moot.tui.operations.operation import short

# What to do, by the word of the wire (MEW 3.8.2, D-42).
_ADVICE: Final[Mapping[str, str]] = {
    "invalid_envelope": "the message itself is wrong: look at what it says above, and send it again",
    "invalid_json": "the message was no JSON that all readers read alike: send it again, written anew",
    "protocol_mismatch": "it speaks another version than this connection: set its protocol field right",
    "rate_limited": "too much in too short a time: wait a moment, then go on",
    "auth_violation": "it was said in somebody else's name: say it in your own",
    "participant_paused": "its sender is paused: somebody else lifts that with /resume NAME",
    "participant_shutdown": "its sender was shut down: it has to come back first",
    "duplicate_id": "that id is taken: send it with a new one",
    "capability_violation": "no right of its sender covers it: /capabilities shows them, "
    "/propose suggests the call instead, and somebody who may can /grant it",
    "kind_payload_mismatch": "its kind says something else than its payload: send what both say",
    "unauthorized": "it belongs to somebody else: only they, or the gateway, may do that",
    "proposal_settled": "somebody was faster: the proposal is fulfilled, withdrawn or expired",
    "proposal_mismatch": "it is not what was proposed: approve the proposal as it stands, or propose anew",
    "approval_required": "the space asks for more votes: /vote gives yours, others give theirs",
    "invalid_request": "a part of the payload is wrong: the message above names it",
    "invalid_operation": "this makes no sense here: the message above says why",
    "participant_not_found": "nobody of that name is in the space: /members lists who is",
    "target_not_found": "the stream names somebody who is not here: /members lists who is",
    "stream_not_found": "no such stream is open: /streams lists them",
    "unauthorized_stream_write": "only its owner and whom they let write to a stream: /grant-write does that",
    "unavailable": "the gateway cannot write its journal, so nothing happens that must be recorded: "
    "its operator has to make room on the disk",
    "resource_limit": "a limit of the space is reached: the message above names it",
}


def is_refusal(envelope: Envelope) -> bool:
    return envelope.kind == "system/error"


def explained(refusal: Envelope, about: Envelope | None) -> list[str]:
    """The refusal in words: what was refused, why, and what can be done."""
    payload = refusal.payload
    code = str(payload.get("error"))
    what = ", ".join(short(id) for id in refusal.correlation_id) or "a frame of a stream"
    if about is not None:
        what = f"{about.kind} of {about.sender} ({short(about.id)})"
    lines = [f"! {what} was refused: {code}", f"  {payload.get('message')}"]
    for name, value in payload.items():
        if name not in ("error", "message"):
            lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    advice = _ADVICE.get(code)
    return [*lines, f"  → {advice}"] if advice else lines
