"""Members that come by signing in elsewhere, their short-lived tokens, and how both end.

A name belongs to the first subject that signed in under it: whoever can choose a user name at a provider
cannot become somebody else here. It is never the name of a participant of the configuration, of somebody who
was invited, or of somebody who was removed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moot.errors import InvalidRequest, ParticipantNotFound, ResourceLimit, Unauthorized
from moot.space.acts import membership
from moot.space.config import Name, SessionId
from moot.space.effects import Credential, Effect, Mint
from moot.space.members.listing import welcome, welcome_again
from moot.space.members.lookalikes import check_name
from moot.space.members.member import FREE_NAME, SpaceMember, TokenRights, load_capabilities
from moot.space.members.member_names import logical_name
from moot.space.state import State
from moot.space.tokens.temporary_tokens import SignIn, TemporaryToken


def check_sign_in(state: State, sign_in: SignIn) -> None:
    """Raises Refused when nobody comes in like this; changes nothing."""
    token = sign_in.token
    state.temporary_tokens.check_valid(token)
    member = state.roster.members.get(token.member)
    # Before anything changes: what is refused is in no journal.
    state.temporary_tokens.find_room(token, () if member is None else _tokens_in_use(member))
    if member is not None and member.kicked:
        raise Unauthorized(f"{token.member} was removed from this space: an administrator can restore them")
    if sign_in.capabilities is None:
        if member is None or member.configured is None:
            raise ParticipantNotFound(
                f"no participant {token.member!r} in this space", participant_id=token.member
            )
        return
    if member is not None and member.subject not in (sign_in.subject, FREE_NAME):
        raise Unauthorized(f"the name {token.member} belongs to somebody else here")
    logical_name(token.member)
    if member is None and not state.replaying:
        check_name(state.roster, token.member)
        signed_in = sum(1 for each in state.roster if each.subject is not None)
        if signed_in >= state.limits.max_signed_in_members:
            raise ResourceLimit("this space has as many members as it may", limit="max_signed_in_members")


def sign_in(state: State, sign_in: SignIn, now: float, mint: Mint) -> list[Effect]:
    """Admit a token of somebody who signed in, with the rights that they have now. Raises Refused."""
    check_sign_in(state, sign_in)
    effects: list[Effect] = []
    token = sign_in.token
    if sign_in.capabilities is not None:
        member = state.roster.members.get(token.member)
        if member is None:
            impostor = state.roster.aliases.get(token.member)
            if impostor is not None:
                # D-19: a runtime id that somebody made up for themselves gives way to a name.
                why = f"the name {token.member} is taken now"
                effects += membership.disconnect_member(state, impostor, why, now, mint)
            member = SpaceMember(token.member)
            state.roster.add(member)
            # What was said before is not for them: they are a member from now on.
            effects.append(Credential(member.name, ()))
        given_back = member.subject == FREE_NAME
        member.subject = sign_in.subject
        token = msgspec.structs.replace(token, rights=sign_in.capabilities)
        _keep_token(state, token)
        given = TokenRights(token.client, load_capabilities(sign_in.capabilities))
        member.note_sign_in(given, token.issued_at, sign_in.known_as)
        for session in member.sessions.values():
            if session.options.token == token.hash:
                # Other rules give the same token other rights.
                session.token_rights = given
        if given_back:
            # Whoever has the token that was given out with the name is nobody who signed in.
            others = [each.hash for each in state.temporary_tokens.of(member.name) if each.hash != token.hash]
            state.temporary_tokens.remove(others)
            state.roster.set_credentials(member, ())
            effects.append(Credential(member.name, ()))
            effects += membership.remove_void_sessions(state, member, now, mint)
        return effects + welcome_again(state, state.revoke_unsupported(), now, mint)
    _keep_token(state, token)
    return effects


def add_token(state: State, token: TemporaryToken) -> None:
    """Give a member a short-lived token. Raises Refused, also if what asks for it has ended meanwhile."""
    if token.keys and not state.replaying:
        # Earlier versions did not ask; what they accepted is replayed.
        state.temporary_tokens.check_valid(token)
    if token.made_with and owner_of_token(state, token.made_with) != token.member:
        raise Unauthorized("the token that asked for this one is no longer valid")
    _keep_token(state, token)


def owner_of_token(state: State, token_hash: str) -> Name | None:
    """The member with this token, if there is one."""
    temporary = state.temporary_tokens.get(token_hash)
    return state.roster.find_token_owner(token_hash) if temporary is None else temporary.member


def _keep_token(state: State, token: TemporaryToken) -> None:
    """Let a token admit its member until it ends. Raises Refused."""
    member = state.roster.find(token.member)
    state.temporary_tokens.add(token, _tokens_in_use(member))
    state.deadlines.schedule(token.expires_at, "token", token.hash)


def _tokens_in_use(member: SpaceMember) -> set[str | None]:
    return {session.options.token for session in member.sessions.values()}


def sign_out(
    state: State, keys: list[str], *, issued_before: float, forget_at: float, now: float, mint: Mint
) -> list[Effect]:
    """End what was signed in under these keys before a time, and let no such token in again."""
    ended = state.temporary_tokens.void(keys, issued_before=issued_before, forget_at=forget_at, now=now)
    return membership.end_tokens(state, ended, membership.SIGNED_OUT, now, mint)


def revoke_tokens(state: State, hashes: Sequence[str], now: float, mint: Mint) -> list[Effect]:
    """Void tokens of any kind, by their hashes, and all that was made with them; end their sessions."""
    effects: list[Effect] = []
    ended = list(dict.fromkeys(hashes))
    for token_hash in ended:
        # While it goes on: also what was made with those.
        ended += [each for each in state.temporary_tokens.made_with([token_hash]) if each not in ended]
        if state.temporary_tokens.get(token_hash) is not None:
            effects += membership.end_tokens(state, [token_hash], membership.REVOKED, now, mint)
        owner = state.roster.find_token_owner(token_hash)
        if owner is None:
            continue
        member = state.roster.members[owner]
        state.roster.set_credentials(member, tuple(each for each in member.credentials if each != token_hash))
        effects.append(Credential(member.name, member.credentials))
        effects += membership.remove_void_sessions(state, member, now, mint)
    return effects


def renew(state: State, session_id: SessionId, token_hash: str, now: float, mint: Mint) -> list[Effect]:
    """Let a session go on under a newer token of the same member, with what that carries. Raises Refused."""
    session = state.roster.sessions.get(session_id)
    if session is None:
        return []
    token = state.temporary_tokens.get(token_hash)
    before = state.temporary_tokens.get(session.options.token or "")
    if token is None or token.member != session.member.name or before is None:
        raise Unauthorized("this token is another participant's")
    if token.keys[:1] != before.keys[:1]:
        raise Unauthorized("this token is somebody else's")
    session.options = msgspec.structs.replace(session.options, token=token_hash)
    session.token_rights = state.token_rights(token_hash)
    is_other = session.limit_to(None if token.limited_to is None else load_capabilities(token.limited_to))
    is_other |= session.refresh()
    state.verdicts_changed()
    return welcome(state, session.member, [session.id], now, mint) if is_other else []


def restart(state: State, *, clock_lost: bool) -> None:
    """After a restart whoever signed in elsewhere is asked for their token again: rules may have changed.

    What they made with it has the rights that it had, so that ends too. If it is not known how much time has
    passed, no other token is believed either.
    """
    ended = [
        token.hash
        for token in state.temporary_tokens.by_hash.values()
        if token.source == "sign_in" or token.rights is not None or clock_lost
    ]
    state.temporary_tokens.remove(ended)


def check_lifetime(seconds: float, most: float) -> None:
    if not 0 < seconds <= most:
        raise InvalidRequest(f"a short-lived token lasts for more than 0 and at most {most:g} seconds")
