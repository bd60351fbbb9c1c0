"""Whose a device is, and who they are in each space: whoever holds a token, or an account of a provider.

A lasting token is looked up each time. The token of a provider ends after an hour or so, and its person wants
to be told all the same: such a device belongs to the account, until the account is signed out, or has not
been seen here for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from moot.config.notification_config import PushConfig
from moot.gateway.access import SpaceDirectory
from moot.gateway.notifications.channels import ReceiverGone
from moot.gateway.notifications.push.subscription import ProviderAccount, Subscription
from moot.space.config import Name

# A clock that was set back by more than this makes it unknown how long ago something was.
_CLOCK_SKEW_SECONDS: Final = 300.0


class SignInEnded(ReceiverGone):
    """The account was signed out, or was not seen for too long; its device can still be told so."""


class TokenHolder:
    """Whoever holds a token, in the spaces that it opens now."""

    # Devices are known to the gateway with which they were registered.
    is_shared = False

    def __init__(self, directory: SpaceDirectory, token: str) -> None:
        self.owner = token
        self._directory = directory

    def participant_in(self, space: str) -> str | None:
        return self._directory.holder_of(space, self.owner)

    def spaces(self) -> dict[str, str]:
        """Space → who they are there."""
        found = ((space, self.participant_in(space)) for space in self._directory.hosts)
        return {space: name for space, name in found if name is not None}

    def ends_by_itself(self) -> bool:
        """Whether the token was given for a time."""
        states = (self._directory.hosts[space].space.state for space in self.spaces())
        return any(state.temporary_tokens.get(self.owner) is not None for state in states)

    def account(self, now: float) -> ProviderAccount | None:
        """Who signed in with this token, by a provider or a passkey; None for every other token."""
        spaces = self.spaces()
        tokens = [
            self._directory.hosts[space].space.state.temporary_tokens.get(self.owner) for space in spaces
        ]
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
            participants=spaces,
            seen_at=now,
            passkey=first.passkey if is_passkey else "",
        )

    def check(self) -> None:
        if not self.spaces() and self._directory.serves_all():
            raise ReceiverGone


class AccountHolder:
    """Somebody who signs in with a provider or a passkey, signed in at this moment or not."""

    is_shared = False

    def __init__(
        self,
        directory: SpaceDirectory,
        owner: str,
        account: ProviderAccount,
        config: PushConfig,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.owner = owner
        self._directory = directory
        self._account = account
        self._config = config
        self._wall = wall

    def participant_in(self, space: str) -> str | None:
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
        """Space → who they are there."""
        found = ((space, self.participant_in(space)) for space in self._account.participants)
        return {space: name for space, name in found if name is not None}

    def check(self) -> None:
        ago = self._wall() - self._account.seen_at
        is_recent = -_CLOCK_SKEW_SECONDS <= ago < self._config.max_seconds_since_sign_in
        is_offered = bool(self._account.passkey) or self._directory.sign_in is not None
        is_nobody = not self.spaces() and self._directory.serves_all()
        if not is_offered or not is_recent or is_nobody:
            raise SignInEnded


DeviceOwner = TokenHolder | AccountHolder


def owner_of(directory: SpaceDirectory, subscription: Subscription, config: PushConfig) -> DeviceOwner:
    if subscription.account is None:
        return TokenHolder(directory, subscription.owner)
    return AccountHolder(directory, subscription.owner, subscription.account, config)


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
