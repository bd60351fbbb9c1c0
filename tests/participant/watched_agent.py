"""An agent as a member of a space, and what somebody who may do everything gets from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from moot.participant import JoinedSpace, connect
from moot.participant.programs.join_target import MemberSettings
from moot.participant.programs.member_program import MemberProgram
from moot.protocol.envelope import Envelope
from tests.waiting import bounded, until

P = TypeVar("P", bound=MemberProgram)


class WatchedAgent:
    """`alice`, and all that she has got since this was made."""

    def __init__(self, alice: JoinedSpace, agent: str) -> None:
        self.alice = alice
        self.agent = agent
        self.envelopes: list[Envelope] = []
        alice.on("*")(self.envelopes.append)

    async def wait_for(self, kind: str, contains: str = "", sender: str | None = None) -> Envelope:
        """The first envelope of the agent, or of `sender`, that has this kind and contains a text."""

        def found() -> Envelope | None:
            return next((each for each in self.of(kind, sender) if contains in _text(each)), None)

        def all_received() -> str:
            return "\n".join(f"{each.sender} {each.kind} {each.payload}" for each in self.envelopes)

        envelope = await until(found, all_received)
        assert envelope is not None
        return envelope

    def of(self, kind: str, sender: str | None = None) -> list[Envelope]:
        """Those of the agent, or of `sender`, that have this kind; `sender` "" is anybody."""
        wanted = self.agent if sender is None else sender
        return [each for each in self.envelopes if each.kind == kind and wanted in ("", each.sender)]

    async def ask(self, text: str = "do it", **more: Any) -> str:
        """Write to the agent; returns the id of the chat."""
        return (await self.alice.chat(text, to=self.agent, **more)).id


@asynccontextmanager
async def running_member(program: P, settings: MemberSettings) -> AsyncIterator[P]:
    """The program as a member while the block runs; what it raises is raised here."""
    try:
        async with bounded():
            await program.start()
        async with connect(
            settings.gateway,
            settings.space,
            settings.token,
            controls=program.controls,
            limits=settings.member,
        ) as space:
            work = asyncio.create_task(program.run(space))
            await asyncio.sleep(0)
            try:
                yield program
            finally:
                work.cancel()
                await asyncio.wait([work])
                if not work.cancelled() and (fault := work.exception()) is not None:
                    raise fault
    finally:
        await program.stop()


def _text(envelope: Envelope) -> str:
    return json.dumps(envelope.payload, ensure_ascii=False)
