"""Requests and their answers: who owes one, who may give one (MEW 3.1; D-15, D-80)."""

from __future__ import annotations

from moot.errors import ResourceLimit, Unauthorized
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import CANCELLED, NOTIFICATION_PREFIX, OBLIGED, SETTLES, WHILE_ASKED
from moot.protocol.operation import Operation
from moot.space.acts import Act
from moot.space.effects import Effect, Mint
from moot.space.id_window import SeenEnvelope
from moot.space.roster import Session
from moot.space.state import State


def prepare_request(state: State, session: Session, envelope: Envelope) -> Act:
    method = envelope.payload.get("method")
    notification = isinstance(method, str) and method.startswith(NOTIFICATION_PREFIX)
    fulfilled = state.ledger.named_in(tuple(envelope.correlation_id)) if envelope.correlation_id else []

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        for proposal in fulfilled:
            state.settle_proposal(proposal, "fulfilled", envelope.id)
            record.proposer = proposal.proposer
        if not notification:
            # Only members can owe; the sender may address itself, and the gateway answers nothing.
            owed = [name for name in dict.fromkeys(record.to) if name in state.roster.members]
            state.record_pending_answer(envelope.id, record, tuple(owed), now)
        return []

    if notification or not envelope.to:
        return Act(execute)
    return Act(execute, lambda: check_open_requests(state, session))


def prepare_answer(state: State, session: Session, envelope: Envelope) -> Act:
    """Whatever ends an obligation: a response, a status, an acknowledgement."""

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        for id in envelope.correlation_id:
            asked = state.window.get(id)
            if asked is not None and asked.kind in SETTLES[envelope.kind]:
                state.record_answer(id, asked, session.member.name)
        return []

    return Act(execute)


def check_open_requests(state: State, session: Session) -> None:
    most = state.limits.max_open_requests
    if session.member.open_requests >= most:
        raise ResourceLimit(f"{most} of your requests wait for an answer already", limit="max_open_requests")


def check_may_answer(state: State, session: Session, envelope: Envelope) -> None:
    """D-80: whoever was not asked does not answer, for every request named."""
    for id in envelope.correlation_id:
        asked = state.window.get(id)
        if asked is None or asked.kind != "mcp/request" or not asked.to:
            continue
        if session.member.name not in asked.to:
            raise Unauthorized(f"request {id!r} was addressed to somebody else", request_id=id)


def is_obliged(state: State, session: Session, envelope: Envelope, now: float) -> bool:
    """D-15: an answer that the sender owes needs no capability; it must go back to whoever asked."""
    name = session.member.name
    expected = OBLIGED.get(envelope.kind)
    if expected is None and envelope.kind != "mcp/request":
        return False
    ids = envelope.correlation_id
    if not ids:
        return False
    addressed = state.resolve_names(envelope.to)
    for id in ids:
        asked = state.window.get(id)
        if asked is None or now >= asked.expires:
            return False
        if expected is not None:
            if asked.kind not in expected or name not in asked.owed:
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
    method = envelope.payload.get("method")
    if asked.kind != "mcp/request" or not isinstance(method, str) or not addressed:
        return False
    if method == CANCELLED and asked.author == name:
        return bool(asked.owed) and all(other in asked.to for other in addressed)
    if not method.startswith(NOTIFICATION_PREFIX) and method not in WHILE_ASKED:
        return False
    return name in asked.owed and all(other == asked.author for other in addressed)


def operations_asked(state: State, envelope: Envelope) -> list[Operation | None]:
    """What each request does that a response answers; None where it is not known (any more)."""
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
