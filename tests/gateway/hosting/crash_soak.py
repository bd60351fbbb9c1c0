"""kill -9 under load: no acknowledged record is lost or doubled, the chain holds, and the restart is quick.

What counts as acknowledged: HTTP 200, and under `journal: strict` whatever was delivered (D-41).
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import uvloop
import websockets

from moot.protocol.operation import Json
from moot.store.journal_reader import read_records, verify
from tests.gateway.running_gateway import (
    Client,
    Closed,
    fields,
    gateway_settings,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.served import Served, started
from tests.waiting import until

PEOPLE = participants(alice=["*"], bob=["*"], carol=["*"])
NO_PACE: dict[str, Json] = {"messages_per_second": 0, "bytes_per_second": 0}
# Every id of a run is known to its end, so that none can be accepted twice.
LIMITS = NO_PACE | {"max_recent_ids": 200_000}
POSTERS = 4
# So many in each round before the plug is pulled.
PROMISES = 8
# A restart with 100,000 records has this long: here just short of the next snapshot, so that as
# many as possible are played again.
MANY_RECORDS = 99_900
RESTART_SECONDS = 2.0


class Crashes:
    """One data folder, and all that was acknowledged in it so far."""

    def __init__(self, folder: Path, seed: int, *, strict: bool) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        journal: Json = {"mode": "strict" if strict else "on", "segment_bytes": 200_000}
        gateway: dict[str, Json] = {"journal": journal, "snapshot_records": 500}
        spaces = {"lab": space_settings(PEOPLE, limits=LIMITS)}
        self.file = write_config(folder, gateway_settings(spaces, **gateway))
        self.strict = strict
        self.acknowledged: set[str] = set()
        self.tokens: dict[str, str] = {}
        self.slowest = 0.0
        self.rounds = 0

    @property
    def journal(self) -> Path:
        return self.folder / "data" / "spaces" / "lab" / "journal"

    async def round(self) -> None:
        """Start, look at what is there, talk from all sides, and pull the plug in the middle."""
        start = time.monotonic()
        gateway = await started(self.file)
        self.slowest = max(self.slowest, time.monotonic() - start)
        try:
            await self._check_invitees(gateway)
            async with asyncio.TaskGroup() as tasks:
                for number in range(POSTERS):
                    tasks.create_task(self._post(gateway, number))
                tasks.create_task(self._talk(gateway))
                before = len(self.acknowledged)
                await until(lambda: len(self.acknowledged) >= before + PROMISES)
                await asyncio.sleep(self.random.uniform(0, 0.3))
                gateway.process.send_signal(signal.SIGKILL)
        finally:
            await gateway.close()
            await gateway.end(signal.SIGKILL)
        assert "Traceback" not in gateway.stderr(), gateway.stderr()
        self.rounds += 1
        self.check_journal()

    async def _post(self, gateway: Served, number: int) -> None:
        """Chats and invitations; what was answered 200 is promised."""
        invited = 0
        while True:
            id = f"{self.rounds}-{number}-{self.random.getrandbits(48):x}"
            envelope = fields("chat", {"text": "x" * self.random.randrange(300)}, id=id)
            if self.random.random() < 0.05:
                invited += 1
                name = f"guest-{self.rounds}-{number}-{invited}"
                invite = {"participant_id": name, "initial_capabilities": [{"kind": "chat"}]}
                envelope = fields("space/invite", invite, id=id)
            try:
                answer = await gateway.post("carol", envelope)
            except httpx.TransportError:
                return
            if answer.status_code == 200:
                self.acknowledged.add(id)
                if "token" in answer.json():
                    self.tokens[answer.json()["participant_id"]] = answer.json()["token"]

    async def _talk(self, gateway: Served) -> None:
        """alice talks as fast as bob hears; under `strict` what bob heard is promised too."""
        try:
            alice, bob = await gateway.join("alice"), await gateway.join("bob")
        except (OSError, websockets.WebSocketException, Closed):
            return
        try:
            while True:
                ids = [f"{self.rounds}-ws-{self.random.getrandbits(48):x}" for _ in range(20)]
                for id in ids:
                    await alice.say("chat", {"text": "y" * self.random.randrange(200)}, id=id)
                await self._hear(bob, ids[-1])
        except (OSError, websockets.WebSocketException, Closed):
            # The plug was pulled.
            pass
        finally:
            if self.strict:
                self.acknowledged |= {each["id"] for each in bob.received if each["from"] == "alice"}

    async def _hear(self, bob: Client, id: str) -> None:
        await bob.hear(lambda each: each["id"] == id)

    async def _check_invitees(self, gateway: Served) -> None:
        """Invitations that were acknowledged open the door after any number of crashes."""
        chosen = self.random.sample(sorted(self.tokens), min(3, len(self.tokens)))
        for name in chosen:
            answer = await gateway.post(name, fields("chat"), token=self.tokens[name])
            assert answer.status_code == 200, (name, answer.text)
        # What was seen stays seen.
        for id in self.random.sample(sorted(self.acknowledged), min(3, len(self.acknowledged))):
            answer = await gateway.post("carol", fields("chat", id=id))
            assert answer.json().get("error") == "duplicate_id", answer.text

    def check_journal(self) -> None:
        verdict = verify(self.journal)
        assert verdict.ok, verdict
        found = Counter(
            record.id for record in read_records(self.journal) if record.text("out") == "accepted"
        )
        lost = self.acknowledged - found.keys()
        assert not lost, f"{len(lost)} acknowledged records are gone, as {sorted(lost)[:3]}"
        doubled = [id for id, times in found.items() if id and times > 1]
        assert not doubled, f"recorded twice: {doubled[:3]}"


async def crash(folder: Path, rounds: int, seed: int, *, strict: bool) -> Crashes:
    crashes = Crashes(folder, seed, strict=strict)
    for _ in range(rounds):
        await crashes.round()
    return crashes


async def restart_with_many_records(folder: Path, records: int) -> tuple[float, float]:
    """How long a gateway that was killed takes to listen again, with so many records behind the snapshot.

    In seconds, and in seconds of CPU.
    """
    spaces = {"lab": space_settings(PEOPLE, limits=NO_PACE)}
    file = write_config(folder, gateway_settings(spaces, outbox_messages=1_000_000, outbox_bytes=1 << 30))
    gateway = await started(file)
    alice = await gateway.join("alice", "&echo=0")
    for number in range(records):
        await alice.send(b'{"id":"m-%d","kind":"chat","payload":{"text":"one of very many"}}' % number)
    await alice.fence()
    assert (await gateway.post("alice", fields("chat"))).status_code == 200
    await gateway.close()
    await gateway.end(signal.SIGKILL)
    start = time.monotonic()
    again = await started(file)
    seconds, cpu_seconds = time.monotonic() - start, again.cpu_seconds()
    answer = await again.post("alice", fields("chat", id=f"m-{records - 1}"))
    assert answer.json().get("error") == "duplicate_id"
    await again.close()
    await again.end()
    return seconds, cpu_seconds


def run_gateway_crashes(rounds: int, seed: int) -> str:
    """For `make soak`: half of the rounds under `on`, half under `strict`; then one large restart."""

    async def run() -> str:
        folder = Path(tempfile.mkdtemp(prefix="moot-crashes-"))
        try:
            parts = []
            for strict in (False, True):
                place = folder / f"strict-{strict}"
                place.mkdir()
                crashes = await crash(place, max(1, rounds // 2), seed, strict=strict)
                kept = len(crashes.acknowledged)
                parts.append(f"{crashes.rounds} crashes, {kept} acknowledged records kept")
            place = folder / "many"
            place.mkdir()
            seconds, _ = await restart_with_many_records(place, MANY_RECORDS)
            assert seconds <= RESTART_SECONDS, f"{MANY_RECORDS} records took {seconds:.1f} s to come back"
            return "; ".join([*parts, f"{MANY_RECORDS} records back in {seconds:.2f} s"])
        finally:
            shutil.rmtree(folder)

    return uvloop.run(run())
