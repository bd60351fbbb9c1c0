"""An agent that may only propose. Whether its proposals are carried out is for others to say."""

from __future__ import annotations

import asyncio
import os

from moot.errors import Rejected
from moot.participant import connect

WISHES = (
    ("reports/monday.md", "Nothing happened on Monday.\n"),
    ("reports/tuesday.md", "Tuesday was like Monday.\n"),
    ("secrets.txt", "a password, probably\n"),
    ("reports/wednesday.md", "On Wednesday it rained.\n"),
)


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        for other in ("human", "orchestrator", "worker"):
            await space.roster.wait_for(other, timeout_seconds=60)
        for path, text in WISHES:
            try:
                outcome = await space.call(
                    "worker", "write_file", {"path": path, "text": text}, timeout_seconds=60
                )
                await space.chat(f"{path}: {outcome.by} had it done, {outcome.host} said: {outcome.text}")
            except Rejected as no:
                words = await no.explanation(timeout_seconds=5)
                await space.chat(f"{path}: {no.by} said no ({no.reason}): {words}")
        await space.chat("that was all I wanted")


if __name__ == "__main__":
    asyncio.run(main())
