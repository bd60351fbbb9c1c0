"""Payloads of the gateway's own messages (MEW 3.6.6, 3.7, 3.8, 3.10), before a dialect encodes them.

A `GatewayNotice` is an envelope of the gateway's own. Its payload may hold `Capability` values in lists; each
dialect shows them in its own notation when it writes the notice (dialects.md section 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from moot.errors import Refused
from moot.protocol.kinds import EXTENSIONS
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability

# D-03: what the spec's examples and existing clients expect, by kind of message.
GATEWAY: Final = "system:gateway"
STREAM_GATEWAY: Final = "gateway"


class GatewayNotice(msgspec.Struct, frozen=True):
    """An envelope that the gateway makes; only `payload` differs between dialects."""

    kind: str
    id: str
    ts: str
    payload: Mapping[str, Json]
    to: Sequence[str] = ()
    correlation_id: Sequence[str] = ()

    @property
    def sender(self) -> str:
        return STREAM_GATEWAY if self.kind.startswith("stream/") else GATEWAY


def member(
    id: str, *, name: str | None = None, capabilities: Iterable[Capability] | None = None
) -> dict[str, Json]:
    """One member as welcome and presence show it; `name` only where it differs from the id (D-19)."""
    shown: dict[str, Json] = {"id": id}
    if name is not None and name != id:
        shown["name"] = name
    if capabilities is not None:
        shown["capabilities"] = list(capabilities)
    return shown


def welcome(
    you: Mapping[str, Json], participants: Sequence[Mapping[str, Json]], streams: Sequence[Mapping[str, Json]]
) -> dict[str, Json]:
    """MEW 3.8.1: who you are, who else is here, which streams are open; and what else the gateway answers."""
    return {
        "you": dict(you),
        "participants": list(participants),
        "active_streams": list(streams),
        "extensions": EXTENSIONS,
    }


def presence(event: str, participant: Mapping[str, Json], **more: Json) -> dict[str, Json]:
    """MEW 3.7; `more` is what an invitation or a leave adds (D-23, D-24)."""
    return {"event": event, "participant": dict(participant)} | {
        k: v for k, v in more.items() if v is not None
    }


def error(
    refusal: Refused, *, attempted_kind: str | None, capabilities: Iterable[Capability] = ()
) -> dict[str, Json]:
    """MEW 3.8.2, D-42: the code, words for a person, and what the refusal itself adds."""
    payload: dict[str, Json] = {"error": refusal.code, "message": refusal.message}
    if attempted_kind:
        payload["attempted_kind"] = attempted_kind
    if refusal.code == "capability_violation":
        payload["your_capabilities"] = list(capabilities)
    return payload | refusal.details


def invite_ack(
    status: str,
    participant_id: str,
    *,
    token: str | None = None,
    connection_url: str | None = None,
    **more: Json,
) -> dict[str, Json]:
    """MEW 3.6.6: to the inviter alone; the token is nowhere else."""
    payload: dict[str, Json] = {"status": status, "participant_id": participant_id}
    if token is not None:
        payload["token"] = token
    if connection_url is not None:
        payload["connection_url"] = connection_url
    return payload | {k: v for k, v in more.items() if v is not None}
