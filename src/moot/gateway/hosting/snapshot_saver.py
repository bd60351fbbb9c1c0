"""Storing snapshots of a space, never before the journal that they cover is on disk (D-98).

A snapshot that is stored first would, after a crash, tell of records that no file holds, and nobody could
tell that from a journal that somebody cut. So a snapshot waits for the fsync of its last record. Behind it,
and behind every change of rights, the position marker is written: the third witness of how far the space had
come. Fulfilments are noted too, but together with those of the next half second: a busy space has hundreds a
second, and a marker costs as much as they do. What the disk does not take of that is written again after a
while, until it does: nobody may come by to change rights once more.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.store.database import Database
from moot.store.journal import Journal
from moot.store.position_marker import PositionMarker

log = logging.getLogger(__name__)

# A position that could not be noted is noted after this.
RETRY_SECONDS: Final = 2.0
# Fulfilments are noted this long after the first of them.
GATHER_SECONDS: Final = 0.5


class SnapshotSaver:
    """Stores the snapshots of one space in the order in which they were taken."""

    def __init__(self, space: str, folder: Path, journal: Journal, database: Database) -> None:
        self._space = space
        self._folder = folder  # of the space
        self._journal = journal
        self._database = database
        # The number of the newest snapshot. A restart goes on counting.
        self.generation = 0
        # Taken, and waiting for the disk: only the newest is worth storing.
        self._waiting: tuple[int, dict[str, Json]] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._wanted = PositionMarker(journaled=journal.is_written)
        # The newest record of a position that is on disk, and who waits for a later one.
        self._noted = 0
        self._noting: list[tuple[int, asyncio.Future[None]]] = []
        self.is_marking = False
        self._retry_timer: asyncio.TimerHandle | None = None
        # The newest record of a fulfilment, and when it will be noted.
        self._fulfilled = 0
        self._gather_timer: asyncio.TimerHandle | None = None
        # Whether the last snapshot and the last position could be written; the journal has it all otherwise.
        self.is_snapshot_saved = True
        self.is_position_noted = True

    def save(self, number: int, state: dict[str, Json]) -> asyncio.Future[None]:
        """Store this state, which covers record `number`; done when it is on disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(done)
        self._waiting = (number, state)
        if not self._journal.is_written or number <= self._journal.durable:
            self._store(number)
        else:
            self._journal.when_durable(number, lambda: self._store(number))
        return done

    def mark_rights_change(self, number: int) -> None:
        """Rights changed by this record: note it as soon as it is on disk."""
        if self._journal.is_written:
            self._mark_when_durable(number)

    def mark_fulfilment(self, number: int) -> None:
        """A proposal was fulfilled by this record, which must not happen again: note it soon."""
        self._fulfilled = number
        if self._gather_timer is None and self._journal.is_written:
            self._gather_timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._mark_fulfilled)

    async def wait_noted(self, number: int, seconds: float) -> None:
        """Wait until the position knows of this record, or cannot be written, but no longer than this."""
        if number <= self._noted or not self._journal.is_written:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._noting.append((number, done))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await done

    def _report_noted(self, through: float) -> None:
        for number, done in self._noting:
            if number <= through and not done.done():
                done.set_result(None)
        self._noting = [each for each in self._noting if not each[1].done()]

    def _mark_fulfilled(self) -> None:
        self._gather_timer = None
        self._mark_when_durable(self._fulfilled)

    def _mark_when_durable(self, number: int) -> None:
        self._journal.when_durable(number, lambda: self._mark(PositionMarker(record=number)))

    def _store(self, number: int) -> None:
        if self._waiting is None or self._waiting[0] != number:
            return  # a newer one has taken its place
        _, state = self._waiting
        waiters, self._waiters, self._waiting = self._waiters, [], None
        self.generation += 1
        generation, journaled = self.generation, self._journal.is_written
        # Without a journal nothing new is in the file, so that a later one starts where this one ended.
        position = number if journaled else self._journal.recorded
        encoded = strict_json.encode(state | {"generation": generation, "journaled": journaled})
        saving = self._database.save_snapshot(self._space, position, encoded)

        def finish(done: asyncio.Future[None]) -> None:
            fault = asyncio.CancelledError() if done.cancelled() else done.exception()
            self.is_snapshot_saved = fault is None
            if fault is None:
                self._mark(PositionMarker(record=position, snapshot=generation, journaled=journaled))
            for one in waiters:
                if one.done():
                    continue
                if fault is None:
                    one.set_result(None)
                else:
                    one.set_exception(fault)
                    one.exception()  # looked at: not everybody who asks for a snapshot waits for it

        saving.add_done_callback(finish)

    def _mark(self, marker: PositionMarker) -> None:
        wanted = self._wanted.joined(marker)
        if wanted == self._wanted:
            return  # it is noted, being written, or tried again
        self._wanted = wanted
        if not self.is_marking:
            self._write_marker()

    def stop(self) -> None:
        """Write nothing more by itself."""
        self._cancel_retry()
        self._report_noted(inf)
        if self._gather_timer is not None:
            self._gather_timer.cancel()
            self._gather_timer = None

    def _cancel_retry(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    def _write_marker(self) -> None:
        self._cancel_retry()
        self.is_marking = True
        writing = self._wanted
        future = self._database.write_marker(self._space, self._folder, writing)

        def finish(done: asyncio.Future[None]) -> None:
            self.is_marking = False
            if done.cancelled():
                self._report_noted(inf)
                return
            if (fault := done.exception()) is not None:
                # It is the third witness; the journal and the snapshots are there.
                if self.is_position_noted:
                    log.warning("position not noted", extra={"space": self._space, "why": str(fault)})
                self.is_position_noted = False
                self._report_noted(inf)
                self._retry_timer = done.get_loop().call_later(RETRY_SECONDS, self._write_marker)
                return
            self._noted = writing.record
            self._report_noted(self._noted)
            if not self.is_position_noted:
                self.is_position_noted = True
                log.info("position noted again", extra={"space": self._space})
            if self._wanted != writing:
                self._write_marker()

        future.add_done_callback(finish)
