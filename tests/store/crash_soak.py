"""Kill -9 and power cuts: a child appends as fast as it can, its parent ends it at random moments.

What the child reported as durable before it died must be there, once, with its content; the chain must hold.
`python -m tests.store.crash_soak FOLDER ROUND` is the child.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from moot.store.journal_reader import read_records, verify
from moot.store.open_journal import open_journal
from tests.store.journals import TriedJournal, folder_in, segments, value_record

ROOT = Path(__file__).resolve().parent.parent.parent
# Small, so that segments begin all the time.
SETTINGS = TriedJournal(segment_bytes=40_000, sync_seconds=0.001)


def run_journal_crashes(rounds: int, seed: int) -> str:
    """Crash this many times; raises AssertionError for anything lost, doubled or unchained."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="moot-crash-") as scratch:
        folder = folder_in(Path(scratch))
        acknowledged: dict[int, tuple[int, int]] = {}
        for round in range(rounds):
            acknowledged |= crash_once(
                folder, round, rng.choice([0, 1, rng.randrange(300), rng.randrange(3_000)])
            )
            cut_power(folder, max(acknowledged, default=0), rng)
            check(folder, acknowledged, f"seed {seed}, round {round}")
        records = sum(1 for _ in read_records(folder))
        torn = len(list(folder.glob("*.torn")))
        return f"{rounds} crashes, {len(acknowledged)} of {records} records acknowledged, {torn} torn ends"


def crash_once(folder: Path, round: int, acks: int) -> dict[int, tuple[int, int]]:
    """One life of a child, ended after so many reports; returns all reports, number → round and count."""
    command = [sys.executable, "-m", "tests.store.crash_soak", str(folder), str(round)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)  # noqa: S603
    assert child.stdout is not None
    with child.stdout as reports:
        # The first line says that it is ready.
        lines = [reports.readline() for _ in range(acks + 1)]
        child.kill()
        lines += reports.readlines()
    child.wait()
    assert lines[0] == b"ready\n", "the child did not start"
    # The last one may have been cut short by the kill.
    whole = [line.split() for line in lines[1:] if line.endswith(b"\n")]
    return {int(number): (round, int(count)) for number, count in whole}


def cut_power(folder: Path, durable: int, rng: random.Random) -> None:
    """Lose a part of what no fsync covered, as a power cut may."""
    paths = segments(folder)
    last = paths[-1]
    if rng.random() < 0.5 or int(last.stem) > durable + 1:
        return
    safe = 0
    for line in last.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n") or int(line[5 : line.index(b",")]) > durable:
            break
        safe += len(line)
    os.truncate(last, rng.randint(safe, last.stat().st_size))


def check(folder: Path, acknowledged: dict[int, tuple[int, int]], where: str) -> None:
    verdict = verify(folder)
    assert verdict.ok, f"{where}: {verdict}"
    found = {record.number: tuple(record.fields["x"][:2]) for record in read_records(folder)}
    assert len(set(found.values())) == len(found), f"{where}: a record is there twice"
    for number, what in acknowledged.items():
        assert found.get(number) == what, f"{where}: {number} should be {what}, is {found.get(number)}"


def report(number: int, count: int) -> None:
    os.write(1, b"%d %d\n" % (number, count))


async def append_for_ever(folder: Path, round: int) -> None:
    journal = open_journal(folder, SETTINGS.settings)
    os.write(1, b"ready\n")
    rng = random.Random(round)
    count = 0
    while True:
        for _ in range(rng.choice([1, 1, 5, 100])):
            filling = "é" * rng.choice([0, 10, 300, 3_000])
            number = journal.append(value_record([round, count, filling]))
            journal.when_durable(number, partial(report, number, count))
            count += 1
        await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(append_for_ever(Path(sys.argv[1]), int(sys.argv[2])))
