"""What a token opens, in all spaces of a cluster: here, and at the gateways that serve the others.

    spaces.answer("passkeys", describe)               describe(identity, question), of whoever is identified
    rows, refusal = await spaces.describe("passkeys", token)

Only the hash of a token is told to others. A list is whole, or there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from moot.config import hash_token
from moot.errors import Unavailable
from moot.gateway.access import AccessDenied, SpaceDirectory, TokenIdentity, TokenQuestion
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.other_spaces import AskedSpaces
from moot.protocol.operation import Json

# What is said of somebody in one space. Raises Refused.
Describe = Callable[[TokenIdentity, TokenQuestion], Awaitable[Json]]

# Nobody knows whether the token is wrong: other gateways are not asked for one more of this address.
_GUESSED: Final = AccessDenied(429, "too many wrong tokens: try again later", retry_after=1)


class TokenRows(msgspec.Struct, frozen=True):
    """What is said of whoever holds a token, for each space that it opens; else perhaps why it opens none."""

    rows: list[Json]
    refusal: AccessDenied | None = None


class TokenSpaces:
    """Describes whom a token identifies in which spaces."""

    def __init__(self, directory: SpaceDirectory) -> None:
        self._directory = directory
        self._described: dict[str, Describe] = {}

    def answer(self, about: str, describe: Describe) -> None:
        """What is said about this of one identity, whichever gateway was asked."""
        self._described[about] = describe

        async def find(facts: Json, asked: AskedSpaces) -> Json:
            question = msgspec.convert(facts, TokenQuestion)
            found: Json = msgspec.to_builtins(await self._describe(about, question, asked.hosts))
            return found

        self._directory.others.answer(about, find)

    def asks_nobody(self, address: str) -> bool:
        """Whether other gateways would have to be asked for an address that has guessed too often."""
        return not self._directory.serves_all() and self._directory.has_guessed(address)

    async def describe(
        self, about: str, token: str, address: str = "", *, more: Json = None
    ) -> tuple[list[Json], AccessDenied]:
        """What is said of whoever holds a token, in all spaces that it opens; and what to answer if there are
        none. Raises Unavailable where not all spaces are known, and what a description refuses."""
        directory, hashed = self._directory, hash_token(token)
        found, refusal = directory.identify_everywhere(token)
        if not found and directory.may_become_known(refusal, token, address):
            await directory.wait_current()
            found, refusal = directory.identify_everywhere(token)
        claims = None
        # A wrong one is not verified once more where nobody else is asked.
        is_needed = bool(found) or not directory.serves_all()
        if is_needed and directory.sign_in is not None and directory.is_of_provider(token):
            claims = directory.sign_in.claims_of(token, hashed)
        question = TokenQuestion(hashed, None if isinstance(claims, AccessDenied) else claims, more)
        others: list[TokenRows] = []
        if not directory.serves_all():
            if isinstance(claims, AccessDenied) and claims.status >= 500:
                raise Unavailable(claims.message)
            if not found and question.signed_in is None and self.asks_nobody(address):
                # A stranger; who shows what a provider has signed has guessed nothing.
                return [], _GUESSED
            asked = await directory.others.ask(about, msgspec.to_builtins(question))
            others = msgspec.convert(asked, list[TokenRows])
            if isinstance(claims, AccessDenied):
                # Of the token itself, so the same everywhere.
                refusal = claims
            elif refusal.status == 401:
                refusal = next((each.refusal for each in others if each.refusal is not None), refusal)
        # After the others: what was revoked during the question is not used.
        here = await self._describe(about, question, [each.host for each in found])
        return [row for each in (here, *others) for row in each.rows], refusal

    async def _describe(self, about: str, question: TokenQuestion, hosts: Iterable[SpaceHost]) -> TokenRows:
        rows: list[Json] = []
        refusal: AccessDenied | None = None
        for host in hosts:
            host.order.check_current()
            # Each only now: whoever was asked before may have waited.
            identity = self._directory.identify_hashed(host, question)
            if isinstance(identity, TokenIdentity):
                rows.append(await self._described[about](identity, question))
            elif question.signed_in is not None:
                refusal = identity or refusal
        return TokenRows(rows, refusal)
