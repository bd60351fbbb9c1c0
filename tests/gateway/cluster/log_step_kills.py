"""Whoever signs the log of a cluster is killed at each step from its entries to what a witness signed.

As in `log_failovers`, all that NATS ever has as the newest checkpoint is compared with the disk of who signed
it, and with all that was seen before. A witness is asked by the gateways themselves, so what it signed is in
none of two trees either.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from types import MappingProxyType

import uvloop

from moot.errors import UsageError
from moot.evidence.checkpoint import parse_checkpoint, signers
from moot.evidence.log_files import COSIGNED_FILE, LogReader
from moot.evidence.log_keys import read_keys, use_keys
from moot.evidence.merkle_tree import HASH_BYTES
from moot.evidence.signed_note import VerifierKey
from moot.gateway.evidence.witness_service import WitnessService
from tests.gateway.cluster.log_failovers import NAMES, SAID, LogFailovers
from tests.gateway.cluster.moot_killed_at_step import BLIND, KILL_AT, STEPS
from tests.gateway.cluster.nats_servers import NatsServers
from tests.waiting import bounded, until

_MODULE = "tests.gateway.cluster.moot_killed_at_step"
_ROOT = Path(__file__).resolve().parents[3]
# Where the witness has its keys and what it saw.
COSIGNER = "cosigner"


def run_log_step_kills(rounds: int, seed: int) -> str:
    """For `make soak`: each step in turn, and first a build that signs for what is not on disk."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            uvloop.run(_Blind(Path(folder), seed, [STEPS[6]]).run(1))
        except ExceptionGroup as faults:
            assert faults.subgroup(lambda each: "ahead of its disk" in str(each)), faults  # noqa: PT017
        else:
            raise AssertionError("the check does not see what is signed ahead of the disk")
    steps = random.Random(seed).sample(STEPS, len(STEPS))
    return kill_at([step for step, _ in zip(cycle(steps), range(rounds), strict=False)], seed)


def kill_at(steps: list[str], seed: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(LogStepKills(Path(folder), seed, steps).run(len(steps)))


class LogStepKills(LogFailovers):
    module = _MODULE
    environ = MappingProxyType({"PYTHONPATH": str(_ROOT)})

    def __init__(self, folder: Path, seed: int, steps: list[str]) -> None:
        super().__init__(folder, seed)
        self._steps: Iterator[str] = iter(steps)
        self._keys: list[VerifierKey] = []
        self._refused: list[str] = []
        self._cosigning: asyncio.Server | None = None

    async def _prepare(self, servers: NatsServers) -> None:
        """Have the log's name and key told to a witness, and the witness to all gateways."""
        assert (await self._gateways["a"].post("alice", SAID, space="lab")).status_code == 200
        origin = await until(lambda: self._origin_of("a"))
        keys = read_keys(self._folder / "a" / "data")
        assert keys is not None
        log = keys.verifiers(origin)[0]
        data = self._folder / COSIGNER
        data.mkdir(mode=0o700)
        own = use_keys(data).witness()
        witness = WitnessService(data, [str(log)], own)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length:")[2].split()[0])
            found = await witness.add_checkpoint(await reader.readexactly(size))
            # 409 says how much was seen: whoever signs after another one does not know.
            if found.status not in (200, 409):
                self._refused.append(f"{found.status} {found.body}")
            body = found.body.encode()
            top = f"HTTP/1.1 {found.status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(top.encode() + body)
            await writer.drain()
            writer.close()

        self._cosigning = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{self._cosigning.sockets[0].getsockname()[1]}"
        policy = self._folder / "policy"
        policy.write_text(f"log {log}\nwitness them {own.verifier} {url}\nquorum them\n")
        self._keys = [log, own.verifier]
        self.journal = {"witnesses": str(policy)}
        for name in NAMES:
            await self._gateways[name].close()
            await self._gateways[name].end()
            await self._start(name, servers)

    def _origin_of(self, name: str) -> str:
        try:
            reader = self.reader(name)
            return reader.about.origin if reader.signed()[0].size else ""
        except UsageError:
            return ""

    async def _fail_over(self, servers: NatsServers) -> float:
        """Have whoever signed last kill itself at the next step; returns how long nobody signed."""
        step = next(self._steps)
        await until(lambda: self._signer)
        victim, before = self._signer, self._newest
        # Only who signs comes to most steps, and another one may by now.
        armed = self._folder / victim / KILL_AT
        armed.write_text(step)
        gateway = self._gateways[victim]
        async with bounded():
            assert await gateway.process.wait() == -signal.SIGKILL
        loop = asyncio.get_running_loop()
        began = loop.time()
        armed.unlink()
        self._check_disk(victim, step)
        before = max(before, self._end_of(victim))
        await until(lambda: self._signer != victim and self._newest > before)
        took = loop.time() - began
        await gateway.close()
        await self._start(victim, servers)
        return took

    def _check_disk(self, name: str, step: str) -> None:
        """What a gateway left behind that was killed: nothing is signed ahead of its entries."""
        reader = self.reader(name)
        size = reader.signed()[0].size
        assert len(reader.entries(0, size)) == size * HASH_BYTES, f"signed ahead of its disk: {step}"
        assert reader.root(size) == reader.signed()[0].root, step
        self._check_cosigned(reader, step)

    def _check_cosigned(self, reader: LogReader, when: str) -> int:
        if not (reader.folder / COSIGNED_FILE).exists():
            return 0
        checkpoint, note = parse_checkpoint((reader.folder / COSIGNED_FILE).read_bytes())
        assert checkpoint.size <= reader.signed()[0].size, f"cosigned ahead of its checkpoint: {when}"
        assert reader.root(checkpoint.size) == checkpoint.root, f"cosigned over other entries: {when}"
        assert set(signers(note, self._keys)) == set(self._keys), when
        return checkpoint.size

    async def _check_all(self) -> None:
        await super()._check_all()
        assert not self._refused, self._refused
        await until(lambda: all(self._cosigned_size(name) == self._end_of(name) for name in NAMES))
        for name in NAMES:
            self._check_cosigned(self.reader(name), "at the end")
        assert self._cosigning is not None
        self._cosigning.close()

    def _cosigned_size(self, name: str) -> int:
        found = self.reader(name).cosigned()
        return 0 if found is None else found[0].size


class _Blind(LogStepKills):
    """The same with entries that are never synced."""

    environ = MappingProxyType({**LogStepKills.environ, BLIND: "1"})
