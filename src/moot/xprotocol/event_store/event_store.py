"""The event store: events as they came, until their time is over, and seen ids.

`add` is for a relay's loop: it never waits, and calls back when the event is on disk. `put` is the same to
await. Questions are answered by a second connection in a thread of its own, so that a long answer holds up
no commit.

An event is kept until it could not be accepted any more (`expires_at` and the allowed skew); a delegation
and a revocation for good; of announces the newest of each sender. When there is no room, new events are
refused: nothing that is alive is dropped for them.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from moot.errors import UsageError
from moot.xprotocol.event_store.event_query import EventQuery, EventReader, StoredEvent, last_seq, next_page
from moot.xprotocol.event_store.event_tables import FILE_NAME, connect_reading, connect_writing, lock
from moot.xprotocol.event_store.event_writer import Added, EventRow, EventWriter, Settled, Work, WriteOutcome
from moot.xprotocol.events.events import DELEGATE, REVOKE, SKEW_SECONDS, Signed
from moot.xprotocol.events.replay import MAX_LIVE_IDS, ReplayCache

T = TypeVar("T")

# xp1, Relay: whoever comes late still has to hear of these.
PERMANENT_KINDS: Final = frozenset({DELEGATE, REVOKE})
# Removed with one commit: some milliseconds, so that no event waits long behind it.
_PRUNED_AT_ONCE: Final = 500


# The file without its free pages.
MAX_BYTES: Final = 4 << 30
# About 2 GB at 2 KB each; a million open ids is also what a receiver remembers. Then new ones are refused.
MAX_EVENTS: Final = 1_000_000
# A tenth of all: no single key can fill the store.
MAX_EVENTS_PER_SENDER: Final = 100_000
# Event ids kept until the events expire; when full, events are refused (xp1, Replay).
MAX_SEEN_IDS: Final = MAX_LIVE_IDS


# Ids that a receiver has acted on, kept on disk: nobody acts twice on one event, not even after a restart.
#
# Memory answers at once, because a receiver never waits; the table follows with the next commit. Whoever acts
# on an event waits for `settled` first. After a crash the event either was remembered, or nobody has acted.

# Forgetting is cheap and never urgent: expired ids only take room.
_FORGET_SECONDS: Final = 60.0
_FLOOR: Final = "seen_forgotten_up_to"


class StoredSeenIds:
    """A `moot.xprotocol.events.replay.SeenIds` with a table behind it."""

    def __init__(self, writer: EventWriter, *, limit: int = MAX_LIVE_IDS) -> None:
        self._writer = writer
        self._cache = ReplayCache(limit)
        self._floor = -1
        self._forgotten_at = 0.0

    def __len__(self) -> int:
        return len(self._cache)

    def restore(self, connection: sqlite3.Connection, now: float) -> None:
        """Read what an earlier process remembered; raises EndpointUnavailable when it does not fit."""
        row = connection.execute("SELECT value FROM facts WHERE name = ?", (_FLOOR,)).fetchone()
        self._floor = -1 if row is None else int(row[0])
        rows = connection.execute("SELECT id, until FROM seen WHERE until > ?", (int(now),))
        self._cache.restore(((id.hex(), until) for id, until in rows), now)

    def seen(self, event_id: str, until: int) -> bool:
        """Whether an event with this id, acceptable up to `until`, may have been accepted before."""
        # The floor: a clock that was set back must not bring forgotten ids to life.
        return until <= self._floor or self._cache.seen(event_id, until)

    def remember(self, event_id: str, until: int, now: float) -> None:
        """Keep an id up to `until`; raises EndpointUnavailable when there is no room for it."""
        self._cache.remember(event_id, until, now)
        self._writer.remember(bytes.fromhex(event_id), until)
        if now - self._forgotten_at >= _FORGET_SECONDS:
            self._forgotten_at = now
            self._writer.work(lambda connection: _forget(connection, int(now)), lambda _result, _fault: None)

    async def wait_committed(self) -> None:
        """Wait until everything remembered so far is on disk; raises sqlite3.Error when it cannot be.

        After such a fault nothing may be done about the event: it stays remembered in this process.
        """
        await self._writer.wait_committed()


def _forget(connection: sqlite3.Connection, now: int) -> None:
    (last,) = connection.execute("SELECT max(until) FROM seen WHERE until <= ?", (now,)).fetchone()
    if last is None:
        return
    connection.execute("DELETE FROM seen WHERE until <= ?", (now,))
    connection.execute(
        "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
        (_FLOOR, last),
    )


class StoreStats(NamedTuple):
    """Figures of a store."""

    events: int
    bytes: int
    senders: int
    seen_ids: int


class EventStore:
    """Belongs to the loop that opened it. One process at a time writes a folder."""

    def __init__(self, folder: Path, max_events: int, held: int, now: float) -> None:
        self.path = folder / FILE_NAME
        self.max_events = max_events
        self._held = held
        writing = connect_writing(self.path)
        self._writer = EventWriter(writing, asyncio.get_running_loop())
        self._reading = connect_reading(self.path)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="events-read")
        self.seen_ids: Final = StoredSeenIds(self._writer, limit=MAX_SEEN_IDS)
        self.seen_ids.restore(self._reading, now)
        self._next_seq = last_seq(self._reading) + 1
        self._by_sender: Counter[str] = Counter(
            dict(self._reading.execute("SELECT sender, count(*) FROM events GROUP BY sender"))
        )
        self._events = sum(self._by_sender.values())
        self._bytes = _size_of(self._reading)
        self._is_closed = False

    @classmethod
    def open(cls, folder: Path, max_events: int = MAX_EVENTS, *, now: float | None = None) -> EventStore:
        """Blocks while the file is opened. Raises UsageError when it cannot be used."""
        held = lock(folder)
        try:
            return cls(folder, max_events, held, time.time() if now is None else now)
        except sqlite3.Error as fault:
            os.close(held)
            raise UsageError(f"cannot read {folder / FILE_NAME}: {fault}. Restore it from a copy") from fault
        except BaseException:
            os.close(held)
            raise

    # Writing

    def add(self, signed: Signed, now: float, settled: Callable[[Added, int], None]) -> None:
        """Write a verified event with the next commit; `settled` gets what became of it and its number.

        It is called on the loop, never from within `add`. Whether the event is genuine and in time is the
        caller's to check.
        """
        event = signed.event
        seq = self._next_seq
        if not self._has_room(event.sender):
            asyncio.get_running_loop().call_soon(settled, "full", -1)
            return
        self._next_seq = seq + 1
        self._events += 1
        self._by_sender[event.sender] += 1
        self._bytes += len(signed.raw)
        row = EventRow(
            seq,
            bytes.fromhex(event.id),
            event.kind,
            event.sender,
            event.recipient,
            event.correlation_id,
            event.timestamp,
            event.expires_at,
            None if event.kind in PERMANENT_KINDS else event.expires_at + SKEW_SECONDS,
            int(now),
            signed.raw,
        )
        self._writer.add(row, self._counted(row, settled))

    async def put(self, signed: Signed, *, now: float | None = None) -> Added:
        """`add`, awaited: on disk, or there already, or refused."""
        done: asyncio.Future[Added] = asyncio.get_running_loop().create_future()

        def settled(added: Added, _seq: int) -> None:
            if not done.done():
                done.set_result(added)

        self.add(signed, time.time() if now is None else now, settled)
        return await done

    async def prune(self, now: float | None = None) -> int:
        """Remove the events whose time is over, a few hundred with each commit; returns how many."""
        moment = int(time.time() if now is None else now)
        removed = 0
        while senders := await self._run_on_writer(lambda connection: remove_expired(connection, moment)):
            removed += len(senders)
            self._events -= len(senders)
            self._by_sender -= Counter(senders)
        if removed:
            self._bytes = await self._run_on_reader(_size_of)
        return removed

    async def wait_committed(self) -> None:
        """Wait until all that was added so far is on disk; raises sqlite3.Error when it is not."""
        await self._writer.wait_committed()

    # Reading

    async def page(self, reading: EventReader) -> list[StoredEvent]:
        """The next events of an answer; empty when that was all."""
        return await self._run_on_reader(lambda connection: next_page(connection, reading))

    async def find(self, query: EventQuery) -> AsyncIterator[StoredEvent]:
        """Every event that matches, in the order of time."""
        reading = EventReader(query)
        while page := await self.page(reading):
            for event in page:
                yield event

    async def get(self, event_id: str) -> bytes | None:
        """The bytes of one event."""
        return await self._run_on_reader(lambda connection: _raw_of(connection, event_id))

    def stats(self) -> StoreStats:
        """What is counted in memory: what waits for its commit included."""
        return StoreStats(self._events, self._bytes, len(self._by_sender), len(self.seen_ids))

    async def close(self) -> None:
        """Write what was asked for, and let go of the files."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._run_on_reader(lambda _connection: None)
        self._reader.shutdown(wait=False)
        self._reading.close()
        await self._writer.close()
        os.close(self._held)

    def _has_room(self, sender: str) -> bool:
        return (
            self._events < self.max_events
            and self._bytes < MAX_BYTES
            and self._by_sender[sender] < MAX_EVENTS_PER_SENDER
        )

    def _counted(self, row: EventRow, settled: Callable[[Added, int], None]) -> Settled:
        def counted(outcome: WriteOutcome) -> None:
            if outcome.added != "stored":
                self._uncount(row.sender, 1)
                self._bytes -= len(row.raw)
            elif outcome.removed:
                self._uncount(row.sender, outcome.removed)
            settled(outcome.added, row.seq)

        return counted

    def _uncount(self, sender: str, events: int) -> None:
        self._events -= events
        self._by_sender[sender] -= events
        if self._by_sender[sender] <= 0:
            del self._by_sender[sender]

    async def _run_on_writer(self, work: Callable[[sqlite3.Connection], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def finished(result: T, fault: sqlite3.Error | None) -> None:
            if done.done():
                return
            if fault is None:
                done.set_result(result)
            else:
                done.set_exception(fault)

        job: Work = work
        self._writer.work(job, finished)
        return await done

    async def _run_on_reader(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, work, self._reading)


def remove_expired(connection: sqlite3.Connection, now: int) -> list[str]:
    """Remove some of the events whose time is over, within a transaction; returns their senders."""
    rows = connection.execute(
        "SELECT seq, sender FROM events INDEXED BY events_end WHERE keep_until <= ? LIMIT ?",
        (now, _PRUNED_AT_ONCE),
    ).fetchall()
    connection.executemany("DELETE FROM events WHERE seq = ?", [(seq,) for seq, _ in rows])
    return [sender for _, sender in rows]


def _raw_of(connection: sqlite3.Connection, event_id: str) -> bytes | None:
    row = connection.execute("SELECT raw FROM events WHERE id = ?", (bytes.fromhex(event_id),)).fetchone()
    return None if row is None else row[0]


def _size_of(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)
