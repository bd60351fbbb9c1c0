"""Letting somebody decide in one's place, and ending that (decision 0210)."""

from __future__ import annotations

from typing import Final

from moot.errors import CapabilityViolation, InvalidOperation, InvalidRequest, ResourceLimit
from moot.protocol.envelope import Envelope
from moot.protocol.operation import JsonValue
from moot.space.acts import Act
from moot.space.config import Name
from moot.space.effects import Effect, Mint
from moot.space.grants.delegations import DelegationRecord
from moot.space.id_window import SeenEnvelope
from moot.space.members.member import Session
from moot.space.state import State

# A long holiday; whoever is away for longer has their rights given to somebody else.
MAX_DELEGATION_SECONDS: Final = 31 * 86_400
# Members who decide in one's place.
MAX_DELEGATES: Final = 8
MAX_REASON_CHARS: Final = 500


def check_room(state: State, session: Session, envelope: Envelope, now: float) -> None:
    """Raises ResourceLimit if too many others decide in one's place already."""
    others = state.delegations.delegates_of(session.member.name, now)
    others -= {_known(state, _name_in(envelope, "to"))}
    if not state.replaying and len(others) >= MAX_DELEGATES:
        raise ResourceLimit(
            f"{MAX_DELEGATES} members decide in your place: take one delegation back first",
            limit="max_delegates",
        )


def prepare_delegate(state: State, session: Session, envelope: Envelope) -> Act:
    giver = session.member
    delegate = state.roster.find(_name_in(envelope, "to"))
    if delegate is giver:
        raise InvalidOperation("nobody decides in their own place")
    seconds, reason = envelope.payload.get("expires_in_seconds"), envelope.payload.get("reason")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise InvalidRequest("payload.expires_in_seconds must be a positive number: a delegation ends")
    if reason is not None and (not isinstance(reason, str) or len(reason) > MAX_REASON_CHARS):
        raise InvalidRequest(f"payload.reason must be text of {MAX_REASON_CHARS} characters at most")
    # A token that carries less than its member may is not enough to hand on all of it.
    if not session.has_all_rights:
        raise CapabilityViolation("your token carries less than all your rights, so it cannot delegate them")

    def check_limits() -> None:
        if seconds > MAX_DELEGATION_SECONDS:
            raise ResourceLimit(
                f"a delegation lasts {MAX_DELEGATION_SECONDS // 86_400} days at most",
                limit="max_delegation_seconds",
            )

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        made = DelegationRecord(envelope.id, giver.name, delegate.name, now + seconds, reason)
        state.delegations.add(made, now)
        state.verdicts_changed()
        return []

    return Act(execute, check_limits)


def prepare_end(state: State, session: Session, envelope: Envelope) -> Act:
    """Its giver takes it back (`to`), or its delegate gives it back (`from`)."""
    _name_in(envelope, "from" if "from" in envelope.payload else "to")

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        end_delegation(state, session.member.name, envelope)
        return []

    return Act(execute)


def end_delegation(state: State, sender: Name, envelope: Envelope) -> None:
    """Raises InvalidRequest if it names nobody."""
    if "from" in envelope.payload:
        state.delegations.end(_known(state, _name_in(envelope, "from")), sender)
    else:
        state.delegations.end(sender, _known(state, _name_in(envelope, "to")))
    state.verdicts_changed()


def _known(state: State, name: str) -> Name:
    return state.resolve_names([name])[0]


def _name_in(envelope: Envelope, key: str) -> str:
    name: JsonValue = envelope.payload.get(key)
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"payload.{key} must name a member")
    return name
