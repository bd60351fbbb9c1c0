"""What an open proposal still needs: votes of a quorum, and room in budgets. Everybody is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moot.protocol import strict_json
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.patterns import Rights
from moot.protocol.proposal_life import RULE_CONTEXT, RULE_KINDS
from moot.space.budgets import Charge, describe_charge, find_charges
from moot.space.config import Name
from moot.space.effects import Effect, Mint
from moot.space.members import Session
from moot.space.proposal_ledger import ProposalRecord
from moot.space.state import State

# Open proposals of which is told, after a call, what it left them of a budget; whoever asks is told of all.
MAX_TOLD: Final = 64


def announce_votes(state: State, ids: Iterable[str], now: float, mint: Mint, **facts: Json) -> list[Effect]:
    """Tell everybody how many approvals these proposals have by now, in the gateway's own count."""
    if state.replaying:
        # An older version announced nothing, and drew no id for it.
        return []
    told = [proposal for id in ids if (proposal := state.ledger.get(id)) is not None]
    return [
        state.announce(
            "moot/votes", describe_votes(state, each, now) | facts, now, mint, correlation_id=[each.id]
        )
        for each in told
    ]


def describe_votes(state: State, proposal: ProposalRecord, now: float) -> dict[str, Json]:
    """How many approvals a proposal needs, who gave theirs, how many are missing, and for whom none are; and
    what it would take of the space's budgets, if there are any for it."""
    charges = describe_charges(state, proposal, now)
    return {
        "proposal_id": proposal.id,
        "approvals_needed": proposal.approvals_needed,
        "approvals_missing": proposal.approvals_missing(),
        "approved_by": state.runtime_ids(proposal.approved_by),
        "exempt": state.runtime_ids(proposal.exempt),
        **({"passkey": True} if proposal.passkey else {}),
        **({"budgets": charges} if charges else {}),
        **(
            {"delegated_votes": _by_runtime_id(state, proposal.delegated_votes)}
            if proposal.delegated_votes
            else {}
        ),
        **({"counters": list(proposal.counters)} if proposal.counters else {}),
    }


def _by_runtime_id(state: State, votes: Mapping[Name, Name]) -> dict[str, Json]:
    return dict(zip(state.runtime_ids(votes), state.runtime_ids(votes.values()), strict=True))


def describe_charges(state: State, proposal: ProposalRecord, now: float) -> list[Json]:
    return [describe_charge(state.budgets, each, now) for each in _charges_of(state, proposal)]


def _charges_of(state: State, proposal: ProposalRecord) -> Sequence[Charge]:
    """What an open proposal would take of each budget."""
    budgets = state.config.budgets
    if not budgets or proposal.state != "open" or not proposal.raw:
        return ()
    payload = strict_json.parse_any_depth(proposal.raw)["payload"]
    return find_charges(budgets, payload, proposal.raw, proposal.to, [proposal.proposer])


def announce_budgets(state: State, charges: Sequence[Charge], now: float, mint: Mint) -> list[Effect]:
    """A call was counted: tell how much it left to the open proposals that need the same."""
    if not charges or state.replaying:
        return []
    taken = {(each.budget.name, each.holder) for each in charges}
    concerned = [
        proposal.id
        for proposal in state.ledger.all_open()
        if any((each.budget.name, each.holder) in taken for each in _charges_of(state, proposal))
    ]
    return announce_votes(state, concerned[:MAX_TOLD], now, mint)


def is_approved_by_person(
    state: State, session: Session, envelope: Envelope, fulfilled: Sequence[ProposalRecord]
) -> bool:
    """Whether somebody else than its proposer approved a call, and no rule did.

    A rule names itself in what it sends. Whoever may suggest rules and not accept them applies them, too
    (decision 0154).
    """
    return bool(fulfilled) and all(
        _has_vote(state, proposal)
        or (session.member.name != proposal.proposer and not _is_by_rule(state, session, envelope))
        for proposal in fulfilled
    )


def _has_vote(state: State, proposal: ProposalRecord) -> bool:
    # Whoever voted, in their own place or another's.
    voters = (proposal.delegated_votes.get(name, name) for name in proposal.approved_by)
    members = (state.roster.members.get(name) for name in voters)
    return any(member is not None and not _applies_rules(member.rights) for member in members)


def _is_by_rule(state: State, session: Session, envelope: Envelope) -> bool:
    about = (state.window.get(id) for id in envelope.correlation_id)
    return (
        (envelope.context or "").startswith(RULE_CONTEXT)
        or any(record is not None and record.kind in RULE_KINDS for record in about)
        or _applies_rules(session.rights)
    )


def _applies_rules(rights: Rights) -> bool:
    return rights.allow("trust/suggestion", {}, ()) and not rights.allow("trust/accept", {}, ())
