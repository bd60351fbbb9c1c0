"""Acme's person, as a script: lets the buyer look at anything and order up to a thousand."""

from __future__ import annotations

import asyncio
import os

from moot.participant import SeenProposal, connect

MOST = 1_000


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:

        @space.on_proposal
        async def decide(seen: SeenProposal) -> None:
            count = seen.params.get("arguments", {}).get("count", 0)
            if isinstance(count, int) and count <= MOST:
                await space.approve(seen)
            else:
                await space.reject(seen, "disagree", explanation=f"we need no more than {MOST:,}")

        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
