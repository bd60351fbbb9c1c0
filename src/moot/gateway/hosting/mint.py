"""Fresh ids and tokens, those that a cluster makes alike everywhere, and the same ones on replay (D-89)."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Sequence

from moot.config import hash_token
from moot.errors import UsageError
from moot.space.effects import Token


class FreshMint:
    """Draws ids and tokens, and remembers them for the journal; tokens as hashes only."""

    __slots__ = ("ids", "tokens")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.tokens: list[str] = []

    def id(self) -> str:
        drawn = str(uuid.uuid4())
        self.ids.append(drawn)
        return drawn

    def token(self) -> Token:
        secret = secrets.token_urlsafe(32)
        token = Token(hash_token(secret), secret)
        self.tokens.append(token.hash)
        return token


class SeededMint(FreshMint):
    """Ids that every gateway makes alike; tokens whose secrets only one of them knows."""

    __slots__ = ("_given", "_seed")

    def __init__(self, seed: bytes, given: Sequence[Token] = ()) -> None:
        super().__init__()
        self._seed = seed
        self._given = iter(given)

    def id(self) -> str:
        drawn = hashlib.blake2b(self._seed + b"/%d" % len(self.ids), digest_size=16).digest()
        self.ids.append(str(uuid.UUID(bytes=drawn, version=4)))
        return self.ids[-1]

    def token(self) -> Token:
        token = next(self._given, None)
        if token is None:
            raise UsageError("an input of the log draws more tokens than were made for it")
        self.tokens.append(token.hash)
        return token


class ReplayMint:
    """Gives out what was drawn then."""

    __slots__ = ("_ids", "_tokens")

    def __init__(self, ids: Sequence[str], tokens: Sequence[str]) -> None:
        self._ids = iter(ids)
        self._tokens = iter(tokens)

    def id(self) -> str:
        try:
            return next(self._ids)
        except StopIteration:
            raise UsageError(
                "the journal does not fit this version: an input draws more ids than it did"
            ) from None

    def token(self) -> Token:
        try:
            return Token(next(self._tokens))
        except StopIteration:
            raise UsageError(
                "the journal does not fit this version: an input draws more tokens than it did"
            ) from None
