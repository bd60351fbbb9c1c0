"""Granting and revoking (MEW 3.6.1, 3.6.2, 3.6.8; D-16, D-18, D-82)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moot.errors import CapabilityViolation, InvalidOperation, InvalidRequest, ResourceLimit, Unauthorized
from moot.protocol.envelope import Envelope
from moot.protocol.exact_numbers import has_rounded_number
from moot.protocol.operation import Json, JsonValue, Payload
from moot.protocol.patterns import Capability, Rights, covered_by, covers, overlaps, read_capabilities
from moot.space.acts import Act
from moot.space.effects import Effect, Mint, Reply
from moot.space.grants import grant_limits
from moot.space.grants.grant_limits import check_grant_limits, read_grant_limits
from moot.space.grants.grant_table import GrantRecord
from moot.space.id_window import SeenEnvelope
from moot.space.members.listing import bytes_of, welcome_again
from moot.space.members.member import Session, SpaceMember
from moot.space.members.member_names import is_gateway
from moot.space.state import State

# Living grants to one member.
MAX_GRANTS_PER_MEMBER: Final = 256
# Granted capabilities of one member in all: each is held against others whenever rights change.
MAX_GRANTED: Final = 512


def prepare_grant(state: State, session: Session, envelope: Envelope) -> Act:
    granter = session.member
    recipient = _recipient(state, envelope)
    if recipient is granter:
        raise InvalidOperation("nobody grants to themselves")
    capabilities = _capabilities(state, envelope.payload, session)
    check_numbers(state, envelope, capabilities)
    check_delegation(state, session, capabilities)
    seconds, uses = read_grant_limits(state, envelope.payload)

    def check_limits() -> None:
        check_grant_limits(seconds, uses)
        held = len(state.grants.held(recipient.name))
        if held + len(capabilities) > MAX_GRANTED:
            raise ResourceLimit(
                f"{recipient.name} was granted {held} capabilities already", limit="max_granted_capabilities"
            )
        held_bytes = bytes_of(state.grants.held(recipient.name))
        if held_bytes + bytes_of(capabilities) > grant_limits.MAX_CAPABILITY_BYTES:
            raise ResourceLimit(
                f"{recipient.name} was granted {held_bytes} bytes of capabilities already,"
                f" and may have {grant_limits.MAX_CAPABILITY_BYTES}",
                limit="max_granted_capability_bytes",
            )
        if len(state.grants.to(recipient.name)) >= MAX_GRANTS_PER_MEMBER:
            raise ResourceLimit(
                f"{recipient.name} holds {MAX_GRANTS_PER_MEMBER} grants already",
                limit="max_grants_per_member",
            )

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        reason: JsonValue = envelope.payload.get("reason")
        state.grants.add(
            GrantRecord(
                envelope.id,
                granter.name,
                recipient.name,
                capabilities,
                now,
                reason if isinstance(reason, str) else None,
                None if seconds is None else now + seconds,
                uses,
            )
        )
        if seconds is not None:
            state.deadlines.schedule(now + seconds, "grant", envelope.id)
        state.window.pin(envelope.id, record)
        state.record_pending_answer(envelope.id, record, (recipient.name,), now)
        state.refresh(recipient)
        return welcome_again(state, [recipient], now, mint)

    return Act(execute, check_limits)


def check_numbers(state: State, envelope: Envelope, capabilities: Sequence[Capability]) -> None:
    """A number of a right is kept and compared as a double: what that rounds would mean another one."""
    if not state.replaying and Rights(capabilities).compares_numbers and has_rounded_number(envelope.raw):
        raise InvalidRequest("a number in it has more digits than are compared: write fewer, such as 0.1")


def check_delegation(
    state: State, session: Session, capabilities: Sequence[Capability], also: Sequence[Capability] = ()
) -> None:
    """MEW 3.6.8: nobody hands on what they do not hold; `also` is what anyone may hand on."""
    if state.config.delegation == "unrestricted":
        return
    held = [*session.lasting_rights.capabilities, *also]
    for capability in capabilities:
        if not covered_by(capability, held):
            ends = covered_by(capability, session.rights.capabilities)
            raise CapabilityViolation(
                "you hold this capability for a time or for a number of uses: it cannot be handed on"
                if ends
                else "you cannot hand on a capability that you do not hold yourself",
                detail="not_held",
                capability=capability.original,
            )


def prepare_revoke(state: State, session: Session, envelope: Envelope) -> Act:
    revoker = session.member
    recipient = _recipient(state, envelope)
    grant_id: JsonValue = envelope.payload.get("grant_id")
    if grant_id is not None:
        kept = _without_grant(state, session, recipient, grant_id)
        patterns: tuple[Capability, ...] = ()
    else:
        patterns = _capabilities(state, envelope.payload, session)
        kept = _without_matching(state, session, recipient, patterns)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        for grant, capabilities in kept:
            state.grants.keep(grant.id, capabilities)
            state.forget_grant(grant)
        effects = welcome_again(state, state.revoke_unsupported(), now, mint)
        left = [right for right in recipient.rights.capabilities if any(overlaps(right, p) for p in patterns)]
        if left:
            # D-18: a silent leftover would be taken for safety.
            payload: dict[str, Json] = {
                "error": "revoke_incomplete",
                "message": f"{recipient.name} still holds rights that this pattern touches",
                "participant_id": recipient.id,
                "remaining": left,
            }
            notice = state.notice(
                "system/error", payload, now, mint, to=[revoker.id], correlation_id=[envelope.id]
            )
            effects.append(Reply(session.id, notice))
        return effects

    return Act(execute)


def _without_grant(
    state: State, session: Session, recipient: SpaceMember, grant_id: Json
) -> list[tuple[GrantRecord, list[Capability]]]:
    grant = state.grants.by_id.get(grant_id) if isinstance(grant_id, str) else None
    if grant is None:
        raise InvalidRequest(f"no grant {grant_id!r}: it never was or is gone already", grant_id=grant_id)
    if grant.recipient != recipient.name:
        raise InvalidRequest(f"grant {grant_id!r} was not given to {recipient.name}", grant_id=grant_id)
    if not _may_revoke(state, session, grant, grant.capabilities):
        raise Unauthorized(
            "only the granter, whoever their right came from, or a holder of the same right revokes it"
        )
    return [(grant, [])]


def _without_matching(
    state: State, session: Session, recipient: SpaceMember, patterns: Sequence[Capability]
) -> list[tuple[GrantRecord, list[Capability]]]:
    """D-18: every granted capability that a pattern covers goes, from all grants this revoker may touch."""
    kept: list[tuple[GrantRecord, list[Capability]]] = []
    forbidden = False
    for grant in state.grants.to(recipient.name):
        matched = [c for c in grant.capabilities if any(covers(pattern, c) for pattern in patterns)]
        allowed = [c for c in matched if _may_revoke(state, session, grant, [c])]
        forbidden = forbidden or len(allowed) < len(matched)
        if allowed:
            kept.append((grant, [c for c in grant.capabilities if c not in allowed]))
    if forbidden and not kept:
        raise Unauthorized(
            "only the granter, whoever their right came from, or a holder of the same right revokes it"
        )
    return kept


def _may_revoke(state: State, session: Session, grant: GrantRecord, rights: Sequence[Capability]) -> bool:
    held, name = session.rights.capabilities, session.member.name
    return all(covered_by(right, held) or name in state.grants.ancestors(grant, right) for right in rights)


def _recipient(state: State, envelope: Envelope) -> SpaceMember:
    name: JsonValue = envelope.payload.get("recipient")
    if not isinstance(name, str):
        raise InvalidRequest("payload.recipient must name a participant")
    member = state.roster.find(name)
    # D-82: who is told and who gains must be the same.
    others = {other for other in state.resolve_names(envelope.to) if not is_gateway(other)} - {member.name}
    if others:
        raise InvalidRequest("`to` and payload.recipient name different participants")
    return member


def _capabilities(state: State, payload: Payload, session: Session) -> tuple[Capability, ...]:
    values = payload.get("capabilities")
    if not isinstance(values, list) or not values:
        raise InvalidRequest("payload.capabilities must be a non-empty list of capabilities")
    most = grant_limits.MAX_CAPABILITIES
    if len(values) > most and not state.replaying:
        # Before they are read: a megabyte of patterns takes seconds.
        raise ResourceLimit(f"more than {most} capabilities at once", limit="max_capabilities_per_grant")
    return read_capabilities(values, place=session.dialect)
