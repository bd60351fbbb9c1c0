"""Sees that there are streams, and none of what flows in them."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

from moot.errors import StreamNotFound
from moot.participant import StreamInfo, connect

SENSORS = int(sys.argv[1])


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        opened = asyncio.Queue[StreamInfo]()
        space.streams.on_open(opened.put_nowait)
        frames = 0
        for _ in range(SENSORS):
            info = await opened.get()
            # One that is closed by now had nothing for us.
            with suppress(StreamNotFound):
                async for _chunk in space.streams.read(info.id):
                    frames += 1
        await space.chat(f"I saw {SENSORS} streams and {frames} frames")
        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
