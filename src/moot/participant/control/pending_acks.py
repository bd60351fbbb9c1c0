"""Answers to administration: waits for them, and what we owe for grants (MEW 3.6, 3.9)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from moot.errors import MootError
from moot.participant.connection.envelope_sender import EnvelopeSender, SentEnvelope
from moot.participant.connection.pending_replies import PendingReplies
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# Kinds that have an answer of their own. Others are answered by a status or an acknowledgement.
_ANSWER_KINDS: Final[Mapping[str, str]] = {
    "participant/compact": "participant/compact-done",
    "capability/grant": "capability/grant-ack",
    "space/invite": "space/invite-ack",
}
_ANY: Final = "any"
# Revocations of ours whose answer may still tell what remains.
_MAX_REVOCATIONS: Final = 64
_MAX_EARLY: Final = 64


class Revocation(msgspec.Struct):
    """Capabilities that were revoked. `remaining` are those that the same pattern still touches."""

    id: str
    recipient: str
    remaining: list[Json] = msgspec.field(default_factory=list)


class PendingAcks:
    """Waits for answers to our controls, grants and invitations; and grants that we have to acknowledge."""

    def __init__(self) -> None:
        self._replies: PendingReplies[Envelope] = PendingReplies()
        self._revocations: LatestDict[str, Revocation] = LatestDict(_MAX_REVOCATIONS)
        # Acknowledgements of grants that nobody waited for yet: one may be read together with our own grant.
        self._early: LatestDict[str, Envelope] = LatestDict(_MAX_EARLY)
        # Rights that were given to us and that we have not acknowledged yet.
        self._grants: list[Envelope] = []

    async def wait(self, sent: SentEnvelope, timeout_seconds: float, who: str) -> Envelope:
        key = f"{_ANSWER_KINDS.get(sent.kind, _ANY)} {sent.id}"
        early = self._early.pop(key, None)
        if early is not None:
            return early
        return await self._replies.wait(key, timeout_seconds, f"{who}'s answer to {sent.kind}")

    def handle_answer(self, envelope: Envelope) -> None:
        """A status, an acknowledgement, a compact-done, an invite-ack."""
        kind = envelope.kind if envelope.kind in _ANSWER_KINDS.values() else _ANY
        for id in envelope.correlation_id:
            key = f"{kind} {id}"
            if not self._replies.resolve(key, envelope) and kind == "capability/grant-ack":
                self._early[key] = envelope

    def add_grant(self, envelope: Envelope) -> None:
        """MEW 3.6.1: it is acknowledged once the next welcome has told us the new rights."""
        self._grants = [*self._grants[-63:], envelope]

    def acknowledge_grants(self, sender: EnvelopeSender) -> None:
        """Call this when the welcome with the new rights has arrived."""
        grants, self._grants = self._grants, []
        for grant in grants:
            try:
                sender.send(
                    "capability/grant-ack",
                    {"status": "accepted"},
                    to=grant.sender,
                    about=grant.id,
                    check_rights=False,
                )
            except MootError as fault:
                log.debug("a grant was not acknowledged", extra={"why": type(fault).__name__})

    def fail(self, id: str, fault: Exception) -> bool:
        """Fail a wait for an answer that will not come; whether somebody was waiting."""
        return any(self._replies.fail(f"{kind} {id}", fault) for kind in (*_ANSWER_KINDS.values(), _ANY))

    def fail_all(self, fault: Callable[[], Exception]) -> None:
        self._replies.fail_all(fault)

    def add_revocation(self, revocation: Revocation) -> None:
        self._revocations[revocation.id] = revocation

    def note_remaining(self, id: str, details: Mapping[str, Json]) -> bool:
        """D-18: what a revoked pattern still touches; whether this was about a revocation of ours."""
        revocation = self._revocations.get(id)
        remaining = details.get("remaining")
        if revocation is None or not isinstance(remaining, list):
            return False
        revocation.remaining = remaining
        return True
