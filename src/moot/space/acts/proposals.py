"""Proposing, deciding and withdrawing (MEW 3.2, 3.3; D-28). The first two are ladder step 10."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.errors import (
    ApprovalRequired,
    InvalidRequest,
    ProposalMismatch,
    ProposalSettled,
    ResourceLimit,
    TargetAbsent,
    TargetNotFound,
    Unauthorized,
)
from moot.protocol import strict_json
from moot.protocol.envelope import Envelope
from moot.protocol.fingerprint import fingerprint_of
from moot.protocol.operation import Json
from moot.protocol.strict_json import has_more_decimals
from moot.space.acts import Act, read_texts, requests
from moot.space.acts.approvals import (
    announce_uses,
    announce_votes,
    check_effect_assessment,
    describe_charges,
    describe_effects,
    describe_open_votes,
)
from moot.space.acts.passkey_votes import check_passkey, note_passkey
from moot.space.effects import Effect, Mint
from moot.space.grants.delegations import acting_for
from moot.space.id_window import SeenEnvelope
from moot.space.members.member import Session
from moot.space.proposals.continued_calls import find_continued
from moot.space.proposals.counter_proposals import (
    check_originals_named,
    check_votes_of_counter,
    combine_needed,
    find_counter,
    find_countered,
    may_author_vote,
)
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.proposals.quorum import NeededApprovals, find_needed_approvals
from moot.space.state import State

# Bytes of these: they stay in memory, for whoever joins later. As many as four of the largest envelopes.
MAX_OPEN_BYTES: Final = 4 << 20
# Numbers with a fraction or an exponent in one proposal: its fingerprint compares them digit by digit, up
# to 5 µs each.
MAX_DECIMALS: Final = 10_000
# The words with which a person settles an outcome that nobody knows.
MAX_NOTE_CHARS: Final = 2_000
# Members that one proposal is assigned to: more are everybody.
MAX_ASSIGNED: Final = 16


def check_call(state: State, session: Session, envelope: Envelope, now: float) -> None:
    """One proposal, at most one execution, of exactly what was reviewed."""
    named = state.ledger.named_in(envelope.correlation_id)
    if not named:
        _check_needs_no_proposal(state, session, envelope, now)
        return
    # Once for all that are named: it reads the whole body.
    _check_decimals(state, envelope)
    body = fingerprint_of(envelope)
    for proposal in named:
        if proposal.wanted_input is not None and find_continued(state, session, envelope) is proposal:
            continue
        counter = None if body == proposal.fingerprint else find_counter(proposal, named)
        if counter is not None:
            _check_changed_fulfilment(state, session, proposal, counter, now)
            continue
        is_counter = len(named) > 1 and any(each.id in proposal.counters for each in named)
        _check_fulfilment(state, session, envelope, proposal, body, now, is_counter=is_counter)
        if proposal.counters and not state.replaying:
            check_originals_named(state, proposal, named, now)


def check_ledger(state: State, session: Session, envelope: Envelope, now: float) -> None:
    """Whether proposals can be withdrawn, approved, settled or assigned like this."""
    named = _named_in(state, envelope)
    if envelope.kind == "moot/settle" and any(map(state.effects.is_open, envelope.correlation_id)):
        check_effect_assessment(state, session, envelope, now)
    elif envelope.kind in ("moot/approve", "moot/settle", "moot/assign") and not named:
        raise InvalidRequest(f"{envelope.kind} must correlate to a proposal that this space knows")
    for proposal in named:
        if envelope.kind == "mcp/withdraw":
            if proposal.proposer != session.member.name:
                raise Unauthorized("only its proposer withdraws a proposal", proposal_id=proposal.id)
            _check_open(proposal, now)
        elif envelope.kind == "moot/settle":
            _check_assessment(state, session, proposal)
        elif envelope.kind == "moot/assign":
            _check_open(proposal, now)
        elif envelope.kind == "moot/approve":
            # Of a changed call its author's vote counts, which a passkey confirms.
            is_own_change = proposal.author_votes and proposal.passkey
            if proposal.proposer == session.member.name and not is_own_change:
                raise Unauthorized("nobody approves their own proposal", proposal_id=proposal.id)
            _check_open(proposal, now)
            if proposal.passkey and not state.replaying:
                check_passkey(state, session, envelope, proposal, now)


def _named_in(state: State, envelope: Envelope) -> list[ProposalRecord]:
    """The proposals that an envelope is about; what is settled may be named by the call, too."""
    if not envelope.correlation_id:
        return []
    named = state.ledger.named_in(envelope.correlation_id)
    if envelope.kind == "moot/settle":
        named += [each for id in envelope.correlation_id for each in state.ledger.executed_by(id)]
    return named


def _check_needs_no_proposal(state: State, session: Session, envelope: Envelope, now: float) -> None:
    """D-103: a right to make a call does not lift a quorum, and nobody goes round their own proposal.

    What was accepted once, by a version that asked less, is accepted when it is replayed.
    """
    if state.replaying or not state.rules.may_ask_first:
        return
    name = session.member.name
    to = state.resolve_names(envelope.to)
    needed = find_needed_approvals(state.rules.approvals, envelope.payload, to)
    if needed.approvals and name not in needed.exempt:
        # Questions back and progress are part of a call that was approved.
        if requests.is_obliged(state, session, envelope, now):
            return
        count = "1 approval is" if needed.approvals == 1 else f"{needed.approvals} approvals are"
        raise ApprovalRequired(
            f"propose it: {count} needed, also from those who may make this call",
            approvals_needed=needed.approvals,
        )
    if state.config.separation_of_duties and (own := state.ledger.open_of(name)):
        _check_decimals(state, envelope)
        body = fingerprint_of(envelope)
        for proposal in own:
            if proposal.fingerprint == body and not (proposal.to and to and set(proposal.to).isdisjoint(to)):
                raise Unauthorized(
                    "in this space nobody makes a call that they proposed: somebody else approves it, or you "
                    "withdraw it first",
                    proposal_id=proposal.id,
                )


def _check_decimals(state: State, envelope: Envelope) -> None:
    # What was accepted once is applied again, whatever limit held then.
    if not state.replaying and has_more_decimals(envelope.raw, MAX_DECIMALS):
        raise ResourceLimit(
            f"more than {MAX_DECIMALS} numbers with a fraction or an exponent: propose a file or a stream of "
            "them",
            limit="max_proposal_decimals",
        )


def _check_open(proposal: ProposalRecord, now: float) -> None:
    state = proposal.state_at(now)
    if state != "open":
        raise ProposalSettled(
            f"proposal {proposal.id!r} is {state} already",
            proposal_id=proposal.id,
            state=state,
            **({} if proposal.settled_by is None else {"settled_by": proposal.settled_by}),
            **({} if proposal.outcome is None else {"outcome": proposal.outcome}),
        )


def _check_assessment(state: State, session: Session, proposal: ProposalRecord) -> None:
    """D-99: only what nobody knows can be settled by a person."""
    if state.config.separation_of_duties and proposal.proposer == session.member.name:
        raise Unauthorized("in this space nobody settles their own proposal", proposal_id=proposal.id)
    if proposal.outcome == "unknown":
        return
    if proposal.state == "open":
        why = "is open: approve or reject it"
    elif proposal.outcome == "pending":
        why = f"is being carried out by {', '.join(state.runtime_ids(proposal.waiting)) or 'somebody'}: wait"
    else:
        why = f"is {proposal.outcome or proposal.state} already"
    raise ProposalSettled(
        f"proposal {proposal.id!r} {why}; only an outcome that is unknown can be settled",
        proposal_id=proposal.id,
        state=proposal.state,
        **({} if proposal.outcome is None else {"outcome": proposal.outcome}),
    )


def _check_changed_fulfilment(
    state: State, session: Session, original: ProposalRecord, counter: ProposalRecord, now: float
) -> None:
    """A counter-proposal is carried out in place of this one."""
    _check_open(original, now)
    _check_others(state, session, original)
    if not state.replaying:
        check_votes_of_counter(state, session, original, counter)


def _check_others(state: State, session: Session, proposal: ProposalRecord) -> None:
    if state.config.separation_of_duties and proposal.proposer == session.member.name:
        raise Unauthorized("in this space nobody fulfils their own proposal", proposal_id=proposal.id)


def _check_fulfilment(
    state: State,
    session: Session,
    envelope: Envelope,
    proposal: ProposalRecord,
    body: str,
    now: float,
    *,
    is_counter: bool,
) -> None:
    _check_open(proposal, now)
    if proposal.counters and not state.replaying:
        for each in state.ledger.named_in(proposal.counters):
            if each.state == "fulfilled":
                # It was to run in the place of that one, and not beside it.
                _check_open(each, now)
    if not is_counter:
        # Somebody else proposed what its author changes: two have had a look at it.
        _check_others(state, session, proposal)
    if body != proposal.fingerprint:
        raise ProposalMismatch(
            "method or params differ from what was proposed: to run something else, make a counter-proposal "
            "and name both, or send a request without this correlation",
            proposal_id=proposal.id,
        )
    to = state.resolve_names(envelope.to)
    if proposal.to and to != proposal.to and set(to) != set(proposal.to):
        raise ProposalMismatch(
            f"the proposal is addressed to {', '.join(state.runtime_ids(proposal.to))}",
            proposal_id=proposal.id,
        )
    # Replayed: a version that did not bind open proposals accepted it.
    missing = 0 if state.replaying else proposal.approvals_missing(session.member.name)
    if missing > 0:
        raise ApprovalRequired(
            f"{missing} more approval{'s' if missing > 1 else ''} needed (moot/approve)",
            proposal_id=proposal.id,
            approvals_needed=proposal.approvals_needed,
            approved_by=state.runtime_ids(proposal.approved_by),
        )
    if not state.replaying:
        _check_targets(state, envelope, proposal, now)


def _check_targets(state: State, envelope: Envelope, proposal: ProposalRecord, now: float) -> None:
    """D-100: an approval is a person's time; it is not used up on somebody who is not there."""
    for name in envelope.to:
        member = state.roster.resolve(name)
        if member is None:
            raise TargetNotFound(
                f"there is no {name!r} in this space, so nothing was carried out; the proposal stays open",
                proposal_id=proposal.id,
                target=name,
            )
        if not member.is_reachable(now):
            raise TargetAbsent(
                f"{name} is not connected, so nothing was carried out; the proposal stays open: approve it "
                f"again when {name} is back",
                proposal_id=proposal.id,
                target=name,
            )


def check_room(state: State, session: Session, envelope: Envelope) -> None:
    """Whether the sender may have one more proposal open."""
    proposer, most = session.member, state.limits.max_open_proposals
    if state.ledger.count_open(proposer.name) >= most:
        raise ResourceLimit(
            f"{most} of your proposals are open: withdraw one first", limit="max_open_proposals"
        )
    if not state.ledger.has_room(proposer.name, len(envelope.raw), MAX_OPEN_BYTES):
        raise ResourceLimit(
            f"your open proposals have {MAX_OPEN_BYTES} bytes together at most: withdraw one first",
            limit="max_open_proposal_bytes",
        )
    _check_decimals(state, envelope)


def record_proposal(
    state: State, session: Session, envelope: Envelope, record: SeenEnvelope, now: float, mint: Mint
) -> list[Effect]:
    proposer = session.member
    expires = now + state.limits.proposal_seconds
    operation, votes, author_votes = record.operation, False, False
    needed = own_needed = find_needed_approvals(state.rules.approvals, envelope.payload, record.to)
    countered = find_countered(state, session, envelope, now) if envelope.correlation_id else []
    if countered:
        needed = combine_needed(own_needed, countered)
        author_votes = may_author_vote(own_needed, operation, countered)
        # Whoever changes a call agrees to the changed one; with a passkey that is said by a vote.
        votes = bool(author_votes and needed.approvals and not needed.passkey) and session.rights.allow(
            "moot/approve", {}, ()
        )
    state.ledger.drop_unresolved_bytes(proposer.name, len(envelope.raw), MAX_OPEN_BYTES)
    made = ProposalRecord(
        envelope.id,
        proposer.name,
        record.to,
        fingerprint_of(envelope),
        expires,
        approvals_needed=needed.approvals,
        exempt=needed.exempt,
        approved_by=[proposer.name] if votes else [],
        counters=tuple([each.id for each in countered]) if countered else (),
        author_votes=author_votes,
        passkey=needed.passkey,
        proposed_at=now,
        operation=operation,
        raw=envelope.raw,
        dialect=envelope.dialect,
        translated=record.translated,
    )
    state.ledger.add(made)
    state.window.pin(envelope.id, record)
    state.deadlines.schedule(expires, "proposal", envelope.id)
    told: object = needed.approvals or countered
    if not told and (state.config.budgets or state.config.effects):
        told = describe_charges(state, made, now) or describe_effects(state, made, now)
    return announce_votes(state, [envelope.id], now, mint) if told else []


def prepare_withdraw(state: State, session: Session, envelope: Envelope) -> Act:
    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        for proposal in state.ledger.named_in(envelope.correlation_id):
            state.settle_proposal(proposal, "withdrawn", envelope.id, now)
        return []

    return Act(execute)


def prepare_reject(state: State, session: Session, envelope: Envelope) -> Act:
    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        for proposal in state.ledger.named_in(envelope.correlation_id):
            state.ledger.reject(proposal, session.member.name, envelope.payload.get("reason"), now)
        return []

    return Act(execute)


def prepare_approve(state: State, session: Session, envelope: Envelope) -> Act:
    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        giver = acting_for(state, session, envelope, now)
        for proposal in state.ledger.named_in(envelope.correlation_id):
            counts = proposal.add_vote(session.member.name, giver)
            counted_as = (giver or session.member.name) if counts else None
            note_passkey(state, session, envelope, proposal, now, counted_as=counted_as)
            if counts:
                state.verdicts_changed()
        return []

    return Act(execute)


def prepare_assign(state: State, session: Session, envelope: Envelope) -> Act:
    """Say whom proposals wait for; nobody may do more or less by that."""
    given = read_texts(envelope.payload.get("to"))
    if given is None:
        raise InvalidRequest('payload.to must be a list of members, as in ["ana"]; an empty one is nobody')
    names = tuple(dict.fromkeys(state.resolve_names(given)))
    if len(names) > MAX_ASSIGNED and not state.replaying:
        raise InvalidRequest(f"a proposal is for {MAX_ASSIGNED} members at most")
    for name in () if state.replaying else names:
        state.roster.find(name)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        for proposal in state.ledger.named_in(envelope.correlation_id):
            if proposal.state_at(now) == "open":
                proposal.assigned_to, proposal.assigned_by = names, session.member.name
        return []

    return Act(execute)


def bind_open(state: State, told: Mapping[str, dict[str, Json]], now: float, mint: Mint) -> list[Effect]:
    """Ask for open proposals, too, what a new configuration asks for; never for less than before.

    `told` is what people were told before: of what differs now, they are told again.
    """
    changed_calls: list[tuple[ProposalRecord, NeededApprovals]] = []
    for each in state.ledger.all_open():
        payload = strict_json.parse_any_depth(each.raw)["payload"] if each.raw else {}
        needed = find_needed_approvals(state.rules.approvals, payload, each.to)
        if not needed.approvals:
            continue
        if each.author_votes:
            changed_calls.append((each, needed))
        if needed.passkey and not each.passkey:
            # Those that were given without one do not count.
            each.passkey, each.approved_by, each.delegated_votes = True, [], {}
            each.confirmed_with = {}
        if not each.approvals_needed:
            each.exempt = needed.exempt
        each.exempt = tuple(name for name in each.exempt if name in needed.exempt)
        each.approvals_needed = max(each.approvals_needed, needed.approvals)
    for each, needed in changed_calls:
        each.author_votes = may_author_vote(needed, each.operation, state.ledger.named_in(each.counters))
        if not each.author_votes and each.proposer in each.approved_by:
            each.approved_by.remove(each.proposer)
    changed = [id for id, votes in describe_open_votes(state, now).items() if told.get(id) != votes]
    return announce_votes(state, changed, now, mint)


def prepare_settle(state: State, session: Session, envelope: Envelope) -> Act:
    """D-99: a person says what came of a call whose outcome nobody knows."""
    outcome, note = envelope.payload.get("outcome"), envelope.payload.get("note")
    if outcome not in ("done", "failed"):
        raise InvalidRequest('payload.outcome must be "done" or "failed"')
    if note is not None and not isinstance(note, str):
        raise InvalidRequest("payload.note must be text")
    if note is not None and len(note) > MAX_NOTE_CHARS and not state.replaying:
        raise InvalidRequest(f"payload.note has {MAX_NOTE_CHARS} characters at most")

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        settled = list(envelope.correlation_id)
        for proposal in _named_in(state, envelope):
            settled.append(proposal.settled_by or "")
            state.unpin(state.ledger.assess(proposal, outcome, session.member.name, note, now))
        changed = [each for id in settled for each in state.effects.settle(id, outcome)]
        return announce_uses(state, (), changed, now, mint)

    return Act(execute)


def expire_proposal(state: State, id: str, now: float) -> None:
    proposal = state.ledger.get(id)
    if proposal is not None and proposal.state == "open" and now >= proposal.expires:
        state.settle_proposal(proposal, "expired", None, now)
