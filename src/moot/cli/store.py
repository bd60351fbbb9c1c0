"""`moot store`: look into the events that a relay, an adapter or a devserver keeps.

Sealed payloads stay sealed: the store has no key. Only `prune` writes.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3

    from moot.store.event_query import EventQuery, StoredEvent

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SHOWN_KEY_CHARS: Final = 20
_LISTED: Final = 20

_EXAMPLES = """\
examples:
  moot store list .moot/relay -n 50
  moot store search .moot/relay --kind 'com.acme.*' --since 1h
  moot store search .moot/relay --to ed25519:… --json
  moot store show .moot/relay 3fa9c2
  moot store export .moot/relay --kind xp.endpoint.announce announces.jsonl
  moot store stats .moot/relay

Events for somebody are sealed for that key: shown is who, to whom, which kind, when, how large.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "store",
        help="look into the events that a relay or an adapter keeps",
        description="Reads the event store in a data folder (events.sqlite), also while it is being written.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = _action(actions, "list", _list, "the newest events")
    listing.add_argument(
        "-n", type=int, default=_LISTED, metavar="COUNT", help=f"how many (default {_LISTED})"
    )
    listing.add_argument("--json", action="store_true", help="the events as they came, one a line")

    show = _action(actions, "show", _show, "one event and what was noted about it")
    show.add_argument("id", metavar="ID", help="its id, or the first characters of it")
    show.add_argument("--json", action="store_true", help="the event as it came")

    search = _action(actions, "search", _search, "the events that match everything that is given")
    _add_filters(search)
    search.add_argument("-n", type=int, metavar="COUNT", help="only the newest so many")
    search.add_argument("--json", action="store_true", help="the events as they came, one a line")

    export = _action(actions, "export", _export, "events as they came into a new file, one a line")
    _add_filters(export)
    export.add_argument("file", metavar="FILE", help="- is the standard output")

    stats = _action(actions, "stats", _stats, "how many events of which kinds and senders there are")
    stats.add_argument("--json", action="store_true", help="one JSON object")

    prune = _action(actions, "prune", _prune, "removes events whose time is over, and gives the room back")
    prune.add_argument("--dry-run", action="store_true", help="only say how many there are")


def _action(actions: Any, name: str, run: Any, help: str) -> Any:
    parser = actions.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    parser.add_argument("data", type=Path, metavar="DATA", help="the data folder")
    parser.set_defaults(run=partial(_run, run))
    return parser


def _run(action: Callable[[argparse.Namespace], int], chosen: argparse.Namespace) -> int:
    from moot.cli.extras import check_installed

    check_installed("xprotocol")
    return action(chosen)


def _add_filters(parser: Any) -> None:
    add = parser.add_argument
    add("--id", action="append", default=[], help="the whole id of an event; may be given several times")
    add("--kind", help="a kind, or what it starts with and a *")
    add("--from", dest="sender", metavar="KEY", help="the sender's key (ed25519:…)")
    add("--to", dest="recipient", metavar="KEY", help="the recipient's key (ed25519:…)")
    add("--correlation", metavar="ID", help="the correlation_id")
    add("--public", action="store_true", help="only events without a recipient")
    add("--since", type=_moment, metavar="TIME", help="2026-01-31, 2026-01-31T12:00Z, or 90m ago")
    add("--until", type=_moment, metavar="TIME", help="likewise")


def _moment(text: str) -> int:
    """A date, a moment, seconds since 1970, or how long ago."""
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
        return int(time.time() - float(ago[1]) * _UNITS[ago[2]])
    if re.fullmatch(r"\d{9,}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2026-01-31, 2026-01-31T12:00:00Z, or 90m (also s, h, d, w) ago"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


@contextmanager
def _opened(data: Path) -> Iterator[sqlite3.Connection]:
    import sqlite3

    from moot.errors import UsageError
    from moot.store.event_tables import FILE_NAME, connect_reading

    connection = connect_reading(data / FILE_NAME)
    try:
        yield connection
    except sqlite3.Error as fault:
        raise UsageError(f"cannot read {data / FILE_NAME}: {fault}") from None
    finally:
        connection.close()


# The actions


def _list(chosen: argparse.Namespace) -> int:
    from moot.store.event_query import EventQuery

    return _print_all(chosen, EventQuery(limit=max(0, chosen.n)))


def _search(chosen: argparse.Namespace) -> int:
    return _print_all(chosen, _query(chosen, chosen.n))


def _show(chosen: argparse.Namespace) -> int:
    import json

    import orjson

    from moot.cli.escape_output import printable_json
    from moot.errors import UsageError
    from moot.store.event_query import EventQuery, read_all
    from moot.store.event_store import annotations_of
    from moot.store.event_tables import ids_that_start

    with _opened(chosen.data) as connection:
        found = ids_that_start(connection, chosen.id.lower(), 3)
        if not found:
            raise UsageError(
                f"no event {chosen.id[:64]!r}: `moot store list {chosen.data}` shows the newest ones"
            )
        if len(found) > 1:
            raise UsageError(
                f"several events begin with {chosen.id[:64]}: {', '.join(found)}, …: give more of it"
            )
        (event,) = read_all(connection, EventQuery(ids=(found[0],)))
        if chosen.json:
            print(printable_json(event.raw))
            return 0
        print(_line_of(event))
        members = orjson.loads(event.raw)
        if members.get("recipient") is not None:
            members["payload"] = f"(sealed, {len(members['payload'])} characters)"
        for line in json.dumps(members, indent=2, ensure_ascii=False).split("\n"):
            print(printable_json(line.encode()))
        print(f"stored at {_time(event.received_at)}")
        for note in annotations_of(connection, found[0]):
            text = printable_json(orjson.dumps(note.value))
            print(f"noted at {_time(note.noted_at)}: {printable_json(note.name.encode())} = {text}")
    return 0


def _export(chosen: argparse.Namespace) -> int:
    from moot.cli.escape_output import printable
    from moot.cli.journal import _new_file
    from moot.store.event_query import read_all

    count = 0
    with _opened(chosen.data) as connection, _new_file(chosen.file) as file:
        for event in read_all(connection, _query(chosen, None)):
            file.write(event.raw.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n")
            count += 1
    if chosen.file != "-":
        print(f"{count} events in {printable(chosen.file)}")
    return 0


def _stats(chosen: argparse.Namespace) -> int:
    import orjson

    from moot.cli.escape_output import printable

    with _opened(chosen.data) as connection:
        (count, oldest, newest, size) = connection.execute(
            "SELECT count(*), min(timestamp), max(timestamp), coalesce(sum(length(raw)), 0) FROM events"
        ).fetchone()
        over = _count(connection, "SELECT count(*) FROM events WHERE keep_until <= ?", int(time.time()))
        seen = _count(connection, "SELECT count(*) FROM seen")
        senders = _count(connection, "SELECT count(DISTINCT sender) FROM events")
        recipients = _count(connection, "SELECT count(DISTINCT recipient) FROM events")
        kinds = connection.execute(
            "SELECT kind, count(*) FROM events GROUP BY kind ORDER BY count(*) DESC, kind LIMIT ?", (_LISTED,)
        ).fetchall()
    said = {
        "events": count,
        "bytes": size,
        "senders": senders,
        "recipients": recipients,
        "expired": over,
        "seen_ids": seen,
        "oldest": oldest,
        "newest": newest,
        "kinds": dict(kinds),
    }
    if chosen.json:
        print(orjson.dumps(said).decode())
        return 0
    print(f"{count:,} events, {size:,} bytes, from {senders:,} senders to {recipients:,} recipients")
    if count:
        print(f"made between {_time(oldest)} and {_time(newest)}")
    print(f"{over:,} of them expired, to be pruned; {seen:,} ids remembered against replays")
    for kind, number in kinds:
        print(f"{number:>9,}  {printable(kind)}")
    return 0


def _prune(chosen: argparse.Namespace) -> int:
    import os
    import sqlite3

    from moot.errors import UsageError
    from moot.store.event_store import remove_expired
    from moot.store.event_tables import FILE_NAME, connect_writing, lock, transaction

    now = int(time.time())
    with _opened(chosen.data) as connection:
        over = _count(connection, "SELECT count(*) FROM events WHERE keep_until <= ?", now)
    if chosen.dry_run:
        print(f"{over} events would be removed")
        return 0
    held = lock(chosen.data)
    try:
        writing = connect_writing(chosen.data / FILE_NAME)
        try:
            removed = 0
            while True:
                with transaction(writing):
                    step = len(remove_expired(writing, now))
                if not step:
                    break
                removed += step
            writing.execute("VACUUM")
        except sqlite3.Error as fault:
            raise UsageError(f"cannot prune {chosen.data / FILE_NAME}: {fault}") from None
        finally:
            writing.close()
    finally:
        os.close(held)
    print(f"{removed} events removed")
    return 0


def _query(chosen: argparse.Namespace, limit: int | None) -> EventQuery:
    from moot.errors import UsageError
    from moot.store.event_query import EventQuery

    for id in chosen.id:
        if re.fullmatch("[0-9a-f]{64}", id) is None:
            raise UsageError(f"--id {id[:64]}: 64 hexadecimal digits; `moot store show` takes a part of one")
    kind = chosen.kind or ""
    prefix = kind[:-1] if kind.endswith("*") else None
    return EventQuery(
        ids=tuple(chosen.id),
        kinds=(kind,) if kind and prefix is None else (),
        kind_prefix=prefix,
        senders=(chosen.sender,) if chosen.sender else (),
        recipients=(chosen.recipient,) if chosen.recipient else (),
        correlation_ids=(chosen.correlation,) if chosen.correlation else (),
        since=chosen.since,
        until=chosen.until,
        public_only=chosen.public,
        limit=None if limit is None else max(0, limit),
    )


# How an event looks


def _print_all(chosen: argparse.Namespace, query: EventQuery) -> int:
    from moot.cli.escape_output import printable_json
    from moot.store.event_query import read_all

    with _opened(chosen.data) as connection:
        for event in read_all(connection, query):
            print(printable_json(event.raw) if chosen.json else _line_of(event))
    return 0


def _line_of(event: StoredEvent) -> str:
    """Time, id, kind, from whom to whom, in which conversation, how large; never what is in it."""
    import orjson

    from moot.cli.escape_output import printable

    members = orjson.loads(event.raw)
    recipient = members.get("recipient")
    parts = [
        _time(event.timestamp),
        members["id"][:12],
        printable(members["kind"]),
        f"{_key(members['sender'])} → {'everybody' if recipient is None else _key(recipient)}",
    ]
    if members.get("correlation_id"):
        parts.append(f"in {printable(members['correlation_id'])}")
    if members.get("in_reply_to"):
        parts.append(f"answers {members['in_reply_to'][:12]}")
    parts.append(f"{len(event.raw)} bytes")
    return "  ".join(parts)


def _key(text: str) -> str:
    return text[:_SHOWN_KEY_CHARS] + "…"


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _count(connection: sqlite3.Connection, statement: str, *values: int) -> int:
    (count,) = connection.execute(statement, values).fetchone()
    return int(count)
