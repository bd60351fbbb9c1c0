"""What was said before we came: the gateway's own memory, played into what the SDK knows of proposals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from moot.errors import MalformedEnvelope, MootError
from moot.net.dial_http import fetch
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope

if TYPE_CHECKING:
    from moot.config.whereabouts import Whereabouts
    from moot.participant import JoinedSpace

log = logging.getLogger(__name__)

# What the gateway keeps is bounded by poll_bytes, 8 MiB, before it becomes JSON.
_MOST_BYTES: Final = 32 << 20
_SECONDS: Final = 10.0


class _Past(msgspec.Struct):
    messages: list[msgspec.Raw]


async def past_of(where: Whereabouts, me: str) -> list[Envelope]:
    """The latest messages, oldest first, as far as the gateway remembers; none if it does not say."""
    try:
        status, body = await fetch(
            _address(where, me),
            headers={"Authorization": f"Bearer {where.token.reveal()}"},
            within=_SECONDS,
            most=_MOST_BYTES,
        )
        if status != 200:
            # Polling can be turned off (gateway.http.poll).
            log.debug("no memory", extra={"status": status})
            return []
        raws = msgspec.json.decode(body, type=_Past).messages
    except (MootError, msgspec.DecodeError) as fault:
        log.debug("no memory", extra={"why": str(fault)})
        return []
    found = []
    for raw in raws:
        try:
            found.append(DIALECTS["mew"].decode(bytes(raw)))
        except MalformedEnvelope:
            continue
    return found


def recall(space: JoinedSpace, before: list[Envelope]) -> None:
    """Make proposals known that were made before we joined, and what became of them."""
    for envelope in before:
        if space.lineage.get(envelope.id) is None:
            space.lineage.note(envelope)
            _hear(space, envelope)


def _hear(space: JoinedSpace, envelope: Envelope) -> None:
    ledger = space.proposals
    match envelope.kind:
        case "mcp/proposal" if isinstance(envelope.payload.get("method"), str):
            ledger.proposal(envelope, own=envelope.sender == space.me)
        case "mcp/request":
            ledger.request(envelope)
        case "mcp/response" if ("result" in envelope.payload) != ("error" in envelope.payload):
            ledger.response(envelope)
        case "mcp/withdraw":
            ledger.withdraw(envelope)
        case "mcp/reject":
            ledger.reject(envelope)
        case "moot/approve":
            ledger.approve(envelope)
        case _:
            pass


def _address(where: Whereabouts, me: str) -> str:
    parts = urlsplit(where.url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    before = parts.path.rstrip("/").removesuffix("/ws")
    query = {"space": where.space} if where.space else {}
    path = f"{before}/participants/{quote(me, safe='')}/messages"
    return urlunsplit((scheme, parts.netloc, path, urlencode(query), ""))
