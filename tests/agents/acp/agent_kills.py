"""kill -9 of the agent, of `moot acp` and of the gateway at every step of one permission.

Steps: the proposal is pending (`asked`), the agent may go on (`allowed`), the edit is made and not reported
(`made`), it is reported (`told`). The edit adds a line to a file, so a second time is seen. Whatever is
killed: the file has no more lines than there were approvals, and whoever asked is told how it ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import yaml

from moot.errors import MootError
from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope
from tests.agents.acp.agent_space import AGENT, RIGHTS, diff, tool_update, write_script
from tests.gateway.running_gateway import participants
from tests.gateway.served import Served, started
from tests.waiting import bounded, until, until_told

Victim = Literal["agent", "member", "gateway"]
Step = Literal["asked", "allowed", "made", "told"]
VICTIMS: tuple[Victim, ...] = ("agent", "member", "gateway")
STEPS: tuple[Step, ...] = ("asked", "allowed", "made", "told")


@asynccontextmanager
async def acp_process(url: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`moot acp` as people start it."""
    token = folder / "agent.token"
    token.write_text("t-agent")
    token.chmod(0o600)
    (folder / "work").mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moot.cli", "acp", "--gateway", url, "--space", "lab",
        "--token-file", str(token), "--cwd", str(folder / "work"), "--state", str(folder / "state"),
        "--no-probe", "--log-level", "error",
        "--", sys.executable, "-I", "-S", str(AGENT), str(folder / "script.json"),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        async with bounded():
            await process.wait()


@asynccontextmanager
async def lab(folder: Path) -> AsyncIterator[tuple[Path, list[Served]]]:
    file = folder / "moot.yaml"
    everybody = participants(alice=["*"], agent=RIGHTS)
    file.write_text(yaml.safe_dump({"spaces": {"lab": {"participants": everybody}}}))
    file.chmod(0o600)
    gateways = [await started(file, "--port", "0")]
    try:
        yield file, gateways
    finally:
        await gateways[-1].close()
        await gateways[-1].end()


def _turn(folder: Path) -> list[dict[str, Any]]:
    """One edit that waits before it is made, before it is reported, and before the end."""
    file = str(folder / "work" / "a.txt")
    ask = {"toolCallId": "c1", "kind": "edit", "content": [diff(file, None, "hello\n")]}
    done: list[dict[str, Any]] = [
        {"await_file": str(folder / "make")},
        {"append": [file, "hello\n"]},
        {"await_file": str(folder / "tell")},
        tool_update(status="completed"),
        {"await_file": str(folder / "end")},
        {"say": "Written."},
    ]
    return [{"ask": ask, "allowed": done, "refused": [{"say": "Then not."}]}]


class KillRound:
    """One permission, and what is killed on its way."""

    def __init__(self, folder: Path, alice: JoinedSpace, file: Path, gateways: list[Served]) -> None:
        self.folder, self.alice, self.file, self.gateways = folder, alice, file, gateways
        self.heard: list[Envelope] = []
        alice.on("*")(self.heard.append)
        self.stack = AsyncExitStack()
        self.member: asyncio.subprocess.Process | None = None

    async def start_member(self) -> None:
        url = self.gateways[0].url
        self.member = await self.stack.enter_async_context(acp_process(url, self.folder))
        await until(lambda: "agent" in self.alice.roster)

    def edits(self) -> int:
        made = self.folder / "work" / "a.txt"
        return made.read_text().count("hello") if made.exists() else 0

    def allowed(self) -> int:
        return (self.folder / "received.jsonl").read_text().count('"once"')

    def _proposals(self) -> list[Envelope]:
        return [each for each in self.heard if each.kind == "mcp/proposal"]

    async def outcome(self, id: str) -> str:
        """What came of the proposal, once that is told; empty before."""
        with suppress(MootError):
            found = await self.alice.look_up_proposal(id)
            if found is not None and found.state == "withdrawn":
                return "withdrawn"
            if found is not None and found.outcome not in (None, "pending"):
                return str(found.outcome)
        return ""

    async def reach(self, step: Step) -> tuple[str, asyncio.Task[Any] | None]:
        """Go to this step; the proposal, and its approval if there is one."""
        await self.alice.chat("do it", to="agent")
        await until(self._proposals)
        id = self._proposals()[0].id
        if step == "asked":
            return id, None
        approving = asyncio.create_task(self.alice.approve(id))
        await until(self.allowed)
        if step in ("made", "told"):
            (self.folder / "make").touch()
            await until(self.edits)
        if step == "told":
            (self.folder / "tell").touch()
            await approving
        return id, approving

    async def kill(self, victim: Victim) -> None:
        if victim == "agent":
            os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)
        elif victim == "member":
            assert self.member is not None
            self.member.kill()
            await self.member.wait()
        else:
            await self.gateways[-1].end(signal.SIGKILL)
            port = self.gateways[0].url.rpartition(":")[2]
            self.gateways.append(await started(self.file, "--port", port))
        for name in ("make", "tell", "end"):
            (self.folder / name).touch()
        if victim == "member":
            await self.start_member()

    async def was_told(self, *texts: str) -> None:
        """The member has said one of these, whether we were there or not."""

        async def told() -> bool:
            with suppress(MootError):
                history = await self.alice.history()
                said = [
                    each.payload.get("text", "") for each in (*self.heard, *history) if each.kind == "chat"
                ]
                return any(text in each for each in said for text in texts)
            return False

        await until_told(told)


async def kill_at(folder: Path, victim: Victim, step: Step) -> str:
    """Run one round; the outcome of the proposal. Fails when something is done twice, or lost."""
    write_script(folder, _turn(folder), load=True)
    async with lab(folder) as (file, gateways), connect(gateways[0].url, "lab", "t-alice") as alice:
        kill_round = KillRound(folder, alice, file, gateways)
        async with kill_round.stack:
            await kill_round.start_member()
            id, approving = await kill_round.reach(step)
            await kill_round.kill(victim)
            if step == "asked" and victim == "gateway":
                # It is still pending, and can be approved when everybody is back.
                await until(
                    lambda: alice.counts.reconnects and alice.state == "joined" and "agent" in alice.roster
                )
                approving = asyncio.create_task(alice.approve(id))
            if victim == "gateway":
                await kill_round.was_told("Written.")
            else:
                await kill_round.was_told("while it worked on this", "while I worked on this")
                # No answer comes any more, and who waits for one gives up.
                if approving is not None:
                    approving.cancel()
            outcome = await until_told(lambda: kill_round.outcome(id))
            if approving is not None:
                with suppress(MootError, asyncio.CancelledError):
                    await approving
            check(kill_round, victim, step, outcome)
            # And it goes on.
            await until(lambda: "agent" in alice.roster)
            await alice.chat("still there?", to="agent")
            await kill_round.was_told("Fine.")
            check(kill_round, victim, step, outcome)
            return outcome


def check(kill_round: KillRound, victim: Victim, step: Step, outcome: str) -> None:
    approved = 0 if step == "asked" and victim != "gateway" else 1
    assert kill_round.allowed() == approved, (victim, step, kill_round.allowed())
    assert kill_round.edits() <= approved, (victim, step, kill_round.edits())
    if step in ("made", "told") or victim == "gateway":
        assert kill_round.edits() == 1, (victim, step)
    expected = {"asked": "withdrawn", "told": "done"}.get(step, "unknown")
    assert outcome == ("done" if victim == "gateway" else expected), (victim, step, outcome)
