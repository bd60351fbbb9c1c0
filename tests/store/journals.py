"""Journals for tests: records, a journal that is opened and closed, what it holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec
import orjson

from moot.config.gateway_config import JournalConfig
from moot.protocol.operation import Json
from moot.store import file_journal, journal
from moot.store.journal import Journal
from moot.store.journal_reader import read_records
from moot.store.open_journal import open_journal
from tests.config.former_constants import OF_THIS_TEST
from tests.waiting import bounded


class TriedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A journal's settings, and its constants until the test ends."""

    mode: Literal["on", "off"] = "on"
    retain_segments: int = 0
    retain_days: int = 0
    segment_bytes: int = file_journal.SEGMENT_BYTES
    sync_seconds: float = file_journal.SYNC_SECONDS
    sync_records: int = file_journal.SYNC_RECORDS
    retry_seconds: float = journal.RETRY_SECONDS

    @property
    def settings(self) -> JournalConfig:
        OF_THIS_TEST.setattr(journal, "RETRY_SECONDS", self.retry_seconds)
        for name in ("segment_bytes", "sync_seconds", "sync_records"):
            OF_THIS_TEST.setattr(file_journal, name.upper(), getattr(self, name))
        return JournalConfig(
            mode=self.mode, retain_segments=self.retain_segments, retain_days=self.retain_days, log=False
        )


OPENED = JournalConfig(log=False)
SMALL = TriedJournal(segment_bytes=400, retry_seconds=0.001)


def folder_in(tmp_path: Path, space: str = "lab") -> Path:
    return tmp_path / "spaces" / space / "journal"


def members(fields: dict[str, Json]) -> bytes:
    return orjson.dumps(fields)[1:-1]


def envelope_record(
    id: str, who: str = "alice", *, t: float = 1.0, out: str = "accepted", **envelope: Json
) -> bytes:
    """A record of an envelope, as the gateway writes it."""
    fields = {"kind": "chat", **envelope}
    raw = {"protocol": "mew/v0.4", "id": id, "from": who, **fields}
    head = {
        "t": t,
        "in": "receive",
        "session": "s1",
        "who": who,
        "out": out,
        "kind": fields["kind"],
        "id": id,
    }
    return members({**head, "raw": raw})


@asynccontextmanager
async def opened_journal(folder: Path, settings: TriedJournal | None = None) -> AsyncIterator[Journal]:
    opened = open_journal(folder, (settings or TriedJournal()).settings)
    try:
        async with bounded():
            yield opened
    finally:
        await opened.close()


async def write(folder: Path, records: Sequence[bytes], settings: TriedJournal | None = None) -> None:
    """A journal with these records, one tick each, closed again."""
    async with opened_journal(folder, settings) as journal:
        for record in records:
            await wait_durable(journal, journal.append(record))


def write_now(folder: Path, records: Sequence[bytes], settings: TriedJournal | None = None) -> None:
    """The same where no loop runs: tests of commands that run one of their own."""
    asyncio.run(write(folder, records, settings))


async def wait_durable(journal: Journal, number: int) -> None:
    done = asyncio.Event()
    journal.when_durable(number, done.set)
    await done.wait()


def health_changes(journal: Journal) -> asyncio.Queue[bool]:
    changes: asyncio.Queue[bool] = asyncio.Queue()
    journal.on_health = changes.put_nowait
    return changes


def values_in(folder: Path) -> list[Json]:
    """The `x` of every record, for tests that write numbers and words."""
    return [record.fields.get("x", record.fields.get("in")) for record in read_records(folder)]


def value_record(value: Json) -> bytes:
    return members({"x": value})


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def descriptor_of(path: Path) -> int:
    """The descriptor under which this process has a file open."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == str(path.resolve()):
                return int(name)
        except FileNotFoundError:
            continue
    raise AssertionError(f"{path} is not open")


def edit_lines(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Tamper with the lines of a segment."""
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
