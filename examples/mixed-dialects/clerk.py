"""Speaks MEW: calls the calculator by itself, and decides on what the apprentice proposes."""

from __future__ import annotations

import asyncio
import os

from moot.participant import SeenProposal, connect


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:

        @space.on_proposal
        async def decide(seen: SeenProposal) -> None:
            outcome = await space.approve(seen)
            await space.chat(f"done for {seen.proposer}: {outcome.text}")

        await space.roster.wait_for("calculator", timeout_seconds=60)
        outcome = await space.call("calculator", "multiply", {"a": 6, "b": 7})
        await space.chat(f"six times seven is {outcome.text}")
        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
