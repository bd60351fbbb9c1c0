"""Whose a device is, and who they are in each space: whoever holds a token, or an account of a provider.

A lasting token is looked up each time. The token of a provider ends after an hour or so, and its person wants
to be told all the same: such a device belongs to the account, until the account is signed out, or has not
been seen here for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from moot.config.notification_config import PushConfig
from moot.gateway.access import SpaceDirectory, TokenIdentity, TokenQuestion
from moot.gateway.notifications.channels import ReceiverGone
from moot.gateway.notifications.push.subscription import ProviderAccount, Subscription
from moot.gateway.other_spaces import AskedSpaces
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.tokens.temporary_tokens import TemporaryToken

# A clock that was set back by more than this makes it unknown how long ago something was.
_CLOCK_SKEW_SECONDS: Final = 300.0


class SignInEnded(ReceiverGone):
    """The account was signed out, or was not seen for too long; its device can still be told so."""


class OwnerQuestion(msgspec.Struct, frozen=True):
    """Whose a device is: the hash of a token, or an account. Asked of other gateways too."""

    owner: str
    account: ProviderAccount | None


class DeviceOwner:
    """Whoever holds a token, or somebody who signs in with a provider or a passkey, signed in now or not."""

    def __init__(
        self,
        directory: SpaceDirectory,
        owner: str,
        account: ProviderAccount | None,
        config: PushConfig,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.owner = owner
        self._directory = directory
        self._account = account
        self._config = config
        self._wall = wall
        # Whether other gateways knew them when they were asked.
        self._is_elsewhere = False

    def participant_in(self, space: str) -> str | None:
        if self._account is None:
            return self._directory.holder_of(space, self.owner)
        host, name = self._directory.hosts.get(space), self._account.participants.get(space)
        if host is None or name is None:
            return None
        state, account = host.space.state, self._account
        member = state.roster.members.get(Name(name))
        if member is None or member.kicked or state.temporary_tokens.is_void(account.keys, account.issued_at):
            return None
        if account.passkey:
            own = state.passkeys.of(member.name)
            return name if any(each.id == account.passkey and each.signs_in for each in own) else None
        # A name belongs to one account, unless the configuration lists it.
        if member.subject is None:
            return name if member.configured is not None else None
        return name if member.subject == account.keys[0] else None

    def spaces(self) -> dict[str, str]:
        """Space → who they are there, of those that are served here."""
        found = ((space, self.participant_in(space)) for space in self._directory.hosts)
        return {space: name for space, name in found if name is not None}

    async def spaces_everywhere(self) -> dict[str, str]:
        """The same of all spaces of a cluster. Raises Unavailable."""
        question = msgspec.to_builtins(OwnerQuestion(self.owner, self._account))
        others = await self._directory.others.ask("device_owner", question)
        return self.spaces() | {space: name for each in others for space, name in each.items()}

    async def check(self) -> None:
        """Raises ReceiverGone, or Unavailable where not everybody answers who may know them."""
        if self._account is not None:
            ago = self._wall() - self._account.seen_at
            is_recent = -_CLOCK_SKEW_SECONDS <= ago < self._config.max_seconds_since_sign_in
            if not is_recent or (not self._account.passkey and self._directory.sign_in is None):
                raise SignInEnded
        if self.spaces():
            self._is_elsewhere = False
        elif not self._is_elsewhere:
            # Once: who knows them then finds out when they are gone there.
            self._is_elsewhere = bool(await self.spaces_everywhere())
            if not self._is_elsewhere:
                raise ReceiverGone if self._account is None else SignInEnded


def answer_owners(directory: SpaceDirectory, config: PushConfig) -> None:
    """Tell other gateways who the owner of a device is here."""

    async def find(facts: Json, asked: AskedSpaces) -> Json:
        question = msgspec.convert(facts, OwnerQuestion)
        spaces = DeviceOwner(directory, question.owner, question.account, config).spaces()
        return {space: name for space, name in spaces.items() if asked.include(space)}

    directory.others.answer("device_owner", find)


class TokenPlace(msgspec.Struct, frozen=True):
    """Whose a token is in one space, and what it is there if it ends by itself."""

    space: str
    name: str
    token: TemporaryToken | None


async def describe_place(who: TokenIdentity, question: TokenQuestion) -> Json:
    """None for whom the space does not know by this token."""
    if who.token is None or who.sign_in is not None:
        return None
    token = who.host.space.state.temporary_tokens.get(question.hash)
    place: Json = msgspec.to_builtins(TokenPlace(who.host.name, who.name, token))
    return place


def account_of(places: Sequence[TokenPlace], now: float) -> ProviderAccount | None:
    """Who signed in with this token, by a provider or a passkey; None for every other token."""
    tokens = [each.token for each in places]
    found = [token for token in tokens if token is not None and token.limited_to is None]
    if not found or len(found) < len(tokens):
        # One that carries less is not for its person, but for a program of theirs.
        return None
    first = found[0]
    is_passkey = bool(first.passkey) and all(token.passkey == first.passkey for token in found)
    if not is_passkey and not all(token.source == "sign_in" and token.keys for token in found):
        return None
    return ProviderAccount(
        keys=(f"passkey {first.passkey}",) if is_passkey else first.keys,
        issued_at=first.issued_at,
        participants={each.space: each.name for each in places},
        seen_at=now,
        passkey=first.passkey if is_passkey else "",
    )


def seen_again(
    subscription: Subscription, account: ProviderAccount, config: PushConfig
) -> Subscription | None:
    """The device of an account that was here again; None if that changes nothing worth keeping."""
    known = subscription.account
    if known is None:
        return None
    participants = {**known.participants, **account.participants}
    is_soon = account.seen_at - known.seen_at < config.max_seconds_since_sign_in / 20
    if is_soon and participants == known.participants:
        return None
    renewed = msgspec.structs.replace(known, participants=participants, seen_at=account.seen_at)
    return msgspec.structs.replace(subscription, account=renewed)
