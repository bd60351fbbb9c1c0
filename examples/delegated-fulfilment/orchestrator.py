"""Carries out what the human approves, and after a while what the human would have approved anyway."""

from __future__ import annotations

import asyncio
import os

from moot.errors import MootError
from moot.participant import JoinedSpace, SeenProposal, connect
from moot.protocol.envelope import Envelope


class Orchestrator:
    """Fulfils proposals on the human's word, or by a rule that the human taught."""

    def __init__(self, space: JoinedSpace) -> None:
        self.space = space
        self.prefixes: list[str] = []
        self.taken: set[str] = set()

    async def heard(self, chat: Envelope) -> None:
        """Only the human's words count, and only those that are for us."""
        if chat.sender != "human" or self.space.me not in chat.to:
            return
        text = str(chat.payload["text"])
        if text.startswith("always: "):
            self.prefixes.append(text.removeprefix("always: "))
            await self.space.chat(f"learned: whatever is below {self.prefixes[-1]} is fine")
            # What was proposed while we were being taught.
            for seen in self.space.proposals.open():
                await self.proposed(seen)
        elif text == "go ahead":
            for id in chat.correlation_id:
                await self.fulfil(id, "the human said so")

    async def proposed(self, seen: SeenProposal) -> None:
        path = str(seen.params.get("arguments", {}).get("path"))
        if seen.id not in self.taken and any(path.startswith(prefix) for prefix in self.prefixes):
            await self.fulfil(seen.id, "the rule says so")

    async def fulfil(self, id: str, why: str) -> None:
        self.taken.add(id)
        try:
            outcome = await self.space.approve(id)
        except MootError as fault:
            await self.space.chat(f"not fulfilled: {fault}")
        else:
            await self.space.chat(f"fulfilled, {why}: {outcome.text}")


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        orchestrator = Orchestrator(space)
        space.on("chat")(orchestrator.heard)
        space.on_proposal(orchestrator.proposed)
        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
