"""CPU a server takes for one message to N receivers: Moot, a bare relay, nats-server; all in one run, in turns."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.load import token_of
from bench.processes import Process, gateway, load, nats, relay

RECEIVERS = (1, 10, 100)
SERVERS = ("moot", "moot, journal off", "relay", "nats")
ROUNDS = 5
# Long enough for a clock that ticks a hundred times a second: half a second of CPU and more each time.
MESSAGES = {1: 48_000, 10: 32_000, 100: 16_000}
# Messages on the way: half of what one tick of a busy loop may hold, far from what calls a reader slow.
WINDOW = 64


@dataclass
class Measured:
    """Microseconds of CPU per message, by server and receivers, one a round."""

    costs: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    rates: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    load_busy: list[float] = field(default_factory=list)

    def cost(self, server: str, receivers: int) -> float:
        return statistics.median(self.costs[server, receivers])

    def ratio(self, server: str, beside: str, receivers: int) -> float:
        """The median of the ratios of each round: neighbours in time share the machine's mood."""
        pairs = zip(self.costs[server, receivers], self.costs[beside, receivers], strict=True)
        return statistics.median(one / other for one, other in pairs)

    def rate(self, server: str, receivers: int) -> float:
        return statistics.median(self.rates[server, receivers])


def config(journal: str = "on", *, names: list[str] | None = None) -> dict[str, Any]:
    """A gateway with one space in which everybody may chat; rates off, since the bench is a flood."""
    if names is None:
        names = ["sender", "visitor", *(f"receiver-{n}" for n in range(max(RECEIVERS)))]
    participants = {name: {"tokens": [token_of(name)], "capabilities": [{"kind": "chat"}]} for name in names}
    limits = {"messages_per_second": 0, "bytes_per_second": 0}
    return {
        "gateway": {"port": 0, "data": "data", "journal": journal, "connections_per_address": 0},
        "spaces": {"bench": {"participants": participants, "limits": limits}},
    }


@asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[dict[str, tuple[Process, str]]]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        moot, moot_url = await enter(gateway(folder / "moot", config()))
        off, off_url = await enter(gateway(folder / "moot-off", config("off")))
        bare, bare_url = await enter(relay(folder / "relay"))
        other, other_url = await enter(nats(folder / "nats"))
        yield {
            "moot": (moot, moot_url + "bench"),
            "moot, journal off": (off, off_url + "bench"),
            "relay": (bare, bare_url),
            "nats": (other, other_url),
        }


async def run(folder: Path, rounds: int = ROUNDS) -> Measured:
    measured = Measured()
    async with _servers(folder) as servers, load(folder) as crowd:
        for round in range(rounds + 1):
            for receivers in RECEIVERS:
                for name, (server, url) in servers.items():
                    # The first round warms up and counts for nothing.
                    messages = MESSAGES[receivers] if round else 2_048
                    cost, rate, busy = await _one(crowd, server, name, url, receivers, messages)
                    if round:
                        measured.costs.setdefault((name, receivers), []).append(cost)
                        measured.rates.setdefault((name, receivers), []).append(rate)
                        measured.load_busy.append(busy)
    return measured


async def _one(
    crowd: Process, server: Process, name: str, url: str, receivers: int, messages: int
) -> tuple[float, float, float]:
    await crowd.tell(job="connect", server=name.partition(",")[0], url=url, receivers=receivers)
    await crowd.answer()
    await crowd.tell(job="flood", messages=messages, window=WINDOW)
    await crowd.answer()
    before = server.cpu_seconds
    await crowd.tell(job="go")
    result = await crowd.answer()
    spent = server.cpu_seconds - before
    if result["odd"]:
        raise RuntimeError(f"{name} said {result['odd']} things that were not the messages: see its log")
    await crowd.tell(job="close")
    await crowd.answer()
    return spent / messages * 1e6, messages / result["seconds"], result["load_cpu"] / result["seconds"]
