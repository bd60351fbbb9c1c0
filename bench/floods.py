"""What a flood does to a member who does nothing wrong: its latency, and the gateway's CPU, memory and disk.

    python -m bench.floods                                 # all floods on this tree
    python -m bench.floods --only pings --seconds 5
    python -m bench.floods --server OTHER/.venv/bin/moot   # another version of the gateway

The bystander sends a chat every 10 ms, whether or not the last one came back, and takes the time until its
own echo: a gateway that stands still for a second is seen by a hundred messages. The flood comes from a
process of its own. Everything is on loopback, with the default limits of a gateway and a space.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from bench.flood_attacks import FLOODS, SPACE
from bench.load import token_of
from bench.processes import LOAD_CORE, Process, gateway, started

SECONDS: Final = 5.0
_INTERVAL_SECONDS: Final = 0.01
# What was sent last may still be on its way behind all that the flood left in the kernel's buffers.
_LATE_SECONDS: Final = 30.0
# What a foreign client allows one message by default (the `websockets` library).
_CLIENT_LIMIT_BYTES: Final = 1 << 20


@dataclass
class Damage:
    """What one flood did."""

    flood: str
    done: int
    milliseconds: list[float]
    lost: int
    cpu_percent: float
    peak_bytes: int
    grown_bytes: int
    disk_bytes: int
    seconds: float
    newcomer: str

    def percentile(self, share: float) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[math.ceil(len(ordered) * share) - 1] if ordered else math.nan

    def row(self) -> str:
        lost = f", {self.lost} lost" if self.lost else ""
        return (
            f"| {self.flood.replace('_', ' ')} | {self.done / self.seconds:,.0f} "
            f"| {self.percentile(0.5):.1f} | {self.percentile(0.99):,.1f} | {self.percentile(1):,.0f}{lost} "
            f"| {self.cpu_percent:.0f} % | {self.peak_bytes / 1e6:.0f} (+{self.grown_bytes / 1e6:.0f}) "
            f"| {self.disk_bytes / self.seconds / 1e6:.2f} | {self.newcomer} |"
        )


HEADER: Final = (
    "| flood | sent/s | p50 ms | p99 ms | max ms | CPU | memory MB (grown) | disk MB/s | newcomer |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def config() -> dict[str, Any]:
    """Default limits; the flooder may chat and open streams, and call nothing; guests may chat."""
    names = {"bystander": ["*"], "flooder": ["chat", "stream/request"], "newcomer": ["chat"]}
    return {
        "gateway": {"port": 0, "data": "data", "log": {"level": "error"}},
        "spaces": {
            SPACE: {
                "access": "public",
                "anonymous": [{"kind": "chat"}],
                "participants": {
                    name: {"tokens": [token_of(name)], "capabilities": [{"kind": kind} for kind in kinds]}
                    for name, kinds in names.items()
                },
            }
        },
    }


class Bystander:
    """A member that chats at a steady rate."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._sent: dict[str, float] = {}
        self.milliseconds: list[float] = []

    async def read(self) -> None:
        async for message in self._connection:
            now = time.perf_counter()
            if len(message) > 4096 or '"bystander-' not in message[:120]:
                continue
            sent = self._sent.pop(orjson.loads(message)["id"], None)
            if sent is not None:
                self.milliseconds.append((now - sent) * 1e3)

    async def talk(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number in range(int(seconds / _INTERVAL_SECONDS)):
            due = start + number * _INTERVAL_SECONDS
            await asyncio.sleep(max(0.0, due - loop.time()))
            id = f"bystander-{number}"
            # From when it was due: what waits behind a full socket waits, too.
            self._sent[id] = time.perf_counter() - max(0.0, loop.time() - due)
            await self._connection.send(
                orjson.dumps({"id": id, "kind": "chat", "payload": {"text": "hello"}}).decode()
            )

    async def finish(self) -> int:
        """Wait for what is still on its way; returns how many never came."""
        end = time.monotonic() + _LATE_SECONDS
        while self._sent and time.monotonic() < end:
            await asyncio.sleep(0.05)
        return len(self._sent)


def _url(port: int) -> str:
    return f"ws://127.0.0.1:{port}/ws?space={SPACE}"


def _token(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(name)}"}


async def _newcomer(port: int) -> str:
    """How long somebody with a token needs to get in, and how long its welcome is."""
    start = time.perf_counter()
    try:
        async with (
            asyncio.timeout(_LATE_SECONDS),
            connect(
                _url(port),
                additional_headers=_token("newcomer"),
                proxy=None,
                compression=None,
                max_size=_CLIENT_LIMIT_BYTES,
                open_timeout=_LATE_SECONDS,
            ) as connection,
        ):
            welcome = await connection.recv()
    except (WebSocketException, TimeoutError, OSError) as fault:
        return f"not let in ({type(fault).__name__})"
    return f"{(time.perf_counter() - start) * 1e3:,.0f} ms, {len(welcome) / 1e3:.0f} kB"


def _peak_bytes(server: Process) -> int:
    status = Path(f"/proc/{server.child.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def flood_gateway(flood: str, folder: Path, seconds: float, moot: str | None = None) -> Damage:
    """One gateway, one flood, one bystander."""
    async with gateway(folder / flood, config(), moot) as (server, url):
        port = int(url.split(":")[2].split("/")[0])
        async with connect(
            _url(port),
            additional_headers=_token("bystander"),
            proxy=None,
            compression=None,
            max_size=None,
            max_queue=None,
            ping_interval=None,
        ) as connection:
            bystander = Bystander(connection)
            reading = asyncio.create_task(bystander.read())
            resident, cpu = server.resident_bytes, server.cpu_seconds
            disk, start = _disk_bytes(folder / flood), time.monotonic()
            attack = [sys.executable, "-m", "bench.flood_attacks", flood, str(port), str(seconds)]
            async with started(attack, LOAD_CORE, folder / "attack.log") as attacker:
                talking = asyncio.create_task(bystander.talk(seconds))
                await asyncio.sleep(seconds * 0.6)
                newcomer = await _newcomer(port)
                await talking
                done = (await attacker.answer())["done"]
            took = time.monotonic() - start
            cpu = server.cpu_seconds - cpu
            lost = await bystander.finish()
            grown = server.resident_bytes - resident
            reading.cancel()
        return Damage(
            flood,
            done,
            bystander.milliseconds,
            lost,
            100 * cpu / took,
            _peak_bytes(server),
            grown,
            _disk_bytes(folder / flood) - disk,
            took,
            newcomer,
        )


async def measure(floods: Sequence[str], seconds: float, moot: str | None) -> None:
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory(prefix="moot-floods-") as name:
        for flood in floods:
            damage = await flood_gateway(flood, Path(name), seconds, moot)
            print(damage.row(), flush=True)


def run() -> None:
    """For `python -m bench --only floods`."""
    asyncio.run(measure(list(FLOODS), SECONDS, None))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.floods", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=list(FLOODS), action="append", help="one flood; may be given again")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each lasts (default 5)")
    parser.add_argument("--server", help="the `moot` command of another version, to compare with")
    chosen = parser.parse_args()
    asyncio.run(measure(chosen.only or list(FLOODS), chosen.seconds, chosen.server))


if __name__ == "__main__":
    main()
