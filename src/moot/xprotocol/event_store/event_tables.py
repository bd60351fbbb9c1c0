"""The file of events, `DATA/events.sqlite`: its tables, how it is opened, and that one process writes it.

    events  every event with its bytes as they came, and the members that are asked for
    seen    ids that a receiver has acted on (see `event_seen`)
    facts   small numbers that must outlive a restart

WAL lets others read while one writes; FULL makes every commit an fsync, because a sender that was told OK
forgets the event.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from moot.errors import FolderInUse, UsageError
from moot.store.journal_segments import make_folder

FILE_NAME: Final = "events.sqlite"
_LOCK_NAME: Final = "events.lock"
_VERSION: Final = 2
# Another reader's checkpoint may hold the file for a moment.
_BUSY_SECONDS: Final = 5.0

# `seq` is the order in which events were committed. `keep_until` is null for what is kept for good.
# An event touches few indexes, because every commit writes the pages of each: what has a recipient is asked
# for by recipient or id alone. Behind most of them stands the time: answers come in its order. `events_end`
# also counts the events of each sender at the start.
_INDEXES: Final = """
CREATE INDEX events_kind ON events (kind, timestamp) WHERE recipient IS NULL;
CREATE INDEX events_end ON events (keep_until, sender);
"""
# Ids that end at the same time lie side by side, so that a commit writes one page of them.
_SEEN: Final = """
CREATE TABLE seen (id BLOB NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (until, id)) WITHOUT ROWID;
"""
_TABLES: Final = f"""
CREATE TABLE events (seq INTEGER PRIMARY KEY, id BLOB NOT NULL, kind TEXT NOT NULL, sender TEXT NOT NULL,
  recipient TEXT, correlation_id TEXT, timestamp INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  keep_until INTEGER, received_at INTEGER NOT NULL, raw BLOB NOT NULL);
CREATE UNIQUE INDEX events_id ON events (id);
CREATE INDEX events_recipient ON events (recipient, timestamp) WHERE recipient IS NOT NULL;
CREATE INDEX events_public ON events (sender, timestamp) WHERE recipient IS NULL;
CREATE INDEX events_announce ON events (sender) WHERE kind = 'xp.endpoint.announce';
CREATE TABLE facts (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
{_INDEXES}{_SEEN}"""
# Version 1 had more indexes, and the ids in an order of their own.
_FROM_1: Final = f"""
DROP INDEX events_sender; DROP INDEX events_kind; DROP INDEX events_correlation; DROP INDEX events_end;
DROP INDEX seen_end;
ALTER TABLE seen RENAME TO seen_before;
{_INDEXES}{_SEEN}
INSERT INTO seen SELECT id, until FROM seen_before;
DROP TABLE seen_before;
"""  # noqa: S608


def connect_writing(path: Path) -> sqlite3.Connection:
    """The connection that writes; makes the file when there is none. Raises UsageError."""
    try:
        make_folder(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    except (OSError, sqlite3.Error) as fault:
        raise _unusable(path, fault) from fault
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        version = _version_of(connection)
        if (changes := {0: _TABLES, 1: _FROM_1}.get(version)) is None:
            _check_version(version)
        else:
            connection.executescript(f"BEGIN; {changes} PRAGMA user_version = {_VERSION}; COMMIT;")
    except sqlite3.Error as fault:
        connection.close()
        raise _unusable(path, fault) from fault
    return connection


def connect_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; others may write meanwhile. Raises UsageError."""
    if not path.is_file():
        raise UsageError(
            f"no events in {path.parent}: name the data folder of a relay, an adapter or a devserver"
        )
    try:
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as fault:
        raise _unusable(path, fault) from fault
    try:
        _check_version(_version_of(connection))
    except sqlite3.Error as fault:
        connection.close()
        raise _unusable(path, fault) from fault
    return connection


def lock(folder: Path) -> int:
    """Hold the folder's events for this process alone; give the descriptor to `os.close` at the end."""
    try:
        make_folder(folder)
        held = os.open(folder / _LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise _unusable(folder, fault) from fault
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise FolderInUse(
            f"another process writes the events in {folder}: stop it first, or name another folder"
        ) from None
    return held


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing; on disk when the block is left."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version_of(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _check_version(version: int) -> None:
    if version != _VERSION:
        raise sqlite3.DatabaseError(f"it is of version {version}, this program knows version {_VERSION}")


def _unusable(path: Path, fault: Exception) -> UsageError:
    return UsageError(
        f"cannot use {path}: {fault}. Free the disk or correct its rights, restore the file from a copy, "
        "or move it away to begin with an empty one"
    )
