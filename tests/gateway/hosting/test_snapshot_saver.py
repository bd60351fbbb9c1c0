"""How often a space notes how far it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

from moot.gateway.hosting.snapshot_saver import SnapshotSaver
from moot.store.database import Database
from moot.store.journal import Journal
from moot.store.position_marker import PositionMarker
from tests.waiting import until


class DurableJournal:
    """Everything is on disk at once."""

    is_written = True

    def when_durable(self, _number: int, call: Callable[[], None]) -> None:
        call()


class NotedPositions:
    """A database that keeps what it was asked to note."""

    def __init__(self) -> None:
        self.records: list[int] = []

    def write_marker(self, _space: str, _folder: Path, marker: PositionMarker) -> asyncio.Future[None]:
        self.records.append(marker.record)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


async def test_fulfilments_are_noted_together_and_changes_of_rights_at_once(tmp_path: Path) -> None:
    """A marker costs two fsyncs and a commit: one for each fulfilment doubled what a busy gateway needs."""
    database = NotedPositions()
    saver = SnapshotSaver("lab", tmp_path, cast("Journal", DurableJournal()), cast("Database", database))
    for number in range(1, 101):
        saver.mark_fulfilment(number)
    assert database.records == []
    saver.mark_rights_change(50)
    assert database.records == [50]
    await until(lambda: not saver.is_marking)
    await until(lambda: len(database.records) > 1)
    assert database.records == [50, 100]
    await until(lambda: not saver.is_marking)
    # Nothing new: nothing is written.
    saver.mark_rights_change(100)
    assert database.records == [50, 100]
    saver.mark_fulfilment(101)
    saver.stop()
    assert database.records == [50, 100]
