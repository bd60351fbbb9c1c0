"""Joining, leaving, guests, and being removed (MEW 3.7, 3.8.1; D-02, D-17, D-19, D-21, D-22, D-24)."""

from __future__ import annotations

from typing import Final

from moot.errors import InvalidRequest, ParticipantNotFound
from moot.protocol import payloads
from moot.protocol.close_codes import POLICY, REMOVED, REPLACED
from moot.protocol.envelope import DialectName
from moot.space.acts import control, streams
from moot.space.acts.approvals import announce_votes
from moot.space.config import Name, SessionId
from moot.space.effects import Credential, Deliver, Disconnect, Effect, Mint, Reply
from moot.space.members.listing import describe_member, welcome, welcome_again
from moot.space.members.member import Options, Session, SpaceMember
from moot.space.members.member_names import logical_name
from moot.space.state import State

# A member without a connection that polls over HTTP can be given an approved call for so long after a
# poll: three polls of one that comes every ten seconds. 0: never.
POLL_PRESENCE_SECONDS: Final = 30

# Why a connection ends whose token does.
ENDED: Final = "the token of this connection has expired: sign in again"
SIGNED_OUT: Final = "signed out"
REVOKED: Final = "the token of this connection was revoked"


def join(
    state: State,
    session_id: SessionId,
    name: str,
    dialect: DialectName,
    options: Options,
    now: float,
    mint: Mint,
) -> list[Effect]:
    """Let an authenticated participant join; raises Refused when it may not join like this.

    Welcome first, then presence to all, the joiner included (D-02). Only the first session of a
    member is announced (D-22).
    """
    if dialect not in state.config.dialects:
        raise InvalidRequest(
            f"this space does not speak {dialect}; it speaks {', '.join(sorted(state.config.dialects))}"
        )
    member = _new_guest(state, name) if options.anonymous else _participant(state, name)
    was_present, was_heard = member.present, member.is_heard
    older = list(member.sessions.values()) if member.exclusive and not options.injected else []
    number = state.sessions_joined + (not options.injected)
    session = Session(session_id, member, dialect, options, number, state.token_rights(options.token))
    state.roster.attach_session(session, max_sessions=state.limits.max_sessions_per_member)
    state.sessions_joined = number
    if options.anonymous:
        state.roster.add(member)
        state.refresh(member)
    state.session_came(session)
    if options.injected:
        return []
    effects: list[Effect] = []
    for other in older:
        state.roster.detach_session(other)
        state.session_went(other)
        effects.append(Disconnect(other.id, REPLACED, "a newer connection of this participant took over"))
    member.shut_down = None
    # From now on its connection tells whether it is here.
    member.polling_until = 0.0
    streams.owner_returned(state, member.name)
    effects += welcome(state, member, [session_id], now, mint)
    if not was_present:
        news = payloads.presence("join", describe_member(state, member))
        audience = state.audiences.everyone() if member.is_heard else state.audiences.hearing_all()
        told = [id for id in audience if id != session_id]
        if options.echo:
            told.append(session_id)
        effects.append(Deliver(tuple(told), state.notice("system/presence", news, now, mint)))
        return effects
    return effects + _tell_hearing_mine(state, member, now, mint, was_heard=was_heard)


def _tell_hearing_mine(
    state: State, member: SpaceMember, now: float, mint: Mint, *, was_heard: bool
) -> list[Effect]:
    """Presence for those alone who are not told of whoever hears as little as they do."""
    if member.is_heard == was_heard:
        return []
    if member.is_heard:
        news = payloads.presence("join", describe_member(state, member))
    else:
        news = payloads.presence("leave", payloads.member(member.id, name=member.name))
    sessions = state.roster.sessions
    audience = tuple(id for id in state.audiences.hearing_mine() if sessions[id].member is not member)
    return [Deliver(audience, state.notice("system/presence", news, now, mint), private=True)]


def _participant(state: State, name: str) -> SpaceMember:
    """By logical name alone: whoever authenticated is not whoever bears that runtime id."""
    member = state.roster.members.get(Name(name))
    if member is None or member.kicked:
        raise ParticipantNotFound(f"no participant {name!r} in this space", participant_id=name)
    return member


def _new_guest(state: State, name: str) -> SpaceMember:
    if state.config.anonymous is None:
        raise InvalidRequest("this space takes no guests: a token is needed")
    # Not `resolve`: the name of someone who was removed is not free either (D-24).
    if name in state.roster.members or name in state.roster.aliases:
        raise InvalidRequest(f"{name!r} is taken")
    member = SpaceMember(logical_name(name), state.config.anonymous)
    member.anonymous = True
    member.send_limiter = state.guest_limiter
    return member


def leave(state: State, session_id: SessionId, now: float, mint: Mint) -> list[Effect]:
    """A connection ended. Unknown sessions are ignored: the space may have ended them itself."""
    session = state.roster.sessions.get(session_id)
    if session is None:
        return []
    return remove_session(state, session, now, mint)


def disconnect_member(state: State, member: SpaceMember, reason: str, now: float, mint: Mint) -> list[Effect]:
    """Close a member's connections; it may join again under its own name."""
    effects: list[Effect] = []
    for session in list(member.sessions.values()):
        effects.append(Disconnect(session.id, POLICY, reason))
        effects += leave(state, session.id, now, mint)
    return effects


def remove_session(state: State, session: Session, now: float, mint: Mint) -> list[Effect]:
    member = session.member
    was_present, was_heard = member.present, member.is_heard
    state.roster.detach_session(session)
    state.session_went(session)
    has_alias = member.id != member.name
    effects: list[Effect] = []
    if was_present and not member.present:
        effects += _announce_leave(state, member, now, mint, was_heard=was_heard)
    elif member.anonymous and not member.sessions:
        effects += _forget_guest(state, member, now, mint)
    elif member.present:
        effects += _tell_hearing_mine(state, member, now, mint, was_heard=was_heard)
    state.roster.release_runtime_id(member)
    if has_alias:
        state.membership_changed()
    return effects


def note_poll(state: State, name: Name, now: float) -> None:
    """D-100: whoever polls may be given an approved call, for a while after each poll."""
    member = state.roster.members.get(name)
    seconds = POLL_PRESENCE_SECONDS
    if member is None or member.kicked or member.present or not seconds:
        return
    member.polling_until = now + seconds
    state.deadlines.schedule(member.polling_until, "poll", name)


def stop_polling(state: State, name: Name, now: float, mint: Mint) -> list[Effect]:
    """It has not polled for long: what it was carrying out may have happened or not (D-99)."""
    member = state.roster.members.get(name)
    if member is None or member.present or member.polling_until > now:
        return []
    member.polling_until = 0.0
    return state.host_gone(name, "host_left", now, mint)


def remove_void_sessions(state: State, member: SpaceMember, now: float, mint: Mint) -> list[Effect]:
    """D-101: end the sessions that a token admitted which its member no longer has."""
    effects: list[Effect] = []
    for session in list(member.sessions.values()):
        token = session.options.token
        if token is None or token in member.credentials or state.temporary_tokens.get(token) is not None:
            continue
        effects.append(Disconnect(session.id, REMOVED, "the token of this connection is no longer valid"))
        effects += remove_session(state, session, now, mint)
    return effects


def _announce_leave(
    state: State, member: SpaceMember, now: float, mint: Mint, *, was_heard: bool
) -> list[Effect]:
    # Decision 0015: who leaves with a reason does not come back, and its proposals are withdrawn.
    reason = "guest left" if member.anonymous else None
    gone = payloads.presence("leave", payloads.member(member.id, name=member.name), reason=reason)
    effects: list[Effect] = []
    # Writers lose their streams before the leave is told, so that nobody sees a writer who is gone.
    if member.anonymous:
        effects += _forget_guest(state, member, now, mint)
    else:
        if member.shut_down is not None:
            # D-39: whoever was shut down is not waited for.
            effects += streams.close_streams_of(state, member.name, "owner_shut_down", now, mint)
        effects += streams.drop_writer(state, member, "disconnected", now, mint)
        streams.owner_left(state, member.name, now)
    audience = state.audiences.everyone() if was_heard else state.audiences.hearing_all()
    effects.append(Deliver(audience, state.notice("system/presence", gone, now, mint)))
    return effects + state.host_gone(member.name, "host_left", now, mint)


def _forget_guest(state: State, member: SpaceMember, now: float, mint: Mint) -> list[Effect]:
    """D-17: a guest's rights end with its connection."""
    effects: list[Effect] = [
        effect
        for effect in remove_member(state, member, "left", now, mint)
        if isinstance(effect, Deliver | Reply)
    ]
    state.forget_member(member)
    return effects


def remove_member(state: State, member: SpaceMember, reason: str, now: float, mint: Mint) -> list[Effect]:
    """D-24: out at once, on every socket, with all that hung on it. Known as kicked until restored."""
    was_present = member.present
    effects: list[Effect] = []
    for session in list(member.sessions.values()):
        state.roster.detach_session(session)
        effects.append(Disconnect(session.id, REMOVED, f"removed from the space: {reason}"))
    state.membership_changed()
    orphaned = state.ledger.open_of(member.name)
    # Decision 0015: clients learn from this that its proposals are withdrawn. A guest is told of elsewhere.
    if was_present or (orphaned and not member.anonymous):
        gone = payloads.presence("leave", payloads.member(member.id, name=member.name), reason=reason)
        effects.append(state.announce("system/presence", gone, now, mint))
    member.kicked = True
    control.lift_pause(state, member)
    member.shut_down = None
    state.roster.set_credentials(member, ())
    state.passkeys.remove([key.id for key in state.passkeys.of(member.name)])
    own = state.temporary_tokens.of(member.name)
    # Those that they made for others as an administrator end with them.
    accounts = {member.subject, *(token.keys[0] for token in own if token.source == "sign_in")}
    made = [
        token
        for token in state.temporary_tokens.by_hash.values()
        if token.made_by and token.made_by in accounts
    ]
    state.temporary_tokens.remove([token.hash for token in own])
    effects += end_tokens(state, [token.hash for token in made], REVOKED, now, mint)
    effects.append(Credential(member.name, ()))
    for proposal in orphaned:
        state.settle_proposal(proposal, "withdrawn", None, now)
    voted_for = [
        each.id
        for each in state.ledger.all_open()
        if member.name in each.approved_by or member.name in each.delegated_votes.values()
    ]
    for proposal in state.ledger.all_open():
        for names in (proposal.approved_by, proposal.rejected_by):
            if member.name in names:
                names.remove(member.name)
        proposal.drop_delegated_vote(member.name)
    state.delegations.forget(member.name)
    state.forget_pending_answers(member.name)
    effects += state.host_gone(member.name, "host_left" if member.anonymous else "host_removed", now, mint)
    effects += streams.close_streams_of(state, member.name, "owner_removed", now, mint)
    effects += streams.drop_writer(state, member, "removed", now, mint)
    streams.drop_target(state, member.name)
    state.roster.release_runtime_id(member)
    state.membership_changed()
    for grant in state.grants.to(member.name):
        state.grants.remove(grant.id)
        state.forget_grant(grant)
    effects += welcome_again(state, state.revoke_unsupported(), now, mint)
    return effects + announce_votes(state, voted_for, now, mint)


def end_tokens(state: State, hashes: list[str], reason: str, now: float, mint: Mint) -> list[Effect]:
    """Void these tokens and end the sessions that they admitted."""
    state.temporary_tokens.remove(hashes)
    void = set(hashes)
    effects: list[Effect] = []
    for session in list(state.roster.sessions.values()):
        if session.options.token in void:
            effects.append(Disconnect(session.id, REMOVED, reason))
            effects += remove_session(state, session, now, mint)
    return effects
