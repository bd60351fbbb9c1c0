"""Speaks MCPx and may only propose: its call becomes a proposal, which somebody who speaks MEW fulfils."""

from __future__ import annotations

import asyncio
import os

from moot.participant import connect


async def main() -> None:
    where = (os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"])
    async with connect(*where, dialect="mcpx") as space:
        for other in ("calculator", "clerk"):
            await space.roster.wait_for(other, timeout_seconds=60)
        outcome = await space.call("calculator", "multiply", {"a": 8, "b": 9}, timeout_seconds=60)
        await space.chat(f"{outcome.by} let me know that eight times nine is {outcome.text}")


if __name__ == "__main__":
    asyncio.run(main())
