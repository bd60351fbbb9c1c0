"""Counter-proposals: a decider's changed version of a proposal, which settles the original when it runs.

    agent   mcp/proposal  p1   to files   {method, params}
    ana     mcp/proposal  c1   to files   {method, changed params}   correlation_id: [p1]
    ana     mcp/request   f1   to files   {method, changed params}   correlation_id: [c1, p1]

The request repeats the counter-proposal, and by naming the original, too, it settles both: the original can
never run any more, and the answer is the outcome of both. Whoever could make neither the call nor a vote on
it only refers to a proposal by naming it; and nobody counters their own. A change cannot lower the number of
votes that the original needs; its author's counts as one of them, unless the changed call needs more by
itself: nobody gets a call of their own past a quorum by naming somebody's harmless proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moot.errors import ApprovalRequired, PasskeyRequired, ProposalMismatch
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Operation
from moot.space.grants.grant_limits import rights_at
from moot.space.members.member import Session
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.proposals.quorum import NeededApprovals

if TYPE_CHECKING:
    from moot.space.state import State


def find_countered(state: State, session: Session, envelope: Envelope, now: float) -> list[ProposalRecord]:
    """The open proposals of others that a new one is a changed version of."""
    named = state.ledger.named_in(envelope.correlation_id)
    found = [each for each in named if each.state_at(now) == "open" and each.proposer != session.member.name]
    if not found:
        return []
    rights = rights_at(state, session, now)
    to = state.resolve_names(envelope.to)
    may_decide = rights.allow("mcp/request", envelope.payload, to) or rights.allow("moot/approve", {}, ())
    return found if may_decide else []


def combine_needed(needed: NeededApprovals, countered: Sequence[ProposalRecord]) -> NeededApprovals:
    """How many votes a counter-proposal needs: as many as it does by itself, and as the originals do."""
    for each in countered:
        if not each.approvals_needed:
            continue
        exempt = [name for name in each.exempt if not needed.approvals or name in needed.exempt]
        passkey = needed.passkey or each.passkey
        needed = NeededApprovals(max(needed.approvals, each.approvals_needed), tuple(exempt), passkey)
    return needed


def may_author_vote(
    own: NeededApprovals, operation: Operation | None, countered: Sequence[ProposalRecord]
) -> bool:
    """Whether the author of a changed call, which by itself needs `own`, counts as one who approves it."""
    return bool(countered) and all(
        not own.approvals
        or (
            each.operation == operation
            and each.approvals_needed >= own.approvals
            and (each.passkey or not own.passkey)
        )
        for each in countered
    )


def find_counter(proposal: ProposalRecord, named: Sequence[ProposalRecord]) -> ProposalRecord | None:
    """The counter-proposal to this one among those that a request names, if there is one."""
    return next((each for each in named if proposal.id in each.counters), None)


def without_counters(named: Sequence[ProposalRecord]) -> list[ProposalRecord]:
    """Those that a request names, but for counter-proposals to others of them: what was asked for."""
    ids = {each.id for each in named}
    return [each for each in named if ids.isdisjoint(each.counters)]


def check_originals_named(
    state: State, proposal: ProposalRecord, named: Sequence[ProposalRecord], now: float
) -> None:
    """Carried out by its own name alone, a change would leave the original open, to run beside it."""
    for each in state.ledger.named_in(proposal.counters):
        if each.state_at(now) == "open" and each not in named:
            raise ProposalMismatch(
                f"this is a changed version of {each.id}, which is still open: name both in correlation_id, "
                "so that this settles both",
                proposal_id=proposal.id,
                original_id=each.id,
            )


def check_votes_of_counter(
    state: State, session: Session, original: ProposalRecord, counter: ProposalRecord
) -> None:
    """The original may have come to need more votes, or a passkey, since its counter-proposal was made."""
    if original.passkey and not counter.passkey:
        raise PasskeyRequired(
            "the original is approved with a passkey since: make the changed call again",
            proposal_id=counter.id,
        )
    missing = original.approvals_needed - len(counter.approved_by)
    if missing > 0 and session.member.name not in original.exempt:
        raise ApprovalRequired(
            f"{missing} more approval{'s' if missing > 1 else ''} needed (moot/approve)",
            proposal_id=counter.id,
            approvals_needed=original.approvals_needed,
            approved_by=state.runtime_ids(counter.approved_by),
        )
