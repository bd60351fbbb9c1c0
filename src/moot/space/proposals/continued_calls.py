"""Approved calls that ask their proposer for input (MCP `input_required`): one approval covers all of it.

The host of an approved call answers that it needs input. Its outcome is then not known yet, and its proposer
may send the same call again with the input, correlated to the proposal, without a right of its own: what was
approved is that call. Anything else in it has to be the same, and each request for input is answered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moot.protocol.continuation import given_input, is_same_call, wanted_input
from moot.protocol.envelope import Envelope
from moot.space.config import Name
from moot.space.members.member import Session
from moot.space.proposals.proposal_ledger import ProposalRecord

if TYPE_CHECKING:
    from moot.space.state import State


def note_wanted_input(
    state: State, request: str, host: Name, envelope: Envelope, executed: list[ProposalRecord], now: float
) -> bool:
    """Whether a host has answered the request that carries out one call with a request for input."""
    wanted = wanted_input(envelope.payload.get("result"))
    if wanted is None or len(executed) != 1 or executed[0].asked != (host,) or not executed[0].raw:
        return False
    executed[0].wanted_input = wanted
    # The host owes no answer any more, so that no other deadline ends the wait for its outcome.
    state.deadlines.schedule(now + state.limits.request_seconds, "execution", request)
    return True


def find_continued(state: State, session: Session, envelope: Envelope) -> ProposalRecord | None:
    """The call of this sender, approved before, for which this request brings the input."""
    ids = envelope.correlation_id
    if envelope.kind != "mcp/request" or len(ids) != 1:
        return None
    proposal = state.ledger.get(ids[0])
    if proposal is None or proposal.wanted_input is None or proposal.proposer != session.member.name:
        return None
    if given_input(envelope.payload.get("params")) != proposal.wanted_input or not proposal.raw:
        return None
    if state.resolve_names(envelope.to) != proposal.asked or not is_same_call(proposal.raw, envelope.raw):
        return None
    return proposal
