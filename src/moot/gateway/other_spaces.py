"""What a gateway asks of those that serve other spaces of its cluster, and what it answers about its own.

    others.answer("spaces", handler)             handler(facts, asked): what is found in the spaces asked for
    rows = await others.ask("spaces", facts)     from all spaces that are not served here
    rows = await others.ask("make_space", facts, of="garden")    from who serves that one, or would
    found = await others.ask_files("past", facts)    from the files of all others, whatever they serve

A question about spaces is answered by one gateway for each shard, or not at all: never by a part of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from moot.errors import InvalidOperation
from moot.gateway.hosting.space_host import SpaceHost
from moot.protocol.operation import Json


class AskedSpaces(NamedTuple):
    """The spaces that one gateway answers for: of the shards that it was asked for, and serves."""

    hosts: Sequence[SpaceHost]
    # Whether a name is that of such a space, or was: it may have ended.
    include: Callable[[str], bool]


# Facts and spaces → what is found there. Raises Refused.
AnswerQuestion = Callable[[Json, AskedSpaces], Awaitable[Json]]
# Facts → what the files of a gateway have. Raises Refused.
AnswerOfFiles = Callable[[Json], Awaitable[Json]]


class AskOthers(Protocol):
    """What asks the other gateways of a cluster."""

    async def ask(self, about: str, facts: Json, of: str | None) -> list[Json]: ...

    async def ask_files(self, about: str, facts: Json, who: str | None) -> dict[str, Json]: ...


class OtherSpaces:
    """The spaces of a cluster that its gateway does not serve; none for a gateway that is alone."""

    def __init__(self) -> None:
        self._handlers: dict[str, AnswerQuestion] = {}
        # In a cluster.
        self.asking: AskOthers | None = None
        self.of_files: dict[str, AnswerOfFiles] = {}

    def answer(self, about: str, handler: AnswerQuestion) -> None:
        """Answer the questions of other gateways about this by a function."""
        self._handlers[about] = handler

    async def ask(self, about: str, facts: Json, of: str | None = None) -> list[Json]:
        """What is found in all spaces that are not served here at this moment, or where the one `of` that
        name belongs, unless that is here.

        Raises Unavailable when not all of it is known in time, and what whoever was asked refuses.
        """
        return [] if self.asking is None else await self.asking.ask(about, facts, of)

    def answer_of_files(self, about: str, handler: AnswerOfFiles) -> None:
        """Answer from the files of this gateway, also for what it does not serve."""
        self.of_files[about] = handler

    async def ask_files(self, about: str, facts: Json, who: str | None = None) -> dict[str, Json]:
        """What the files of one gateway have, or of all that live, by their names; who does not answer, or
        refuses, is not among them. Raises Unavailable when too much is asked at a time."""
        return {} if self.asking is None else await self.asking.ask_files(about, facts, who)

    async def find(self, about: str, facts: Json, asked: AskedSpaces) -> Json:
        """The answer for these spaces. Raises Refused."""
        handler = self._handlers.get(about)
        if handler is None:
            raise InvalidOperation("this gateway does not know that question")
        return await handler(facts, asked)
