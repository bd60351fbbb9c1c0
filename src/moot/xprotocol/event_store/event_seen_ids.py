"""Ids that a receiver has acted on, kept on disk: nobody acts twice on one event, not even after a restart.

Memory answers at once, because a receiver never waits; the table follows with the next commit. Whoever acts
on an event waits for `settled` first. After a crash the event either was remembered, or nobody has acted.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from moot.xprotocol.event_store.event_writer import EventWriter
from moot.xprotocol.events.replay import MAX_LIVE_IDS, ReplayCache

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
