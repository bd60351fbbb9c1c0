"""What a cluster costs: one, two and three gateways on three NATS servers, beside a gateway that is alone.

All of it runs on one machine, so messages a second say little; the CPU that each process takes for a message
does not depend on who else runs. `docs/topics/cluster-sizes.md` does sums with it.

    large      one space, its members spread over the gateways, one of them sends
    crowd      the same with ten times as many members, who cost more than the message itself
    small      many spaces of three members, one of each sends
    latency    from one member to another, at another gateway, one message at a time
    take in    how long a new gateway takes to read a log of 100,000 messages
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.gateway.cluster.nats_servers import NatsServers

from bench.load import Client, Tally, chats, connected, masked, token_of
from bench.processes import Process, gateway

RECEIVERS = 90
CROWD = 900
CROWD_MESSAGES = 1_000
SMALL_SPACES = 30
MESSAGES = 3_000
PINGS = 300
RECORDS = 100_000
_WINDOW = 64
_JOINS_AT_ONCE = 30
_runs = itertools.count(1)
_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Of one load: microseconds of CPU for a message, and how many there were in a second."""

    per_second: float
    # Of the gateway that took most, of all of them together, and of all NATS servers.
    busiest: float
    gateways: float
    nats: float


class Cluster:
    """Running gateways, and NATS unless there is one gateway alone."""

    def __init__(self, gateways: list[tuple[Process, str]], servers: NatsServers | None) -> None:
        self.processes = [process for process, _ in gateways]
        self.urls = [url for _, url in gateways]
        self._servers = servers

    def url(self, member: int, space: str) -> str:
        return f"{self.urls[member % len(self.urls)]}{space}"

    def nats_seconds(self) -> float:
        if self._servers is None:
            return 0.0
        return sum(_cpu_seconds(each.pid) for each in self._servers.processes if each is not None)


def settings(servers: Sequence[str], name: str, snapshot_inputs: int) -> dict[str, Any]:
    spaces = {"large": _names(RECEIVERS), "crowd": _names(CROWD), "log": ["sender"]}
    spaces |= {f"small-{number}": ["sender", "one", "two"] for number in range(SMALL_SPACES)}
    limits = {"messages_per_second": 0, "bytes_per_second": 0}
    configured = {
        space: {
            "participants": {who: {"tokens": [token_of(who)], "capabilities": ["chat"]} for who in people},
            "limits": limits,
        }
        for space, people in spaces.items()
    }
    cluster = {"servers": list(servers), "gateway": name, "snapshot_inputs": snapshot_inputs}
    more = {"cluster": cluster} if servers else {}
    return {"gateway": {"port": 0, "max_connections_per_address": 0} | more, "spaces": configured}


@asynccontextmanager
async def running(folder: Path, count: int, snapshot_inputs: int = 20_000) -> AsyncIterator[Cluster]:
    """So many gateways of a cluster; 0: one that is alone."""
    async with AsyncExitStack() as stack:
        servers = None
        if count:
            (folder / "nats").mkdir(parents=True)
            servers = NatsServers(folder / "nats", 3, jetstream="sync_interval: always")
            stack.callback(servers.close)
        addresses = [] if servers is None else servers.addresses
        gateways = [
            await stack.enter_async_context(
                gateway(folder / str(number), settings(addresses, f"g{number}", snapshot_inputs))
            )
            for number in range(max(1, count))
        ]
        yield Cluster(gateways, servers)


class Sender:
    """Sends its messages with so many on the way, as its own echo shows."""

    def __init__(self, client: Client, messages: int, window: int) -> None:
        frames = [masked(chat, 1) for chat in chats(next(_runs), messages)]
        self._client, self._frames, self._window = client, frames, window
        self._sent = self._echoed = 0

    def start(self) -> None:
        self._client.received = 0
        self._refill()
        self._client.on_echo = self._refill

    def _refill(self) -> None:
        self._echoed += self._client.received
        upto = min(len(self._frames), self._echoed + self._window)
        if upto > self._sent:
            self._client.write(b"".join(self._frames[self._sent : upto]))
            self._sent = upto


async def measure(
    cluster: Cluster, tally: Tally, senders: Sequence[Sender], heard: int, messages: int
) -> Cost:
    tally.enough, tally.done = tally.seen + heard, asyncio.get_running_loop().create_future()
    before, nats = [each.cpu_seconds for each in cluster.processes], cluster.nats_seconds()
    start = time.monotonic()
    for sender in senders:
        sender.start()
    async with asyncio.timeout(600):
        await tally.done
    seconds = time.monotonic() - start
    # Heartbeats of a second are in it, as they are in a quiet one.
    took = [each.cpu_seconds - was for each, was in zip(cluster.processes, before, strict=True)]
    micro = 1e6 / messages
    return Cost(
        messages / seconds, max(took) * micro, sum(took) * micro, (cluster.nats_seconds() - nats) * micro
    )


async def one_space(cluster: Cluster, space: str, receivers: int, messages: int) -> Cost:
    tally = Tally()
    names = list(enumerate(_names(receivers)))
    clients: list[Client] = []
    # Some at once: each join goes through the log.
    for first in range(0, len(names), _JOINS_AT_ONCE):
        joining = [
            connected(cluster.url(at, space), [name], tally)
            for at, name in names[first : first + _JOINS_AT_ONCE]
        ]
        clients += [one for (one,) in await asyncio.gather(*joining)]
    await _quiet(tally)
    sender = Sender(clients[0], messages, _WINDOW)
    cost = await measure(cluster, tally, [sender], messages * len(clients), messages)
    await _close(clients)
    return cost


async def large(cluster: Cluster) -> Cost:
    return await one_space(cluster, "large", RECEIVERS, MESSAGES)


async def crowd(cluster: Cluster) -> Cost:
    return await one_space(cluster, "crowd", CROWD, CROWD_MESSAGES)


def _names(receivers: int) -> list[str]:
    return ["sender", *(f"receiver-{number}" for number in range(receivers))]


async def small(cluster: Cluster) -> Cost:
    tally, clients, senders = Tally(), list[Client](), list[Sender]()
    each = MESSAGES // SMALL_SPACES
    for number in range(SMALL_SPACES):
        for at, name in enumerate(("sender", "one", "two")):
            url = cluster.url(number + at, f"small-{number}")
            clients += await connected(url, [name], tally)
        senders.append(Sender(clients[-3], each, 8))
    await _quiet(tally)
    cost = await measure(cluster, tally, senders, each * SMALL_SPACES * 3, each * SMALL_SPACES)
    await _close(clients)
    return cost


async def latencies(cluster: Cluster) -> list[float]:
    """Milliseconds until the other member has heard it, smallest first."""
    tally = Tally()
    sender = (await connected(cluster.url(0, "small-0"), ["sender"], tally))[0]
    receiver = (await connected(cluster.url(len(cluster.urls) - 1, "small-0"), ["one"], tally))[0]
    await _quiet(tally)
    took = []
    for frame in [masked(chat, 1) for chat in chats(next(_runs), PINGS)]:
        heard = asyncio.get_running_loop().create_future()
        receiver.on_echo = lambda heard=heard: heard.done() or heard.set_result(None)
        start = time.perf_counter()
        sender.write(frame)
        async with asyncio.timeout(30):
            await heard
        took.append((time.perf_counter() - start) * 1_000)
        await asyncio.sleep(0.005)
    receiver.on_echo = None
    await _close([sender, receiver])
    return sorted(took)


async def take_in(folder: Path, snapshot_inputs: int) -> tuple[float, float]:
    """Seconds, and those of CPU, from the start of a second gateway to its first connection."""
    async with running(folder, 1, snapshot_inputs) as cluster:
        tally = Tally()
        clients = await connected(cluster.url(0, "log"), ["sender"], tally)
        await measure(cluster, tally, [Sender(clients[0], RECORDS, 256)], RECORDS, RECORDS)
        await _close(clients)
        assert cluster._servers is not None
        start = time.monotonic()
        config = settings(cluster._servers.addresses, "late", snapshot_inputs)
        async with gateway(folder / "late", config) as (process, url):
            clients = await connected(f"{url}log", ["sender"], Tally())
            seconds, cpu = time.monotonic() - start, process.cpu_seconds
            await _close(clients)
        return seconds, cpu


async def _quiet(tally: Tally) -> None:
    before = -1
    while before != tally.odd:
        before = tally.odd
        await asyncio.sleep(0.5)
    tally.started = True


async def _close(clients: Sequence[Client]) -> None:
    for client in clients:
        assert client.transport is not None
        client.transport.underlying_transport.abort()
    await asyncio.gather(*(client.gone for client in clients))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def run_all(parts: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        if "costs" in parts:
            print(
                "| gateways | load | messages/s | busiest gateway, µs | all gateways, µs | NATS, µs | "
                "latency p50, p99 |"
            )
            print("|---|---|---|---|---|---|---|")
            for count in (0, 1, 2, 3):
                async with running(Path(name) / str(count), count) as cluster:
                    took = await latencies(cluster)
                    words = f"{took[len(took) // 2]:.1f}, {took[len(took) * 99 // 100]:.1f} ms"
                    for title, load in (("small", small), ("large", large), ("crowd", crowd)):
                        cost = await load(cluster)
                        print(
                            f"| {count or 'alone'} | {title} | {cost.per_second:,.0f} | {cost.busiest:.0f} | "
                            f"{cost.gateways:.0f} | {cost.nats:.0f} | {words} |",
                            flush=True,
                        )
        if "take in" in parts:
            for inputs in (10_000_000, 20_000):
                seconds, cpu = await take_in(Path(name) / f"late-{inputs}", inputs)
                how = "all of the log" if inputs > RECORDS else "from a snapshot"
                print(
                    f"a gateway more after {RECORDS:,} messages, {how}: {seconds:.1f} s, {cpu:.1f} s of CPU"
                )


def run() -> None:
    asyncio.run(run_all(("costs", "take in")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["costs", "take in"])
    asyncio.run(run_all(parser.parse_args().parts))
