"""What a gateway asks of those that serve other spaces of its cluster, and what it answers about its own.

    others.answer("spaces", handler)             handler(facts, hosts): what is found in these spaces
    rows = await others.ask("spaces", facts)     from all spaces that are not served here

A question is answered by one gateway for each shard, or not at all: never by a part of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from moot.errors import InvalidOperation
from moot.gateway.hosting.space_host import SpaceHost
from moot.protocol.operation import Json

# Facts and spaces → what is found there. Raises Refused.
AnswerQuestion = Callable[[Json, Sequence[SpaceHost]], Awaitable[Json]]


_HERE: Final = "here"


async def _say_here(_facts: Json, _hosts: Sequence[SpaceHost]) -> Json:
    return None


class OtherSpaces:
    """The spaces of a cluster that its gateway does not serve; none for a gateway that is alone."""

    def __init__(self) -> None:
        self._handlers: dict[str, AnswerQuestion] = {_HERE: _say_here}
        # In a cluster.
        self.send: Callable[[str, Json], Awaitable[list[Json]]] | None = None

    def answer(self, about: str, handler: AnswerQuestion) -> None:
        """Answer the questions of other gateways about this by a function."""
        self._handlers[about] = handler

    async def ask(self, about: str, facts: Json) -> list[Json]:
        """What is found in all spaces that are not served here at this moment.

        Raises Unavailable when not all of it is known in time, and what whoever was asked refuses.
        """
        return [] if self.send is None else await self.send(about, facts)

    async def check(self) -> None:
        """Raises Unavailable while not all spaces are known: for whatever cannot be tried twice."""
        await self.ask(_HERE, None)

    async def find(self, about: str, facts: Json, hosts: Sequence[SpaceHost]) -> Json:
        """The answer for these spaces. Raises Refused."""
        handler = self._handlers.get(about)
        if handler is None:
            raise InvalidOperation("this gateway does not know that question")
        return await handler(facts, hosts)
