"""Gateways and NATS servers are killed and stopped under load: nothing acknowledged is lost, nothing happens
twice, and everybody hears the same order."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import uvloop
import websockets

from moot.protocol.operation import Json
from tests.cluster.histories import faults_of
from tests.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import (
    CALL,
    Closed,
    gateway_settings,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.served import Served, started

PEOPLE = participants(alice=["*"], bob=["*"], carol=["*"], tom=["*"])
LIMITS: dict[str, Json] = {"messages_per_second": 0, "bytes_per_second": 0, "max_recent_ids": 200_000}
NAMES = ("a", "b", "c")
# In turn: what goes wrong.
FAULTS = (
    "gateway killed",
    "gateway stopped",
    "gateway killed",
    "NATS killed",
    "gateway killed",
    "NATS stopped",
)
# Said by each poster between two faults.
POSTS = 15
_RETRY_SECONDS = 0.05


class ClusterRounds:
    """Three NATS servers, three gateways, and all that was acknowledged and heard so far."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        (folder / "nats").mkdir()
        self.nats = NatsServers(folder / "nats", 3)
        self.gateways: dict[str, Served] = {}
        self.acknowledged: list[str] = []
        self.heard: dict[str, list[str]] = {}
        self.executed: Counter[str] = Counter()
        self.longest = 0.0
        self.counts: Counter[str] = Counter()
        self._ids = itertools.count(1)

    def _file(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        cluster: Json = {"servers": self.nats.addresses, "shards": 1, "gateway": name, "connect_seconds": 30}
        spaces = {"lab": space_settings(PEOPLE, limits=LIMITS)}
        return write_config(folder, gateway_settings(spaces, cluster=cluster, max_connections_per_address=0))

    async def start(self, name: str) -> None:
        self.gateways[name] = await started(self._file(name))

    # Members

    async def post(self, who: str, envelope: dict[str, Json], start: int) -> str:
        """Say something, on the next gateway when one does not answer: the code of a refusal, or nothing."""
        began = time.monotonic()
        for number in itertools.count(start):
            gateway = self.gateways.get(NAMES[number % len(NAMES)])
            if gateway is None:
                continue
            try:
                async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=25) as client:
                    answer = await client.post(
                        f"/participants/{who}/messages?space=lab",
                        json=envelope,
                        headers={"Authorization": f"Bearer t-{who}"},
                    )
            except httpx.HTTPError:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            code = "" if answer.status_code == 200 else str(answer.json().get("error"))
            if code not in ("unavailable", "outcome_unknown", "the gateway is starting", "None"):
                self.longest = max(self.longest, time.monotonic() - began)
                return code
            await asyncio.sleep(_RETRY_SECONDS)
        raise AssertionError("without end")

    async def talk(self, who: str, start: int, count: int) -> None:
        for _ in range(count):
            id = f"chat-{next(self._ids)}"
            code = await self.post(who, {"id": id, "kind": "chat", "payload": {"text": id}}, start)
            # It may have been taken by a gateway that could not say so any more.
            assert code in ("", "duplicate_id"), code
            self.acknowledged.append(id)

    async def decide(self) -> None:
        """Two people carry one proposal out on two gateways at once."""
        id = f"proposal-{next(self._ids)}"
        said: dict[str, Json] = {"id": id, "kind": "mcp/proposal", "payload": CALL, "to": ["tom"]}
        assert await self.post("alice", said, 0) in ("", "duplicate_id")

        async def carry_out(who: str, start: int) -> str:
            request: dict[str, Json] = {"id": f"{id}-{who}", "kind": "mcp/request", "payload": CALL}
            return await self.post(who, request | {"to": ["tom"], "correlation_id": [id]}, start)

        codes = await asyncio.gather(carry_out("bob", 1), carry_out("carol", 2))
        assert set(codes) <= {"", "duplicate_id", "proposal_settled", "target_absent"}, codes

    async def listen(self, who: str, name: str) -> None:
        """Hear everything on one gateway, and come back when it is there again."""
        for number in itertools.count():
            seen = self.heard.setdefault(f"{who} at {name}, connection {number}", [])
            with suppress(OSError, Closed, websockets.WebSocketException, KeyError):
                client = await self.gateways[name].open("/ws?space=lab", token=f"t-{who}")
                while True:
                    message = await client.next()
                    if message["kind"] == "chat":
                        seen.append(message["id"])
                    elif message["kind"] == "mcp/request" and who == "tom" and name == "a":
                        self.executed[message["correlation_id"][0]] += 1
            await asyncio.sleep(_RETRY_SECONDS)

    # Faults

    async def round(self, number: int) -> None:
        fault = FAULTS[number % len(FAULTS)]
        talking = [
            asyncio.create_task(self.talk(who, start, POSTS))
            for start, who in enumerate(("alice", "bob", "carol"))
        ]
        talking.append(asyncio.create_task(self.decide()))
        await asyncio.sleep(self.random.uniform(0.05, 0.3))
        if fault.startswith("gateway"):
            name = self.random.choice(NAMES)
            gateway = self.gateways[name]
            if fault == "gateway killed":
                gateway.process.kill()
                await gateway.end(signal.SIGKILL)
                await self.start(name)
            else:
                gateway.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(self.random.choice((1.0, 14.0)))
                gateway.process.send_signal(signal.SIGCONT)
        else:
            index = self.random.randrange(3)
            if fault == "NATS killed":
                self.nats.kill(index)
                await asyncio.sleep(1)
                self.nats.start(index)
            else:
                self.nats.send(index, signal.SIGSTOP)
                await asyncio.sleep(3)
                self.nats.send(index, signal.SIGCONT)
        await asyncio.gather(*talking)
        for name, gateway in list(self.gateways.items()):
            if gateway.process.returncode is not None:
                # It ended by itself and said why, as it does under a supervisor.
                assert "differs from that of gateway" not in gateway.stderr(), gateway.stderr()
                await self.start(name)
        self.counts[fault] += 1

    async def run(self, rounds: int) -> str:
        await asyncio.gather(*(self.start(name) for name in NAMES))
        listening = [asyncio.create_task(self.listen("tom", name)) for name in NAMES]
        try:
            for number in range(rounds):
                await self.round(number)
            await self.start("z")
            # Everything that was acknowledged is in the log that it has read by now.
            for name in (*NAMES, "z"):
                await self.gateways[name].end()
        finally:
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)
            for gateway in self.gateways.values():
                await gateway.close()
                await gateway.end(signal.SIGKILL)
            self.nats.close()
        return self._check()

    def _check(self) -> str:
        histories = self.heard | {f"journal of {name}": self._journal(name) for name in (*NAMES, "z")}
        faults = faults_of(histories, self.acknowledged, whole="journal of z")
        faults += [f"{id} carried out {count} times" for id, count in self.executed.items() if count > 1]
        carried = Counter(self._journal("z", "mcp/request"))
        faults += [f"{id} carried out {count} times" for id, count in carried.items() if count > 1]
        assert not faults, faults[:20]
        counted = ", ".join(f"{count} times {fault}" for fault, count in self.counts.items())
        return (
            f"{counted}: {len(self.acknowledged)} acknowledged, none lost, doubled or swapped; "
            f"{len(carried)} proposals carried out once; the longest wait {self.longest:.1f} s"
        )

    def _journal(self, name: str, kind: str = "chat") -> list[str]:
        """Ids of what was accepted; of requests, the proposals that they carry out."""
        folder = self.folder / name / "data" / "spaces" / "lab" / "journal"
        found = []
        for file in sorted(folder.glob("*.jsonl")):
            for line in file.read_text("utf-8").splitlines():
                record = json.loads(line)
                if record.get("kind") == kind and record.get("out") == "accepted" and "raw" in record:
                    found.append(record["id"] if kind == "chat" else record["raw"]["correlation_id"][0])
        return found


def run_cluster_faults(cases: int, seed: int) -> str:
    folder = Path(tempfile.mkdtemp(prefix="moot-cluster-"))
    try:
        return uvloop.run(ClusterRounds(folder, seed).run(cases))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
