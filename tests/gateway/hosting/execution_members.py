"""A host and an approver as processes of their own, to be killed at any moment (`execution_soak`)."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from moot.errors import MootError
from moot.participant import JoinedSpace, ParticipantLimits, SeenProposal, connect

LIMITS = ParticipantLimits(request_seconds=5.0)


async def host(url: str, file: Path) -> None:
    """Writes down each call before it answers, so that a kill in between leaves a trace of it."""
    lines = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def run(request: Any) -> dict[str, Any]:
        await asyncio.sleep(random.uniform(0, 0.02))
        os.write(lines, f"{request.params['arguments']['n']}\n".encode())
        await asyncio.sleep(random.uniform(0, 0.02))
        return {"content": []}

    async with connect(url, "lab", "t-host", limits=LIMITS) as space:
        space.server.use_handler(run)
        await space.stay()


async def approver(url: str) -> None:
    """Approves whatever the gateway says is open, as often as it says so."""
    async with connect(url, "lab", "t-approver", limits=LIMITS) as space, asyncio.TaskGroup() as tasks:
        under_way: set[str] = set()
        while space.close_reason is None:
            await space.refresh_proposals()
            for seen in space.proposals.open():
                if seen.id not in under_way:
                    under_way.add(seen.id)
                    tasks.create_task(_approve(space, seen, under_way))
            await asyncio.sleep(0.01)


async def _approve(space: JoinedSpace, seen: SeenProposal, under_way: set[str]) -> None:
    with suppress(MootError):
        await space.approve(seen)
    under_way.discard(seen.id)


if __name__ == "__main__":
    who, where, *rest = sys.argv[1:]
    asyncio.run(host(where, Path(rest[0])) if who == "host" else approver(where))
