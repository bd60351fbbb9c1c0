"""kill -9 of gateway, host or approver at any moment: an approved call runs once at most (D-28, D-99).

The approver approves whatever the gateway calls open, again and again. So if a restarted gateway forgot a
fulfilment that the host had seen, or opened a proposal again because its outcome is unknown, it would run
twice.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from moot.protocol.operation import Json
from tests.gateway.running_gateway import (
    fields,
    gateway_settings,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.served import Served, started
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded

PEOPLE = participants(agent=["mcp/proposal"], approver=["mcp/request"], host=[])
# Made in each round before something is killed.
PROPOSALS = 5
PARTS = ("gateway", "host", "approver")


class Executions:
    """One data folder, three processes, and what the host wrote down."""

    def __init__(self, folder: Path, seed: int, port: int) -> None:
        self.random = random.Random(seed)
        self.port = port
        spaces = {"lab": space_settings(PEOPLE, limits={"messages_per_second": 0})}
        self.file = write_config(folder, gateway_settings(spaces, snapshot_records=200))
        self.ran = folder / "ran.txt"
        self.ran.touch()
        self.proposed: list[str] = []
        self.killed: Counter[str] = Counter()
        self.gateway: Served | None = None
        self.members: dict[str, asyncio.subprocess.Process] = {}

    async def begin(self) -> None:
        for part in PARTS:
            await self._start(part)

    async def _start(self, part: str) -> None:
        if part == "gateway":
            self.gateway = await started(self.file, "--port", str(self.port))
            return
        url = f"http://127.0.0.1:{self.port}"
        arguments = [url, str(self.ran)] if part == "host" else [url]
        self.members[part] = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.gateway.hosting.execution_members", part, *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    async def _kill(self, part: str) -> None:
        self.killed[part] += 1
        if part == "gateway":
            assert self.gateway is not None
            await self.gateway.close()
            await self.gateway.end(signal.SIGKILL)
            return
        # It may have ended by itself a moment ago.
        with suppress(ProcessLookupError):
            self.members[part].kill()
        async with bounded():
            await self.members[part].wait()

    async def round(self, part: str) -> None:
        """Propose, let them begin, kill one of them in the middle, and start it again."""
        for _ in range(PROPOSALS):
            await self._propose()
        # Somewhere between the approval, the call, its answer and the record of each.
        await asyncio.sleep(self.random.uniform(0, 0.25))
        await self._kill(part)
        await self._start(part)

    async def _propose(self) -> None:
        assert self.gateway is not None
        number = str(len(self.proposed))
        call: Json = {"method": "tools/call", "params": {"name": "x", "arguments": {"n": number}}}
        answer = await self.gateway.post("agent", fields("mcp/proposal", call, id=f"p-{number}", to=["host"]))
        assert answer.status_code == 200, answer.text
        self.proposed.append(f"p-{number}")

    async def _get(self, path: str) -> Any:
        assert self.gateway is not None
        headers = {"Authorization": "Bearer t-agent"}
        answer = await self.gateway.http.get(f"/spaces/lab/proposals{path}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def quiet(self) -> None:
        """Nothing is open and nothing is being done."""
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                left = (await self._get(""))["proposals"]
                if all(each.get("outcome") == "unknown" for each in left):
                    return
                await asyncio.sleep(0.05)

    async def check(self) -> Counter[str]:
        """How often each outcome came; every call ran once at most, and once if it is told as done."""
        ran = Counter(self.ran.read_text("ascii").split())
        twice = {number: times for number, times in ran.items() if times > 1}
        assert not twice, f"ran more than once: {twice}"
        outcomes: Counter[str] = Counter()
        for id in self.proposed:
            known = await self._get(f"/{id}")
            assert known["state"] == "fulfilled", known
            outcome = known["outcome"]
            assert outcome in ("done", "unknown"), known
            assert outcome == "unknown" or ran[id.removeprefix("p-")] == 1, f"{id} is {outcome} and never ran"
            outcomes[outcome] += 1
        return outcomes

    async def end(self) -> None:
        for process in self.members.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
        if self.gateway is not None:
            await self.gateway.close()
            await self.gateway.end()
            assert "Traceback" not in self.gateway.stderr(), self.gateway.stderr()


async def kill_at_random(folder: Path, rounds: int, seed: int) -> tuple[Executions, Counter[str]]:
    """So many kills, each part in turn at first; then all of them come back and finish."""
    with held_port() as port:
        executions = Executions(folder, seed, port)
        try:
            await executions.begin()
            for number in range(rounds):
                part = PARTS[number] if number < len(PARTS) else executions.random.choice(PARTS)
                await executions.round(part)
            await executions.quiet()
            return executions, await executions.check()
        finally:
            await executions.end()


def run_execution_kills(rounds: int, seed: int) -> str:
    """For `make soak`."""
    with tempfile.TemporaryDirectory(prefix="moot-executions-") as folder:
        executions, outcomes = uvloop.run(kill_at_random(Path(folder), rounds, seed))
    killed = ", ".join(f"{part} {times}" for part, times in sorted(executions.killed.items()))
    return (
        f"executions: {len(executions.proposed)} approved calls, killed {killed}: "
        f"{outcomes['done']} done once, {outcomes['unknown']} unknown, none twice"
    )
