"""What a member costs that only listens, and how long joining takes while others talk."""

from __future__ import annotations

import math
import resource
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import fanout
from bench.processes import gateway, load

WANTED = 10_000
# Everybody in a space hears of everybody who joins it, so one space of 10,000 would measure that.
MEMBERS_PER_SPACE = 100
# What a process needs besides its connections: files, pipes, the journals and folders of its spaces.
_OTHER_FILES = 512

JOINS = 400
FLOW_PER_SECOND = 1_000
LISTENERS = 10


@dataclass
class Idle:
    connections: int
    bytes_each: float

    @property
    def scaled_down(self) -> bool:
        return self.connections < WANTED


@dataclass
class Joins:
    median_ms: float
    p99_ms: float
    count: int


def raise_file_limit() -> int:
    """As many open files as the system lets us have; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _spaces(count: int) -> dict[str, Any]:
    names = [f"member-{number}" for number in range(MEMBERS_PER_SPACE)]
    config = fanout.config(names=names)
    config["spaces"] = {f"space-{number}": config["spaces"]["bench"] for number in range(count)}
    return config


async def idle(folder: Path) -> Idle:
    most = min(WANTED, raise_file_limit() - _OTHER_FILES)
    spaces = max(1, most // MEMBERS_PER_SPACE)
    async with gateway(folder / "idle", _spaces(spaces)) as (server, url), load(folder) as crowd:
        before = server.resident_bytes
        await crowd.tell(job="hold", url=f"{url}space-", spaces=spaces, members=MEMBERS_PER_SPACE)
        held = (await crowd.answer())["clients"]
        return Idle(held, (server.resident_bytes - before) / held)


async def joins(folder: Path) -> Joins:
    """From opening the TCP connection to the welcome, while others talk and ten listen."""
    async with gateway(folder / "joins", fanout.config()) as (_, url), load(folder) as crowd:
        await crowd.tell(job="connect", server="moot", url=f"{url}bench", receivers=LISTENERS)
        await crowd.answer()
        await crowd.tell(job="joins", url=f"{url}bench", count=JOINS, per_second=FLOW_PER_SECOND, seconds=60)
        answer = await crowd.answer()
        took = sorted(answer["took"])
        if not answer["flowed_throughout"]:
            raise RuntimeError("joining took longer than the messages lasted")
        p99 = took[math.ceil(len(took) * 0.99) - 1]
        return Joins(statistics.median(took) * 1e3, p99 * 1e3, len(took))
