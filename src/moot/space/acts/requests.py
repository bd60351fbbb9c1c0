"""Requests and their answers: who owes one, who may give one (MEW 3.1; D-15, D-80)."""

from __future__ import annotations

from functools import partial

from moot.errors import AlreadyAnswered, InvalidRequest, RequestNotFound, ResourceLimit, Unauthorized
from moot.protocol.answer_marks import says_unknown
from moot.protocol.continuation import wanted_input
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import CANCELLED, NOTIFICATION_PREFIX, OBLIGED, SETTLES, WHILE_ASKED
from moot.protocol.operation import JsonValue, Operation
from moot.space.acts import Act
from moot.space.acts.approvals import announce_uses, is_approved_by_person, may_confirm
from moot.space.config import Name
from moot.space.effects import Effect, Mint
from moot.space.grants.delegations import acting_for
from moot.space.id_window import SeenEnvelope
from moot.space.members.member import Session
from moot.space.proposals.budgets import Charge, find_charges
from moot.space.proposals.continued_calls import find_continued, note_wanted_input
from moot.space.proposals.counter_proposals import find_counter, without_counters
from moot.space.proposals.effect_keys import EffectUse, find_uses
from moot.space.proposals.offer_owners import LIST_METHODS
from moot.space.state import State


def prepare_request(state: State, session: Session, envelope: Envelope) -> Act | None:
    """None: it is counted by no budget and has no key, as most."""
    method: JsonValue = envelope.payload.get("method")
    notification = isinstance(method, str) and method.startswith(NOTIFICATION_PREFIX)
    if notification or state.config.budgets or state.config.effects:
        return _prepare_call(state, session, envelope, is_notification=notification)
    return None


def _prepare_call(state: State, session: Session, envelope: Envelope, *, is_notification: bool) -> Act:
    fulfilled = state.ledger.named_in(envelope.correlation_id)
    continued = find_continued(state, session, envelope) if fulfilled else None
    charges: tuple[Charge, ...] = ()
    if state.config.budgets and continued is None:
        charges = charges_of(state, session.member.name, envelope)
    uses: tuple[EffectUse, ...] = ()
    if state.config.effects and continued is None:
        uses = uses_of(state, envelope)
    if (charges or uses) and not envelope.to and not state.replaying:
        what = "a budget counts" if charges else "has a key in `effects`"
        raise InvalidRequest(f"a call that {what} names its host: put it into `to`")
    asked_for = fulfilled if len(fulfilled) < 2 else without_counters(fulfilled)
    is_approved = bool(charges) and is_approved_by_person(state, session, envelope, asked_for)
    confirms = bool(uses) and may_confirm(state, session, envelope, asked_for)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        owed = _owing(state, record)
        _fulfil(state, session, envelope, record, owed, now)
        if not is_notification:
            state.record_pending_answer(envelope.id, record, owed, now)
        elif envelope.payload["method"] == CANCELLED:
            return _cancel_fulfilments(state, session, envelope, now, mint)
        if uses and owed:
            by = asked_for[0].proposer if asked_for else session.member.name
            approved_by = session.member.name if asked_for else None
            state.effects.record(uses, envelope.id, by, approved_by, owed, now)
        return announce_uses(state, charges, uses, now, mint) if charges or uses else []

    if is_notification or not envelope.to:
        return Act(execute, charges=charges, is_approved=is_approved)
    check_limits = partial(check_open_requests, state, session)
    return Act(execute, check_limits, charges, is_approved, uses, confirms)


def check_may_wait(state: State, session: Session, envelope: Envelope) -> None:
    if envelope.to:
        check_open_requests(state, session)


def expect_answers(
    state: State, session: Session, envelope: Envelope, record: SeenEnvelope, now: float, mint: Mint
) -> list[Effect]:
    """Of a request: whoever was asked may answer from now on."""
    owed = _owing(state, record)
    if envelope.correlation_id:
        _fulfil(state, session, envelope, record, owed, now)
    state.record_pending_answer(envelope.id, record, owed, now)
    return []


def _fulfil(
    state: State,
    session: Session,
    envelope: Envelope,
    record: SeenEnvelope,
    owed: tuple[Name, ...],
    now: float,
) -> None:
    """Close the proposals that a request carries out, or go on with the one whose input it brings."""
    fulfilled = state.ledger.named_in(envelope.correlation_id)
    if not fulfilled:
        return
    is_awaited = fulfilled[0].wanted_input is not None
    continued = find_continued(state, session, envelope) if is_awaited else None
    giver = acting_for(state, session, envelope, now)
    for proposal in fulfilled:
        if proposal is continued:
            state.resume_call(proposal, envelope.id, record, now)
        else:
            state.fulfil_proposal(proposal, envelope.id, record, owed, now)
            proposal.fulfilled_for = giver
            counter = find_counter(proposal, fulfilled) if len(fulfilled) > 1 else None
            proposal.changed_by = None if counter is None else counter.id
    for proposal in fulfilled if len(fulfilled) < 2 else without_counters(fulfilled):
        record.proposer = proposal.proposer


def _owing(state: State, record: SeenEnvelope) -> tuple[Name, ...]:
    """Only members can owe an answer; the sender may address itself, and the gateway answers nothing."""
    members, to = state.roster.members, record.to
    if len(to) == 1:
        return to if to[0] in members else ()
    return tuple(dict.fromkeys([name for name in to if name in members]))


def charges_of(state: State, sender: Name, request: Envelope) -> tuple[Charge, ...]:
    """What a request takes of the budgets: what was proposed is its proposer's, whoever carries it out."""
    named = state.ledger.named_in(request.correlation_id)
    callers = {each.proposer for each in without_counters(named)} or {sender}
    to = state.resolve_names(request.to)
    return find_charges(state.rules.budgets, request.payload, request.raw, to, sorted(callers))


def uses_of(state: State, request: Envelope) -> tuple[EffectUse, ...]:
    """What a request brings about that has a key."""
    to = state.resolve_names(request.to)
    return find_uses(state.rules.effects, request.payload, request.raw, to)


def note_answers(
    state: State, session: Session, envelope: Envelope, record: SeenEnvelope, now: float, mint: Mint
) -> list[Effect]:
    """Of whatever ends an obligation: a response, a status, an acknowledgement."""
    effects: list[Effect] = []
    for id in envelope.correlation_id:
        asked = state.window.get(id)
        if asked is not None and asked.kind in SETTLES[envelope.kind]:
            state.record_answer(id, asked, session.member.name)
            if asked.kind == "mcp/request":
                if asked.operation is not None and asked.operation.method in LIST_METHODS:
                    result: JsonValue = envelope.payload.get("result")
                    state.offer_owners.announce(session.member.name, asked.operation.method, result)
                effects += _note_answer(state, id, asked, session, envelope, now, mint)
    return effects


def _note_answer(
    state: State,
    id: str,
    asked: SeenEnvelope,
    session: Session,
    envelope: Envelope,
    now: float,
    mint: Mint,
) -> list[Effect]:
    name = session.member.name
    if not asked.to:
        asked.answered = (*asked.answered, name)
    elif asked.late:
        asked.late = tuple(other for other in asked.late if other != name)
    told = _note_effect(state, id, asked, name, envelope, now, mint) if state.effects.about(id) else []
    if asked.proposer is None:
        return told
    executed = state.ledger.executed_by(id)
    error: JsonValue = envelope.payload.get("error")
    if error is not None and says_unknown(error):
        # It was asked, and cannot tell (D-99): still waited for, so that nothing but a person settles it.
        lost = [each for each in executed if not each.asked or name in each.waiting]
        return [*told, *state.lose_track(lost, "host_does_not_know", now, mint)]
    if note_wanted_input(state, id, name, envelope, executed, now):
        return told
    failed = _says_failed(envelope)
    for proposal in executed:
        state.unpin(state.ledger.note_answer(proposal, name, failed=failed, now=now))
    return told


def _note_effect(
    state: State, id: str, asked: SeenEnvelope, name: Name, envelope: Envelope, now: float, mint: Mint
) -> list[Effect]:
    """A call that has a key was answered."""
    if says_unknown(envelope.payload.get("error")):
        return []
    asks = wanted_input(envelope.payload.get("result")) is not None
    if asks and asked.proposer is not None:
        return []
    # A host that asks whoever called it directly has not begun: the call comes again with the answer.
    found = state.effects.note_answer(id, name, failed=asks or _says_failed(envelope))
    return announce_uses(state, (), found, now, mint)


def _says_failed(envelope: Envelope) -> bool:
    """A JSON-RPC error, or a tool's own report that it failed."""
    result: JsonValue = envelope.payload.get("result")
    return envelope.payload.get("error") is not None or (
        isinstance(result, dict) and result.get("isError") is True
    )


def _cancel_fulfilments(
    state: State, session: Session, envelope: Envelope, now: float, mint: Mint
) -> list[Effect]:
    """Whoever cancels its request gets no answer to it (MCP), done or not."""
    effects: list[Effect] = []
    for id in dict.fromkeys(envelope.correlation_id):
        asked = state.window.get(id)
        if asked is not None and asked.author == session.member.name:
            executed = state.ledger.executed_by(id)
            for proposal in executed:
                # Whoever asked for its input is not to have it any more.
                proposal.wanted_input = None
            effects += state.lose_track(executed, "cancelled", now, mint)
    return effects


def check_open_requests(state: State, session: Session) -> None:
    most = state.limits.max_open_requests
    if session.member.open_requests >= most:
        raise ResourceLimit(f"{most} of your requests wait for an answer already", limit="max_open_requests")


def check_may_answer(state: State, session: Session, envelope: Envelope) -> None:
    """D-80: whoever was not asked does not answer, for every request named; and everybody answers once.

    A response must name a request. One to everybody is answered by as many as may, each once. An answer that
    comes late, after the time for it or after the host was away, is still the first.
    """
    if state.replaying:
        return
    name = session.member.name
    answers = False
    for id in envelope.correlation_id:
        asked = state.window.get(id)
        if asked is None or asked.kind != "mcp/request":
            continue
        if asked.to and name not in asked.to:
            raise Unauthorized(f"request {id!r} was addressed to somebody else", request_id=id)
        if not expects_answer(asked, name):
            raise AlreadyAnswered(f"request {id!r} expects no answer of yours (any more)", request_id=id)
        answers = True
    if not answers:
        raise RequestNotFound(
            "a response must correlate to a request that somebody made here: put the request's id into "
            "correlation_id",
        )


def expects_answer(asked: SeenEnvelope, name: str) -> bool:
    """Whether this member, who was asked, has not answered yet."""
    if asked.to:
        return name in asked.owed or name in asked.late
    method = asked.operation.method if asked.operation is not None else None
    notification = method is not None and method.startswith(NOTIFICATION_PREFIX)
    return not notification and name not in asked.answered


def is_obliged(state: State, session: Session, envelope: Envelope, now: float) -> bool:
    """D-15: an answer that the sender owes needs no capability; it must go back to whoever asked."""
    name = session.member.name
    expected = OBLIGED.get(envelope.kind)
    if expected is None and envelope.kind != "mcp/request":
        return False
    ids = envelope.correlation_id
    if not ids:
        return False
    if envelope.kind == "mcp/request" and find_continued(state, session, envelope) is not None:
        return True
    addressed = state.resolve_names(envelope.to)
    for id in ids:
        asked = state.window.get(id)
        if asked is None:
            return False
        # D-99: the outcome of an approved call is unknown until its host says it, however late.
        late = asked.proposer is not None and envelope.kind == "mcp/response" and name in asked.late
        if now >= asked.expires and not late:
            return False
        if expected is not None:
            if asked.kind not in expected or (name not in asked.owed and not late):
                return False
            if addressed and asked.author not in addressed:
                return False
        elif not _belongs_to_request(asked, envelope, name, addressed):
            return False
    return True


def _belongs_to_request(
    asked: SeenEnvelope, envelope: Envelope, name: str, addressed: tuple[str, ...]
) -> bool:
    """Progress, questions back, and cancelling: part of a request that is still open."""
    method: JsonValue = envelope.payload.get("method")
    if asked.kind != "mcp/request" or not isinstance(method, str) or not addressed:
        return False
    if method == CANCELLED and asked.author == name:
        return bool(asked.owed) and all(other in asked.to for other in addressed)
    if not method.startswith(NOTIFICATION_PREFIX) and method not in WHILE_ASKED:
        return False
    return name in asked.owed and all(other == asked.author for other in addressed)


def operations_asked(state: State, envelope: Envelope) -> list[Operation | None]:
    """What each request does that a response answers; None where it is not known (any more)."""
    if len(envelope.correlation_id) == 1:
        asked = state.window.get(envelope.correlation_id[0])
        return [asked.operation if asked is not None and asked.kind == "mcp/request" else None]
    known: dict[Operation | None, None] = {}
    for id in envelope.correlation_id:
        asked = state.window.get(id)
        known[asked.operation if asked is not None and asked.kind == "mcp/request" else None] = None
    return list(known) or [None]


def proposer_asked(state: State, envelope: Envelope) -> str | None:
    """D-30: who proposed what a response answers, as the wire shows them."""
    for id in envelope.correlation_id:
        asked = state.window.get(id)
        if asked is not None and asked.proposer is not None:
            return state.runtime_ids([asked.proposer])[0]
    return None
