"""Gateways and NATS servers are killed, paused, cut off, filled up and misled about the time under load:
nothing acknowledged is lost, nothing happens twice, everybody hears the same order, and nobody who was
revoked is heard."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import uvloop

from tests.gateway.cluster.cluster_faults import (
    ALONE,
    ON_MACHINES,
    ON_SMALL_DISKS,
    Fault,
    mount_stores,
    stop_gateway,
    unmount,
)
from tests.gateway.cluster.cluster_rounds import NAMES, ClusterRounds
from tests.gateway.cluster.machines import Machines, why_not
from tests.gateway.cluster.planted_faults import PLANTED
from tests.gateway.cluster.roaming_members import RoamingMembers

# Said by each poster in a round at least, and so long between two messages.
_POSTS = 15
_PAUSE_SECONDS = 0.05
# A round that takes longer hangs.
_ROUND_SECONDS = 300
# What everybody waits for is written down so long before, while they still do.
_DUMP_SECONDS = 15


class FaultSchedule:
    """Which fault is next: each as often as it is listed in a cycle, in a random order."""

    def __init__(self, rounds: ClusterRounds, faults: dict[str, tuple[Fault, int]]) -> None:
        self._rounds = rounds
        self._faults = {name: fault for name, (fault, _) in faults.items()}
        self._cycle = [name for name, (_, times) in faults.items() for _ in range(times)]
        self._left: list[str] = []
        self.counts: Counter[str] = Counter()

    async def run_next(self, _number: int) -> None:
        if not self._left:
            self._left = self._rounds.random.sample(self._cycle, len(self._cycle))
        name = self._rounds.fault = self._left.pop()
        rounds, is_over = self._rounds, asyncio.Event()
        rounds.roaming.fault = name
        rounds.faults_so_far.append(name)

        async def repeat(act: Callable[[], Awaitable[None]], pause_seconds: float, least: int) -> None:
            for done in itertools.count(1):
                await act()
                if is_over.is_set() and done >= least:
                    return
                await asyncio.sleep(pause_seconds)

        dump = asyncio.get_running_loop().call_later(_ROUND_SECONDS - _DUMP_SECONDS, rounds.dump_tasks)
        try:
            async with asyncio.timeout(_ROUND_SECONDS), asyncio.TaskGroup() as group:
                for start, who in enumerate(("alice", "bob", "carol")):
                    group.create_task(repeat(partial(rounds.talk, who, start, 1), _PAUSE_SECONDS, _POSTS))
                group.create_task(repeat(rounds.decide, 5 * _PAUSE_SECONDS, 1))
                group.create_task(repeat(rounds.move_shard, rounds.random.uniform(0.2, 3.0), 1))
                await asyncio.sleep(rounds.random.uniform(0.05, 0.3))
                await self._faults[name](rounds)
                is_over.set()
        except TimeoutError:
            told = await rounds.statuses()
            raise AssertionError(
                f"hangs, the last of {rounds.faults_so_far}: {told}; the file tasks and each stderr tell more"
            ) from None
        finally:
            dump.cancel()
        self.counts[name] += 1


def run_cluster_faults(cases: int, seed: int) -> str:
    folder = Path(tempfile.mkdtemp(prefix="moot-cluster-"))
    missing = why_not()
    machines = Machines() if missing is None else None
    disks = mount_stores([folder / "nats" / f"n{index}" for index in range(len(NAMES))])
    is_clean = False
    try:
        faults = ALONE | (ON_MACHINES if machines else {})
        faults |= ON_SMALL_DISKS if len(disks) == len(NAMES) else {}
        rounds = ClusterRounds(folder, seed, machines)
        schedule = FaultSchedule(rounds, faults)
        uvloop.run(rounds.run(schedule.run_next, cases))
        # What gateways and NATS wrote tells why one ended by itself.
        is_clean = not rounds.ended_themselves
        return summary(rounds, schedule.counts, missing, has_disks="NATS disk full" in faults)
    finally:
        if not is_clean:
            print(f"kept: {keep(folder)}", flush=True)
        if machines is not None:
            machines.close()
        unmount(disks)
        shutil.rmtree(folder, ignore_errors=True)


def run_planted_faults(cases: int, seed: int) -> str:
    """The same check on builds that are broken: each has to be seen, in so many rounds."""
    for name, planted in PLANTED.items():
        with tempfile.TemporaryDirectory(prefix="moot-cluster-") as folder:
            rounds = ClusterRounds(Path(folder), seed, None, name)
            schedule = FaultSchedule(rounds, {"gateway paused": (stop_gateway, 1)})
            try:
                uvloop.run(rounds.run(schedule.run_next, cases))
            except AssertionError as fault:
                if planted.seen_as not in str(fault):
                    raise
            else:
                raise AssertionError(f"the check does not see what is {name}")
    return f"{', '.join(PLANTED)}: each was planted and seen, in {cases} rounds at most"


def keep(folder: Path) -> Path:
    """A copy of what was written, without disks that are unmounted."""
    kept = folder.with_name(f"{folder.name}-kept")
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("filler", "*.sock"), dirs_exist_ok=True)
    return kept


def _returns(roaming: RoamingMembers) -> str:
    away = sorted(roaming.back_seconds)
    if not away:
        return "no member was at a gateway that was killed"
    return (
        f"{len(away)} members of killed gateways were back after {away[len(away) // 2]:.2f} s (median) and "
        f"{away[-1]:.2f} s (longest)"
        f"{'' if roaming.are_relayed else ', none of others was interrupted'}"
    )


def summary(
    rounds: ClusterRounds, counts: Counter[str], missing: str | None, *, has_disks: bool = True
) -> str:
    counted = ", ".join(
        f"{count} times {name} (longest wait {rounds.longest[name]:.1f} s)"
        for name, count in sorted(counts.items())
    )
    late = [
        each.sent_at - rounds.revoked_at[each.sender]
        for each in rounds.frames
        if each.sender in rounds.revoked_at
    ]
    left_out = [] if missing is None else [f"no partitions: {missing}"]
    left_out += [] if has_disks else ["no full disks: nothing can be mounted here"]
    return "; ".join(
        [
            f"{counted}: {len(rounds.acknowledged)} acknowledged, none lost, doubled or swapped",
            f"{rounds.carried_out} proposals carried out once",
            f"the shard {', '.join(f'{count} times {what}' for what, count in sorted(rounds.moves.items()))}",
            f"{len(rounds.frames)} frames, the last sent {max(late, default=0):+.2f} s from a revocation",
            f"{sum(map(len, rounds.polled.values()))} polled, "
            f"with {len(rounds.polled) - len(rounds.spaces)} gaps that were told",
            _returns(rounds.roaming),
            f"{rounds.ended_themselves} gateways ended by themselves, {rounds.failed_starts} starts failed",
            *left_out,
        ]
    )
