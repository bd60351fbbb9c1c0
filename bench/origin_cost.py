"""What origins cost in a space: `python -m bench.origin_cost`.

A space with an approver in a process of its own. A person sends chats of 500 bytes, and an agent proposes
calls, each with a value that the person has just said, which a rule approves. CPU is that of the gateway and
the approver together, as the kernel tells it. A chat is only kept until a call needs it, so the third line is
chats with a call behind every hundred.

Two processes differ by some percent whatever they run, and the machine has other work, too. So it is one
approver, which keeps and looks at origins or leaves all of it out, in turns: small pieces of work in pairs,
each way first every other time. The gateway does the same in both, so what it takes counts in the whole, and
only what the approver takes in the difference; the first lines tell the difference of the gateway, too, which
is noise. What is told of a run is the median of its pairs, and of the runs, each with new processes, the
median, the least and the most. Before it measures, as many messages are kept as ever will be.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
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
from moot.trust.approver.kept_messages import MAX_KEPT_MESSAGES
from moot.trust.approver.origin_watch import OriginWatch

ON, OFF = "on", "off"
GATEWAY, APPROVER = 0, 1
SPACE: Final = "lab"
# In one turn, pairs of turns in a run, and runs with processes of their own.
CHATS: Final = 200
CALLS: Final = 10
TURNS: Final = 40
RUNS: Final = 5
_SIGNALS: Final = {ON: signal.SIGUSR1, OFF: signal.SIGUSR2}
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

    people = {name: {"tokens": [_token(name)], "capabilities": capabilities(name)} for name in MEMBERS}
    space = {"participants": people, "limits": {"messages_per_second": 0, "bytes_per_second": 0}}
    return {
        "gateway": {"port": 0, "data": "data", "max_connections_per_address": 0},
        "spaces": {SPACE: space},
    }


def _token(name: str) -> str:
    return f"t-{name}-bench"


@dataclass
class CostSpace:
    """Its members here, and the processes that count."""

    person: JoinedSpace
    agent: JoinedSpace
    processes: list[Process]
    draws: random.Random = field(default_factory=lambda: random.Random(36))
    label: str = ON
    # Milliseconds from a proposal to its approval, with origins and without.
    decided: dict[str, list[float]] = field(default_factory=lambda: {ON: [], OFF: []})
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
                    self.decided[self.label].append((time.perf_counter() - self._proposed.pop(id)) * 1e3)

    async def turn(self, label: str) -> None:
        """Let the approver look at origins, or leave them out; what waits to be done is done before."""
        self.label = label
        os.kill(self.processes[-1].child.pid, _SIGNALS[label])
        await self.call()

    def cpu(self) -> list[float]:
        """Milliseconds that the threads of the gateway have run, and those of the approver."""
        return [
            sum(
                int((thread / "schedstat").read_text().split()[0])
                for thread in Path(f"/proc/{process.child.pid}/task").iterdir()
            )
            / 1e6
            for process in self.processes
        ]

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
async def _space(folder: Path) -> AsyncIterator[CostSpace]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        process, url = await enter(gateway(folder / "gateway", _config()))
        address = "http" + url.removeprefix("ws").removesuffix("/ws?space=")
        you, agent, tools = [
            await enter(connect(address, SPACE, _token(name))) for name in MEMBERS if name != "approver"
        ]
        tools.tool(lambda to: f"sent to {to}", name="send", description="Sends the report.")
        found = CostSpace(you, agent, [process, await enter(_approver(folder, address))])
        found.watch()
        yield found


@asynccontextmanager
async def _approver(folder: Path, address: str) -> AsyncIterator[Process]:
    state = folder / "state"
    state.mkdir(mode=0o700)
    rule = {"name": "by-origin", "decision": "approve", "tool": "*", "extra_arguments": True}
    rules = {"rules": [{**rule, "ask": "when_untrusted"}], "tools": _TOOLS}
    (state / "rules.yaml").write_text(json.dumps(rules))
    token = folder / "approver.token"
    token.write_text(_token("approver"))
    token.chmod(0o600)
    command = [sys.executable, "-m", "bench.origin_cost", "--approver", "rules", "run", "--gateway", address]
    command += ["--space", SPACE, "--token-file", str(token), "--state", str(state), "--no-suggestions"]
    async with started(command, SERVER_CORE, folder / "approver.log") as process:
        await process.line_with("the approver is")
        yield process


class WithoutOrigins:
    """What the approver calls for each message and proposal, if origins are left out."""

    def __init__(self, watch: OriginWatch) -> None:
        self._watch = watch

    def observe(self, *_: object, **__: object) -> bool:
        return False

    def look(self, _: object) -> None:
        return None

    ask_reason = look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)


def run_approver(arguments: list[str]) -> None:
    """`moot`, with an approver that begins or ends to keep and look at origins when it is told to.

    Its watch is exchanged, not changed: Python runs what it knows of a class anew when the class changes.
    """
    from moot.cli import main as moot
    from moot.trust.approver.approver import Approver

    make = Approver.__init__

    def begin(approver: Approver, *given: Any, **named: Any) -> None:
        make(approver, *given, **named)
        ways: dict[int, Any] = {
            _SIGNALS[ON]: approver.origins,
            _SIGNALS[OFF]: WithoutOrigins(approver.origins),
        }

        def change(number: int, _: object) -> None:
            approver.origins = ways[number]

        for number in ways:
            signal.signal(number, change)

    setattr(Approver, "__init__", begin)  # noqa: B010
    sys.argv = ["moot", *arguments]
    sys.exit(moot())


@dataclass
class CostRun:
    """One run. CPU is in milliseconds, of the gateway and of the approver, for each pair."""

    cpu: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    decided: dict[str, float] = field(default_factory=dict)
    approver_bytes: dict[str, int] = field(default_factory=dict)

    def more(self, what: str, process: int = APPROVER) -> float:
        """How much more of both this process takes with origins: the median of all pairs."""
        pairs = zip(self.cpu[what][ON], self.cpu[what][OFF], strict=True)
        return statistics.median((on[process] - off[process]) / sum(off) for on, off in pairs)


async def measure(turns: int = TURNS) -> CostRun:
    run = CostRun({what: {ON: [], OFF: []} for what in _WAYS})
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        async with _space(Path(name)) as space:
            for label in (OFF, ON):
                await space.turn(label)
                await space.calls(20)
                await space.chats(MAX_KEPT_MESSAGES + CHATS)
                run.approver_bytes[label] = space.processes[-1].resident_bytes
            space.decided = {ON: [], OFF: []}
            for turn in range(turns):
                for what, (count, act) in _WAYS.items():
                    for label in (ON, OFF) if turn % 2 else (OFF, ON):
                        await space.turn(label)
                        before = space.cpu()
                        await act(space, count)
                        spent = zip(before, space.cpu(), strict=True)
                        run.cpu[what][label].append([(end - start) / count for start, end in spent])
            for label, times in space.decided.items():
                run.decided[label] = statistics.median(times)
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
        off, on = (
            statistics.median(sum(each) for run in runs for each in run.cpu[what][label])
            for label in (OFF, ON)
        )
        more = sorted(run.more(what) for run in runs)
        spread = f"{more[0]:.1%} to {more[-1]:.1%}"
        most = f"{_MOST[what]:.0%}" if what in _MOST else ""
        lines.append(f"{what:36}{off:10.3f}{on:10.3f}{statistics.median(more):>9.1%}{spread:>18}{most:>9}")
    off, on = (statistics.median(run.decided[label] for run in runs) for label in (OFF, ON))
    times = sorted(run.decided[ON] for run in runs)
    spread = f"{times[0]:.2f} to {times[-1]:.2f}"
    lines.append(f"{'from proposal to approval, median ms':36}{off:10.2f}{on:10.2f}{spread:>27}{'5 ms':>9}")
    off, on = (statistics.median(run.approver_bytes[label] for run in runs) / 1e6 for label in (OFF, ON))
    lines.append(f"{'memory of the approver, MB':36}{off:10.0f}{on:10.0f}")
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--approver"]:
        run_approver(sys.argv[2:])
        return
    runs: list[CostRun] = []
    for number in range(RUNS):
        begun = time.perf_counter()
        runs.append(asyncio.run(measure()))
        found = ", ".join(
            f"{what} {runs[-1].more(what):+.1%} (gateway {runs[-1].more(what, GATEWAY):+.1%})"
            for what in _WAYS
        )
        busy = os.getloadavg()[0]
        seconds = time.perf_counter() - begun
        print(f"run {number + 1}: {found} ({seconds:.0f} s, load {busy:.1f})", flush=True)
    print(*lines_of(runs), sep="\n")


if __name__ == "__main__":
    main()
