"""A stand-in for a person: looks at proposals, tells the orchestrator what to do, and teaches it a rule."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from moot.participant import SeenProposal, connect


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        has_taught = False

        @space.on_proposal
        async def decide(seen: SeenProposal) -> Any:
            nonlocal has_taught
            path = str(seen.params.get("arguments", {}).get("path"))
            if not path.startswith("reports/"):
                await space.reject(seen, "unsafe", explanation=f"nobody needs {path}")
            elif not has_taught:
                # Refers to the proposal, so that the orchestrator knows which one is meant.
                await space.chat("go ahead", to="orchestrator", about=seen.id)
                await space.chat("always: reports/", to="orchestrator")
                has_taught = True

        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
