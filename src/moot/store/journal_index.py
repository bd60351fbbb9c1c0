"""An index of a journal: where each record stands, and who said what about what.

It is a SQLite file beside the journal (`DATA/spaces/NAME/index.db`) and can be deleted at any time: the
journal is the truth. `catch_up` fills it from where it stopped, on demand or behind the gateway. When its
last record is no longer where it was, it begins anew.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

import msgspec

from moot.store.journal_reader import START, JournalRecord, RecordPosition, read_records, record_at
from moot.store.journal_segments import segments_of

# One transaction; a search that waits for the writer waits for no more than some 100 ms.
_BATCH: Final = 5_000
_VERSION: Final = 1

# Kinds, names and outcomes have no index of their own: going through this narrow table takes 0.1 s a
# million records, and each index would cost as much to fill as the table.
_TABLES: Final = """
CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE);
CREATE TABLE records (
  number INTEGER PRIMARY KEY, segment INTEGER NOT NULL, offset INTEGER NOT NULL, time REAL NOT NULL,
  kind INTEGER NOT NULL, who INTEGER NOT NULL, outcome INTEGER NOT NULL, id TEXT);
CREATE INDEX by_id ON records (id) WHERE id IS NOT NULL;
CREATE TABLE correlations (about TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (about, number))
  WITHOUT ROWID;
CREATE TABLE position (number INTEGER NOT NULL, hash TEXT NOT NULL, segment INTEGER NOT NULL,
  offset INTEGER NOT NULL, end INTEGER NOT NULL);
"""


class _EnvelopeFields(msgspec.Struct, gc=False):
    id: str = ""
    correlation_id: list[str] | str = ""
    x_correlation_ids: list[str] = []


class _IndexedFields(msgspec.Struct, gc=False):
    """What the index takes from a record, and nothing else of it is parsed."""

    t: float = 0.0
    input: str = msgspec.field(name="in", default="")
    kind: str = ""
    id: str = ""
    who: str = ""
    out: str = ""
    raw: _EnvelopeFields = msgspec.field(default_factory=_EnvelopeFields)

    @property
    def about(self) -> set[str]:
        first = self.raw.correlation_id
        several = {*first} if first.__class__ is list else {str(first)} if first else set()
        return several.union(self.raw.x_correlation_ids)


_decoder = msgspec.json.Decoder(_IndexedFields)


def _digest(record: JournalRecord) -> str:
    """Tells whether the line that was indexed last is still there; only the last of a batch is sealed."""
    return sha256(record.line).hexdigest()


def _read_fields(record: JournalRecord) -> _IndexedFields:
    try:
        return _decoder.decode(record.line)
    except msgspec.MsgspecError:
        # A refused envelope may have members of any type.
        envelope = _EnvelopeFields(record.id, record.correlations)
        return _IndexedFields(
            record.time,
            record.text("in"),
            record.text("kind"),
            "",
            record.text("who"),
            record.text("out"),
            envelope,
        )


class IndexQuery(Protocol):
    """The part of a query that an index can answer."""

    @property
    def id(self) -> str | None: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def who(self) -> str | None: ...
    @property
    def outcome(self) -> str | None: ...
    @property
    def about(self) -> str | None: ...


class JournalIndex:
    """Use in the thread that opened it."""

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self.folder = folder
        self._database = database
        self._words: dict[str, int] = {}
        self._end = START
        self.position = 0  # the last record that is indexed
        self._load()

    @classmethod
    def open(cls, folder: Path, *, create: bool = True) -> JournalIndex | None:
        """The index of the journal in this folder; None when there is none and none can be made."""
        path = folder.parent / "index.db"
        if not create and not path.exists():
            return None
        try:
            try:
                return cls(folder, _connect(path))
            except sqlite3.OperationalError:
                # Locked for long, or not ours to write.
                return None
            except sqlite3.DatabaseError:
                if not create:
                    return None
                # Not a database: it holds nothing that the journal does not.
                path.unlink()
                return cls(folder, _connect(path))
        except OSError:
            return None

    def close(self) -> None:
        self._database.close()

    def catch_up(self, seconds: float | None = None) -> bool:
        """Index what is new; True when all of it is, False when the seconds were used up before."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self._check()
        records = read_records(self.folder, self.position, start=self._end)
        while batch := list(islice(records, _BATCH)):
            try:
                self._add(batch)
            except sqlite3.OperationalError:
                # Read-only, or another process fills it for longer than we care to wait.
                self._load()
                return False
            if deadline is not None and time.monotonic() > deadline:
                return False
        return True

    def clear(self) -> None:
        """Forget everything; the next `catch_up` begins with the oldest record."""
        with self._database:
            self._begin()
            # Not the words: another process may have their numbers in memory.
            for table in ("records", "correlations", "position"):
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608
        self._load()

    def can_answer(self, wanted: IndexQuery) -> bool:
        """Whether a search is better begun here than by reading everything."""
        exact_kind = wanted.kind is not None and not wanted.kind.endswith("*")
        return self.position > 0 and (
            exact_kind or any(w is not None for w in (wanted.id, wanted.who, wanted.outcome, wanted.about))
        )

    def find(self, wanted: IndexQuery, after: int) -> Iterator[tuple[int, RecordPosition]]:
        """Numbers and places of the records that may match, in order."""
        conditions = ["number > ?"]
        values: list[str | int] = [after]
        if wanted.id is not None:
            conditions.append("id = ?")
            values.append(wanted.id)
        if wanted.about is not None:
            conditions.append("number IN (SELECT number FROM correlations WHERE about = ?)")
            values.append(wanted.about)
        for column in ("kind", "who", "outcome"):
            word: str | None = getattr(wanted, column)
            if word is not None and not (column == "kind" and word.endswith("*")):
                known = self._database.execute("SELECT id FROM words WHERE word = ?", (word,)).fetchone()
                if known is None:
                    return
                conditions.append(f"{column} = ?")
                values.append(known[0])
        rows = self._database.execute(
            f"SELECT number, segment, offset FROM records WHERE {' AND '.join(conditions)} "  # noqa: S608
            "ORDER BY number",
            values,
        )
        for number, segment, offset in rows:
            yield number, RecordPosition(segment, offset)

    def ids_beginning(self, beginning: str, most: int) -> list[str]:
        rows = self._database.execute(
            "SELECT DISTINCT id FROM records WHERE id >= ? AND id < ? LIMIT ?",
            (beginning, f"{beginning}\U0010ffff", most),
        )
        return [id for (id,) in rows]

    @property
    def end(self) -> RecordPosition:
        """Where the record after the last one that is indexed stands."""
        return self._end

    def position_of(self, number: int) -> RecordPosition | None:
        row = self._database.execute(
            "SELECT segment, offset FROM records WHERE number = ?", (number,)
        ).fetchone()
        return None if row is None else RecordPosition(*row)

    def _load(self) -> None:
        row = self._database.execute("SELECT number, segment, end FROM position").fetchone()
        self.position, self._end = (0, START) if row is None else (row[0], RecordPosition(row[1], row[2]))
        self._words = dict(self._database.execute("SELECT word, id FROM words"))

    def _check(self) -> None:
        """Whether the journal still is what was indexed; if not, begin anew."""
        self._load()
        row = self._database.execute("SELECT number, hash, segment, offset FROM position").fetchone()
        segments = segments_of(self.folder)
        if row is None:
            return
        number, hash, segment, offset = row
        record = record_at(self.folder, RecordPosition(segment, offset))
        if record is None or record.number != number or _digest(record) != hash:
            self.clear()
        elif segments and self.position_of(segments[0].first - 1) is not None:
            with self._database:
                self._begin()
                for table in ("records", "correlations"):
                    self._database.execute(
                        f"DELETE FROM {table} WHERE number < ?",  # noqa: S608
                        (segments[0].first,),
                    )

    def _add(self, batch: list[JournalRecord]) -> None:
        last = batch[-1]
        seen = [_read_fields(record) for record in batch]
        with self._database:
            self._begin()
            self._database.executemany(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                list(map(self._row, batch, seen)),
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO correlations VALUES (?, ?)",
                [(about, record.number) for record, s in zip(batch, seen, strict=True) for about in s.about],
            )
            self._database.execute("DELETE FROM position")
            self._database.execute(
                "INSERT INTO position VALUES (?, ?, ?, ?, ?)",
                (last.number, _digest(last), *last.place, last.end.offset),
            )
        self.position, self._end = last.number, last.end

    def _begin(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def _row(
        self, record: JournalRecord, seen: _IndexedFields
    ) -> tuple[int, int, int, float, int, int, int, str | None]:
        segment, offset = record.place
        kind = seen.kind or seen.input
        words = self._words
        return (
            record.number,
            segment,
            offset,
            seen.t,
            words.get(kind) or self._word_id(kind),
            words.get(seen.who) or self._word_id(seen.who),
            words.get(seen.out) or self._word_id(seen.out),
            seen.id or seen.raw.id or None,
        )

    def _word_id(self, word: str) -> int:
        """Kinds, names and outcomes come back all the time; the table holds each once."""
        self._database.execute("INSERT OR IGNORE INTO words (word) VALUES (?)", (word,))
        (id,) = self._database.execute("SELECT id FROM words WHERE word = ?", (word,)).fetchone()
        return self._words.setdefault(word, int(id))


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=2.0, isolation_level=None)
    try:
        # Losing the index costs nothing but time, so it never waits for the disk.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                database.execute(f'DROP TABLE "{table}"')
            database.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database
