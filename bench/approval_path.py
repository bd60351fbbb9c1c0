"""How much code one approval goes through: `python -m bench.approval_path`.

An agent proposes a call, a person approves it with the SDK, a tool host answers: gateway and members in one
process. Counted from `approve` until it returns, the second time (the first fills caches): functions called,
files they are in, and how often the next one is in another room (`src/moot/ROOM`), for everybody together and
for the approver's own steps, which are those of `approve` itself.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.participant.gateway_with_members import PROPOSER, gateway_with
from tests.waiting import until

import moot

_HOME: Final = str(Path(moot.__file__).parent) + "/"


class CallCount:
    """Counts calls of functions of the package while it is entered."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.room_changes = 0
        self._room = ""

    def __enter__(self) -> CallCount:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(_HOME):
            return
        self.calls[frame.f_code] += 1
        room = name[len(_HOME) :].split("/", 1)[0]
        self.room_changes += room != self._room
        self._room = room

    def __str__(self) -> str:
        files = {code.co_filename for code in self.calls}
        rooms = {name[len(_HOME) :].split("/", 1)[0] for name in files}
        total = sum(self.calls.values())
        return f"{total} calls, {len(files)} files, {len(rooms)} rooms, {self.room_changes} changes of room"


async def measure() -> CallCount:
    """An approval, counted."""
    with tempfile.TemporaryDirectory() as folder:
        async with gateway_with(Path(folder), agent=PROPOSER, human=["*"], host=[]) as gateway:
            agent, human = await gateway.join("agent"), await gateway.join("human")
            host = await gateway.join("host")
            host.tool(lambda text: text, name="echo")
            for _ in range(2):
                made = await agent.propose("host", "tools/call", {"name": "echo", "arguments": {"text": "x"}})
                await until(lambda: len(human.proposals.open()) == 1)
                (seen,) = human.proposals.open()
                count = CallCount()
                with count:
                    await human.approve(seen)
                await made.outcome()
    return count


def main() -> None:
    count = asyncio.run(measure())
    print(count)
    by_file = Counter[str]()
    for code, times in count.calls.items():
        by_file[code.co_filename[len(_HOME) :]] += times
    for name, times in by_file.most_common():
        print(f"{times:6}  {name}")


if __name__ == "__main__":
    main()
