"""Sends readings to the aggregator, and to nobody else."""

from __future__ import annotations

import asyncio
import os
import sys

from moot.participant import connect

READINGS = int(sys.argv[1])


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        # A stream is aimed at who is there.
        await space.roster.wait_for("aggregator", timeout_seconds=60)
        await space.roster.wait_for("bystander", timeout_seconds=60)
        async with space.streams.open(
            "aggregator", description="temperature", content_type="text/plain"
        ) as stream:
            for number in range(READINGS):
                await stream.write(str(20 + number % 5))


if __name__ == "__main__":
    asyncio.run(main())
