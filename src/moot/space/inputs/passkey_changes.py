"""Adding and removing passkeys, and signing in with one: inputs of a space, beside its messages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moot.errors import InvalidOperation, PasskeyInvalid, PasskeyRequired, Unauthorized
from moot.protocol import base64url
from moot.space.acts.approvals import announce_votes
from moot.space.config import Name
from moot.space.effects import Effect, Mint
from moot.space.inputs import sign_in
from moot.space.state import State
from moot.space.tokens.passkey_proof import Assertion
from moot.space.tokens.passkeys import Passkey
from moot.space.tokens.temporary_tokens import TemporaryToken


class PasskeyInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an input says of passkeys; which fields it has depends on the input."""

    # Of a new one; with a proof by another of the same member, unless it came by a link.
    key: Passkey | None = None
    assertion: Assertion | None = None
    # What was signed, in base64url, and until when that may be used.
    challenge: str = ""
    expires: float = 0.0
    # Of a new one that came by no link: the hash of the token that asked for it, which has to be good still.
    made_with: str = ""
    # Of a sign-in: the token that it gives.
    token: TemporaryToken | None = None
    # Of a removal: which.
    ids: tuple[str, ...] = ()


def add_passkey(state: State, told: PasskeyInput, now: float) -> list[Effect]:
    """Let a member have one more. Raises Refused."""
    key, proof = told.key, told.assertion
    if key is None:
        raise InvalidOperation("no passkey was given")
    member, challenge = state.roster.find(key.member), base64url.decode(told.challenge)
    if not state.replaying:
        state.passkeys.check_unused(challenge, now)
        if told.made_with and sign_in.owner_of_token(state, told.made_with) != member.name:
            raise Unauthorized("the token that asked for this passkey is no longer valid: sign in again")
    if proof is not None:
        other = state.passkeys.find(member.name, proof)
        if not state.replaying:
            state.passkeys.verify(other, proof, challenge)
        key = msgspec.structs.replace(key, by_link=key.by_link or other.by_link)
    if not state.replaying:
        first_by_link = state.config.passkeys.first == "link"
        state.passkeys.check_new(key, proven=proof is not None, first_by_link=first_by_link)
    if proof is not None:
        state.passkeys.note_use(other, proof, now)
    if told.expires:
        state.passkeys.note_challenge(challenge, told.expires, now)
    state.passkeys.add(msgspec.structs.replace(key, added_at=now))
    return []


def remove_passkeys(state: State, ids: Sequence[str], now: float, mint: Mint) -> list[Effect]:
    """Remove these, end what was signed in with them, and take back open votes that they confirmed."""
    state.passkeys.remove(ids)
    voted_for = [each.id for each in state.ledger.all_open() if each.drop_votes_confirmed_with(ids)]
    if voted_for:
        state.verdicts_changed()
    tokens = [each.hash for each in state.temporary_tokens.by_hash.values() if each.passkey in ids]
    return sign_in.revoke_tokens(state, tokens, now, mint) + announce_votes(state, voted_for, now, mint)


def remove_all_passkeys(
    state: State, name: Name, now: float, mint: Mint, *, by_token: bool = False
) -> list[Effect]:
    """Remove those of a member; with `by_token` those alone that a token of theirs added."""
    keys = [key.id for key in state.passkeys.of(name) if not (by_token and key.by_link)]
    return remove_passkeys(state, keys, now, mint) if keys else []


def check_passkey_sign_in(state: State, told: PasskeyInput, now: float) -> Passkey:
    """The key with which somebody signs in. Raises Refused when nobody comes in like this."""
    assertion = told.assertion
    if assertion is None:
        raise PasskeyRequired("no passkey was given")
    key = state.passkeys.find(None, assertion)
    member = state.roster.members.get(key.member)
    if member is None or member.kicked:
        raise Unauthorized(f"{key.member} was removed from this space: an administrator can restore them")
    if not key.signs_in or member.subject is not None:
        raise Unauthorized(
            f"{key.member} signs in with the identity provider; this passkey confirms decisions"
        )
    if now >= told.expires:
        raise PasskeyInvalid("this took too long: start again")
    challenge = base64url.decode(told.challenge)
    state.passkeys.check_unused(challenge, now)
    state.passkeys.verify(key, assertion, challenge)
    return key


def sign_in_with_passkey(state: State, told: PasskeyInput, now: float) -> list[Effect]:
    """Give the owner of a passkey a token that ends by itself. Raises Refused."""
    token, assertion = told.token, told.assertion
    if token is None or assertion is None:
        raise InvalidOperation("a sign-in has an assertion and a token")
    key = state.passkeys.by_id.get(assertion.credential_id) if state.replaying else None
    if not state.replaying:
        key = check_passkey_sign_in(state, told, now)
        if token.member != key.member or token.passkey != key.id:
            raise PasskeyInvalid("this passkey is somebody else's")
    sign_in.add_token(state, token)
    state.passkeys.note_challenge(base64url.decode(told.challenge), told.expires, now)
    if key is not None:
        state.passkeys.note_use(key, assertion, now)
    return []
