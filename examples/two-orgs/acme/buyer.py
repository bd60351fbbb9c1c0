"""Acme's agent: asks the warehouse of Beta for parts. It holds no right but to propose."""

from __future__ import annotations

import asyncio
import os

from moot.errors import MootError, Rejected
from moot.participant import JoinedSpace, connect

STOCK = "org_beta_warehouse_get_stock"
RESERVE = "org_beta_warehouse_create_reservation"


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        for other in ("alice", "beta"):
            await space.roster.wait_for(other, timeout_seconds=60)
        # The other organisation may come up later than ours, and its tools with it.
        while RESERVE not in {tool["name"] for tool in await space.list_all("beta", "tools")}:
            await asyncio.sleep(0.2)
        await ask(space, STOCK, part="bolt")
        for count in (500, 5_000, 900):
            await ask(space, RESERVE, part="bolt", count=count)
        await space.chat("that was all I wanted")


async def ask(space: JoinedSpace, tool: str, **arguments: str | int) -> None:
    """Propose a call, and tell everybody what came of it."""
    what = f"{tool.removeprefix('org_beta_warehouse_')} {arguments}"
    try:
        outcome = await space.call("beta", tool, arguments, timeout_seconds=120)
        await space.chat(f"{what}: {outcome.by} let me; beta says: {outcome.text}")
    except Rejected as no:
        words = await no.explanation(timeout_seconds=5)
        await space.chat(f"{what}: {no.by} said no: {words}")
    except MootError as fault:
        await space.chat(f"{what}: {fault}")


if __name__ == "__main__":
    asyncio.run(main())
