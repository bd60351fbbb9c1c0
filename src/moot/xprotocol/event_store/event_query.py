"""Asking for stored events: by id, kind, sender, recipient, correlation and time, page by page.

Answers come in the order of the events' own timestamps, and of arrival among equals. A large answer is
fetched in pages: each goes on behind the last event of the one before, and none looks beyond the number
(`seq`) that was the last when the first was fetched. What is committed later is somebody else's to tell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from moot.xprotocol.events.events import PUBLIC_KINDS

# One page: small beside what a connection's outbox holds, large beside what asking costs.
PAGE_EVENTS: Final = 256
PAGE_BYTES: Final = 256 << 10
_LARGEST: Final = (1 << 63) - 1


class StoredEvent(NamedTuple):
    """An event as it came, and where it stands in the store."""

    seq: int
    timestamp: int
    received_at: int
    raw: bytes


class EventPosition(NamedTuple):
    """Behind which event a page begins."""

    timestamp: int
    seq: int


START: Final = EventPosition(-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Everything that is given must hold; of several values in one member any one may.

    `limit` takes the newest so many.
    """

    ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    correlation_ids: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    # Without those that have a recipient.
    public_only: bool = False
    # Without those whose time was over at this moment.
    alive_at: int | None = None


@dataclass(slots=True)
class EventReader:
    """How far an answer has been fetched."""

    query: EventQuery
    # The first and the last number that belong to this answer; None: the last one at the first page.
    first_seq: int = 0
    last_seq: int | None = None
    behind: EventPosition = START
    begun: bool = False
    done: bool = False


def last_seq(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("SELECT max(seq) FROM events").fetchone()
    return -1 if found is None else int(found)


def next_page(
    connection: sqlite3.Connection,
    reading: EventReader,
    *,
    events: int = PAGE_EVENTS,
    size: int = PAGE_BYTES,
) -> list[StoredEvent]:
    """The next events of an answer, at most so many and about so many bytes; empty: that was all."""
    if reading.done:
        return []
    where, values = _conditions(reading.query)
    if reading.begun:
        return _page(connection, reading, where, values, events, size)
    reading.begun = True
    # One read transaction for the number and the first page: nothing falls between the two.
    connection.execute("BEGIN")
    try:
        if reading.last_seq is None:
            reading.last_seq = last_seq(connection)
        if reading.query.limit is not None:
            reading.behind = _before_newest(connection, reading, where, values)
        return _page(connection, reading, where, values, events, size)
    finally:
        connection.execute("COMMIT")


def _page(
    connection: sqlite3.Connection,
    reading: EventReader,
    where: str,
    values: list[Any],
    events: int,
    size: int,
) -> list[StoredEvent]:
    behind = reading.behind
    # The first comparison is what an index can use; the second settles equal times.
    rows = connection.execute(
        f"SELECT seq, timestamp, received_at, raw FROM events {where} AND seq BETWEEN ? AND ? "  # noqa: S608
        "AND timestamp >= ? AND (timestamp, seq) > (?, ?) ORDER BY timestamp, seq LIMIT ?",
        (*values, reading.first_seq, reading.last_seq, behind.timestamp, *behind, events),
    )
    page: list[StoredEvent] = []
    total = 0
    for row in rows:
        event = StoredEvent(*row)
        page.append(event)
        total += len(event.raw)
        if total >= size:
            break
    rows.close()
    if page:
        reading.behind = EventPosition(page[-1].timestamp, page[-1].seq)
    else:
        reading.done = True
    return page


def _before_newest(
    connection: sqlite3.Connection, reading: EventReader, where: str, values: list[Any]
) -> EventPosition:
    """Behind which event the newest `limit` begin."""
    limit = reading.query.limit or 0
    if limit <= 0:
        return EventPosition(_LARGEST, _LARGEST)
    row = connection.execute(
        f"SELECT timestamp, seq FROM events {where} AND seq BETWEEN ? AND ? "  # noqa: S608
        "ORDER BY timestamp DESC, seq DESC LIMIT 1 OFFSET ?",
        (*values, reading.first_seq, reading.last_seq, limit),
    ).fetchone()
    return START if row is None else EventPosition(*row)


def _conditions(query: EventQuery) -> tuple[str, list[Any]]:
    """FROM's index, WHERE and its values. All text here is ours; what was asked comes in as values."""
    terms: list[str] = []
    values: list[Any] = []

    def among(column: str, wanted: Iterable[Any]) -> None:
        listed = list(wanted)
        terms.append(f"{column} IN ({','.join('?' * len(listed))})")
        values.extend(listed)

    index = ""
    kinds: Sequence[str] = query.kinds
    if query.public_only:
        # Whatever has no recipient is of one of a few kinds. Other kinds are not even looked at: anybody may
        # ask a relay, and asking must not cost more than there is to tell.
        kinds = sorted(PUBLIC_KINDS.intersection(query.kinds or PUBLIC_KINDS))
        if not kinds:
            return "WHERE 0", []
        terms.append("recipient IS NULL")
    if kinds:
        among("kind", kinds)
        index = "INDEXED BY events_kind" if query.public_only else ""
    if query.senders:
        among("sender", query.senders)
        index = "INDEXED BY events_public" if query.public_only else ""
    if query.recipients:
        among("recipient", query.recipients)
        index = "INDEXED BY events_recipient"
    if query.correlation_ids:
        among("correlation_id", query.correlation_ids)
    if query.ids:
        among("id", map(bytes.fromhex, query.ids))
        index = "INDEXED BY events_id"
    if query.since is not None:
        terms.append("timestamp >= ?")
        values.append(query.since)
    if query.until is not None:
        terms.append("timestamp <= ?")
        values.append(query.until)
    if query.alive_at is not None:
        terms.append("(keep_until IS NULL OR keep_until > ?)")
        values.append(query.alive_at)
    return f"{index} WHERE {' AND '.join(terms) if terms else '1'}", values
