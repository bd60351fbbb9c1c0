"""Reads every stream that is aimed at it, and says what they come to."""

from __future__ import annotations

import asyncio
import os
import sys

from moot.participant import MissedMessages, StreamInfo, connect

SENSORS = int(sys.argv[1])


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        sums: dict[str, list[float]] = {}
        finished = asyncio.Queue[str]()

        async def read(info: StreamInfo) -> None:
            readings = sums[info.owner] = []
            async for chunk in space.streams.read(info.id):
                if not isinstance(chunk, MissedMessages):
                    readings.append(float(chunk.text))
            finished.put_nowait(info.owner)

        async with asyncio.TaskGroup() as group:

            @space.streams.on_open
            def opened(info: StreamInfo) -> None:
                if info.target == (space.me,):
                    group.create_task(read(info))

            for _ in range(SENSORS):
                await finished.get()
        count = sum(map(len, sums.values()))
        mean = sum(map(sum, sums.values())) / count
        await space.chat(f"{len(sums)} streams, {count} readings, mean {mean:.1f}")
        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
