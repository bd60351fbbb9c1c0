"""The ladder: the checks that every envelope passes, the same for WebSocket and HTTP (dialects.md section 7).

Each rung either passes or refuses with its own error code, and the first refusal wins:

     1  decode, fill            the dialect, before us; fields that are missing are filled here (D-05)
     2  rate                    rate_limited
     3  identity                auth_violation
     4  shut down, paused       participant_shutdown, participant_paused
     5  duplicate id            duplicate_id
     6  reserved kinds          capability_violation (reserved_kind)
     7  kind against payload    kind_payload_mismatch
     8  capability              capability_violation, unless the answer is owed (D-15)
     9  who may answer          unauthorized, request_not_found, already_answered
    10  proposal ledger         proposal_settled, proposal_mismatch, approval_required, unauthorized,
                                passkey_required, passkey_invalid, target_not_found, target_absent
    11  shape of the act        invalid_request, …_not_found, invalid_operation
    12  journal able            unavailable
    13  limits, budgets, keys   resource_limit, budget_exceeded, approval_required
    14  execute and deliver

A refused input changes nothing. What the gateway itself executes is in `acts/`, one file per subject.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from moot.errors import (
    AuthViolation,
    CapabilityViolation,
    DuplicateId,
    KindPayloadMismatch,
    ParticipantPaused,
    ParticipantShutdown,
    Refused,
    Unavailable,
)
from moot.protocol import payloads
from moot.protocol.agreement import check_agreement
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope, fill_missing, readdress, rfc3339
from moot.protocol.exact_numbers import with_exact_numbers
from moot.protocol.kinds import KINDS, MEMBERS_KINDS, OPERATION_KINDS, UNKNOWN, Kind, is_reserved
from moot.protocol.operation import Json, Operation, Payload, operation_of
from moot.protocol.patterns import Rights
from moot.space.acts import Act, PlainAct, delegations, proposals, requests
from moot.space.acts.act_table import ACTS, EXECUTED, PLAIN_ACTS
from moot.space.config import Name, SessionId
from moot.space.effects import Deliver, Effect, LeftToOthers, Mint, Reply, Result
from moot.space.grants.delegations import find_giver
from moot.space.grants.grant_limits import count_use, counted_rights, rights_at
from moot.space.grants.grant_table import GrantRecord
from moot.space.id_window import SeenEnvelope
from moot.space.last_word import ABOUT, is_late, is_left_to_others
from moot.space.members.member import Session
from moot.space.members.send_rate import UNLIMITED
from moot.space.proposals.budgets import check_charges
from moot.space.proposals.effect_keys import check_uses
from moot.space.state import State

_LEDGER_KINDS: Final = frozenset({"mcp/withdraw", "moot/approve", "moot/settle", "moot/assign"})
# Of what is no response.
_NOTHING_ASKED: Final[Sequence[Operation | None]] = (None,)
# D-32: kinds for one member only.
_NARROWED: Final = frozenset({"chat/acknowledge", "participant/status"})


def process_envelope(
    state: State, session: Session, envelope: Envelope, now: float, mint: Mint
) -> list[Effect]:
    """One envelope from one session, rung by rung. Never raises Refused: the answer is an effect."""
    member = session.member
    kind = envelope.kind
    row = KINDS.get(kind, UNKNOWN)
    given_id = envelope.id
    try:
        # 2
        if state.send_rate is not UNLIMITED:
            member.send_limiter.check_rate(len(envelope.raw), now, state.send_rate)
        # 3
        if envelope.sender != member.id and envelope.sender:
            raise AuthViolation(f"you are {member.id!r}, not {envelope.sender[:128]!r}")
        if envelope.missing:
            envelope = _fill_missing(session, envelope, now, mint)
        # 4
        if member.pause is not None or session.closing_at is not None:
            check_may_send(state, session, row, now)
        # 5
        id, window = envelope.id, state.window
        known = id in window.recent or id in window.pinned
        if known and not state.may_repeat_id(id, session):
            raise DuplicateId(f"id {id!r} was used before: every envelope needs its own")
        # 6
        if kind not in MEMBERS_KINDS:
            _check_not_reserved(state, kind)
        several = kind in ABOUT and len(member.sessions) > 1
        if several and is_late(state, session, envelope):
            return [LeftToOthers(late=True)]
        # 7 and 8
        held = state.grants
        to = state.resolve_names(envelope.to) if state.roster.aliases else envelope.to
        # For every request that it answers: a right to answer one is no right to answer another (D-52, D-80).
        asked = requests.operations_asked(state, envelope) if kind == "mcp/response" else _NOTHING_ASKED
        agreed = envelope.claim is None or _check_claim(state, envelope, asked)
        # As `rights_at` begins, without a call for every message.
        rights = session.rights if now < held.earliest_end else rights_at(state, session, now)
        if not (
            rights.allow(kind, envelope.payload, to, asked[0], envelope.claim, agreed)
            if len(asked) == 1 and not rights.compares_numbers
            else _allow(state, rights, envelope, to, asked, agreed=agreed)
        ):
            _check_owes_answer(state, session, envelope, now)
        used = None
        if held.counted and member.name in held.counted:
            used = _find_used_grant(state, session, envelope, to, asked, agreed=agreed, now=now)
        if kind not in EXECUTED and agreed and used is None:
            options, everyone = session.options, state.audiences.uniform
            # Most envelopes are only relayed: nothing below concerns them.
            if everyone is not None and not options.injected:
                if known:
                    state.forget_settled(id)
                window.remember(id, session.seen_record(kind))
                return [Deliver(everyone if options.echo else state.audiences.all_but(session), envelope)]
        # 9 and 10
        if kind == "mcp/response":
            requests.check_may_answer(state, session, envelope)
        elif kind == "mcp/request":
            if envelope.correlation_id or state.rules.may_ask_first:
                proposals.check_call(state, session, envelope, now)
        elif kind in _LEDGER_KINDS and (kind != "mcp/withdraw" or envelope.correlation_id):
            proposals.check_ledger(state, session, envelope, now)
        elif kind == "moot/delegate":
            delegations.check_room(state, session, envelope, now)
        # 11
        prepare, plain = ACTS.get(kind), PLAIN_ACTS.get(kind)
        act = None if prepare is None else prepare(state, session, envelope)
        # 12
        # When it is replayed it was accepted, perhaps by a version that let more happen.
        if not state.journal_writable and not state.replaying and (row.audited or used is not None):
            raise Unavailable("the journal cannot be written, so nothing that must be audited happens")
        # No rung: another connection of this member has the word.
        if several and is_left_to_others(state, session, envelope):
            if known:
                state.forget_settled(id)
            window.remember(id, session.seen_record(kind))
            return [LeftToOthers()]
        # 13
        # What is replayed was accepted, perhaps under other limits.
        if act is None:
            if plain is not None and plain.check_limits is not None and not state.replaying:
                plain.check_limits(state, session, envelope)
        elif not state.replaying:
            if act.check_limits is not None:
                act.check_limits()
            if act.charges:
                check_charges(state.budgets, act.charges, is_approved=act.is_approved, now=now)
            if act.uses:
                check_uses(state.effects, act, envelope.correlation_id, now)
    except Refused as refusal:
        return _refused(state, session, envelope, refusal, now, mint, about=given_id)
    # 14
    return _accepted(state, session, envelope, row, act, plain, used, to, asked, agreed, now, mint)


# Not keyword-only: every message pays for it.
def _accepted(
    state: State,
    session: Session,
    envelope: Envelope,
    row: Kind,
    act: Act | None,
    plain: PlainAct | None,
    used: GrantRecord | None,
    to: Sequence[str],
    asked: Sequence[Operation | None],
    agreed: bool,
    now: float,
    mint: Mint,
) -> list[Effect]:
    kind = envelope.kind
    author, number = session.member.name, session.number
    operation = proposer = None
    if kind not in OPERATION_KINDS:
        record = SeenEnvelope(author, kind, number, translated=agreed)
    else:
        names: tuple[Name, ...] = tuple(to)  # type: ignore[arg-type]  # resolved by now
        if kind == "mcp/response":
            operation = asked[0]
            proposer = requests.proposer_asked(state, envelope)
            record = SeenEnvelope(author, kind, number, None, names, translated=agreed)
        else:
            operation = operation_of(envelope.payload)
            # What did not agree with its kind stays within its dialect: nobody is waited for.
            joined = state.sessions_joined if agreed else 0
            record = SeenEnvelope(
                author, kind, number, operation, names, translated=agreed, sessions_joined=joined
            )
            if author in names and not session.receives_own(envelope):
                record.not_offered = (number,)
    if envelope.id in state.ledger.proposals:
        state.forget_settled(envelope.id)
    state.window.remember(envelope.id, record)
    effects: list[Effect] = []
    if row.relayed:
        shown, private = envelope, not agreed
        if state.roster.aliases and envelope.to:
            shown = _address_runtime_ids(state, envelope)
        if kind in _NARROWED:
            audience, private = _narrow_audience(state, session, shown)
        else:
            audience = state.audiences.of(shown, session, translated=agreed, proposer=proposer)
        carries_out = proposer is not None or (
            envelope.correlation_id != ()
            and kind == "mcp/request"
            and state.ledger.knows_any(envelope.correlation_id)
        )
        # After a crash nobody may use again what was used before.
        waits = carries_out or used is not None or (act is not None and bool(act.charges or act.uses))
        effects.append(Deliver(audience, shown, operation, proposer, private, waits_for_disk=waits))
    if act is not None:
        if act.charges:
            state.budgets.count(act.charges, now)
        effects += act.execute(record, now, mint)
    elif plain is not None:
        effects += plain.execute(state, session, envelope, record, now, mint)
    if used is not None:
        effects += count_use(state, used, now, mint)
    if not agreed:
        effects += _report_mismatch(state, session, envelope, now, mint)
    if session.options.injected:
        if not any(isinstance(effect, Result) for effect in effects):
            effects.append(Result(session.id, {"status": "accepted"}))
        effects = [_add_receipt(effect, envelope, now) for effect in effects]
    return effects


def _fill_missing(session: Session, envelope: Envelope, now: float, mint: Mint) -> Envelope:
    return fill_missing(
        envelope,
        protocol=DIALECTS[session.dialect].protocol,
        id=mint.id() if "id" in envelope.missing else "",
        ts=rfc3339(now),
        sender=session.member.id,
    )


def check_may_send(state: State, session: Session, row: Kind, now: float) -> None:
    if session.closing_at is not None and not (row.passes_shutdown and now < session.closing_at):
        raise ParticipantShutdown("you were shut down: rejoin to speak again")
    pause = session.member.pause
    if pause is None or session.member.pause_is_over(now) or not state.config.enforce_pause:
        return
    if not row.passes_pause:
        left = {} if pause.until is None else {"retry_after": math.ceil((pause.until - now) * 1000) / 1000}
        raise ParticipantPaused(
            f"paused by {pause.by}: wait for participant/resume", pause_id=pause.id, **left
        )


def _check_not_reserved(state: State, kind: str) -> None:
    if is_reserved(kind) and not (state.config.reference_compat and kind == "stream/open"):
        raise CapabilityViolation(f"{kind} is reserved for the gateway", detail="reserved_kind")


def _check_claim(state: State, envelope: Envelope, asked: Sequence[Operation | None]) -> bool:
    """Under `kind_validation: lazy` a mismatch passes within its own dialect: False."""
    try:
        for each in asked:
            check_agreement(envelope, asked=each)
    except KindPayloadMismatch:
        if state.config.kind_validation != "lazy":
            raise
        return False
    return True


def _judged_payload(state: State, envelope: Envelope) -> Payload:
    """The payload as rights see it: a number that readers would round equals none of theirs."""
    if state.replaying:
        return envelope.payload
    return with_exact_numbers(envelope.raw, envelope.payload)


def _allow(
    state: State,
    rights: Rights,
    envelope: Envelope,
    to: Sequence[str],
    asked: Sequence[Operation | None],
    *,
    agreed: bool,
) -> bool:
    kind, claim = envelope.kind, envelope.claim
    payload = _judged_payload(state, envelope) if rights.compares_numbers else envelope.payload
    return all(rights.allow(kind, payload, to, each, claim, agreed) for each in asked)


def _find_used_grant(
    state: State,
    session: Session,
    envelope: Envelope,
    to: Sequence[str],
    asked: Sequence[Operation | None],
    *,
    agreed: bool,
    now: float,
) -> GrantRecord | None:
    """The grant that this envelope uses up a bit of: one with a number of uses, if nothing else allows it."""
    others = rights_at(state, session, now, counted=False)
    if (
        _allow(state, others, envelope, to, asked, agreed=agreed)
        or _is_everyones(envelope.kind)
        or _is_implied(state, session, envelope.kind, now)
        or requests.is_obliged(state, session, envelope, now)
    ):
        return None
    for grant, rights in counted_rights(state, session, others, now):
        if _allow(state, rights, envelope, to, asked, agreed=agreed):
            return grant
    if find_giver(state, session, envelope, now) is not None:
        return None
    raise CapabilityViolation("several grants with a number of uses would be needed for this one message")


def _check_owes_answer(state: State, session: Session, envelope: Envelope, now: float) -> None:
    if (
        not requests.is_obliged(state, session, envelope, now)
        and not _is_everyones(envelope.kind)
        and not _is_implied(state, session, envelope.kind, now)
        and find_giver(state, session, envelope, now) is None
    ):
        kind = envelope.wire_kind or envelope.kind
        hint = ": send it as mcp/proposal and let someone decide" if envelope.kind == "mcp/request" else ""
        raise CapabilityViolation(f"your capabilities do not allow this {kind}{hint}")


def _is_everyones(kind: str) -> bool:
    return KINDS.get(kind, UNKNOWN).everyone


def _is_implied(state: State, session: Session, kind: str, now: float) -> bool:
    return rights_at(state, session, now).allow_some(KINDS.get(kind, UNKNOWN).implied_by)


def _address_runtime_ids(state: State, envelope: Envelope) -> Envelope:
    """D-19: delivered `to` shows runtime ids."""
    ids = [name if (m := state.roster.resolve(name)) is None else m.id for name in envelope.to]
    return envelope if ids == list(envelope.to) else readdress(envelope, ids)


def _narrow_audience(
    state: State, session: Session, envelope: Envelope
) -> tuple[tuple[SessionId, ...], bool]:
    """D-32: spaces may keep acknowledgements and status reports between those concerned; whether this is."""
    config = state.config
    audience = state.audiences.of(envelope, session)
    acknowledges = envelope.kind == "chat/acknowledge"
    if (config.ack_delivery if acknowledges else config.status_delivery) == "all":
        return audience, False
    authors = {record.author for id in envelope.correlation_id if (record := state.window.get(id))}
    if not authors:
        return audience, False
    concerned = {*authors, session.member.name}
    narrow = tuple(id for id in audience if state.roster.sessions[id].member.name in concerned)
    return narrow, len(narrow) < len(audience)


def _report_mismatch(
    state: State, session: Session, envelope: Envelope, now: float, mint: Mint
) -> list[Effect]:
    refusal = KindPayloadMismatch(
        "kind and payload disagree: only members of your own dialect were sent this"
    )
    return [_error(state, session, envelope, refusal, now, mint, about=envelope.id)]


def _refused(
    state: State,
    session: Session,
    envelope: Envelope,
    refusal: Refused,
    now: float,
    mint: Mint,
    *,
    about: str,
) -> list[Effect]:
    effects: list[Effect] = [_error(state, session, envelope, refusal, now, mint, about=about)]
    if refusal.code == "capability_violation" and state.config.violation_notice:
        payload: dict[str, Json] = {
            "error": refusal.code,
            "participant": session.member.id,
            "attempted_kind": envelope.wire_kind or envelope.kind,
        }
        others = tuple(id for id in state.audiences.everyone() if id != session.id)
        hidden = session.member.name
        effects.append(Deliver(others, state.notice("system/error", payload, now, mint), hidden_from=hidden))
    return effects


def _error(
    state: State,
    session: Session,
    envelope: Envelope,
    refusal: Refused,
    now: float,
    mint: Mint,
    *,
    about: str,
) -> Effect:
    """`about` is the id that the sender gave; one that the gateway filled in would tell it nothing."""
    payload = payloads.error(
        refusal,
        attempted_kind=envelope.wire_kind or envelope.kind,
        capabilities=session.rights.capabilities,
    )
    ids = [about] if about else []
    notice = state.notice("system/error", payload, now, mint, to=[session.member.id], correlation_id=ids)
    return Reply(session.id, notice)


def _add_receipt(effect: Effect, envelope: Envelope, now: float) -> Effect:
    if not isinstance(effect, Result):
        return effect
    return Result(effect.session, {"id": envelope.id, "timestamp": rfc3339(now)} | dict(effect.fields))
