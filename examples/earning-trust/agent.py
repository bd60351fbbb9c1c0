"""An agent that may only propose. It writes a report a day, and one thing that is none of its business."""

from __future__ import annotations

import asyncio
import os

from moot.errors import Rejected
from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope


class Agent:
    """Proposes, and tells who had it done."""

    def __init__(self, space: JoinedSpace) -> None:
        self.space = space
        # `active` and `suspended`, as rules become so.
        self.states: dict[str, asyncio.Event] = {"active": asyncio.Event(), "suspended": asyncio.Event()}

    def heard(self, envelope: Envelope) -> None:
        state = envelope.payload.get("state")
        if state in self.states:
            self.states[state].set()

    async def write(self, path: str) -> None:
        try:
            outcome = await self.space.call(
                "files", "write_file", {"path": path, "text": "quiet\n"}, timeout_seconds=60
            )
            await self.space.chat(f"{path}: {outcome.by} had it done")
        except Rejected as no:
            await self.space.chat(f"{path}: {no.by} said no ({no.reason})")


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        agent = Agent(space)
        space.on("trust/rule")(agent.heard)
        for other in ("alice", "approver", "files"):
            await space.roster.wait_for(other, timeout_seconds=60)
        await agent.write("private/diary.md")
        for day in range(10, 20):
            await agent.write(f"reports/day-{day}.md")
        await agent.states["active"].wait()
        for day in range(20, 25):
            await agent.write(f"reports/day-{day}.md")
        # Alice does not like what became of one of them.
        await agent.states["suspended"].wait()
        await agent.write("reports/day-25.md")
        await space.chat("that was all I wanted")


if __name__ == "__main__":
    asyncio.run(main())
