"""What a token opens, in all spaces of a cluster: here, and at the gateways that serve the others.

    spaces.answer("passkeys", describe)               describe(identity, question), of whoever is identified
    rows, refusal = await spaces.describe("passkeys", token)

Only the hash of a token is told to others. A list is whole, or there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from moot.config import hash_token
from moot.errors import Unavailable
from moot.gateway.access import AccessDenied, SpaceDirectory, TokenIdentity, TokenQuestion
from moot.gateway.hosting.space_host import SpaceHost
from moot.protocol.operation import Json

# What is said of somebody in one space. Raises Refused.
Describe = Callable[[TokenIdentity, TokenQuestion], Awaitable[Json]]


class TokenSpaces:
    """Describes whom a token identifies in which spaces."""

    def __init__(self, directory: SpaceDirectory) -> None:
        self._directory = directory
        self._described: dict[str, Describe] = {}

    def answer(self, about: str, describe: Describe) -> None:
        """What is said about this of one identity, whichever gateway was asked."""
        self._described[about] = describe

        async def find(facts: Json, hosts: Sequence[SpaceHost]) -> Json:
            question = msgspec.convert(facts, TokenQuestion)
            found = (self._directory.identify_hashed(host, question) for host in hosts)
            return await self._describe(about, question, [each for each in found if each is not None])

        self._directory.others.answer(about, find)

    def asks_nobody(self, address: str) -> bool:
        """Whether other gateways would have to be asked for an address that has guessed too often."""
        return not self._directory.serves_all() and self._directory.has_guessed(address)

    async def check(self) -> None:
        """Raises Unavailable where not all spaces are known."""
        await self._directory.others.check()

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
        others: list[Json] = []
        if not directory.serves_all():
            if not found and self.asks_nobody(address):
                # A stranger: nobody else is asked for one more.
                return [], refusal
            if isinstance(claims, AccessDenied):
                if claims.status >= 500:
                    raise Unavailable(claims.message)
                # Of the token itself, so the same everywhere.
                refusal = claims if not found else refusal
            others = await directory.others.ask(about, msgspec.to_builtins(question))
        for each in found:
            each.host.order.check_current()
        rows = await self._describe(about, question, found)
        return rows + [row for answer in others for row in answer], refusal

    async def _describe(
        self, about: str, question: TokenQuestion, identities: Iterable[TokenIdentity]
    ) -> list[Json]:
        return [await self._described[about](each, question) for each in identities]
