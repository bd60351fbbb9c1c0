"""Failing disks, clocks that jump and floods, counted under real gateways: for `make soak`."""

from __future__ import annotations

import asyncio
import errno
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path

import uvloop
from bench.flood_attacks import FLOODS
from bench.floods import flood_gateway

from moot.store.journal_reader import read_records, verify
from tests.gateway.fault_shim import HANGS, FaultShim, cut_power
from tests.gateway.hosting.test_clock_jumps import HOUR, LONG_SECONDS, pause, retry_after, set_clock
from tests.gateway.hosting.test_clock_jumps import config as clock_config
from tests.gateway.hosting.test_failing_disk import accepted_ids, error_of, ids_of, journal_of
from tests.gateway.hosting.test_failing_disk import config as disk_config
from tests.gateway.running_gateway import CALL, fields, healthy
from tests.gateway.served import Served, served, started

# So many faults or jumps meet one process; then the power goes, or it is stopped.
_FAULTS_PER_RUN = 10
_KINDS = ("full", "EIO at a write", "EIO at an fsync", "hanging")
_UNKNOWN = ((503, "outcome_unknown"), (503, "unavailable"))
# The limits of one member allow a journal of 8 MiB/s; of what is refused, next to nothing is kept.
_MAX_GROWN_BYTES = 64 << 20
_MAX_DISK_BYTES = 8 << 20
_FLOOD_SECONDS = 2.0


def run_disk_faults(cases: int, seed: int) -> str:
    """A full disk, EIO at a write or an fsync, and an fsync that hangs, at random steps."""
    met: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, cases, _FAULTS_PER_RUN):
            here = Path(folder) / str(first)
            here.mkdir()
            count = min(_FAULTS_PER_RUN, cases - first)
            met += uvloop.run(_fail_disk(here, count, random.Random(f"{seed} {first}")))
    kinds = ", ".join(f"{met[name]} {name}" for name in _KINDS)
    return (
        f"{cases} faults ({kinds}), {met['acknowledged']} messages acknowledged, none lost or doubled; "
        f"{met['unknown']} told as unknown"
    )


async def _fail_disk(folder: Path, count: int, drawn: random.Random) -> Counter[str]:
    shim = FaultShim(folder)
    shim.set(forgets=1)
    file = disk_config(folder, drawn.choice(["on", "strict"]), segment_bytes=3_000)
    gateway = await started(file, environ=shim.environ)
    met: Counter[str] = Counter()
    promised: set[str] = set()
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        _break_disk(shim, kind, drawn)
        met[kind] += 1
        promised |= await _post_until_it_fails(gateway, f"{number}", met)
        shim.heal()
        await healthy(gateway, "ok")
    await gateway.close()
    await gateway.end(signal.SIGKILL)
    cut_power(journal_of(folder))
    async with served(file, environ=shim.environ):
        pass
    found = accepted_ids(folder)
    assert promised <= set(found), promised - set(found)
    assert len(found) == len(set(found))
    return met + Counter(acknowledged=len(promised))


def _break_disk(shim: FaultShim, kind: str, drawn: random.Random) -> None:
    if kind == "full":
        shim.set(write_room=drawn.randrange(2_000))
    elif kind == "EIO at a write":
        shim.set(write_fault=errno.EIO, write_room=drawn.randrange(2_000))
    else:
        fault = HANGS if kind == "hanging" else errno.EIO
        shim.set(sync_passes=drawn.randrange(4), sync_fault=fault)


async def _post_until_it_fails(gateway: Served, prefix: str, met: Counter[str]) -> set[str]:
    """The ids that were acknowledged; what is told as unknown is nowhere to be seen while the disk fails."""
    promised: set[str] = set()
    for number in range(60):
        id = f"{prefix}-{number}"
        answer = await gateway.post("bob", fields("chat", {"text": "x" * 50}, id=id))
        if answer.status_code == 200:
            promised.add(id)
            continue
        assert error_of(answer) in _UNKNOWN, answer.text
        await healthy(gateway, "degraded")
        assert await ids_of(gateway, id) == []
        met["unknown"] += 1
        return promised
    raise AssertionError("the disk failed, and nobody was told")


def run_clock_jumps(cases: int, seed: int) -> str:
    """A wall clock that is set by up to 1,000 hours either way: no deadline comes earlier or later."""
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, cases, _FAULTS_PER_RUN):
            here = Path(folder) / str(first)
            here.mkdir()
            count = min(_FAULTS_PER_RUN, cases - first)
            uvloop.run(_set_clock_often(here, count, random.Random(f"{seed} {first}")))
    return f"{cases} jumps: no pause, proposal, poll or rate noticed one, and no record is out of order"


async def _set_clock_often(folder: Path, count: int, drawn: random.Random) -> None:
    shim = FaultShim(folder)
    environ = shim.environ | ({"MOOT_PURE_PYTHON": "1"} if drawn.random() < 0.5 else {})
    async with served(clock_config(folder, messages_per_second=0), environ=environ) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
        await pause(alice, LONG_SECONDS)
        left = await retry_after(agent)
        for number in range(count):
            since = (await gateway.poll("alice"))["next"]
            set_clock(shim, drawn.uniform(-1_000, 1_000) * HOUR)
            assert await alice.refused("chat", {"text": "x"}, id=f"c{number}") is None
            received = [each["id"] for each in (await gateway.poll("alice", since=since))["messages"]]
            assert received == [f"c{number}"], received
            before, left = left, await retry_after(agent)
            assert 0 < left <= before
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p1"]) == "target_absent"
    journal = folder / "data" / "spaces" / "lab" / "journal"
    assert verify(journal).ok
    times = [record.time for record in read_records(journal)]
    assert times == sorted(times)
    assert times[-1] - times[0] < LONG_SECONDS


def run_floods(cases: int, seed: int) -> str:
    """Each flood in turn: a bystander loses nothing, and neither memory nor disk fill up."""
    floods = [name for name in FLOODS if name != "idle"]
    sent, worst = 0, (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(cases):
            name = floods[(seed + number) % len(floods)]
            here = Path(folder) / str(number)
            here.mkdir()
            damage = asyncio.run(flood_gateway(name, here, _FLOOD_SECONDS))
            assert damage.lost == 0, f"{name}: {damage.lost} messages of a bystander never came back"
            assert damage.grown_bytes < _MAX_GROWN_BYTES, f"{name}: memory {damage.grown_bytes}"
            assert damage.disk_bytes < _MAX_DISK_BYTES, f"{name}: disk {damage.disk_bytes}"
            sent += damage.done
            worst = max(worst, (damage.percentile(0.99), name))
    slowest = f"worst p99 {worst[0]:.0f} ms ({worst[1]})"
    return f"{cases} floods of {sent} messages, none of a bystander lost; {slowest}"
