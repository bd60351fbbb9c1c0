"""What an open proposal still needs: votes of a quorum, and room in budgets. Everybody is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moot.errors import InvalidRequest, Unauthorized
from moot.protocol import strict_json
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.patterns import Rights
from moot.protocol.proposal_life import RULE_CONTEXT, RULE_KINDS
from moot.space.config import Name
from moot.space.effects import Effect, Mint
from moot.space.members.member import Session
from moot.space.proposals.budgets import Charge, describe_charge, find_charges
from moot.space.proposals.effect_keys import (
    EffectRecord,
    EffectUse,
    describe_classes,
    describe_open,
    describe_use_of,
    find_uses,
)
from moot.space.proposals.proposal_ledger import ProposalRecord
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
    what it would take of the space's budgets and bring about, as far as anything is said of that."""
    charges, effects = describe_charges(state, proposal, now), describe_effects(state, proposal, now)
    return {
        "proposal_id": proposal.id,
        "approvals_needed": proposal.approvals_needed,
        "approvals_missing": proposal.approvals_missing(),
        "approved_by": state.runtime_ids(proposal.approved_by),
        "exempt": state.runtime_ids(proposal.exempt),
        **({"passkey": True} if proposal.passkey else {}),
        **({"budgets": charges} if charges else {}),
        **({"effects": effects} if effects else {}),
        **(
            {"delegated_votes": _by_runtime_id(state, proposal.delegated_votes)}
            if proposal.delegated_votes
            else {}
        ),
        **({"counters": list(proposal.counters)} if proposal.counters else {}),
    }


def describe_open_votes(state: State, now: float) -> dict[str, dict[str, Json]]:
    """What people are told of each open proposal."""
    return {each.id: describe_votes(state, each, now) for each in state.ledger.all_open()}


def _by_runtime_id(state: State, votes: Mapping[Name, Name]) -> dict[str, Json]:
    return dict(zip(state.runtime_ids(votes), state.runtime_ids(votes.values()), strict=True))


def describe_charges(state: State, proposal: ProposalRecord, now: float) -> list[Json]:
    return [describe_charge(state.budgets, each, now) for each in _charges_of(state, proposal)]


def _charges_of(state: State, proposal: ProposalRecord) -> Sequence[Charge]:
    """What an open proposal would take of each budget."""
    budgets = state.rules.budgets
    if not budgets or proposal.state != "open" or not proposal.raw:
        return ()
    payload = strict_json.parse_any_depth(proposal.raw)["payload"]
    return find_charges(budgets, payload, proposal.raw, proposal.to, [proposal.proposer])


def describe_effects(state: State, proposal: ProposalRecord, now: float) -> list[Json]:
    """What an open proposal would bring about: whether it was done before, and whether it can be undone."""
    effects = state.rules.effects
    if proposal.outcome == "unknown":
        return [describe_open(each) for each in state.effects.about(proposal.settled_by or "")]
    if not effects or proposal.state != "open" or not proposal.raw:
        return []
    payload = strict_json.parse_any_depth(proposal.raw)["payload"]
    uses = find_uses(effects, payload, proposal.raw, proposal.to)
    notes: list[Json] = [describe_use_of(state.effects, each, now) for each in uses]
    return [*notes, *describe_classes(effects, payload, proposal.to)]


def announce_uses(
    state: State,
    charges: Sequence[Charge],
    keys: Sequence[EffectUse | EffectRecord],
    now: float,
    mint: Mint,
) -> list[Effect]:
    """A call was counted, or what came of it is known: tell the open proposals that need or do the same."""
    if state.replaying or not (charges or keys):
        return []
    taken = {(each.budget.name, each.holder) for each in charges}
    same = {(each.name, each.digest) for each in keys}

    def is_concerned(proposal: ProposalRecord) -> bool:
        needs = _charges_of(state, proposal) if taken else ()
        does = _uses_of(state, proposal) if same else ()
        return any((each.budget.name, each.holder) in taken for each in needs) or any(
            (each.name, each.digest) in same for each in does
        )

    concerned = [each.id for each in state.ledger.all_open() if is_concerned(each)]
    return announce_votes(state, concerned[:MAX_TOLD], now, mint)


def _uses_of(state: State, proposal: ProposalRecord) -> Sequence[EffectUse]:
    if not proposal.raw:
        return ()
    payload = strict_json.parse_any_depth(proposal.raw)["payload"]
    return find_uses(state.rules.effects, payload, proposal.raw, proposal.to)


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


def check_effect_assessment(state: State, session: Session, envelope: Envelope, now: float) -> None:
    """A call without a proposal can be settled, too, where others with its key ask because of it."""
    for id in envelope.correlation_id:
        about = state.effects.about(id) if state.effects.is_open(id) else ()
        if about and state.config.separation_of_duties and about[0].by == session.member.name:
            raise Unauthorized("in this space nobody settles their own call", request_id=id)
        asked = state.window.get(id)
        owed = asked.owed if about and asked is not None and now < asked.expires else ()
        members = [state.roster.members.get(name) for name in owed]
        if any(each is not None and each.is_reachable(now) for each in members):
            raise InvalidRequest(f"{id} may still be answered by {', '.join(owed)}: wait", request_id=id)


def may_confirm(
    state: State, session: Session, envelope: Envelope, fulfilled: Sequence[ProposalRecord]
) -> bool:
    """Whether who sends a request may say that it is done again: not its proposer, and no rule.

    Votes that were given before do not count: whoever gave them may not have known of the earlier call.
    """
    is_others = all(session.member.name != each.proposer for each in fulfilled)
    return bool(fulfilled) and is_others and not _is_by_rule(state, session, envelope)


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
