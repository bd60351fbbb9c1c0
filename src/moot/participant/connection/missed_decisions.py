"""After a reconnect: what became of proposals while nobody here was listening (D-28, D-40, D-41).

Nothing is replayed to a member that comes back, but the gateway keeps a bounded memory that can be polled.
What stands there about proposals is taken into the ledger. If the memory reaches back to something that we
had heard before the loss, nothing can be missing; otherwise (a restarted gateway, a long absence) what is
open stays marked `uncertain`. Requests that were meant for us are not run late: whoever asked was told so.
"""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from moot.errors import MalformedEnvelope, MootError
from moot.net.http_client import fetch
from moot.participant.connection.correlation_index import CorrelationIndex
from moot.participant.connection.inbound_check import InboundValidator
from moot.participant.connection.link import ConnectTarget
from moot.participant.decisions.proposal_list import ProposalList
from moot.participant.limits import ParticipantLimits
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope

log = logging.getLogger(__name__)


# How many of the last things that were heard before the loss are looked for: one is enough to be sure.
HEARD_LAST: Final = 64


class _Past(msgspec.Struct):
    messages: list[msgspec.Raw]


_pasts = msgspec.json.Decoder(_Past)


async def fetch_history(
    door: ConnectTarget, me: str, since: float, limits: ParticipantLimits
) -> list[Envelope] | None:
    """What was said since then (seconds since 1970), oldest first; None if the gateway does not tell."""
    if door.token is None:
        return None
    try:
        status, body = await fetch(
            _address(door, me, since),
            headers={"Authorization": f"Bearer {door.token}"},
            timeout_seconds=limits.confirm_seconds,
            max_bytes=limits.catch_up_bytes,
            tls=door.tls,
        )
        if status != 200:
            log.debug("nothing is remembered", extra={"status": status})
            return None
        raws = _pasts.decode(body).messages
    except (MootError, msgspec.DecodeError) as fault:
        log.debug("nothing is remembered", extra={"why": str(fault)})
        return None
    decoded = [_decoded(door, bytes(raw)) for raw in raws]
    return [envelope for envelope in decoded if envelope is not None]


async def restore_missed_decisions(
    door: ConnectTarget,
    me: str,
    lost_at: float,
    *,
    heard_last: frozenset[str],
    limits: ParticipantLimits,
    lineage: CorrelationIndex,
    inspector: InboundValidator,
    proposals: ProposalList,
) -> None:
    """Hear of what was said since the connection was lost what concerns proposals."""
    reaches_back = False
    for envelope in await fetch_history(door, me, lost_at - limits.catch_up_margin_seconds, limits) or []:
        if envelope.id in heard_last:
            reaches_back = True
        elif lineage.get(envelope.id) is None and inspector.lets_in(envelope):
            hear_decision(envelope, proposals)
    if reaches_back:
        proposals.nothing_missed()


def _address(door: ConnectTarget, me: str, since: float) -> str:
    parts = urlsplit(door.url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    before = parts.path.rstrip("/").removesuffix("/ws")
    query = {"since": repr(since), "dialect": door.dialect}
    if door.space:
        query["space"] = door.space
    path = f"{before}/participants/{quote(me, safe='')}/messages"
    return urlunsplit((scheme, parts.netloc, path, urlencode(query), ""))


def _decoded(door: ConnectTarget, raw: bytes) -> Envelope | None:
    try:
        return DIALECTS[door.dialect].decode(raw)
    except MalformedEnvelope:
        return None


def hear_decision(envelope: Envelope, proposals: ProposalList) -> None:
    """What decides a proposal, told to the ledger."""
    match envelope.kind:
        case "mcp/request":
            proposals.request(envelope)
        case "mcp/response":
            proposals.response(envelope)
        case "mcp/withdraw":
            proposals.withdraw(envelope)
        case "mcp/reject":
            proposals.reject(envelope)
        case "moot/approve":
            proposals.vote(envelope)
        case "chat":
            proposals.chat(envelope)
        case _:
            pass
