"""A message as a webhook: JSON, signed as Standard Webhooks says, so that its libraries verify it.

The signature is HMAC-SHA256 over `ID.TIMESTAMP.BODY`, in base64 behind `v1,`, in the header
`webhook-signature`; `webhook-id` and `webhook-timestamp` hold the other two. The id stays the same when a
message is sent again.
"""

from __future__ import annotations

import base64
import hmac

import orjson

from moot.gateway.notifications.message import Entry, Message, lines_of, title_of
from moot.gateway.notifications.safe_text import MAX_NAME_CHARS
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json

# Standard Webhooks: behind it stands the key in base64.
_SECRET_PREFIX = "whsec_"


def webhook_body(message: Message) -> bytes:
    """Names are as the proposer wrote them, cut; `title` and `text` can be shown as they are."""
    fields: dict[str, Json] = {
        "type": "summary" if message.is_summary else message.entries[0].subject.event,
        "participant": message.participant,
        "title": title_of(message),
        "text": "\n".join(lines_of(message)),
        "count": message.total,
        "proposals": [_entry(each) for each in message.entries],
    }
    if message.link is not None:
        fields["link"] = message.link
    return orjson.dumps(fields)


def sign(secret: str, delivery: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that say who sent it; a secret `whsec_…` is base64, any other one is taken as it is."""
    encoded = secret.removeprefix(_SECRET_PREFIX)
    key = secret.encode() if encoded == secret else base64.b64decode(encoded)
    signed = hmac.digest(key, f"{delivery}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


def _entry(entry: Entry) -> dict[str, Json]:
    is_open = entry.subject.event == "proposal.pending"
    fields: dict[str, Json] = {
        "type": entry.subject.event,
        "space": entry.subject.space,
        "proposal_id": entry.subject.id,
        "proposer": entry.proposer,
        "to": list(entry.hosts),
        "method": entry.method[:MAX_NAME_CHARS],
        "name": None if entry.name is None else entry.name[:MAX_NAME_CHARS],
        "since": rfc3339(entry.since),
        "rejected_by": list(entry.rejected_by),
    }
    if is_open:
        fields["expires_at"] = rfc3339(entry.expires)
        fields["approvals"], fields["approvals_needed"] = entry.approvals
    else:
        fields["reason"] = entry.reason
    if entry.link is not None:
        fields["link"] = entry.link
    if entry.arguments is not None:
        fields["arguments"] = entry.arguments
    return fields
