"""Why something was refused, and what a person can do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from moot.errors import WARNING_CODES
from moot.protocol.envelope import Envelope
from moot.tui.operations.operation import short_id

# What to do, by the error code on the wire (MEW 3.8.2, D-42).
_ADVICE: Final[Mapping[str, str]] = {
    "invalid_envelope": "the message is malformed: see the details above, correct it and send it again",
    "invalid_json": "the message is not valid JSON, or has duplicate keys: correct it and send it again",
    "protocol_mismatch": "its protocol field does not match this connection: correct it",
    "rate_limited": "too many messages in a short time: wait a moment, then retry",
    "auth_violation": "it was sent in somebody else's name: send it under your own",
    "participant_paused": "its sender is paused: somebody else can end that with /resume NAME",
    "participant_shutdown": "its sender was shut down: it has to join again first",
    "duplicate_id": "that id is already used: send it with a new id",
    "capability_violation": "its sender has no permission for it: /capabilities lists permissions, "
    "/propose proposes the call instead, and a member who holds the permission can /grant it",
    "kind_payload_mismatch": "its kind and its payload do not match: correct one of them",
    "unauthorized": "it belongs to somebody else: only its owner or the gateway can do that",
    "proposal_settled": "the proposal was already approved or withdrawn, or it has expired",
    "proposal_mismatch": "it differs from the proposal: approve the proposal unchanged, or make a new one",
    "approval_required": "this call needs approvals of others: /propose proposes it, /approve adds yours",
    "invalid_request": "a field of the payload is invalid: the message above names it",
    "invalid_operation": "this is not possible here: the message above says why",
    "participant_not_found": "no member with that name is in the space: /members lists them",
    "target_not_found": "the stream is addressed to somebody who is not here: /members lists the members",
    "stream_not_found": "no open stream has that id: /streams lists them",
    "unauthorized_stream_write": "only the owner and permitted writers can write: see /grant-write",
    "unavailable": "the gateway cannot write its journal, so it accepts no changes: "
    "its operator has to free disk space",
    "outcome_unknown": "the gateway's disk failed meanwhile: look for the message before you send it again",
    "resource_limit": "a limit of the space is reached: the message above names it",
    "not_on_disk": "it holds now; tell the operator to free the gateway's disk before it is restarted",
}


def is_refusal(envelope: Envelope) -> bool:
    return envelope.kind == "system/error"


def explain_refusal(refusal: Envelope, about: Envelope | None) -> list[str]:
    """What was refused, why, and what can be done about it."""
    payload = refusal.payload
    code = str(payload.get("error"))
    what = ", ".join(short_id(id) for id in refusal.correlation_id) or "a frame of a stream"
    if about is not None:
        what = f"{about.kind} of {about.sender} ({short_id(about.id)})"
    done = "took effect, with a warning" if code in WARNING_CODES else "was refused"
    lines = [f"! {what} {done}: {code}", f"  {payload.get('message')}"]
    for name, value in payload.items():
        if name not in ("error", "message"):
            lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    advice = _ADVICE.get(code)
    return [*lines, f"  → {advice}"] if advice else lines
