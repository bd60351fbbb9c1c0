"""Tokens that end by themselves: of people who signed in elsewhere, and short-lived ones of the gateway.

A token admits one member until `expires_at`, by the space's clock; then its sessions end. The table also
knows which earlier sign-ins are void: whoever was signed out does not come back with a token that was issued
before. That is kept for as long as such a token could be valid, so that a restart forgets none of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

import msgspec

from moot.errors import ResourceLimit, Unauthorized
from moot.protocol.operation import Json
from moot.protocol.patterns import Notation
from moot.space.config import Name

# More than a member has connections: each may have a token of its own, and a renewed one. Of those that a
# provider issued, and of those that were made here.
MAX_TOKENS_PER_MEMBER: Final = 64
# Of members of a company, each with a token or two.
MAX_TOKENS: Final = 50_000
# Signed out within the longest life of a token.
MAX_VOID: Final = 50_000

# Of a token of a provider: the longest that `max_token_seconds` and twice the skew of clocks can be.
MAX_LIFE_SECONDS: Final = 86_400 + 600.0

Pairs = tuple[tuple[Notation, Any], ...]


class TemporaryToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token, by its SHA-256."""

    hash: str
    member: Name
    expires_at: float
    # For so long before that it keeps connections that there are, and makes no new ones.
    grace_seconds: float = 0.0
    # What it carries, where that is less than all of its member's rights: pairs of notation and capability.
    limited_to: Pairs | None = None
    # `sign_in`: another provider issued it, and says again who it is after a restart.
    source: Literal["minted", "sign_in"] = "minted"
    # By which a sign-out names it: hashes of issuer and subject, and of issuer and session.
    keys: tuple[str, ...] = ()
    # When the provider issued it, by the wall clock.
    issued_at: float = 0.0
    # What its rule gave whoever signed in with it; None: its member's rights are those of the configuration.
    rights: Pairs | None = None
    # With which program they signed in: a person's agent may have other rights than their console.
    client: str = ""
    # For administrators: since when it is known here, and of a sign-in by which rule of which provider.
    since: float = 0.0
    issuer: str = ""
    rule: int = 0
    # The hash of the member's token that asked for it, with which it ends; empty where an administrator did.
    made_with: str = ""
    # The id of the passkey that it was signed in with.
    passkey: str = ""

    @property
    def made_by(self) -> str:
        """The account at a provider of whoever made it; empty where nobody's sign-in did."""
        return self.keys[0] if self.source == "minted" and self.keys else ""

    def admits(self, now: float) -> bool:
        return now < self.expires_at - self.grace_seconds


class SignIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody whom a provider of identities knows, as the rules of the gateway map them to a member."""

    token: TemporaryToken
    # The rights of a member that comes by signing in; None: a participant of the configuration.
    capabilities: Pairs | None = None
    # Where the account goes by another claim than `sub`: the key of that, by which a logout names them.
    known_as: str = ""
    # For the audit: issuer, subject, client and rule.
    details: dict[str, Json] = {}

    @property
    def subject(self) -> str:
        """Whose name the member's is, once and for all."""
        return self.token.keys[0]


class _VoidMark(msgspec.Struct, frozen=True):
    issued_before: float
    forget_at: float


class TemporaryTokens:
    """The tokens of one space that end by themselves."""

    def __init__(self) -> None:
        self.by_hash: dict[str, TemporaryToken] = {}
        self._void: dict[str, _VoidMark] = {}

    def get(self, token_hash: str) -> TemporaryToken | None:
        return self.by_hash.get(token_hash)

    def of(self, name: Name) -> list[TemporaryToken]:
        return [token for token in self.by_hash.values() if token.member == name]

    def find_room(self, token: TemporaryToken, in_use: Collection[str | None]) -> str | None:
        """The token that has to go if this one is added; changes nothing. Raises Refused if it cannot be.

        Of too many of one member it is the one that ends first and is not `in_use`. Tokens that a member
        made are counted by themselves: they keep nobody from signing in.
        """
        known = self.by_hash.get(token.hash)
        if known is not None:
            if known.member != token.member:
                # Its connections are that member's.
                raise Unauthorized("this token is another participant's")
            return None
        if len(self.by_hash) >= MAX_TOKENS:
            raise ResourceLimit("this space has as many short-lived tokens as it may", limit="max_tokens")
        own = [each for each in self.of(token.member) if each.source == token.source]
        if len(own) < MAX_TOKENS_PER_MEMBER:
            return None
        idle = [each for each in own if each.hash not in in_use]
        if not idle:
            raise ResourceLimit(
                f"{token.member} has {MAX_TOKENS_PER_MEMBER} short-lived tokens: wait until one ends",
                limit="max_tokens_per_member",
            )
        return min(idle, key=lambda each: each.expires_at).hash

    def add(self, token: TemporaryToken, in_use: Collection[str | None]) -> None:
        """Add a token. Raises Refused as `find_room` does."""
        replaced = self.find_room(token, in_use)
        if replaced is not None:
            gone = self.by_hash.pop(replaced)
            for each in self.made_with([replaced]):
                # They end with what made the one that is gone.
                child = self.by_hash[each]
                self.by_hash[each] = msgspec.structs.replace(child, made_with=gone.made_with)
        self.by_hash[token.hash] = token

    def made_with(self, hashes: Collection[str]) -> list[str]:
        """The tokens that were made with one of these."""
        return [token.hash for token in self.by_hash.values() if token.made_with in hashes]

    def remove(self, hashes: Sequence[str]) -> None:
        for token_hash in hashes:
            self.by_hash.pop(token_hash, None)

    def check_valid(self, token: TemporaryToken) -> None:
        """Raises Unauthorized for a token of somebody who was signed out after it was issued."""
        if self.is_void(token.keys, token.issued_at):
            raise Unauthorized("signed out since this token was issued: sign in again")

    def is_void(self, keys: Sequence[str], issued_at: float) -> bool:
        """Whether somebody was signed out after a token with these keys was issued."""
        marks = (self._void.get(key) for key in keys)
        return any(mark is not None and issued_at <= mark.issued_before for mark in marks)

    def void(self, keys: Sequence[str], *, issued_before: float, forget_at: float, now: float) -> list[str]:
        """What was issued under these keys before is void; returns the tokens that end by that."""
        if len(self._void) + len(keys) > MAX_VOID:
            self._void = {key: mark for key, mark in self._void.items() if mark.forget_at > now}
        for key in keys:
            earlier = self._void.get(key, _VoidMark(0.0, 0.0))
            self._void[key] = _VoidMark(
                max(issued_before, earlier.issued_before), max(forget_at, earlier.forget_at)
            )
        found = set(keys)
        return [
            token.hash
            for token in self.by_hash.values()
            if found & set(token.keys) and token.issued_at <= issued_before
        ]

    def begin_like(self, other: TemporaryTokens) -> None:
        """Take over what is void there."""
        self._void = dict(other._void)

    def save(self) -> dict[str, Json]:
        return {
            "tokens": [msgspec.to_builtins(token) for token in self.by_hash.values()],
            "void": {key: [mark.issued_before, mark.forget_at] for key, mark in self._void.items()},
        }

    @classmethod
    def load(cls, saved: dict[str, Any]) -> TemporaryTokens:
        table = cls()
        for row in saved.get("tokens", []):
            token = msgspec.convert(row, TemporaryToken)
            table.by_hash[token.hash] = token
        table._void = {key: _VoidMark(*mark) for key, mark in saved.get("void", {}).items()}
        return table
