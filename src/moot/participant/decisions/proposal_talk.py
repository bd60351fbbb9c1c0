"""What members say about proposals: comments, whom one is for, and who decides in whose place."""

from __future__ import annotations

import re

from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, SentEnvelope, addressees
from moot.participant.connection.roster import Roster
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.protocol.operation import Json


class ProposalTalk:
    """Comments on proposals, assigns them, and delegates deciding them."""

    def __init__(self, sender: EnvelopeSender, roster: Roster) -> None:
        self._sender = sender
        self._roster = roster

    async def comment(self, seen: SeenProposal, text: str, to: Addressees) -> SentEnvelope:
        """A chat that refers to the proposal, to those whom it mentions, or else to its proposer."""
        addressed = addressees(to) or self.mentioned_in(text)
        if not addressed and seen.proposer != self._sender.me:
            addressed = (seen.proposer,)
        payload: dict[str, Json] = {"text": text, "format": "plain"}
        sent, _ = await self._sender.send_confirmed("chat", payload, about=seen.id, to=addressed)
        return sent

    def mentioned_in(self, text: str) -> tuple[str, ...]:
        """The others who are here and whom a text mentions, as in `@ana`."""
        return tuple(id for id in self._roster if re.search(rf"(?<![\w.@-])@{re.escape(id)}(?![\w-])", text))

    async def assign(self, id: str, to: Addressees) -> SentEnvelope:
        """Say whom a proposal is for; nobody: it is for everybody again."""
        payload: dict[str, Json] = {"to": list(addressees(to))}
        sent, _ = await self._sender.send_confirmed("moot/assign", payload, about=id)
        return sent

    async def delegate(self, to: str, seconds: float, reason: str | None) -> SentEnvelope:
        """Let a member decide in our place."""
        payload: dict[str, Json] = {"to": to, "expires_in_seconds": seconds}
        if reason is not None:
            payload["reason"] = reason
        sent, _ = await self._sender.send_confirmed("moot/delegate", payload)
        return sent

    async def end_delegation(self, payload: dict[str, Json]) -> SentEnvelope:
        """Take one of ours back, or give one back; anybody may."""
        sent = self._sender.send("moot/end-delegation", payload, check_rights=False)
        await self._sender.wait_for_echo(sent)
        return sent
