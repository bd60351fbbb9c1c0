"""A space that `moot init --from` made around one world's MCP server, with two scripted members.

The person is `you`, who may do everything; the agent is `agent`, which may only propose. Between two runs the
world begins anew and the agent's context is cleared, which it reports.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import struct
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from bench.processes import ROOT, Process
from moot.errors import McpError, MootError, ProposalSettled, ToolFailed
from moot.participant import Control, Controls, JoinedSpace, connect
from moot.participant.calls.outcome import Outcome
from moot.participant.decisions.own_proposal import Proposal
from moot.protocol.envelope import Envelope
from moot.protocol.patterns.globs import glob

TRAITS_FILE: Final = Path(__file__).with_name("traits.yaml")
MOOT: Final = Path(sys.executable).with_name("moot")
PERSON, AGENT, APPROVER = "you", "agent", "approver"
# The day of all these worlds, 15 May 2024: a day without a year is one near today. A task each half hour.
_WORLD_TIME: Final = 1_715_760_000.0
_TASK_SECONDS: Final = 1_800.0
# Nothing here takes that long; if it does, the run fails.
_PATIENCE_SECONDS: Final = 120.0
# An approver that says nothing about origins leaves a proposal to people without a word.
_SILENT_SECONDS: Final = 0.05
# One that does says it before it decides. If then nothing happens, it is asked why.
_DECIDING_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class WorldCommand:
    """How the server of a world is started: by Python of the benchmark's environment."""

    world: str
    python: Path
    source: Path | None = None

    def command(self, *arguments: str) -> list[str]:
        source = [] if self.source is None else ["--source", str(self.source)]
        return [str(self.python), "-m", "bench.agentdojo.world_server", self.world, *arguments, *source]

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}

    async def scenarios(self, variants: Sequence[str]) -> list[dict[str, Any]]:
        child = await asyncio.create_subprocess_exec(
            *self.command("--list", *variants),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **self.environment},
        )
        output, _ = await child.communicate()
        if child.returncode:
            raise SystemExit(f"the scenarios of {self.world} could not be listed")
        return [json.loads(line) for line in output.splitlines()]


def traits_of(world: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(TRAITS_FILE.read_text("utf-8"))[world]
    return found


def has_effect(traits: Mapping[str, Mapping[str, Any]], world: str, tool: str) -> bool:
    """Whether a call does something, or reaches the outside, by what the operator said."""
    for pattern, said in traits.items():
        if glob(pattern).matches(f"{world}/{tool}"):
            return said.get("effect") != "reads" or said.get("outside", True)
    return True


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one call: its result, if it ran; and whether a person was asked, and why."""

    asked: bool
    why: str
    proposal: Proposal
    outcome: Outcome | None = None
    # A rule rejected it.
    rejected: bool = False

    @property
    def text(self) -> str:
        return "" if self.outcome is None else json.dumps(self.outcome.result, ensure_ascii=False)


class NewContext(Controls):
    """The agent knows only what it was asked for last and read since: there is nothing else to clear."""

    async def on_clear(self, control: Control) -> None:
        pass


@dataclass
class WorldSpace:
    """One running space."""

    world: str
    folder: Path
    process: Process
    person: JoinedSpace
    agent: JoinedSpace
    runs: int = 0
    knows_origins: bool = False
    _origins: dict[str, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    def watch(self) -> None:
        @self.person.on("moot/origins")
        def note(envelope: Envelope) -> None:
            self.knows_origins = True
            for id in envelope.correlation_id:
                found = self._origins_of(id)
                if not found.done():
                    found.set_result(dict(envelope.payload))

    def _origins_of(self, id: str) -> asyncio.Future[dict[str, Any]]:
        return self._origins.setdefault(id, asyncio.get_running_loop().create_future())

    async def begin(self, scenario: Mapping[str, Any], variant: str) -> None:
        """A new world, a new context, and what the person asks for."""
        self.runs += 1
        self._origins.clear()
        state = {"run": self.runs, "variant": variant, "task": scenario["task"], "text": scenario["text"]}
        new = self.folder / "state.new"
        new.write_text(json.dumps(state))
        new.replace(self.folder / "state.json")
        _set_clock(self.folder, self.runs)
        await self.person.admin.clear(AGENT, timeout_seconds=_PATIENCE_SECONDS)
        await self.person.chat(scenario["prompt"], to=AGENT)

    async def propose(self, name: str, arguments: Mapping[str, Any]) -> Decision:
        """Propose a call and wait until it ran by itself, or is left to people."""
        proposal = await self.agent.propose(
            self.world, "tools/call", {"name": name, "arguments": dict(arguments)}
        )
        over = asyncio.ensure_future(_over(proposal))
        told = self._origins_of(proposal.id)
        try:
            if self.knows_origins:
                await _first(over, told, seconds=_PATIENCE_SECONDS)
            else:
                await _first(over, told, seconds=_SILENT_SECONDS)
            # What asks by its origins may be within a plan, or remembered: then nobody is asked.
            if told.done() and told.result().get("asks") and await self._why_asked(proposal.id) is not None:
                return Decision(True, str(told.result().get("why")), proposal)
            why: str | None = None
            while not over.done() and why is None:
                await _first(over, seconds=_DECIDING_SECONDS if told.done() else _SILENT_SECONDS)
                if not over.done():
                    why = await self._why_asked(proposal.id)
            if not over.done():
                return Decision(True, str(why), proposal)
            rejected = proposal.fulfilled_by is None
            return Decision(False, "", proposal, over.result(), rejected)
        finally:
            over.cancel()

    async def approve(self, decision: Decision, press: str = "") -> Decision:
        """The person approves what was asked, and presses what is offered beside that."""
        # A rule that was accepted meanwhile may have been first.
        with suppress(ProposalSettled):
            await self.person.approve(decision.proposal.id, timeout_seconds=_PATIENCE_SECONDS)
        outcome = await decision.proposal.outcome(_PATIENCE_SECONDS)
        await self._press(decision.proposal.id, press.replace("plan", "both"))
        if press == "plan" and self._origins_of(decision.proposal.id).done():
            await self._endorse(decision.proposal.id)
        return Decision(True, decision.why, decision.proposal, outcome)

    async def approve_plan(self, decision: Decision, calls: Sequence[tuple[str, Any]]) -> Decision:
        """The agent lays out the rest of its task, exactly, and the person approves that: one question."""
        lines: list[dict[str, Any]] = []
        for name, arguments in calls:
            line = {"to": self.world, "tool": name, "arguments": dict(arguments)}
            known = next((each for each in lines if {**each, "count": 0} == {**line, "count": 0}), None)
            if known is None:
                lines.append({**line, "count": 1})
            else:
                known["count"] += 1
        plan = await self.agent.plan("The rest of the task", lines, hours=1)
        await plan.read(_PATIENCE_SECONDS)
        answer = await self.person.call(APPROVER, "trust_plans", {})
        listed = (answer.result.get("structuredContent") or {})["plans"]
        (shown,) = [each for each in listed if each["plan"] == plan.id]
        accept = {"plan": plan.id, "fingerprint": shown["fingerprint"]}
        await self.person.send("trust/accept", accept, confirm=True)
        await plan.approved(_PATIENCE_SECONDS)
        outcome = await decision.proposal.outcome(_PATIENCE_SECONDS)
        # The call that was asked about may come in another task: that is offered beside it.
        await self._press(decision.proposal.id, "again")
        return Decision(True, decision.why, decision.proposal, outcome)

    async def _endorse(self, id: str) -> None:
        """The person confirms the names and addresses because of which this call asked; no numbers."""
        listed = (await self._origins_of(id)).get("arguments", [])
        for each in listed:
            if each["origin"] == "untrusted" and each["steers"] and any(map(str.isalpha, each["value"])):
                await self.person.send("moot/endorse", {"value": each["value"]}, confirm=True)

    async def _press(self, id: str, press: str) -> None:
        accept = partial(self.person.send, "trust/accept", confirm=True)
        if press in ("again", "both"):
            await accept({"again": id})
        if press in ("rest", "both"):
            # Not every call can be meant by it.
            with suppress(ToolFailed):
                answer = await self.person.call(APPROVER, "trust_plans", {"proposal": id})
                same = (answer.result.get("structuredContent") or {}).get("same") or {}
                await accept({"same": id, "fingerprint": same.get("fingerprint")})
        if press:
            with suppress(McpError):
                await self.person.request(APPROVER, "ping")

    async def _why_asked(self, id: str) -> str | None:
        """Why no rule decided; None if one does."""
        try:
            answer = await self.person.call(APPROVER, "trust_explain", {"id": id})
        except ToolFailed:
            # It has not come so far.
            return None
        found: str | None = (answer.result.get("structuredContent") or {}).get("asked_because")
        return found


async def _over(proposal: Proposal) -> Outcome | None:
    try:
        return await proposal.outcome(_PATIENCE_SECONDS)
    except MootError:
        return None


async def _first(*waited: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


async def _run(*command: str, cwd: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}: {output.decode()}")


async def make_space(folder: Path, command: WorldCommand) -> None:
    """What a person does once: `moot init --from`, and says what the tools are."""
    folder.mkdir(parents=True)
    server, *arguments = command.command(str(folder / "state.json"))
    servers = {command.world: {"command": server, "args": arguments, "env": command.environment}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    await _run(str(MOOT), "init", "--from", "mcp.json", "--space", command.world, ".", cwd=folder)
    # A member inherits nothing, so the clock of the approver is said for it.
    _set_clock(folder, 0)
    path = [str(Path(__file__).with_name("clock")), os.environ.get("PYTHONPATH", "")]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, path)), "MOOT_BENCH_CLOCK": str(folder / "clock")}
    text = (folder / "moot.yaml").read_text("utf-8")
    run = "        args: [rules, run]\n"
    text = text.replace(run, f"{run}        env: {json.dumps(env)}\n")
    # The world reads this checkout and its state, which no box of `moot init` shows it.
    text, boxes = re.subn(r"^( +)box:\n(?:\1 .*\n)+", r"\1box: off\n", text, flags=re.MULTILINE)
    if not boxes and "box: off" not in text:
        raise SystemExit("the space of the world has no line about its box any more")
    (folder / "moot.yaml").write_text(text, "utf-8")


@asynccontextmanager
async def world_space(
    folder: Path, command: WorldCommand, *, describe: Sequence[str] = ()
) -> AsyncIterator[WorldSpace]:
    """The space of a world, made and running. `describe`: texts in the description of its first tool."""
    await make_space(folder, command)
    if describe:
        (folder / "state.described").write_text("\n".join(describe))
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(_moot_up(folder))
        url = json.loads((folder / ".moot/run/up.json").read_text())["url"]
        person, agent = [
            await stack.enter_async_context(
                connect(
                    url,
                    command.world,
                    (folder / f".moot/tokens/{name}.token").read_text().strip(),
                    controls=NewContext() if name == AGENT else None,
                )
            )
            for name in (PERSON, AGENT)
        ]
        space = WorldSpace(command.world, folder, up, person, agent)
        space.watch()
        await space.person.send("trust/accept", {"tools": traits_of(command.world)}, confirm=True)
        yield space


@asynccontextmanager
async def _moot_up(folder: Path) -> AsyncIterator[Process]:
    """`moot up`, ready: every part of it has joined."""
    errors = folder / "up.err"
    with errors.open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            str(MOOT), "up", "--port", "0", "--json", cwd=folder,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
    process = Process(child, errors)
    reader: asyncio.Task[None] | None = None
    try:
        joined: dict[str, bool] = {}
        while not (joined.get(APPROVER) and any(joined.get(name) for name in joined if name not in _OWN)):
            row = json.loads(await process.line())
            if "name" in row:
                joined[row["name"]] = bool(row.get("joined"))
        reader = asyncio.create_task(_read_all(process))
        yield process
    finally:
        if reader is not None:
            reader.cancel()
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        await child.wait()


def _set_clock(folder: Path, task: int) -> None:
    """The approver's clock at the beginning of a task."""
    file = folder / "clock"
    if not file.exists():
        file.write_bytes(bytes(8))
    with file.open("r+b") as opened:
        opened.write(struct.pack("d", _WORLD_TIME + task * _TASK_SECONDS - time.time()))


_OWN: Final = {"gateway", PERSON, AGENT, APPROVER}


async def _read_all(process: Process) -> None:
    """So that its output never blocks."""
    assert process.child.stdout is not None
    async for _ in process.child.stdout:
        pass
