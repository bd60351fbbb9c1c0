"""Asking the gateway which proposals are open, and what became of those that we knew (D-96).

Nothing is replayed to a member that joins or comes back. So we ask, page by page, and the list of proposals
becomes the gateway's: it is known then, and only then, that nothing else is pending. Answers are applied in
the order of the space, before the next message is. A gateway whose welcome does not name the question is not
asked, and the list stays as it was: what is pending is then not known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from moot.errors import MalformedEnvelope, MootError, Refused
from moot.participant.connection.connect_options import ConnectOptions
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.connection.gateway_reads import fetch_proposal
from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.participant.connection.pending_replies import PendingReplies
from moot.participant.decisions.proposal_list import ProposalList
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.gateway_proposal import BudgetUse, Delegation, EffectRule, GatewayProposal
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

_KIND: Final = "moot/list-proposals"
# Far more than the proposals that all members of a space may have open.
_MAX_PAGES: Final = 4_096
# What the gateway takes in one question.
_IDS_AT_ONCE: Final = 256


class _Page(msgspec.Struct):
    proposals: list[GatewayProposal]
    next: int | None = None
    next_ids: list[str] = []
    not_known: list[str] = []
    budgets: list[BudgetUse] = []
    effects: list[EffectRule] = []
    delegations: list[Delegation] = []


class _Answer(msgspec.Struct):
    payload: _Page


class ProposalSync:
    """Keeps the list of proposals as the gateway has it."""

    def __init__(self, options: ConnectOptions, sender: EnvelopeSender, proposals: ProposalList) -> None:
        self._options = options
        self._sender = sender
        self._proposals = proposals
        self._replies: PendingReplies[_Page] = PendingReplies()

    async def refresh(self, url: str) -> bool:
        """Ask the gateway at `url` for all that is open, and for what we believed to be.

        Returns whether the list is known now.
        """
        proposals = self._proposals
        if not self.is_supported:
            proposals.knowledge = "not_told"
            return False
        proposals.knowledge = "asking"
        proposals.unreadable.clear()
        before = [seen.id for seen in proposals if not seen.is_over or seen.outcome == "unknown"]
        found: set[str] = set()
        try:
            page = await self._ask({"after": 0})
            for _ in range(_MAX_PAGES):
                found |= {entry.proposal_id for entry in page.proposals}
                if page.next is None:
                    break
                page = await self._ask({"after": page.next})
            left = [id for id in before if id not in found]
            while left:
                page = await self._ask({"ids": left[:_IDS_AT_ONCE]})
                for id in page.not_known:
                    proposals.mark_forgotten(id)
                left = [*page.next_ids, *left[_IDS_AT_ONCE:]]
            await self._fetch_large(url)
        except MootError as fault:
            log.debug("open proposals are not known", extra={"why": str(fault)})
            proposals.knowledge = "not_known"
            return False
        proposals.knowledge = "known" if not proposals.unreadable else "not_known"
        return proposals.knowledge == "known"

    async def _fetch_large(self, url: str) -> None:
        """Those that the list told the size of, and not what they say."""
        for id in list(self._proposals.unreadable):
            answer = await fetch_proposal(self._options, url, id)
            if answer is None:
                self._proposals.unreadable.discard(id)
                continue
            if self._restore(answer):
                # HTTP answers out of the order of the space: what became of it meanwhile is asked for there.
                await self._ask({"ids": [id]})

    @property
    def is_supported(self) -> bool:
        """Whether the gateway's welcome said that it answers; others are sent nothing that is not in MEW."""
        return _KIND in self._sender.extensions

    async def look_up(self, id: str, url: str) -> GatewayProposal | None:
        """What the gateway says about one proposal, settled or not; raises Refused, TimedOut, …"""
        if not self.is_supported:
            raise Refused("this gateway does not tell what became of proposals")
        page = await self._ask({"ids": [id]})
        answer = next((entry for entry in page.proposals if entry.proposal_id == id), None)
        if answer is not None and answer.envelope_bytes:
            answer = await fetch_proposal(self._options, url, id)
        return answer

    async def _ask(self, question: dict[str, Json]) -> _Page:
        sent = self._sender.send(_KIND, question, check_rights=False)
        what = "the gateway's list of open proposals"
        return await self._replies.wait(sent.id, self._sender.limits.answer_seconds, what)

    # What arrives

    def handle_page(self, envelope: Envelope) -> None:
        """A page of the answer: it holds from here on in the order of the space."""
        for id in envelope.correlation_id:
            if id not in self._replies:
                continue
            try:
                page = msgspec.json.decode(envelope.raw, type=_Answer).payload
            except msgspec.DecodeError as fault:
                self._replies.fail(id, Refused(f"the list of proposals cannot be read: {fault}"))
                continue
            with suppress(ValueError):
                self._proposals.set_gateway_time(datetime.fromisoformat(envelope.ts).timestamp())
            self._proposals.budgets, self._proposals.effects = page.budgets, page.effects
            self._proposals.delegations.restore(page.delegations)
            for entry in page.proposals:
                self._restore(entry)
            self._replies.resolve(id, page)

    def _restore(self, entry: GatewayProposal) -> bool:
        """Take over what is told of one; False if it proposes no call."""
        raw, envelope = bytes(entry.envelope), None
        if raw:
            with suppress(MalformedEnvelope):
                envelope = DIALECTS[self._sender.dialect].decode(raw, self._sender.limits.envelope)
        try:
            if envelope is not None:
                check_shape("mcp/proposal", envelope.payload, (), None, received=True)
        except PayloadShapeError:
            # Nobody could make it. Whoever heard it passed over it, too.
            self._proposals.unreadable.discard(entry.proposal_id)
            return False
        self._proposals.restore(entry, envelope)
        return True

    def fail(self, id: str, fault: Exception) -> bool:
        """Whether this was a question of ours, which fails now."""
        return self._replies.fail(id, fault)

    def fail_all(self, fault: Callable[[], Exception]) -> None:
        self._replies.fail_all(fault)
