"""One thread that writes events, and commits that many share.

Whatever was asked for while a commit was under way becomes the next one: a lone event is on disk at once, a
flood is written by the hundred, with one fsync. The loop hands over a list and gets it back; no event crosses
between the threads alone.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from queue import SimpleQueue
from typing import Any, Final, Literal, NamedTuple

from moot.xprotocol.event_store.event_tables import transaction
from moot.xprotocol.events.events import ANNOUNCE

log = logging.getLogger(__name__)

# stored: on disk. duplicate: it was there. superseded: an announce, and a newer one is there. full: no room.
# failed: the disk does not take it.
Added = Literal["stored", "duplicate", "superseded", "full", "failed"]

# SQLite's own bound on values in one statement is 32,766 here, and 999 in old builds.
_IDS_AT_ONCE: Final = 500
# A commit costs some 0.5 ms of CPU and a few of waiting. With so many events in it, its share of each is
# small; and nobody waits for longer than this on top of the commit itself.
_GATHER_ROWS: Final = 256
_GATHER_SECONDS: Final = 0.025
# Where several share a commit, the next one waits this long for more: many talk, and each waits for a disk
# anyway. Somebody who talks alone is not made to wait.
_IDLE_SECONDS: Final = 0.004
# After a fault of the disk, before what must not be lost is tried again.
_RETRY_SECONDS: Final = 0.5
_REMEMBER: Final = "INSERT OR IGNORE INTO seen VALUES (?, ?)"
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT: Final = "INSERT INTO events VALUES "
# 88 times 11 values are still within the bound of old builds. Few lengths: statements are kept prepared.
_ROWS_AT_ONCE: Final = (88, 22, 5, 1)
_INSERTS: Final = {
    count: f"{_INSERT}{', '.join([_ROW] * count)} ON CONFLICT (id) DO NOTHING" for count in _ROWS_AT_ONCE
}


class EventRow(NamedTuple):
    """One event on its way to the table; the order is the table's."""

    seq: int
    id: bytes
    kind: str
    sender: str
    recipient: str | None
    correlation_id: str | None
    timestamp: int
    expires_at: int
    keep_until: int | None
    received_at: int
    raw: bytes


class WriteOutcome(NamedTuple):
    """What became of one row; `removed` counts announces of the same sender that gave way to it."""

    added: Added
    removed: int = 0


# Called on the loop, once, after the commit.
Settled = Callable[[WriteOutcome], None]
# Something else to do in the same commit, and what to do with its result on the loop.
Work = Callable[[sqlite3.Connection], Any]
Finished = Callable[[Any, sqlite3.Error | None], None]


class _CommitGroup:
    """What shares one commit: rows, seen ids, then other work in its order."""

    __slots__ = ("rows", "seen", "waiting", "works")

    def __init__(self) -> None:
        self.rows: list[tuple[EventRow, Settled]] = []
        self.seen: list[tuple[bytes, int]] = []
        self.works: list[tuple[Work, Finished]] = []
        self.waiting: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self.rows or self.seen or self.works)

    @property
    def is_one_statement(self) -> bool:
        """Whether it needs no transaction around it: one statement is a transaction by itself."""
        alone = len(self.rows) + len(self.seen) == 1 and not self.works
        return alone and not (self.rows and self.rows[0][0].kind == ANNOUNCE)


class EventWriter:
    """Belongs to the loop that made it; all its calls are made from there."""

    def __init__(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._groups: SimpleQueue[_CommitGroup | None] = SimpleQueue()
        self._next = _CommitGroup()
        # Being committed right now.
        self._current: _CommitGroup | None = None
        self._scheduled = False
        self._closing = False
        self._gathered = 0
        self._gather_until = 0.0
        # Until then the next commit gathers.
        self._rest_until = 0.0
        self._idle = asyncio.Event()
        self._idle.set()
        # Daemon: a disk that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def add(self, row: EventRow, settled: Settled) -> None:
        """Write one event with the next commit."""
        self._next.rows.append((row, settled))
        if self._current is None and not self._scheduled:
            self._schedule()

    def remember(self, id: bytes, until: int) -> None:
        """Keep an id that was acted on; written again and again until the disk takes it."""
        self._next.seen.append((id, until))
        if self._current is None and not self._scheduled:
            self._schedule()

    async def wait_committed(self) -> None:
        """Wait until all that was asked for so far is on disk; raises sqlite3.Error when it is not."""
        group = self._next or self._current
        if group is not None and group:
            waiter = self._loop.create_future()
            group.waiting.append(waiter)
            await waiter

    def work(self, work: Work, finished: Finished) -> None:
        """Do something else inside the next commit."""
        self._next.works.append((work, finished))
        if self._current is None and not self._scheduled:
            self._schedule()

    async def close(self) -> None:
        """Write what was asked for, and let go of the file."""
        self._closing = True
        await self._idle.wait()
        self._groups.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _schedule(self) -> None:
        # At the end of this tick: what one read from a socket brings is committed together.
        self._scheduled = True
        self._idle.clear()
        # One event alone waits for no second turn.
        self._gathered = 1
        now = self._loop.time()
        self._gather_until = now + _GATHER_SECONDS
        if now < self._rest_until:
            self._loop.call_at(self._rest_until, self._gather)
        else:
            self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        """Commit now, unless every turn of the loop brings more: in a flood larger commits cost less."""
        rows = len(self._next.rows)
        if self._gathered < rows < _GATHER_ROWS and self._loop.time() < self._gather_until:
            self._gathered = rows
            self._loop.call_soon(self._gather)
        else:
            self._submit_group()

    def _submit_group(self) -> None:
        self._scheduled = False
        self._current, self._next = self._next, _CommitGroup()
        self._groups.put(self._current)

    def _committed(
        self,
        group: _CommitGroup,
        outcomes: Sequence[WriteOutcome],
        results: list[Any],
        fault: sqlite3.Error | None,
    ) -> None:
        self._current = None
        if len(group.rows) + len(group.seen) > 1:
            self._rest_until = self._loop.time() + _IDLE_SECONDS
        if fault is not None and group.seen:
            self._next.seen[:0] = group.seen
        if self._next and fault is None:
            self._schedule()
        for (_, settled), outcome in zip(group.rows, outcomes, strict=True):
            settled(outcome)
        for (_, finished), result in zip(group.works, results, strict=True):
            finished(result, fault)
        for waiter in group.waiting:
            if waiter.done():
                continue
            if fault is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(fault)
        if self._current is not None or self._scheduled:
            return
        if self._next:
            self._scheduled = True
            self._loop.call_later(_RETRY_SECONDS, self._submit_group)
        if not self._next or self._closing:
            # When the disk takes nothing, an end must not wait for it.
            self._idle.set()

    # In the thread

    def _run(self) -> None:
        while (group := self._groups.get()) is not None:
            outcomes: Sequence[WriteOutcome]
            fault: sqlite3.Error | None = None
            try:
                with nullcontext() if group.is_one_statement else transaction(self._connection):
                    outcomes = insert(self._connection, [row for row, _ in group.rows])
                    if group.seen:
                        self._connection.executemany(_REMEMBER, group.seen)
                    results = [work(self._connection) for work, _ in group.works]
            except Exception as error:  # noqa: BLE001  # whatever it was: somebody waits to be told
                fault = error if isinstance(error, sqlite3.Error) else sqlite3.InternalError(repr(error))
                log.error("events cannot be written", extra={"fault": str(fault), "events": len(group.rows)})
                outcomes = [WriteOutcome("failed")] * len(group.rows)
                results = [None] * len(group.works)
            # The loop may have been closed by now: nobody is left to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._committed, group, outcomes, results, fault)
        self._connection.close()


def insert(connection: sqlite3.Connection, rows: Sequence[EventRow]) -> list[WriteOutcome]:
    """Write those that are not there yet; one outcome for each row, in order."""
    announces = [row for row in rows if row.kind == ANNOUNCE]
    events = [row for row in rows if row.kind != ANNOUNCE] if announces else rows
    if _insert_many(connection, events) == len(rows):
        return [_STORED] * len(rows)
    # Rarely: which were there already, and what an announce does to the others of its sender.
    stored = _found(connection, "seq", [row.seq for row in events])
    known = _found(connection, "id", [row.id for row in announces])
    outcomes: list[WriteOutcome] = []
    for row in rows:
        if row.kind != ANNOUNCE:
            outcomes.append(_STORED if row.seq in stored else _DUPLICATE)
        elif row.id in known:
            outcomes.append(_DUPLICATE)
        else:
            known.add(row.id)
            outcomes.append(_insert_announce(connection, row))
    return outcomes


def _insert_many(connection: sqlite3.Connection, rows: Sequence[EventRow]) -> int:
    """Many rows with one statement: between statements the interpreter's lock changes hands, at a cost.

    Returns how many are new: the first row of an id that was not there.
    """
    place = new = 0
    for count in _ROWS_AT_ONCE:
        while len(rows) - place >= count:
            values = rows[place] if count == 1 else list(chain.from_iterable(rows[place : place + count]))
            new += connection.execute(_INSERTS[count], values).rowcount
            place += count
    return new


_STORED: Final = WriteOutcome("stored")
_DUPLICATE: Final = WriteOutcome("duplicate")


def _found(connection: sqlite3.Connection, column: str, wanted: Sequence[Any]) -> set[Any]:
    """Which of these values of a column are in the table."""
    found: set[Any] = set()
    for start in range(0, len(wanted), _IDS_AT_ONCE):
        some = wanted[start : start + _IDS_AT_ONCE]
        marks = ",".join("?" * len(some))
        rows = connection.execute(f"SELECT {column} FROM events WHERE {column} IN ({marks})", some)  # noqa: S608
        found.update(value for (value,) in rows)
    return found


def _insert_announce(connection: sqlite3.Connection, row: EventRow) -> WriteOutcome:
    """xp1, Relay: of each sender the newest announce is kept; of two with one time the smaller id."""
    others = connection.execute(
        "SELECT seq, timestamp, id FROM events INDEXED BY events_announce "
        "WHERE sender = ? AND kind = 'xp.endpoint.announce'",
        (row.sender,),
    ).fetchall()
    if any((timestamp, row.id) > (row.timestamp, id) for _, timestamp, id in others):
        return WriteOutcome("superseded")
    for seq, _, _ in others:
        connection.execute("DELETE FROM events WHERE seq = ?", (seq,))
    connection.execute(_INSERT + _ROW, row)
    return WriteOutcome("stored", len(others))
