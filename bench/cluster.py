"""What a cluster costs: one, two and three gateways on three NATS servers, beside a gateway that is alone.

    python -m bench.cluster                 all of it, as in `make bench`
    python -m bench.cluster small           the load `small`, and latencies
    python -m bench.cluster costs           all loads
    python -m bench.cluster "take in"       how long a new gateway takes to read a log of 100,000 messages

All of it runs on one machine, so messages a second say little. The CPU that each process takes for a message
depends on who else runs as well: on a busy machine all of it is larger. Each number is the median of five
rounds, and behind it are the least and the most. `docs/topics/cluster-sizes.md` does sums with them.

    3, shared  three gateways that share the shards; members are at the one that serves their space
    small      many spaces of three members, one of each sends
    large      one space, its members spread over the gateways, one of them sends
    crowd      the same with ten times as many members, who cost more than the message itself
    latency    from one member to another, at another gateway unless it is shared, one message at a time
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.error import HTTPError

from tests.gateway.cluster.nats_servers import NatsServers

from bench.load import Client, Tally, chats, connected, masked, token_of
from bench.processes import Process, gateway

RECEIVERS = 90
CROWD = 900
CROWD_MESSAGES = 1_000
SMALL_SPACES = 30
# Of one round: so many that what a clock of the kernel tells, 10 ms, is little of it.
MESSAGES = 6_000
ROUNDS = 5
PINGS = 300
RECORDS = 100_000
_WINDOW = 64
_JOINS_AT_ONCE = 30
# Gateways that come leave each share at one of them after some seconds.
_SHARED_SECONDS = 90
_LOOK_SECONDS = 1.0
# Longer than that something is wrong, however busy the machine is.
_ROUND_SECONDS = 300
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
        # Where shards are shared: the gateway that serves each space.
        self._serving: dict[str, str] = {}

    @property
    def is_shared(self) -> bool:
        return bool(self._serving)

    def url(self, member: int, space: str) -> str:
        return f"{self._serving.get(space) or self.urls[member % len(self.urls)]}{space}"

    async def find_serving(self, spaces: Sequence[str]) -> None:
        """Wait until each space is served by one gateway, where its members go from then on."""
        async with asyncio.timeout(_SHARED_SECONDS):
            while True:
                found = {space: [url for url in self.urls if serves(url, space)] for space in spaces}
                if all(len(urls) == 1 for urls in found.values()):
                    self._serving = {space: url for space, (url,) in found.items()}
                    return
                await asyncio.sleep(0.5)

    def nats_seconds(self) -> float:
        if self._servers is None:
            return 0.0
        return sum(_cpu_seconds(each.pid) for each in self._servers.processes if each is not None)


def serves(url: str, space: str) -> bool:
    """Whether a gateway serves a space, as its `/readyz` tells our clients."""
    address = url.replace("ws://", "http://").replace("/ws?", "/readyz?")
    try:
        with urllib.request.urlopen(f"{address}{space}") as answer:  # noqa: S310  # our own
            return bool(json.load(answer)["status"] == "ready")
    except HTTPError:
        return False


def settings(
    servers: Sequence[str], name: str, snapshot_inputs: int, *, is_shared: bool = False
) -> dict[str, Any]:
    spaces = {"large": _names(RECEIVERS), "crowd": _names(CROWD), "log": ["sender"]}
    spaces |= {_small(number): ["sender", "one", "two"] for number in range(SMALL_SPACES)}
    limits = {"messages_per_second": 0, "bytes_per_second": 0}
    configured = {
        space: {
            "participants": {who: {"tokens": [token_of(who)], "capabilities": ["chat"]} for who in people},
            "limits": limits,
        }
        for space, people in spaces.items()
    }
    cluster = {"servers": list(servers), "gateway": name, "snapshot_inputs": snapshot_inputs}
    cluster["serves"] = "shared" if is_shared else "all"
    more = {"cluster": cluster} if servers else {}
    return {"gateway": {"port": 0, "max_connections_per_address": 0} | more, "spaces": configured}


@asynccontextmanager
async def running(
    folder: Path, count: int, snapshot_inputs: int = 20_000, *, is_shared: bool = False
) -> AsyncIterator[Cluster]:
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
                gateway(
                    folder / str(number),
                    settings(addresses, f"g{number}", snapshot_inputs, is_shared=is_shared),
                )
            )
            for number in range(max(1, count))
        ]
        cluster = Cluster(gateways, servers)
        if is_shared:
            await cluster.find_serving(["large", "crowd", *map(_small, range(SMALL_SPACES))])
        yield cluster


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
    cluster: Cluster,
    tally: Tally,
    clients: Sequence[Client],
    senders: Sequence[Sender],
    heard: int,
    messages: int,
) -> Cost:
    tally.enough, tally.done = tally.seen + heard, asyncio.get_running_loop().create_future()
    before, nats = [each.cpu_seconds for each in cluster.processes], cluster.nats_seconds()
    start = time.monotonic()
    for sender in senders:
        sender.start()
    async with asyncio.timeout(_ROUND_SECONDS):
        while not tally.done.done():
            await asyncio.wait([tally.done], timeout=_LOOK_SECONDS)
            for client in clients:
                # What came right before a ping is not counted as it comes.
                client.count()
    seconds = time.monotonic() - start
    # Heartbeats of a second are in it, as they are in a quiet one.
    took = [each.cpu_seconds - was for each, was in zip(cluster.processes, before, strict=True)]
    micro = 1e6 / messages
    return Cost(
        messages / seconds, max(took) * micro, sum(took) * micro, (cluster.nats_seconds() - nats) * micro
    )


async def one_space(cluster: Cluster, space: str, receivers: int, messages: int) -> list[Cost]:
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
    return await rounds(cluster, tally, clients, clients[:1], messages, _WINDOW)


async def large(cluster: Cluster) -> list[Cost]:
    return await one_space(cluster, "large", RECEIVERS, MESSAGES // 2)


async def crowd(cluster: Cluster) -> list[Cost]:
    return await one_space(cluster, "crowd", CROWD, CROWD_MESSAGES)


def _names(receivers: int) -> list[str]:
    return ["sender", *(f"receiver-{number}" for number in range(receivers))]


def _small(number: int) -> str:
    return f"small-{number}"


async def small(cluster: Cluster) -> list[Cost]:
    tally, clients = Tally(), list[Client]()
    for number in range(SMALL_SPACES):
        for at, name in enumerate(("sender", "one", "two")):
            clients += await connected(cluster.url(number + at, _small(number)), [name], tally)
    return await rounds(cluster, tally, clients, clients[::3], MESSAGES // SMALL_SPACES, 8)


async def rounds(
    cluster: Cluster,
    tally: Tally,
    clients: Sequence[Client],
    senders: Sequence[Client],
    messages: int,
    window: int,
) -> list[Cost]:
    """Each sender sends so many messages, which all of its space hear; the first round is no part of it."""
    await _quiet(tally)
    costs, heard = list[Cost](), messages * len(clients)
    for _ in range(1 + ROUNDS):
        sending = [Sender(each, messages, window) for each in senders]
        costs.append(await measure(cluster, tally, clients, sending, heard, messages * len(senders)))
    await _close(clients)
    return costs[1:]


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
        await measure(cluster, tally, clients, [Sender(clients[0], RECORDS, 256)], RECORDS, RECORDS)
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


def _spread(values: Sequence[float]) -> str:
    """The median, the least and the most."""
    if not any(values):
        return "0"
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


LOADS = (small, large, crowd)
# How they are called, how many gateways, and whether they share the shards.
CLUSTERS = (("alone", 0, False), ("1", 1, False), ("2", 2, False), ("3", 3, False), ("3, shared", 3, True))


async def run_all(parts: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        loads = [each for each in LOADS if "costs" in parts or each.__name__ in parts]
        if loads:
            print(
                "| gateways | load | messages/s | busiest gateway, µs | all gateways, µs | NATS, µs | "
                "latency p50, p99 |"
            )
            print("|---|---|---|---|---|---|---|")
        for title, count, is_shared in CLUSTERS if loads else ():
            async with running(Path(name) / title, count, is_shared=is_shared) as cluster:
                took = await latencies(cluster)
                words = f"{took[len(took) // 2]:.1f}, {took[len(took) * 99 // 100]:.1f} ms"
                for load in loads:
                    costs = await load(cluster)
                    speed = median(each.per_second for each in costs)
                    numbers = " | ".join(map(_spread, list(zip(*costs, strict=True))[1:]))
                    print(f"| {title} | {load.__name__} | {speed:,.0f} | {numbers} | {words} |", flush=True)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    named = ["costs", "take in", *(each.__name__ for each in LOADS)]
    # `choices` would not take the default, which is a list.
    parser.add_argument("parts", nargs="*", default=["costs", "take in"], help=", ".join(named))
    parts = parser.parse_args().parts
    if unknown := set(parts) - set(named):
        parser.error(f"not one of {', '.join(named)}: {', '.join(unknown)}")
    asyncio.run(run_all(parts))
