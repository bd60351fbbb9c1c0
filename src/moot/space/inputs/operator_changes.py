"""What operators change in a space: its configuration, rights, tokens, and who was removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from moot.errors import InvalidOperation, ParticipantNotFound
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, covered_by
from moot.space.acts import membership
from moot.space.acts.approvals import describe_open_votes
from moot.space.acts.membership import remove_member
from moot.space.acts.proposals import bind_open
from moot.space.config import Name, ParticipantConfig, SpaceConfig
from moot.space.effects import Credential, Effect, Mint, Result, Token
from moot.space.inputs.passkey_changes import remove_all_passkeys
from moot.space.members.listing import welcome, welcome_again
from moot.space.members.member import FREE_NAME, Session, SpaceMember
from moot.space.members.send_rate import SendRateLimiter
from moot.space.state import State


def reload(state: State, config: SpaceConfig, now: float, mint: Mint) -> list[Effect]:
    """Take a new configuration over, as `Space.reload` says."""
    effects: list[Effect] = []
    for member in list(state.roster):
        if member.configured is None or member.name in config.participants:
            continue
        member.configured = None
        if not member.kicked:
            effects += remove_member(state, member, "no longer a participant", now, mint)
            state.forget_member(member)
    for name in config.participants:
        # A newly named participant is nobody who came in under that name as a guest or runtime id (D-19).
        impostor = state.roster.aliases.get(name) or state.roster.members.get(Name(name))
        if impostor is None:
            continue
        if impostor.subject is not None and impostor.name == name:
            # Whoever signed in under it does not get the rights of a participant of the configuration.
            tokens = [token.hash for token in state.temporary_tokens.of(impostor.name)]
            effects += membership.end_tokens(state, tokens, f"the name {name} is taken now", now, mint)
            effects += remove_all_passkeys(state, impostor.name, now, mint)
            state.delegations.forget(impostor.name)
            impostor.subject, impostor.signed_in = None, {}
        elif impostor.anonymous or impostor.name != name:
            effects += membership.disconnect_member(
                state, impostor, f"the name {name} is taken now", now, mint
            )
    effects += _configure_guests(state, config, now, mint)
    limits_before = state.config.token_limits
    told = describe_open_votes(state, now)
    state.configure(config)
    for name, participant in config.participants.items():
        effects += _configure(state, Name(name), participant, limits_before, now, mint)
    limited = _limit_sessions(state)
    changed = state.revoke_unsupported()
    effects += welcome_again(state, changed, now, mint)
    for session in limited:
        if session.member not in changed and not session.options.injected:
            effects += welcome(state, session.member, [session.id], now, mint)
    return effects + bind_open(state, told, now, mint)


def _configure_guests(state: State, config: SpaceConfig, now: float, mint: Mint) -> list[Effect]:
    """Guests hold nothing but what the configuration says of all guests, so it reaches them at once."""
    effects: list[Effect] = []
    if config.anonymous == state.config.anonymous:
        return effects
    for guest in [member for member in state.roster if member.anonymous]:
        if config.anonymous is None:
            effects += membership.disconnect_member(
                state, guest, "this space takes no guests any more", now, mint
            )
        else:
            guest.static_capabilities = config.anonymous
    return effects


def _limit_sessions(state: State) -> list[Session]:
    """Give every session what its token carries by now; returns those for which that is new."""
    limited = [
        session
        for session in state.roster.sessions.values()
        if (token := session.options.token) is not None and session.limit_to(state.token_limit(token))
    ]
    if limited:
        state.verdicts_changed()
    return limited


def _configure(
    state: State,
    name: Name,
    participant: ParticipantConfig,
    limits_before: Mapping[str, tuple[Capability, ...]],
    now: float,
    mint: Mint,
) -> list[Effect]:
    """Apply what the configuration newly says about one participant."""
    member = state.roster.members.get(name)
    if member is None:
        member = SpaceMember(name)
        state.roster.add(member)
    before, member.configured = member.configured, participant
    member.anonymous = False
    if before is None or before.capabilities != participant.capabilities:
        member.static_capabilities = participant.capabilities
    member.exclusive = participant.exclusive
    if member.kicked:
        return []
    effects: list[Effect] = []
    held = member.credentials
    if before is None or not _are_in_force(before, participant, held):
        state.roster.set_credentials(member, participant.credentials)
        effects.append(Credential(name, member.credentials))
    limits = state.config.token_limits
    is_less = any(
        token not in member.credentials or limits.get(token) != limits_before.get(token) for token in held
    )
    if is_less:
        effects += _void_minted(state, member, now, mint)
    if not effects and not is_less:
        return []
    return effects + membership.remove_void_sessions(state, member, now, mint)


def _void_minted(state: State, member: SpaceMember, now: float, mint: Mint) -> list[Effect]:
    """Void a member's short-lived tokens: whoever replaces or narrows a token means all it has made.

    So do the passkeys that it added; those that came by an operator's link stay.
    """
    minted = [token.hash for token in state.temporary_tokens.of(member.name) if token.source == "minted"]
    effects = remove_all_passkeys(state, member.name, now, mint, by_token=True)
    state.temporary_tokens.remove(minted)
    return effects


def change_capabilities(
    state: State,
    name: str,
    add: Sequence[Capability],
    remove: Sequence[Capability],
    by: str,
    now: float,
    mint: Mint,
) -> list[Effect]:
    """MCPx 10.3, D-55: change a member's static rights, all or nothing; dependent grants go too."""
    member = state.roster.find(name)
    old = member.rights.capabilities
    # By meaning, not by spelling: "*" in a configuration is {kind: "*"} (D-90).
    meant = [capability.view("mew") or capability.original for capability in remove]
    held_now = (*member.static_capabilities, *member.rights_by_sign_in)
    there = [held.view("mew") or held.original for held in held_now]
    not_held = [c.original for c, meaning in zip(remove, meant, strict=True) if meaning not in there]

    def without(held: Sequence[Capability]) -> tuple[Capability, ...]:
        return tuple(right for right in held if (right.view("mew") or right.original) not in meant)

    member.static_capabilities = tuple(dict.fromkeys([*without(member.static_capabilities), *add]))
    for client, signed_in in member.signed_in.items():
        # Until they sign in again.
        left = without(signed_in.capabilities)
        member.signed_in[client] = msgspec.structs.replace(signed_in, capabilities=left)
    effects = welcome_again(state, state.revoke_unsupported(), now, mint)
    fields: dict[str, Json] = {
        "participantId": member.id,
        "oldCapabilities": [capability.original for capability in old],
        "newCapabilities": [capability.original for capability in member.rights.capabilities],
        "modifiedBy": by,
        "modifiedAt": rfc3339(now),
    }
    if not_held:
        # Nobody should believe that a right is gone which was never here, or was granted by a member.
        fields["notRemoved"] = not_held
    return [*effects, Result(None, fields)]


def restore_member(state: State, name: str, mint: Mint, *, drops_added: bool = True) -> list[Effect]:
    """D-24: undo a kick. The old token stays void, so a new one is minted.

    What an administrator had added is gone, as grants are; `drops_added` is False for records of before.
    """
    member = state.roster.members.get(Name(name))
    if member is None:
        raise ParticipantNotFound(f"no participant {name!r} in this space", participant_id=name)
    if not member.kicked:
        raise InvalidOperation(f"{name} was not removed")
    if drops_added:
        member.static_capabilities = _without_added(state, member)
    member.kicked = member.anonymous = False
    if member.subject is not None:
        # Whoever signs in under the name next has it: the same account, or one that was made anew.
        member.subject, member.signed_in = FREE_NAME, {}
    member.send_limiter = SendRateLimiter()
    token = mint.token()
    state.roster.set_credentials(member, (token.hash,))
    state.refresh(member)
    fields: dict[str, Json] = {"participant_id": name, "status": "restored"}
    if token.secret is not None:
        fields["token"] = token.secret
    return [Credential(member.name, member.credentials), Result(None, fields)]


def _without_added(state: State, member: SpaceMember) -> tuple[Capability, ...]:
    """What a member has by the configuration or by its invitation, and nobody has taken away since."""
    given: list[Capability] = [] if member.configured is None else [*member.configured.capabilities]
    if member.anonymous:
        given += state.config.anonymous or ()
    if member.invited_by is not None:
        if state.config.delegation == "unrestricted":
            # All that an invitation gave is the invitee's own, and not told from what was added.
            return member.static_capabilities
        given += state.config.invite_baseline
    return tuple(right for right in member.static_capabilities if covered_by(right, given))


def rotate_credential(
    state: State, name: str, token: Token, now: float, mint: Mint, *, keep: bool
) -> list[Effect]:
    """Give a member another token; without `keep` the earlier ones end now, and their sessions too."""
    member = state.roster.find(name)
    state.roster.set_credentials(member, (*(member.credentials if keep else ()), token.hash))
    effects: list[Effect] = [Credential(member.name, member.credentials)]
    if not keep:
        effects += _void_minted(state, member, now, mint)
    return effects + membership.remove_void_sessions(state, member, now, mint)


def _are_in_force(before: ParticipantConfig, after: ParticipantConfig, held: tuple[str, ...]) -> bool:
    """Whether what a configuration newly says of tokens is so already.

    Either it says the same as before, and what an operator changed since stays; or it has caught up with the
    operator: the tokens that it names are valid, those that it no longer names are void.
    """
    named, dropped = set(after.credentials), set(before.credentials) - set(after.credentials)
    if before.credentials == after.credentials:
        return True
    return bool(dropped) and named <= set(held) and dropped.isdisjoint(held)
