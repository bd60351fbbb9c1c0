"""Pause, resume, shutdown, and the controls that a member has to answer (MEW 3.9; D-25, D-26)."""

from __future__ import annotations

from typing import Final

from moot.errors import InvalidOperation, InvalidRequest, ParticipantNotFound
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import UNSUPPORTED_BY_LEGACY
from moot.protocol.operation import Json, JsonValue
from moot.space.acts import Act
from moot.space.acts.requests import check_open_requests
from moot.space.effects import Effect, Mint, Reply
from moot.space.id_window import SeenEnvelope
from moot.space.members.member import PauseRecord, Session, SpaceMember
from moot.space.members.member_names import is_gateway
from moot.space.state import State

# A pause for longer than a year is a pause without end.
_LONGEST_PAUSE = 366 * 86_400.0
# D-26: time for last words after a shutdown.
SHUTDOWN_GRACE_SECONDS: Final = 5


def prepare_pause(state: State, session: Session, envelope: Envelope) -> Act:
    members = _addressed(state, session, envelope)
    seconds: JsonValue = envelope.payload.get("timeout_seconds")
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0
    ):
        raise InvalidRequest("payload.timeout_seconds must be a positive number")

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        until = None if seconds is None or seconds > _LONGEST_PAUSE else now + float(seconds)
        paused = [member for member in members if _ends_later(until, member.pause)]
        for member in paused:
            lift_pause(state, member)
            member.pause = PauseRecord(envelope.id, session.member.name, until)
            state.verdicts_changed()
            state.window.pin(envelope.id, record)
            if until is not None:
                state.deadlines.schedule(until, "pause", member.name)
        state.record_pending_answer(envelope.id, record, tuple(member.name for member in paused), now)
        return []

    return Act(execute)


def _ends_later(until: float | None, pause: PauseRecord | None) -> bool:
    """Pausing again can prolong a pause; to shorten it takes a resume (D-25)."""
    if pause is None:
        return True
    return pause.until is not None and (until is None or until > pause.until)


def prepare_resume(state: State, session: Session, envelope: Envelope) -> Act:
    members = _addressed(state, session, envelope)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        for member in members:
            # D-25: nobody lifts their own pause; once its time is up it is gone anyway.
            if member is not session.member:
                lift_pause(state, member)
        return []

    return Act(execute)


def lift_pause(state: State, member: SpaceMember) -> None:
    if member.pause is not None:
        record = state.window.get(member.pause.id)
        if record is not None:
            state.record_answer(member.pause.id, record, member.name)
        state.window.unpin(member.pause.id)
        member.pause = None
        state.verdicts_changed()


def prepare_question(state: State, session: Session, envelope: Envelope) -> Act:
    """request-status, forget, compact, clear, restart: the member does it, we remember who owes an answer."""
    members = _addressed(state, session, envelope)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        state.record_pending_answer(envelope.id, record, tuple(member.name for member in members), now)
        legacy_only = [member.id for member in members if envelope.to and _only_legacy(member)]
        if not legacy_only or envelope.kind not in UNSUPPORTED_BY_LEGACY:
            return []
        # D-56: an orchestrator must not wait for ever.
        payload: dict[str, Json] = {
            "error": "unsupported_by_recipient",
            "message": f"{', '.join(legacy_only)} speaks a dialect without {envelope.kind}: expect no answer",
            "attempted_kind": envelope.wire_kind or envelope.kind,
            "participants": legacy_only,
        }
        to = [session.member.id]
        notice = state.notice("system/error", payload, now, mint, to=to, correlation_id=[envelope.id])
        return [Reply(session.id, notice)]

    return Act(execute, lambda: check_open_requests(state, session))


def _only_legacy(member: SpaceMember) -> bool:
    dialects = {session.dialect for session in member.sessions.values()}
    return bool(dialects) and "mew" not in dialects


def prepare_shutdown(state: State, session: Session, envelope: Envelope) -> Act:
    members = _addressed(state, session, envelope)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        closing_at = now + SHUTDOWN_GRACE_SECONDS
        # Asked twice, the first time counts: nobody gains time by it.
        ending = [member for member in members if member.shut_down is None]
        for member in ending:
            state.verdicts_changed()
            member.shut_down = closing_at
            for other in member.sessions.values():
                if other.closing_at is None:
                    other.closing_at = closing_at
                    state.deadlines.schedule(closing_at, "shutdown", other.id)
        state.record_pending_answer(envelope.id, record, tuple(member.name for member in ending), now)
        return []

    return Act(execute)


def _addressed(state: State, session: Session, envelope: Envelope) -> list[SpaceMember]:
    """The members a control is meant for; without `to`, all but the sender (D-25)."""
    if not envelope.to:
        return [member for member in state.roster.present() if member is not session.member]
    names = [name for name in envelope.to if not is_gateway(name)]
    if not names:
        raise InvalidOperation(
            "the gateway cannot be controlled: address a participant, or nobody to mean all"
        )
    missing = [name for name in names if state.roster.resolve(name) is None]
    if missing:
        raise ParticipantNotFound(f"not in this space: {', '.join(missing)}", participants=missing)
    return list(dict.fromkeys(state.roster.find(name) for name in names))
