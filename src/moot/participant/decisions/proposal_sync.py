"""Asking the gateway which proposals are open, and what became of those that we knew (D-96).

Nothing is replayed to a member that joins or comes back. So we ask, page by page, and the list of proposals
becomes the gateway's: it is known then, and only then, that nothing else is pending. Answers are applied in
the order of the space, before the next message is. A gateway that does not know the question leaves the list
as it was: what is pending is then not known.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from moot.errors import MalformedEnvelope, MootError, Refused, TimedOut
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.decisions.proposal_list import GatewayProposal, ProposalList
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
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


class _Answer(msgspec.Struct):
    payload: _Page


_decoder = msgspec.json.Decoder(_Answer)


class ProposalSync:
    """Keeps the list of proposals as the gateway has it."""

    def __init__(self, sender: EnvelopeSender, proposals: ProposalList) -> None:
        self._sender = sender
        self._proposals = proposals
        self._waiting: dict[str, asyncio.Future[_Page]] = {}

    async def refresh(self) -> bool:
        """Ask for all that is open, and for what we believed to be; whether the list is known now."""
        proposals = self._proposals
        proposals.knowledge = "asking"
        before = [seen.id for seen in proposals if not seen.is_over]
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
        except MootError as fault:
            log.debug("open proposals are not known", extra={"why": str(fault)})
            proposals.knowledge = "not_known"
            return False
        proposals.knowledge = "known" if not proposals.unreadable else "not_known"
        return proposals.knowledge == "known"

    async def look_up(self, id: str) -> GatewayProposal | None:
        """What the gateway says about one proposal, settled or not; raises Refused, TimedOut, …"""
        page = await self._ask({"ids": [id]})
        return next((entry for entry in page.proposals if entry.proposal_id == id), None)

    async def _ask(self, question: dict[str, Json]) -> _Page:
        sent = self._sender.send(_KIND, question, check_rights=False)
        answer: asyncio.Future[_Page] = asyncio.get_running_loop().create_future()
        self._waiting[sent.id] = answer
        seconds = self._sender.limits.confirm_seconds
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise TimedOut(f"the gateway did not say within {seconds:g} s what is open") from None
        finally:
            self._waiting.pop(sent.id, None)

    # What arrives

    def handle_page(self, envelope: Envelope) -> None:
        """A page of the answer: it holds from here on in the order of the space."""
        for id in envelope.correlation_id:
            answer = self._waiting.get(id)
            if answer is None or answer.done():
                continue
            try:
                page = _decoder.decode(envelope.raw).payload
            except msgspec.DecodeError as fault:
                answer.set_exception(Refused(f"the list of proposals cannot be read: {fault}"))
                continue
            for entry in page.proposals:
                self._proposals.restore(entry, self._read(entry))
            answer.set_result(page)

    def _read(self, entry: GatewayProposal) -> Envelope | None:
        raw = bytes(entry.envelope)
        if not raw:
            return None
        try:
            return DIALECTS[self._sender.dialect].decode(raw, self._sender.limits.envelope)
        except MalformedEnvelope:
            return None

    def handle_echo(self, envelope: Envelope) -> None:
        """A gateway that relays the question does not know it."""
        self.fail(envelope.id, Refused("this gateway does not tell what is open"))

    def fail(self, id: str, fault: Exception) -> bool:
        """Whether this was a question of ours, which fails now."""
        answer = self._waiting.get(id)
        if answer is None or answer.done():
            return False
        answer.set_exception(fault)
        return True

    def fail_all(self, fault: Exception) -> None:
        for id in tuple(self._waiting):
            self.fail(id, fault)
