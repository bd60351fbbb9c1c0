"""What concerns whom: which proposals one participant is told of, and since when they are due. Pure.

A proposal concerns a participant who may decide it: who holds a right to send the proposed request, or to
approve it while approvals of a quorum are missing. Nobody is told of their own proposals, or of those that
they rejected. An outcome that became unknown concerns whoever approved the call and whoever could have.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import orjson

from moot.errors import MalformedEnvelope
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE
from moot.protocol.operation import Payload
from moot.space.config import Name
from moot.space.proposal_ledger import ProposalRecord
from moot.space.state import State

Event = Literal["proposal.pending", "outcome.unknown"]


class Subject(NamedTuple):
    """What a notification is about. The number tells apart two proposals that had the same id in turn."""

    space: str
    event: Event
    number: int
    id: str


def event_of(proposal: ProposalRecord, now: float) -> Event | None:
    """What there is to tell about a proposal now; None when it is decided, withdrawn or over."""
    if proposal.state_at(now) == "open":
        return "proposal.pending"
    return "outcome.unknown" if proposal.outcome == "unknown" else None


def happened_at(proposal: ProposalRecord, event: Event) -> float:
    """Since when it is so; 0 when that is not known."""
    return proposal.proposed_at if event == "proposal.pending" else proposal.outcome_at


def concerns(state: State, proposal: ProposalRecord, event: Event, participant: str) -> bool:
    """Whether this participant is told of it, by the rights that it holds now."""
    name = Name(participant)
    member = state.roster.members.get(name)
    if member is None or member.kicked or proposal.proposer == name or name in proposal.rejected_by:
        return False
    if event == "outcome.unknown" and proposal.fulfilled_by == name:
        return True
    if event == "proposal.pending" and proposal.approvals_needed > len(proposal.approved_by):
        return name not in proposal.approved_by and member.rights.allow("moot/approve", {}, ())
    return member.rights.allow("mcp/request", payload_of(proposal), proposal.to)


def payload_of(proposal: ProposalRecord) -> Payload:
    """The request that was proposed; only method and name where the envelope is not kept any more."""
    if proposal.raw:
        protocols = frozenset({orjson.loads(proposal.raw)["protocol"]})
        try:
            decoded = DIALECTS[proposal.dialect].decode(proposal.raw, ANY_SIZE, accept_protocols=protocols)
        except MalformedEnvelope:
            return {}
        return decoded.payload
    operation = proposal.operation
    if operation is None or operation.method is None:
        return {}
    params = {} if operation.context is None else {"name": operation.context}
    return {"method": operation.method, "params": params}
