import asyncio
import os

from moot.participant import connect


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:

        @space.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        await space.stay()


asyncio.run(main())
