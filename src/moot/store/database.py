"""Snapshots of spaces, in one SQLite file (`DATA/moot.sqlite`), durable when a call is done.

A snapshot is the state of a space and the number of the last journal record that it covers; restart is the
newest snapshot and the records behind it (D-41). The connection lives in one thread, in which the calls
are carried out in the order in which they were made, so nothing here blocks the loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from moot.errors import UsageError
from moot.resilience.disk_room import FREE_IT, is_disk_full
from moot.store.journal_segments import make_folder
from moot.store.position_marker import PositionMarker, write_marker
from moot.store.worker_thread import DaemonExecutor

T = TypeVar("T")

# One may be damaged, and the one before it may be needed to look at what went wrong.
KEPT_SNAPSHOTS: Final = 3
_VERSION: Final = 1

_TABLES: Final = """
CREATE TABLE snapshots (space TEXT NOT NULL, position INTEGER NOT NULL, state BLOB NOT NULL,
  digest BLOB NOT NULL, PRIMARY KEY (space, position));
"""
# A copy of each space's position marker. Not in `_TABLES`: files of 0.1 get it when they are opened.
_MARKERS: Final = "CREATE TABLE IF NOT EXISTS positions (space TEXT PRIMARY KEY, marker BLOB NOT NULL)"
_NEWEST: Final = "SELECT max(position) FROM snapshots WHERE space = ?"


class Snapshot(NamedTuple):
    """The state of a space after the record number `position`."""

    position: int
    state: bytes


class Database:
    """Every call hands back a future of the running loop: await it, or add a callback.

    The change is on disk when the future is done; it raises sqlite3.Error when the disk does not take it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # A time of the loop after which `wait_answering` waits no more.
        self.stop_by = math.inf
        self._thread = DaemonExecutor("database")
        self._connection = self._thread.submit(_connect, path).result()

    @classmethod
    def open(cls, path: Path) -> Database:
        """Blocks while the file is opened. Raises UsageError when it cannot be used."""
        try:
            make_folder(path.parent)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            return cls(path)
        except (OSError, sqlite3.Error) as fault:
            if is_disk_full(path.parent, fault):
                raise UsageError(f"the disk of {path} is full: {FREE_IT}") from fault
            raise UsageError(
                f"cannot use {path}: {fault}. Free the disk or correct its rights, restore the file from a "
                "copy, or move it away: the state is then rebuilt from the journal"
            ) from fault

    def save_snapshot(self, space: str, position: int, state: bytes) -> asyncio.Future[None]:
        """Keep this state; of each space the last three are kept."""
        return self._run(lambda: _save(self._connection, space, position, state))

    def load_snapshot(self, space: str, *, at_most: int | None = None) -> asyncio.Future[Snapshot | None]:
        """The newest snapshot that is whole; `at_most` passes over those beyond the journal's end."""
        return self._run(lambda: _load(self._connection, space, at_most))

    def newest_position(self, space: str) -> asyncio.Future[int]:
        """The record that the newest snapshot covers, whole or not; 0 when there is none."""
        return self._run(lambda: _newest(self._connection, space))

    def write_marker(self, space: str, folder: Path, marker: PositionMarker) -> asyncio.Future[None]:
        """Note how far a space has come, after what was asked for before: in a file of `folder`, and here.

        Raises OSError as well; then one of the two may be written all the same.
        """

        def write() -> None:
            try:
                write_marker(folder, marker)
            finally:
                _save_marker(self._connection, space, marker)

        return self._run(write)

    def load_marker(self, space: str) -> asyncio.Future[PositionMarker | None]:
        """The copy of a space's marker; raises UsageError for one that is damaged."""
        return self._run(lambda: _load_marker(self._connection, self.path, space))

    def forget(self, space: str) -> asyncio.Future[None]:
        """Remove all that is kept of a space."""

        def remove() -> None:
            with self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("DELETE FROM snapshots WHERE space = ?", (space,))
                connection.execute("DELETE FROM positions WHERE space = ?", (space,))

        return self._run(remove)

    async def wait_answering(self, work: asyncio.Future[T], stall_seconds: float) -> T:
        """What `work` came to, as long as the disk answers. Raises TimeoutError; `work` itself goes on.

        With many spaces much is to be written at the end: it has time while one call after the other gets
        done. When none does for `stall_seconds`, or at `stop_by`, it is not waited for any longer.
        """
        loop = asyncio.get_running_loop()
        while True:
            finished = self._thread.finished
            left = max(0.0, self.stop_by - loop.time())
            done, _ = await asyncio.wait([work], timeout=min(stall_seconds, left))
            if done:
                return work.result()
            if loop.time() >= self.stop_by:
                # Before the disk is blamed: it may have had no time at all.
                raise TimeoutError("there is no more time")
            if self._thread.finished == finished:
                raise TimeoutError("the disk does not answer")

    async def close(self, stall_seconds: float = 10.0) -> None:
        """Carry out what was asked for, and let go of the file; raises TimeoutError as `wait_answering`."""
        closing = self._run(self._connection.close)
        self._thread.shutdown()
        await self.wait_answering(closing, stall_seconds)

    def _run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)


def covered_position(path: Path, space: str) -> int | None:
    """The record that the newest snapshot covers, None when there is none; for programs that only look."""
    if not path.exists():
        return None
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        (position,) = connection.execute(_NEWEST, (space,)).fetchone()
        return None if position is None else int(position)
    except sqlite3.Error as fault:
        raise UsageError(f"cannot read {path}: {fault}") from None
    finally:
        connection.close()


def stored_marker(path: Path, space: str) -> PositionMarker | None:
    """The copy of a space's marker, None when there is none; for programs that only look."""
    if not path.exists():
        return None
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        return _load_marker(connection, path, space)
    except sqlite3.Error as fault:
        raise UsageError(f"cannot read {path}: {fault}") from None
    finally:
        connection.close()


def spaces_with_snapshots(path: Path) -> list[str]:
    """The spaces of which there are snapshots; for programs that only look."""
    if not path.exists():
        return []
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        return [space for (space,) in connection.execute("SELECT DISTINCT space FROM snapshots")]
    except sqlite3.Error as fault:
        raise UsageError(f"cannot read {path}: {fault}") from None
    finally:
        connection.close()


class StoredSnapshot(NamedTuple):
    """A snapshot as it stands in the file; `state` is None when it is damaged."""

    position: int
    state: bytes | None


def stored_snapshots(path: Path, space: str) -> list[StoredSnapshot]:
    """All snapshots of a space, oldest first, damaged ones too; for programs that only look."""
    if not path.exists():
        return []
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT position, state, digest FROM snapshots WHERE space = ? ORDER BY position", (space,)
        ).fetchall()
    except sqlite3.Error as fault:
        raise UsageError(f"cannot read {path}: {fault}") from None
    finally:
        connection.close()
    return [
        StoredSnapshot(position, state if hashlib.sha256(state).digest() == digest else None)
        for position, state, digest in rows
    ]


def replace_snapshots(
    path: Path, space: str, position: int, state: bytes | None, marker: PositionMarker, stamp: str
) -> Path | None:
    """Make this the only snapshot of a space; the file as it was is kept, and its place returned."""
    kept = path.with_name(f"{path.name}.before-{stamp}") if path.exists() else None
    try:
        if kept is not None:
            with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(kept)) as copy:
                old.backup(copy)
            kept.chmod(0o600)
        _replace(path, space, position, state, marker)
    except sqlite3.Error:
        # It is no database any more: another one takes its place.
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(
                    path.with_name(f"{path.name}.before-{stamp}{suffix}")
                )
        _replace(path, space, position, state, marker)
    return kept


def _replace(path: Path, space: str, position: int, state: bytes | None, marker: PositionMarker) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with closing(_connect(path)) as connection:
        connection.execute("DELETE FROM snapshots WHERE space = ?", (space,))
        if state is not None:
            _save(connection, space, position, state)
        _save_marker(connection, space, marker)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=5.0, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
    elif version != _VERSION:
        connection.close()
        raise sqlite3.DatabaseError(f"it is of version {version}, this program knows version {_VERSION}")
    connection.execute(_MARKERS)
    return connection


def _save(connection: sqlite3.Connection, space: str, position: int, state: bytes) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)",
            (space, position, state, hashlib.sha256(state).digest()),
        )
        # Those beyond it are of a journal that was cut or replaced since.
        connection.execute("DELETE FROM snapshots WHERE space = ? AND position > ?", (space, position))
        connection.execute(
            "DELETE FROM snapshots WHERE space = ?1 AND position NOT IN "
            "(SELECT position FROM snapshots WHERE space = ?1 ORDER BY position DESC LIMIT ?2)",
            (space, KEPT_SNAPSHOTS),
        )


def _save_marker(connection: sqlite3.Connection, space: str, marker: PositionMarker) -> None:
    encoded = msgspec.json.encode(marker)
    connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (space, encoded))


def _load_marker(connection: sqlite3.Connection, path: Path, space: str) -> PositionMarker | None:
    has_markers = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'positions'").fetchone()
    query = "SELECT marker FROM positions WHERE space = ?"
    row = connection.execute(query, (space,)).fetchone() if has_markers else None
    try:
        return None if row is None else msgspec.json.decode(row[0], type=PositionMarker)
    except msgspec.MsgspecError as fault:
        raise UsageError(f"the position of {space} in {path} is damaged: {fault}") from None


def _newest(connection: sqlite3.Connection, space: str) -> int:
    (position,) = connection.execute(_NEWEST, (space,)).fetchone()
    return position or 0


def _load(connection: sqlite3.Connection, space: str, at_most: int | None) -> Snapshot | None:
    rows = connection.execute(
        "SELECT position, state, digest FROM snapshots WHERE space = ? AND position <= ? "
        "ORDER BY position DESC",
        (space, (1 << 62) if at_most is None else at_most),
    )
    for position, state, digest in rows:
        if hashlib.sha256(state).digest() == digest:
            return Snapshot(position, state)
    return None
