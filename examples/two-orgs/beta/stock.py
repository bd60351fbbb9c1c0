"""Beta's warehouse: what is there, and who has reserved it."""

from __future__ import annotations

import asyncio
import os

from moot.participant import ToolError, connect


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        parts = {"bolt": 2_000, "nut": 1_500}

        @space.tool
        def get_stock(part: str) -> str:
            """Returns how many pieces of a part the warehouse has. Use this when you need the stock."""
            if part not in parts:
                raise ToolError(f"there is no part called {part}")
            return f"{parts[part]} pieces of {part}"

        @space.tool
        def create_reservation(part: str, count: int) -> str:
            """Creates a reservation of parts in the warehouse. Use this when you are about to order them."""
            if parts.get(part, 0) < count:
                raise ToolError(f"there are not {count} pieces of {part}")
            parts[part] -= count
            return f"{count} pieces of {part} are reserved, {parts[part]} are left"

        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
