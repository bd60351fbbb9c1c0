"""CPU that a server takes for one message: Moot, a bare relay and nats-server, in one run and in turns.

    python -m bench.fanout                      # the log and the journal alone: a flood to one receiver


One sender and N receivers; the sender hears its own messages, too, with all of them. Two paces:

    flood      64 messages on the way, as the sender's own echo shows; servers batch as they can
    one        the next message when the last was heard: nothing to batch, what a quiet room costs

CPU is what /proc says of the server's process, all threads. Rates are off: a default space would stop
the flood at 2,000 messages a second.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from bench.load import VISITORS, token_of
from bench.processes import Process, gateway, load, nats, relay

Pace = Literal["flood", "one"]
Key = tuple[Pace, str, int]

MOOT, LOG_OFF, MOOT_OFF = "moot", "moot, log off", "moot, journal off"
RELAY, NATS = "bare relay", "nats-server"
SERVERS: Final = (MOOT, LOG_OFF, MOOT_OFF, RELAY, NATS)
RECEIVERS: Final = (1, 10, 100)
WINDOWS: Final[dict[Pace, int]] = {"flood": 64, "one": 1}
ROUNDS: Final[dict[Pace, int]] = {"flood": 4, "one": 2}
# Enough for a clock that ticks a hundred times a second, and for the whole of it to stay within minutes.
MESSAGES: Final[dict[tuple[Pace, int], int]] = {
    ("flood", 1): 40_000,
    ("flood", 10): 30_000,
    ("flood", 100): 10_000,
    ("one", 1): 4_000,
    ("one", 10): 2_000,
    ("one", 100): 500,
}
# The log of a journal is made about once a second, and belongs to the messages before.
_SETTLE_SECONDS: Final = 1.5
_WARM_UP: Final[dict[Pace, int]] = {"flood": 2_048, "one": 64}


@dataclass
class Measured:
    """One value a round, by pace, server and number of receivers."""

    microseconds: dict[Key, list[float]] = field(default_factory=dict)
    per_second: dict[Key, list[float]] = field(default_factory=dict)
    load_busy: dict[Key, list[float]] = field(default_factory=dict)

    def cost(self, pace: Pace, server: str, receivers: int) -> float:
        """Microseconds of CPU per message."""
        return statistics.median(self.microseconds[pace, server, receivers])

    def ratio(self, pace: Pace, server: str, beside: str, receivers: int) -> float:
        return self.cost(pace, server, receivers) / self.cost(pace, beside, receivers)

    def rate(self, pace: Pace, server: str, receivers: int) -> float:
        """Messages per second, wall clock."""
        return statistics.median(self.per_second[pace, server, receivers])


def config(journal: str | dict[str, Any] = "on", *, names: list[str] | None = None) -> dict[str, Any]:
    """A gateway with one space in which everybody may chat."""
    if names is None:
        names = ["sender", *VISITORS, *(f"receiver-{n}" for n in range(max(RECEIVERS)))]
    participants = {name: {"tokens": [token_of(name)], "capabilities": [{"kind": "chat"}]} for name in names}
    limits = {"messages_per_second": 0, "bytes_per_second": 0}
    return {
        "gateway": {
            "port": 0,
            "data": "data",
            "journal": journal,
            "max_connections_per_address": 0,
        },
        "spaces": {"bench": {"participants": participants, "limits": limits}},
    }


@asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[dict[str, tuple[Process, str]]]:
    """All of them, each with the address of its WebSockets; all but one idle at any time."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        moot, moot_url = await enter(gateway(folder / "moot", config()))
        no_log, no_log_url = await enter(
            gateway(folder / "moot-no-log", config({"mode": "on", "log": False}))
        )
        off, off_url = await enter(gateway(folder / "moot-off", config("off")))
        bare, bare_url = await enter(relay(folder / "relay"))
        other, other_url = await enter(nats(folder / "nats"))
        yield {
            MOOT: (moot, moot_url + "bench"),
            LOG_OFF: (no_log, no_log_url + "bench"),
            MOOT_OFF: (off, off_url + "bench"),
            RELAY: (bare, bare_url),
            NATS: (other, other_url),
        }


async def run(
    folder: Path, *, paces: Iterable[Pace] = WINDOWS, crowds: Sequence[int] = RECEIVERS
) -> Measured:
    measured = Measured()
    async with servers(folder) as started, load(folder) as crowd:
        for pace in paces:
            for round in range(ROUNDS[pace] + 1):
                for receivers in crowds:
                    for name, (server, url) in started.items():
                        # The first round warms up and counts for nothing.
                        count = MESSAGES[pace, receivers] if round else _WARM_UP[pace]
                        result = await flood(crowd, server, name, url, receivers, count, WINDOWS[pace])
                        if round:
                            _note(measured, (pace, name, receivers), *result)
    return measured


def _note(measured: Measured, key: Key, microseconds: float, per_second: float, load_busy: float) -> None:
    measured.microseconds.setdefault(key, []).append(microseconds)
    measured.per_second.setdefault(key, []).append(per_second)
    measured.load_busy.setdefault(key, []).append(load_busy)


async def flood(
    crowd: Process, server: Process, name: str, url: str, receivers: int, messages: int, window: int
) -> tuple[float, float, float]:
    """Microseconds of CPU per message, messages per second, and the share of its core that the load took."""
    kind = "nats" if name == NATS else "other"
    await crowd.tell(job="connect", server=kind, url=url, receivers=receivers)
    await crowd.answer()
    await crowd.tell(job="flood", messages=messages, window=window)
    await crowd.answer()
    before = server.cpu_seconds
    await crowd.tell(job="go")
    result = await crowd.answer()
    await asyncio.sleep(_SETTLE_SECONDS)
    spent = server.cpu_seconds - before
    if result["odd"]:
        raise RuntimeError(f"{name} said {result['odd']} things that were not the messages: see its log")
    await crowd.tell(job="close")
    await crowd.answer()
    return spent / messages * 1e6, messages / result["seconds"], result["load_cpu"] / result["seconds"]


def main() -> None:
    """A message in a flood, and what it costs beside the others; some three minutes."""
    with tempfile.TemporaryDirectory(prefix="moot-fanout-") as name:
        measured = asyncio.run(run(Path(name), paces=["flood"]))
    for receivers in RECEIVERS:
        for server in SERVERS:
            values = measured.microseconds["flood", server, receivers]
            cost = measured.cost("flood", server, receivers)
            print(f"to {receivers:<4} {server:20} {cost:6.2f} µs   {min(values):.2f} to {max(values):.2f}")
    for server in (NATS, MOOT_OFF, LOG_OFF):
        ratios = "  ".join(f"{measured.ratio('flood', MOOT, server, each):5.2f}" for each in RECEIVERS)
        print(f"moot, times {server:20} {ratios}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
