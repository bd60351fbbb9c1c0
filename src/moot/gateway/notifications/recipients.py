"""What concerns whom: which proposals one participant is told of, and since when they are due. Pure.

A proposal concerns a participant who may decide it: who holds a right to send the proposed request, or to
approve it while approvals of a quorum are missing. Nobody is told of their own proposals, or of those that
they rejected. An outcome that became unknown concerns whoever approved the call and whoever could have.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Literal, NamedTuple

import orjson

from moot.errors import MalformedEnvelope
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE
from moot.protocol.operation import Payload
from moot.protocol.patterns.globs import glob
from moot.space.config import Name, Reminder
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.state import State

Event = Literal["proposal.pending", "outcome.unknown"]
# More than a space has reminders.
ASSIGNED: Final = 1_000


class Subject(NamedTuple):
    """What a notification is about. The number tells apart two proposals that had the same id in turn."""

    space: str
    event: Event
    number: int
    id: str
    # Which telling of it that is: 0 the first, then reminders; from `ASSIGNED` on, since it is for this one.
    step: int = 0

    @property
    def is_reminder(self) -> bool:
        return self.step % ASSIGNED > 0

    @property
    def is_assigned(self) -> bool:
        return self.step >= ASSIGNED

    @property
    def key(self) -> Subject:
        """The same for all tellings."""
        return self._replace(step=0)


def event_of(proposal: ProposalRecord, now: float) -> Event | None:
    """What there is to tell about a proposal now; None when it is decided, withdrawn or over."""
    if proposal.state_at(now) == "open":
        return "proposal.pending"
    return "outcome.unknown" if proposal.outcome == "unknown" else None


def happened_at(proposal: ProposalRecord, event: Event) -> float:
    """Since when it is so; 0 when that is not known."""
    return proposal.proposed_at if event == "proposal.pending" else proposal.outcome_at


def find_due(
    reminders: Sequence[Reminder],
    proposal: ProposalRecord,
    participant: str,
    after_seconds: float,
    age_seconds: float,
) -> tuple[float, int] | None:
    """After how long a pending proposal became due for a participant, and which telling of it that is.

    Whom no reminder names is told once, after its own time; whom some name, first after the first of these.
    Whom it is assigned to is told at once. None: it is not due.
    """
    times = [each.after_seconds for each in reminders if any(glob(g).matches(participant) for g in each.tell)]
    first = max(after_seconds, times[0]) if times else after_seconds
    # A step before their own time has nothing to remind of.
    times = [first, *(at for at in times[1:] if at > first)]
    due = [(at, step) for step, at in enumerate(times) if age_seconds >= at]
    if participant in proposal.assigned_to:
        at, step = due[-1] if due else (0.0, 0)
        return at, ASSIGNED + step
    return due[-1] if due else None


def was_told(told: Collection[int], step: int) -> bool:
    """Whether one of the tellings was this one or a later one; those since it is for somebody count alone."""
    if step >= ASSIGNED:
        return any(each >= step for each in told)
    return any(each % ASSIGNED >= step for each in told)


def concerns(
    state: State, proposal: ProposalRecord, event: Event, participant: str, givers: Sequence[Name] = ()
) -> bool:
    """Whether this participant is told of it, by the rights that it holds now.

    `givers` are those in whose place it decides, while somebody is away.
    """
    name = Name(participant)
    member = state.roster.members.get(name)
    if member is None or member.kicked or proposal.proposer == name or name in proposal.rejected_by:
        return False
    if event == "outcome.unknown" and proposal.fulfilled_by == name:
        return True
    places = [each for each in givers if each != proposal.proposer and each in state.roster.members]
    if name in proposal.delegated_votes.values():
        places = []
    rights = [(name, member.rights), *((each, state.roster.members[each].lasting_rights) for each in places)]
    if event == "proposal.pending" and proposal.approvals_needed > len(proposal.approved_by):
        return name not in proposal.approved_by and any(
            who not in proposal.approved_by and held.allow("moot/approve", {}, ()) for who, held in rights
        )
    payload = payload_of(proposal)
    return any(held.allow("mcp/request", payload, proposal.to) for _, held in rights)


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
