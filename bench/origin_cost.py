"""What origins cost in a space: `python -m bench.origin_cost`.

One gateway with two spaces that are alike, each with an approver in a process of its own; one approver looks
at origins, in the other everything about them is left out. In turns a person sends chats of 500 bytes, and an
agent proposes calls, each with a value that the person has just said, which a rule approves. CPU is that of
the gateway and the approver together, as the kernel tells it. A chat is only kept until a call needs it, so
the third line is chats with a call behind every hundred, which has to read them.

The machine has other work, too: the two spaces take turns with small pieces of work, each begins every other
time, and all is repeated with new processes. What is told is the median of these runs, with the least and the
most.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.processes import SERVER_CORE, Process, gateway, started
from moot.errors import TimedOut
from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope

ON, OFF = "on", "off"
# In one turn, turns in a run, and runs with processes of their own.
CHATS: Final = 200
CALLS: Final = 20
TURNS: Final = 20
RUNS: Final = 5
# A call behind so many chats.
EVERY: Final = 100
MEMBERS: Final = ("you", "agent", "tools", "approver")
_WORDS: Final = [
    "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=3 + seed % 7)) for seed in range(500)
]
_SENDS: Final = (
    "mcp/reject", "mcp/response", "chat", "trust/suggestion", "trust/rule", "trust/dismiss", "moot/origins"
)  # fmt: skip
_PATIENCE_SECONDS: Final = 60.0
_TOOLS: Final = {"tools/send": {"effect": "writes", "outside": False}}


def _config() -> dict[str, Any]:
    def capabilities(name: str) -> list[Any]:
        if name == "you":
            return [{"kind": "*"}]
        if name == "agent":
            return [{"kind": "chat"}, {"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}]
        if name == "approver":
            return [{"kind": "mcp/request"}, {"kind": list(_SENDS)}]
        return [{"kind": "mcp/response"}]

    def space(label: str) -> dict[str, Any]:
        people = {
            name: {"tokens": [_token(label, name)], "capabilities": capabilities(name)} for name in MEMBERS
        }
        return {"participants": people, "limits": {"messages_per_second": 0, "bytes_per_second": 0}}

    return {
        "gateway": {"port": 0, "data": "data", "max_connections_per_address": 0},
        "spaces": {label: space(label) for label in (ON, OFF)},
    }


def _token(space: str, name: str) -> str:
    return f"t-{space}-{name}-bench"


@dataclass
class CostSpace:
    """One of the two spaces: its members here, and the processes that count."""

    person: JoinedSpace
    agent: JoinedSpace
    processes: list[Process]
    draws: random.Random
    decided: list[float] = field(default_factory=list)
    # When each proposal was seen.
    _proposed: dict[str, float] = field(default_factory=dict)

    def watch(self) -> None:
        """Note how long the approver takes, as the person sees it."""

        @self.person.on("mcp/proposal")
        def proposed(envelope: Envelope) -> None:
            self._proposed[envelope.id] = time.perf_counter()

        @self.person.on("mcp/request")
        def decided(envelope: Envelope) -> None:
            for id in envelope.correlation_id:
                if id in self._proposed:
                    self.decided.append((time.perf_counter() - self._proposed.pop(id)) * 1e3)

    def cpu(self) -> float:
        """Seconds that their threads have run."""
        found = 0
        for process in self.processes:
            for thread in Path(f"/proc/{process.child.pid}/task").iterdir():
                found += int((thread / "schedstat").read_text().split()[0])
        return found / 1e9

    def text(self) -> str:
        """A chat of 500 bytes, with an address and a number as people write them."""
        text = (
            f"please write to {self.draws.randrange(10**6)}@example.org about {self.draws.randrange(10**8)}"
        )
        while len(text) < 440:
            text += " " + self.draws.choice(_WORDS)
        return text[:440]

    async def chats(self, count: int) -> None:
        """Not faster than the approver reads: whoever misses messages stops its rules."""
        for _ in range(count // EVERY):
            await asyncio.gather(*(self.person.send("chat", {"text": self.text()}) for _ in range(EVERY)))
            await self.person.call("approver", "trust_rules", {})

    async def call(self) -> None:
        address = f"{self.draws.randrange(10**9)}@example.org"
        await self.person.chat(f"send the report to {address}", to="agent")
        made = await self.agent.propose("tools", "tools/call", {"name": "send", "arguments": {"to": address}})
        try:
            outcome = await made.outcome(_PATIENCE_SECONDS)
        except TimedOut:
            why = await self.person.call("approver", "trust_explain", {"id": made.id})
            raise RuntimeError(f"not approved: {why.text}") from None
        assert outcome.by == "approver", outcome

    async def calls(self, count: int) -> None:
        for _ in range(count):
            await self.call()

    async def both(self, count: int) -> None:
        for _ in range(count // EVERY):
            await self.chats(EVERY)
            await self.call()


@asynccontextmanager
async def _spaces(folder: Path) -> AsyncIterator[dict[str, CostSpace]]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        process, url = await enter(gateway(folder / "gateway", _config()))
        address = "http" + url.removeprefix("ws").removesuffix("/ws?space=")
        found: dict[str, CostSpace] = {}
        for label in (ON, OFF):
            joined = {
                name: await enter(connect(address, label, _token(label, name)))
                for name in MEMBERS
                if name != "approver"
            }
            joined["tools"].tool(lambda to: f"sent to {to}", name="send", description="Sends the report.")
            approver = await enter(_approver(folder, label, address))
            found[label] = CostSpace(joined["you"], joined["agent"], [process, approver], random.Random(36))
            found[label].watch()
        yield found


@asynccontextmanager
async def _approver(folder: Path, label: str, address: str) -> AsyncIterator[Process]:
    state = folder / f"state-{label}"
    state.mkdir(mode=0o700)
    rule = {"name": "by-origin", "decision": "approve", "tool": "*", "extra_arguments": True}
    if label == ON:
        rule["ask"] = "when_untrusted"
    (state / "rules.yaml").write_text(json.dumps({"rules": [rule], "tools": _TOOLS if label == ON else {}}))
    token = folder / f"{label}.token"
    token.write_text(_token(label, "approver"))
    token.chmod(0o600)
    program = ["moot.cli"] if label == ON else ["bench.origin_cost", "--approver"]
    command = [sys.executable, "-m", *program, "rules", "run", "--gateway", address, "--space", label]
    command += ["--token-file", str(token), "--state", str(state), "--no-suggestions"]
    async with started(command, SERVER_CORE, folder / f"{label}.log") as process:
        await process.line_with("the approver is")
        yield process


def run_without_origins(arguments: list[str]) -> None:
    """`moot` with an approver that neither keeps nor looks at where values came from."""
    from moot.cli import main as moot
    from moot.trust.approver.origin_watch import OriginWatch

    def nothing(*_: Any, **__: Any) -> bool:
        return False

    for name in ("observe", "observe_past", "look", "read_again"):
        setattr(OriginWatch, name, nothing)
    sys.argv = ["moot", *arguments]
    sys.exit(moot())


@dataclass
class CostRun:
    """One run. CPU is in milliseconds by what was done and by space; decisions are in milliseconds."""

    cpu: dict[str, dict[str, float]] = field(default_factory=dict)
    decided: dict[str, float] = field(default_factory=dict)
    approver_bytes: dict[str, int] = field(default_factory=dict)


async def measure(turns: int = TURNS) -> CostRun:
    run = CostRun()
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        async with _spaces(Path(name)) as spaces:
            for space in spaces.values():
                await space.calls(20)
                await space.both(EVERY)
                space.decided.clear()
            for turn in range(turns):
                for what, (count, act) in _WAYS.items():
                    for label in (ON, OFF) if turn % 2 else (OFF, ON):
                        space = spaces[label]
                        # What waits to be read is not this one's.
                        await space.call()
                        before = space.cpu()
                        await act(space, count)
                        spent = (space.cpu() - before) / (count * turns) * 1e3
                        by_space = run.cpu.setdefault(what, dict.fromkeys((ON, OFF), 0.0))
                        by_space[label] += spent
            for label, space in spaces.items():
                run.decided[label] = statistics.median(space.decided)
                run.approver_bytes[label] = space.processes[-1].resident_bytes
    return run


_WAYS: Final[dict[str, tuple[int, Callable[[CostSpace, int], Coroutine[Any, Any, None]]]]] = {
    "a chat of 500 bytes": (CHATS, CostSpace.chats),
    "a call with an approver": (CALLS, CostSpace.calls),
    "a chat, and a hundredth of a call": (CHATS, CostSpace.both),
}
_MOST: Final = {"a chat of 500 bytes": 0.02, "a call with an approver": 0.10}


def lines_of(runs: list[CostRun]) -> list[str]:
    lines = [
        f"{'CPU of gateway and approver, ms':36}{'without':>10}{'with':>10}{'more':>9}{'of runs':>18}"
        f"{'at most':>9}"
    ]
    for what in _WAYS:
        off, on = (statistics.median(run.cpu[what][label] for run in runs) for label in (OFF, ON))
        more = sorted(run.cpu[what][ON] / run.cpu[what][OFF] - 1 for run in runs)
        spread = f"{more[0]:.1%} to {more[-1]:.1%}"
        most = f"{_MOST[what]:.0%}" if what in _MOST else ""
        lines.append(f"{what:36}{off:10.3f}{on:10.3f}{statistics.median(more):>9.1%}{spread:>18}{most:>9}")
    off, on = (statistics.median(run.decided[label] for run in runs) for label in (OFF, ON))
    lines.append(f"{'from proposal to approval, median ms':36}{off:10.2f}{on:10.2f}")
    off, on = (statistics.median(run.approver_bytes[label] for run in runs) / 1e6 for label in (OFF, ON))
    lines.append(f"{'memory of the approver, MB':36}{off:10.0f}{on:10.0f}")
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--approver"]:
        run_without_origins(sys.argv[2:])
        return
    print(*lines_of([asyncio.run(measure()) for _ in range(RUNS)]), sep="\n")


if __name__ == "__main__":
    main()
