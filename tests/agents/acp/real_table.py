"""What each real agent does: `MOOT_ACP_AGENTS=DIR python -m tests.agents.acp.real_table [AGENT …]`.

An edit, a command with its output and exit code, a cancelled turn, a restart, a kill while something waits,
and two of the same agent at once, with a scripted model. The table of docs/topics/what-coding-agents-do.md is
made of what this prints.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from moot.participant import connect
from tests.agents.acp.agent_space import AgentSpace
from tests.agents.acp.real_agents import AGENTS, real_space
from tests.agents.acp.real_ways import BUILT_IN_HELPER, HELPER, SHELL, WRITE
from tests.agents.acp.scripted_model import scripted_model
from tests.participant.watched_agent import running_member
from tests.waiting import until

# One cell.
SECONDS = 120.0


class Table:
    """One agent in a space, and what is tried with it, one after the other."""

    def __init__(self, agent: str, space: AgentSpace) -> None:
        self._agent = agent
        self._space = space
        self._work = space.settings.folder

    async def cells(self) -> dict[str, str]:
        tries: list[Callable[[], Awaitable[str]]] = [
            self.edit,
            self.command,
            self.helper,
            self.cancel,
            self.restart,
            self.kill,
        ]
        found = {}
        for each in tries:
            try:
                async with asyncio.timeout(SECONDS):
                    found[each.__name__] = await each()
            except (TimeoutError, AssertionError) as fault:
                said = [str(chat.payload["text"])[:150] for chat in self._space.of("chat")[-3:]]
                found[each.__name__] = f"FAILED {type(fault).__name__} {str(fault)[:100]} {said}"
        return found

    async def _proposed(self, text: str) -> str:
        """Ask for something; the id of the proposal that comes of it."""
        count = len(self._space.of("mcp/proposal"))
        await self._space.ask(text)
        return (await self._space.proposal(count + 1)).id

    async def _write(self, name: str) -> str:
        return await self._proposed(WRITE[self._agent](str(self._work / name)))

    async def edit(self) -> str:
        outcome = await self._space.alice.approve(await self._write("edit.txt"))
        await self._space.idle()
        return f"made: {(self._work / 'edit.txt').exists()}, error: {outcome.is_error}"

    async def command(self) -> str:
        text = SHELL[self._agent]("echo to-be-seen > command.txt; cat command.txt; exit 3")
        if self._agent == "codex":
            text = text.replace('"}', '", "sandbox_permissions": "require_escalated", "justification": "x"}')
        outcome = await self._space.alice.approve(await self._proposed(text))
        await self._space.idle()
        told = outcome.text.splitlines()[1:]
        return f"made: {(self._work / 'command.txt').exists()}, told: {' | '.join(told)[:200]}"

    async def helper(self) -> str:
        """A helper that writes: who asks for what, and whether it is done when that is approved."""
        file = self._work / "helper.txt"
        prompt = WRITE[self._agent](str(file))
        count, turns = len(self._space.of("mcp/proposal")), self._space.turns
        had = turns.turns
        await self._space.ask(HELPER[self._agent](BUILT_IN_HELPER[self._agent], prompt))
        await until(
            lambda: len(self._space.of("mcp/proposal")) > count or (turns.turns > had and not turns.current)
        )
        if len(self._space.of("mcp/proposal")) == count:
            return f"does not ask, made: {file.exists()}"
        asked = self._space.of("mcp/proposal")[count]
        self._space.approve_later(asked)
        await self._space.idle()
        return f"asks for {asked.payload['params']['name']}, made: {file.exists()}"

    async def cancel(self) -> str:
        count = len(self._space.of("mcp/proposal"))
        asked = await self._space.ask(WRITE[self._agent](str(self._work / "cancelled.txt")))
        proposal = await self._space.proposal(count + 1)
        await self._space.alice.chats.cancel(asked)
        await until(
            lambda: any(proposal.id in each.correlation_id for each in self._space.of("mcp/withdraw"))
        )
        await self._space.idle()
        runs = self._space.member.agent.ready.is_set()
        return f"withdrawn, made: {(self._work / 'cancelled.txt').exists()}, still runs: {runs}"

    async def _withdrawn(self, proposal: str) -> None:
        await until(lambda: any(proposal in each.correlation_id for each in self._space.of("mcp/withdraw")))

    async def _runs_again(self, count: int) -> None:
        def notes() -> int:
            return sum("The agent runs again" in str(each.payload) for each in self._space.of("chat"))

        await until(lambda: notes() > count)

    async def restart(self) -> str:
        session = self._space.member.agent.session
        self._space.member.restart("alice")
        await self._runs_again(0)
        kept = self._space.member.agent.session == session
        await self._space.alice.approve(await self._write("restarted.txt"))
        await self._space.idle()
        return f"same session: {kept}, asks and made: {(self._work / 'restarted.txt').exists()}"

    async def kill(self) -> str:
        proposal = await self._write("killed.txt")
        child = self._space.member.agent.process.child
        assert child is not None
        os.kill(child._process.pid, signal.SIGKILL)
        await self._withdrawn(proposal)
        await self._runs_again(1)
        await self._space.alice.approve(await self._write("after-kill.txt"))
        await self._space.idle()
        made = [(self._work / name).exists() for name in ("killed.txt", "after-kill.txt")]
        return f"withdrawn, made the killed one: {made[0]}, asks and made the next: {made[1]}"


async def two_at_once(agent: str, first: AgentSpace) -> str:
    """A second one of the same agent in the same space and folder, at the same time."""
    gateway, top = first.gateway, first.folder
    state = top / "state-2"
    state.mkdir(mode=0o700)
    settings = dataclasses.replace(first.settings, token="t-second", state_folder=state)
    async with connect(gateway.url, "lab", "t-alice") as alice:
        second = AgentSpace(gateway, top, settings, alice, first.stack)
        second.agent = "second"
        async with running_member(second.member, settings):
            spaces = (first, second)
            counts = [len(space.of("mcp/proposal")) for space in spaces]
            files = [settings.folder / f"by-{space.agent}.txt" for space in spaces]
            for space, file in zip(spaces, files, strict=True):
                await space.ask(WRITE[agent](str(file)))
            proposals = [await space.proposal(count + 1) for space, count in zip(spaces, counts, strict=True)]
            await asyncio.gather(*(alice.approve(each.id) for each in proposals))
            for space in spaces:
                await space.idle()
            return f"each asks for its own, made: {[file.exists() for file in files]}"


async def main(names: list[str]) -> None:
    packages = Path(os.environ["MOOT_ACP_AGENTS"])
    async with scripted_model() as model:
        for agent in names or list(AGENTS):
            with tempfile.TemporaryDirectory(prefix="moot-table-", ignore_cleanup_errors=True) as name:
                top = Path(name)
                async with real_space(agent, packages, model, top, work=top / "work") as space:
                    cells = await Table(agent, space).cells()
                    try:
                        async with asyncio.timeout(SECONDS):
                            cells["two at once"] = await two_at_once(agent, space)
                    except (TimeoutError, AssertionError) as fault:
                        cells["two at once"] = f"FAILED {type(fault).__name__} {str(fault)[:200]}"
                    for cell, text in cells.items():
                        print(f"{agent}\t{cell}\t{text}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
