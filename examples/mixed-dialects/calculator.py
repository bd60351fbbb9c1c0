"""A tool host that speaks MCPx v0.1."""

from __future__ import annotations

import asyncio
import os

from moot.participant import connect


async def main() -> None:
    where = (os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"])
    async with connect(*where, dialect="mcpx") as space:

        @space.tool
        def multiply(a: int, b: int) -> int:
            """Multiply two numbers."""
            return a * b

        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
