"""Snapshots and small facts."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.store.database import Database, Snapshot, covered_position


@asynccontextmanager
async def database_at(path: Path) -> AsyncIterator[Database]:
    database = Database.open(path)
    try:
        yield database
    finally:
        await database.close()


async def test_the_newest_snapshot_of_a_space_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "data" / "moot.sqlite"
    async with database_at(path) as database:
        assert await database.load_snapshot("lab") is None
        await database.save_snapshot("lab", 5, b'{"a":1}')
        await database.save_snapshot("lab", 9, b'{"a":2}')
        await database.save_snapshot("den", 7, b"{}")
    async with database_at(path) as database:
        assert await database.load_snapshot("lab") == Snapshot(9, b'{"a":2}')
        assert await database.load_snapshot("lab", at_most=8) == Snapshot(5, b'{"a":1}')
        assert await database.load_snapshot("lab", at_most=4) is None
        assert await database.load_snapshot("den") == Snapshot(7, b"{}")
    assert covered_position(path, "lab") == 9
    assert covered_position(path, "other") is None
    assert covered_position(tmp_path / "none", "lab") is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_three_snapshots_are_kept_and_none_beyond_the_last(tmp_path: Path) -> None:
    path = tmp_path / "moot.sqlite"
    async with database_at(path) as database:
        await database.save_snapshot("den", 1, b"")
        for position in (1, 2, 3, 4, 5):
            await database.save_snapshot("lab", position, b"%d" % position)
        await database.save_snapshot("lab", 4, b"anew")
    with closing(sqlite3.connect(path)) as look:
        rows = look.execute("SELECT space, position FROM snapshots ORDER BY 1, 2").fetchall()
    assert rows == [("den", 1), ("lab", 3), ("lab", 4)]


async def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "moot.sqlite"
    async with database_at(path) as database:
        await database.save_snapshot("lab", 1, b"one")
        await database.save_snapshot("lab", 2, b"two")
    with closing(sqlite3.connect(path)) as look, look:
        look.execute("UPDATE snapshots SET state = x'00' WHERE position = 2")
    async with database_at(path) as database:
        assert await database.load_snapshot("lab") == Snapshot(1, b"one")


async def test_calls_are_carried_out_in_the_order_in_which_they_are_made(tmp_path: Path) -> None:
    async with database_at(tmp_path / "moot.sqlite") as database:
        for position in range(1, 20):
            database.save_snapshot("lab", position, b"%d" % position)
        assert await database.load_snapshot("lab") == Snapshot(19, b"19")


def test_a_file_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "moot.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(UsageError, match="move it away"):
        Database.open(path)
    with pytest.raises(UsageError, match="cannot read"):
        covered_position(path, "lab")
    path.unlink()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError, match="version 99"):
        Database.open(path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot use"):
        Database.open(tmp_path / "file" / "moot.sqlite")


class BusyThread:
    """A thread of which something gets done with every look, until there is no more to do."""

    def __init__(self, work: asyncio.Future[str], calls: int) -> None:
        self._work = work
        self._calls = calls
        self._looks = 0

    @property
    def finished(self) -> int:
        self._looks += 1
        if self._looks == self._calls:
            self._work.set_result("done")
        return min(self._looks, self._calls)


async def test_a_database_that_answers_is_waited_for_and_one_that_does_not_is_not(tmp_path: Path) -> None:
    """With many spaces a stop has much to write: how long that takes says nothing about the disk."""
    loop = asyncio.get_running_loop()
    async with database_at(tmp_path / "moot.sqlite") as database:
        thread = database._thread
        for calls, stop_by, expected in (
            (40, math.inf, "done"),
            (0, math.inf, "the disk does not answer"),
            (10**9, 0.02, "there is no more time"),
            (0, 0.0, "there is no more time"),
        ):
            work: asyncio.Future[str] = loop.create_future()
            database._thread = BusyThread(work, calls)  # type: ignore[assignment]
            database.stop_by = loop.time() + stop_by
            try:
                assert await database.wait_answering(work, 0.001) == expected
            except TimeoutError as fault:
                assert str(fault) == expected  # noqa: PT017
            assert work.done() == (expected == "done")
        database._thread, database.stop_by = thread, math.inf
