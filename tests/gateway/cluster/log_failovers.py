"""Whoever signs the log of a cluster is killed again and again: there is one tree, and a witness saw it."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import httpx
import msgspec
import nats
import uvloop
from nats.errors import Error as NatsError
from nats.js.errors import KeyNotFoundError, NoKeysError, NotFoundError
from nats.js.kv import KeyValue

from moot.errors import UsageError
from moot.evidence.checkpoint import Checkpoint, parse_checkpoint, signers
from moot.evidence.log_check import check_log
from moot.evidence.log_files import LogReader
from moot.evidence.log_keys import read_keys, use_keys
from moot.evidence.merkle_tree import HASH_BYTES, proves_consistency
from moot.evidence.witness import WitnessRequest
from moot.gateway.cluster.nats.log_exchange import SharedNote
from moot.gateway.evidence.witness_service import WitnessService
from moot.protocol.operation import Json
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import gateway_settings, participants, space_settings, write_config
from tests.gateway.served import Served, started
from tests.waiting import until

NAMES = ("a", "b", "c")
PEOPLE = participants(alice=["*"])
SAID: Json = {"kind": "chat", "payload": {"text": "x"}}
LIMITS = {"messages_per_second": 0, "bytes_per_second": 0, "max_recent_ids": 200_000}


def run_log_failovers(rounds: int, seed: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(LogFailovers(Path(folder), seed).run(rounds))


class LogFailovers:
    module = "moot.cli"
    environ: Mapping[str, str] = MappingProxyType({})

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._gateways: dict[str, Served] = {}
        # Every checkpoint that could be seen, by its size, and who signed it.
        self.seen: dict[int, Checkpoint] = {}
        self._newest = 0
        self._signer = ""
        self._said = 0
        self._witnessed = 0
        self._witness: WitnessService | None = None
        self._posts = 0
        self._is_over = False
        self.journal: Json = {}

    async def run(self, rounds: int) -> str:
        (self._folder / "nats").mkdir()
        servers = NatsServers(self._folder / "nats", 3)
        try:
            for name in NAMES:
                (self._folder / name).mkdir()
                await self._start(name, servers)
            await self._prepare(servers)
            client = await nats.connect(servers.addresses)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._talk())
                tasks.create_task(self._look(await self._bucket(client.jetstream())))
                try:
                    took = [await self._fail_over(servers) for _ in range(rounds)]
                finally:
                    # Not by cancelling alone: the client of NATS waits by `wait_for`, which may swallow it.
                    self._is_over = True
            await self._check_all()
            await client.close()
        finally:
            for gateway in self._gateways.values():
                await gateway.close()
                await gateway.end()
            servers.close()
        return (
            f"{rounds} signers killed, {self._posts} messages, {len(self.seen)} checkpoints of one tree of "
            f"{self._newest} entries, {self._witnessed} witnessed; the next one signed after "
            f"{sorted(took)[len(took) // 2]:.1f} s (median), {max(took):.1f} s at most"
        )

    async def _prepare(self, servers: NatsServers) -> None:
        """Once all of them run."""

    async def _start(self, name: str, servers: NatsServers) -> None:
        cluster = {"servers": servers.addresses, "name": "logs", "replicas": 3, "shards": 1, "gateway": name}
        space = {"lab": space_settings(PEOPLE, limits=LIMITS)}
        settings = gateway_settings(space, cluster=cluster, journal=self.journal)
        file = write_config(self._folder / name, settings)
        self._gateways[name] = await started(file, module=self.module, environ=self.environ)

    @staticmethod
    async def _bucket(context: nats.js.JetStreamContext) -> KeyValue:
        while True:
            with suppress(NotFoundError):
                return await context.key_value("logs-shared")
            await asyncio.sleep(0.05)

    async def _talk(self) -> None:
        """Somebody says something at one gateway or another; the one that was killed answers nobody."""
        while not self._is_over:
            gateway = self._gateways[self._random.choice(NAMES)]
            with suppress(httpx.HTTPError, RuntimeError):
                answer = await gateway.post("alice", SAID, space="lab")
                self._posts += answer.status_code == 200
            await asyncio.sleep(0.02)

    async def _look(self, bucket: KeyValue) -> None:
        """Look at the newest checkpoint, as fast as can be."""
        key = ""
        while not self._is_over:
            try:
                if not key:
                    key = next(each for each in await bucket.keys() if each.endswith(".checkpoint"))
                found = msgspec.json.decode((await bucket.get(key)).value or b"", type=SharedNote)
                await self._take(found)
            except (NatsError, KeyNotFoundError, NoKeysError, StopIteration):
                key = ""
            await asyncio.sleep(0.02)

    def reader(self, name: str) -> LogReader:
        return LogReader(self._folder / name / "data" / "spaces" / "lab" / "log")

    async def _take(self, found: SharedNote) -> None:
        checkpoint, note = parse_checkpoint(found.note.encode())
        size = checkpoint.size
        before = self.seen.setdefault(size, checkpoint)
        assert before == checkpoint, f"two roots for {size} entries"
        reader = self.reader(found.by)
        assert len(reader.entries(0, size)) == size * HASH_BYTES, f"{found.by} signed ahead of its disk"
        if size <= self._newest:
            # Seen already; a server of NATS that is behind may tell of an earlier one once more.
            return
        keys = read_keys(self._folder / found.by / "data")
        assert keys is not None
        known = keys.verifiers(checkpoint.origin)
        assert signers(note, known), "signed by nobody's key"
        if self._witness is None:
            data = self._folder / "witness"
            data.mkdir()
            self._witness = WitnessService(data, [str(known[0])], use_keys(data).witness())
        proof = reader.consistency(self._newest, size)
        answer = await self._witness.add_checkpoint(
            str(WitnessRequest(self._newest, proof, checkpoint, note)).encode()
        )
        assert answer.status == 200, answer.body
        self._witnessed += 1
        self._newest, self._signer = size, found.by

    async def _fail_over(self, servers: NatsServers) -> float:
        """Kill whoever signed last, somewhere in its work; returns how long nobody signed."""
        await until(lambda: self._signer)
        await asyncio.sleep(self._random.uniform(0, 1.5))
        victim, before = self._signer, self._newest
        loop = asyncio.get_running_loop()
        await self._gateways[victim].end(signal.SIGKILL)
        began = loop.time()
        await until(lambda: self._signer != victim and self._newest > before)
        took = loop.time() - began
        await self._gateways[victim].close()
        await self._start(victim, servers)
        return took

    async def _check_all(self) -> None:
        """All gateways come to the same end, and all that was ever seen is a beginning of it."""
        await until(
            lambda: len({self._end_of(each) for each in NAMES}) == 1 and self._end_of("a") >= self._newest
        )
        ordered = [self.seen[size] for size in sorted(self.seen)]
        reader = self.reader("a")
        for one, other in itertools.pairwise(ordered):
            path = reader.consistency(one.size, other.size)
            assert proves_consistency(one.size, one.root, other.size, other.root, path)
        for name in NAMES:
            folder = self.reader(name).folder
            report = check_log(folder.parent / "journal", folder, [], None)
            assert not report.faults, report.faults

    def _ends(self) -> set[int]:
        return {self._end_of(each) for each in NAMES}

    def _end_of(self, name: str) -> int:
        try:
            return self.reader(name).signed()[0].size
        except UsageError:
            return 0
