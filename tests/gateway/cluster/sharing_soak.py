"""Gateways that share their shards end, come, go, are paused and cut off under load, while shards move.

Nothing acknowledged is lost, nothing happens twice, everybody hears one order, and nobody who was revoked is
heard.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from pathlib import Path
from typing import ClassVar

import uvloop

from moot.protocol.operation import Json
from tests.gateway.cluster.cluster_rounds import NAMES, ClusterRounds
from tests.gateway.cluster.cluster_soak import FaultSchedule, keep, summary
from tests.gateway.cluster.machines import Machines, why_not
from tests.gateway.cluster.planted_faults import PLANTED
from tests.gateway.cluster.sharing_faults import ALONE, GUEST, ON_MACHINES, stop_serving

_SHARDS = 8
# Broken builds that are tried.
_PLANTED = ("lost", "carried out twice")


class SharingRounds(ClusterRounds):
    """Three gateways that are always there, a fourth that comes and goes, and spaces in several shards."""

    spaces = ("lab", "s2", "s4", "s9")
    names = (*NAMES, GUEST)
    shard: ClassVar[int] = 1 + zlib.crc32(b"lab") % (_SHARDS - 1)

    def __init__(self, folder: Path, seed: int, machines: Machines | None, planted: str = "") -> None:
        super().__init__(folder, seed, machines, planted)
        self.roaming.are_relayed = True

    def cluster_settings(self, _name: str) -> dict[str, Json]:
        return {"serves": "shared", "shards": _SHARDS}


def run_sharing_faults(cases: int, seed: int) -> str:
    folder = Path(tempfile.mkdtemp(prefix="moot-sharing-"))
    missing = why_not()
    machines = Machines() if missing is None else None
    is_clean = False
    try:
        rounds = SharingRounds(folder, seed, machines)
        schedule = FaultSchedule(rounds, ALONE | (ON_MACHINES if machines else {}))
        uvloop.run(rounds.run(schedule.run_next, cases))
        is_clean = not rounds.ended_themselves
        return f"{summary(rounds, schedule.counts, missing)}; {_pauses(rounds)}"
    finally:
        if not is_clean:
            print(f"kept: {keep(folder)}", flush=True)
        if machines is not None:
            machines.close()
        shutil.rmtree(folder, ignore_errors=True)


def _pauses(rounds: SharingRounds) -> str:
    """How long members of the SDK were without a connection."""
    found = sorted((fault, sorted(seconds)) for fault, seconds in rounds.roaming.pauses.items() if seconds)
    return "pauses of members, median and longest: " + ", ".join(
        f"{fault} {seconds[len(seconds) // 2]:.2f} and {seconds[-1]:.2f} s ({len(seconds)})"
        for fault, seconds in found
    )


def run_planted_sharing_faults(cases: int, seed: int) -> str:
    """The same check on builds that are broken: each has to be seen, in so many rounds."""
    for name in _PLANTED:
        with tempfile.TemporaryDirectory(prefix="moot-sharing-") as folder:
            rounds = SharingRounds(Path(folder), seed, None, name)
            try:
                uvloop.run(rounds.run(FaultSchedule(rounds, {name: (stop_serving, 1)}).run_next, cases))
            except AssertionError as fault:
                if PLANTED[name].seen_as not in str(fault):
                    raise
            else:
                raise AssertionError(f"the check does not see what is {name}")
    return f"{', '.join(_PLANTED)}: each was planted and seen, in {cases} rounds at most"
