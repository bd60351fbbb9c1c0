"""Inviting participants and asking for their removal (MEW 3.6.5 to 3.6.7; D-23, D-24)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from moot.errors import InvalidOperation, InvalidRequest, Refused, ResourceLimit
from moot.protocol import payloads
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json, JsonValue
from moot.protocol.patterns import Capability, covered_by, read_capabilities
from moot.space.acts import Act
from moot.space.acts.grants import check_delegation, check_numbers
from moot.space.acts.membership import remove_member
from moot.space.config import Name
from moot.space.effects import Credential, Deliver, Effect, Mail, Mint, Reply, Result
from moot.space.grants import grant_limits
from moot.space.grants.grant_table import GrantRecord
from moot.space.id_window import SeenEnvelope
from moot.space.members.listing import bytes_of, describe_member
from moot.space.members.lookalikes import check_name
from moot.space.members.member import Session, SpaceMember
from moot.space.members.member_names import is_gateway, logical_name
from moot.space.state import State

# One plain address (RFC 5321's common part): a list of them would send the token to several people.
_ADDRESS = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?", re.ASCII
)


def prepare_invite(state: State, session: Session, envelope: Envelope) -> Act:
    invitee = logical_name(envelope.payload.get("participant_id"))
    email: JsonValue = envelope.payload.get("email")
    if email is not None and (not isinstance(email, str) or _ADDRESS.fullmatch(email) is None):
        raise InvalidRequest("payload.email must be one plain mail address, such as ina@example.org")
    values: JsonValue = envelope.payload.get("initial_capabilities", [])
    if not isinstance(values, list):
        raise InvalidRequest("payload.initial_capabilities must be a list of capabilities")

    def check_limits() -> None:
        invited = sum(1 for member in state.roster if member.invited_by is not None)
        if invited >= state.limits.max_invited_participants:
            raise ResourceLimit("this space has invited as many as it may", limit="max_invited_participants")
        if len(values) > grant_limits.MAX_CAPABILITIES:
            raise ResourceLimit("too many initial capabilities", limit="max_capabilities_per_grant")
        if bytes_of(values) > grant_limits.MAX_CAPABILITY_BYTES:
            raise ResourceLimit("the initial capabilities are too long", limit="max_granted_capability_bytes")

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        known = state.roster.members.get(invitee)
        if (known is not None and not known.kicked) or invitee in state.roster.aliases:
            return _acknowledge(
                state, session, envelope, payloads.invite_ack("already_exists", invitee), now, mint
            )
        try:
            if not state.replaying:
                check_name(state.roster, invitee)
            capabilities = read_capabilities(values, place=session.dialect)
            check_numbers(state, envelope, capabilities)
            check_delegation(state, session, capabilities, state.config.invite_baseline)
        except Refused as refusal:
            # D-23: the answer to an invite is its ack, also when it fails; nothing was registered.
            failed = payloads.invite_ack("error", invitee, error=refusal.code, message=refusal.message)
            return _acknowledge(state, session, envelope, failed, now, mint)
        return _add_invitee(state, session, envelope, record, invitee, capabilities, now, mint)

    return Act(execute, check_limits)


def _add_invitee(
    state: State,
    session: Session,
    envelope: Envelope,
    record: SeenEnvelope,
    invitee: Name,
    capabilities: Sequence[Capability],
    now: float,
    mint: Mint,
) -> list[Effect]:
    inviter = session.member
    reason: JsonValue = envelope.payload.get("reason")
    reason = reason if isinstance(reason, str) else None
    # What everyone may hand on is the invitee's own; the rest hangs on the inviter's chain, or an invite
    # would be a way to keep rights that were only lent (D-18).
    baseline = state.config.invite_baseline
    own = [c for c in capabilities if covered_by(c, baseline) or state.config.delegation == "unrestricted"]
    lent = tuple(c for c in capabilities if c not in own)
    member = SpaceMember(invitee, own)
    member.invited_by = inviter.name
    earlier = state.roster.members.get(invitee)
    if earlier is not None:
        # So that a reload of the same configuration gives nothing back that the kick took (D-24).
        member.configured = earlier.configured
    token = mint.token()
    member.credentials = (token.hash,)
    state.roster.add(member)
    if lent:
        state.grants.add(GrantRecord(envelope.id, inviter.name, invitee, lent, now, reason))
        state.window.pin(envelope.id, record)
    state.refresh(member)

    url = state.config.connection_url
    url = None if url is None else url.replace("{id}", invitee)
    created = payloads.invite_ack("created", invitee, token=token.secret, connection_url=url)
    effects: list[Effect] = [Credential(invitee, member.credentials)]
    effects += _acknowledge(state, session, envelope, created, now, mint)
    others = [other for other in state.roster.present() if other is not inviter]
    news = payloads.presence("invited", describe_member(state, member), invited_by=inviter.id, reason=reason)
    notice = state.notice("system/presence", news, now, mint)
    effects.append(Deliver(state.sessions_of(others), notice, hidden_from=inviter.name))
    email: JsonValue = envelope.payload.get("email")
    if isinstance(email, str):
        effects.append(Mail(email, invitee, inviter.name, token, url))
    return effects


def _acknowledge(
    state: State, session: Session, envelope: Envelope, payload: dict[str, Json], now: float, mint: Mint
) -> list[Effect]:
    """MEW 3.6.6: to the inviter's asking socket, nobody else."""
    if session.options.injected:
        return [Result(session.id, payload)]
    to = [session.member.id]
    notice = state.notice("space/invite-ack", payload, now, mint, to=to, correlation_id=[envelope.id])
    return [Reply(session.id, notice)]


def prepare_kick(state: State, session: Session, envelope: Envelope) -> Act:
    name: JsonValue = envelope.payload.get("participant_id")
    if not isinstance(name, str):
        raise InvalidRequest("payload.participant_id must name a participant")
    if is_gateway(name):
        raise InvalidOperation("the gateway cannot be removed")
    member = state.roster.find(name)
    if member is session.member:
        raise InvalidOperation("nobody removes themselves: just leave")
    reason: JsonValue = envelope.payload.get("reason")

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        return remove_member(state, member, reason if isinstance(reason, str) else "kicked", now, mint)

    return Act(execute)
