"""`moot xp store`: look into the events that a relay, an adapter or a devserver keeps.

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

from moot.cli import program
from moot.cli.time_argument import TIME_HELP, parse_time

if TYPE_CHECKING:
    import sqlite3

    from moot.xprotocol.event_store.event_query import EventQuery, StoredEvent

_SHOWN_KEY_CHARS: Final = 20
_LISTED: Final = 20
_HEADINGS: Final = ("TIME", "ID", "KIND", "FROM", "TO", "CONVERSATION", "BYTES")

_EXAMPLES = """\
  moot xp store list .moot/relay -n 50
  moot xp store search .moot/relay --kind 'com.acme.*' --since 1h
  moot xp store show .moot/relay 3fa9c2
  moot xp store stats .moot/relay

Events for somebody are sealed for that key: shown is who, to whom, which kind, when, how large.
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="look into the events that a relay or an adapter keeps",
        about="Reads the event store in a data folder (events.sqlite), also while it is being written.",
        examples=_EXAMPLES,
    )

    listing = _add_action(
        group, "list", _list, "list the newest events", "  moot xp store list .moot/relay -n 50\n"
    )
    listing.add_argument(
        "-n", type=int, default=_LISTED, metavar="COUNT", help=f"how many (default {_LISTED})"
    )
    listing.add_argument("--json", action="store_true", help="the events as they came, one a line")

    show = _add_action(
        group,
        "show",
        _show,
        "show one event and what was noted about it",
        "  moot xp store show .moot/relay 3fa9c2\n",
    )
    show.add_argument("id", metavar="ID", help="its id, or the first characters of it")
    show.add_argument("--json", action="store_true", help="the event as it came")

    search = _add_action(
        group,
        "search",
        _search,
        "list the events that match everything that is given",
        "  moot xp store search .moot/relay --kind 'com.acme.*' --since 1h\n"
        "  moot xp store search .moot/relay --to ed25519:… --json\n",
    )
    _add_filters(search)
    search.add_argument("-n", type=int, metavar="COUNT", help="only the newest so many")
    search.add_argument("--json", action="store_true", help="the events as they came, one a line")

    export = _add_action(
        group,
        "export",
        _export,
        "write events as they came into a new file, one a line",
        "  moot xp store export .moot/relay --kind xp.endpoint.announce announces.jsonl\n",
    )
    _add_filters(export)
    export.add_argument("file", metavar="FILE", help="- is the standard output")

    stats = _add_action(
        group,
        "stats",
        _stats,
        "count the events by kind and sender",
        "  moot xp store stats .moot/relay --json\n",
    )
    stats.add_argument("--json", action="store_true", help="print one JSON object, for programs")

    prune = _add_action(
        group,
        "prune",
        _prune,
        "remove expired events, and give the room back",
        "  moot xp store prune .moot/relay --dry-run\n",
    )
    prune.add_argument("--dry-run", action="store_true", help="only say how many there are")


def _add_action(group: Any, name: str, run: Any, help: str, examples: str) -> Any:
    parser = program.add_command(group, name, help=help, examples=examples)
    parser.add_argument("data", type=Path, metavar="DATA", help="the data folder")
    parser.set_defaults(run=partial(_run, run))
    return parser


def _run(action: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    from moot.cli.extras import check_installed

    check_installed("xprotocol")
    return action(options)


def _add_filters(parser: Any) -> None:
    add = parser.add_argument
    add("--id", action="append", default=[], help="the whole id of an event; may be given several times")
    add("--kind", help="a kind, or what it starts with and a *")
    add("--from", dest="sender", metavar="KEY", help="the sender's key (ed25519:…)")
    add("--to", dest="recipient", metavar="KEY", help="the recipient's key (ed25519:…)")
    add("--correlation", metavar="ID", help="the correlation_id")
    add("--public", action="store_true", help="only events without a recipient")
    add("--since", type=parse_time, metavar="TIME", help=TIME_HELP)
    add("--until", type=parse_time, metavar="TIME", help="likewise")


@contextmanager
def _opened(data: Path) -> Iterator[sqlite3.Connection]:
    import sqlite3

    from moot.errors import UsageError
    from moot.xprotocol.event_store.event_tables import FILE_NAME, connect_reading

    connection = connect_reading(data / FILE_NAME)
    try:
        yield connection
    except sqlite3.Error as fault:
        raise UsageError(f"cannot read {data / FILE_NAME}: {fault}") from None
    finally:
        connection.close()


# The actions


def _list(options: argparse.Namespace) -> int:
    from moot.xprotocol.event_store.event_query import EventQuery

    return _print_all(options, EventQuery(limit=max(0, options.n)))


def _search(options: argparse.Namespace) -> int:
    return _print_all(options, _query(options, options.n))


def _show(options: argparse.Namespace) -> int:
    import json

    import orjson

    from moot.cli.table_output import TableWriter
    from moot.errors import UsageError
    from moot.operations.terminal_escape import printable_json
    from moot.xprotocol.event_store.event_query import EventQuery, read_all
    from moot.xprotocol.event_store.event_store import annotations_of
    from moot.xprotocol.event_store.event_tables import ids_with_prefix

    with _opened(options.data) as connection:
        found = ids_with_prefix(connection, options.id.lower(), 3)
        if not found:
            raise UsageError(
                f"no event {options.id[:64]!r}: `moot xp store list {options.data}` shows the newest ones"
            )
        if len(found) > 1:
            raise UsageError(
                f"several events begin with {options.id[:64]}: {', '.join(found)}, …: give more of it"
            )
        (event,) = read_all(connection, EventQuery(ids=(found[0],)))
        if options.json:
            print(printable_json(event.raw))
            return 0
        TableWriter(*_HEADINGS, right={6}).write([_row(event)])
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


def _export(options: argparse.Namespace) -> int:
    from moot.cli.output_file import open_new_file
    from moot.operations.terminal_escape import printable
    from moot.xprotocol.event_store.event_query import read_all

    count = 0
    with _opened(options.data) as connection, open_new_file(options.file) as file:
        for event in read_all(connection, _query(options, None)):
            file.write(event.raw.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n")
            count += 1
    if options.file != "-":
        print(f"{count} events in {printable(options.file)}")
    return 0


def _stats(options: argparse.Namespace) -> int:
    import orjson

    from moot.operations.terminal_escape import printable

    with _opened(options.data) as connection:
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
    fields = {
        "events": count,
        "bytes": size,
        "senders": senders,
        "recipients": recipients,
        "expired": over,
        "seen_ids": seen,
        "oldest_at": None if oldest is None else _time(oldest),
        "newest_at": None if newest is None else _time(newest),
        "kinds": dict(kinds),
    }
    if options.json:
        print(orjson.dumps(fields).decode())
        return 0
    print(f"{count:,} events, {size:,} bytes, from {senders:,} senders to {recipients:,} recipients")
    if count:
        print(f"made between {_time(oldest)} and {_time(newest)}")
    print(f"{over:,} of them expired, to be pruned; {seen:,} ids remembered against replays")
    for kind, number in kinds:
        print(f"{number:>9,}  {printable(kind)}")
    return 0


def _prune(options: argparse.Namespace) -> int:
    import os
    import sqlite3

    from moot.errors import UsageError
    from moot.xprotocol.event_store.event_store import remove_expired
    from moot.xprotocol.event_store.event_tables import FILE_NAME, connect_writing, lock, transaction

    now = int(time.time())
    with _opened(options.data) as connection:
        over = _count(connection, "SELECT count(*) FROM events WHERE keep_until <= ?", now)
    if options.dry_run:
        print(f"{over} events would be removed")
        return 0
    held = lock(options.data)
    try:
        writing = connect_writing(options.data / FILE_NAME)
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
            raise UsageError(f"cannot prune {options.data / FILE_NAME}: {fault}") from None
        finally:
            writing.close()
    finally:
        os.close(held)
    print(f"{removed} events removed")
    return 0


def _query(options: argparse.Namespace, limit: int | None) -> EventQuery:
    from moot.errors import UsageError
    from moot.xprotocol.event_store.event_query import EventQuery

    for id in options.id:
        if re.fullmatch("[0-9a-f]{64}", id) is None:
            raise UsageError(f"--id {id[:64]}: 64 hexadecimal digits; `moot xp store show` takes a part")
    kind = options.kind or ""
    prefix = kind[:-1] if kind.endswith("*") else None
    return EventQuery(
        ids=tuple(options.id),
        kinds=(kind,) if kind and prefix is None else (),
        kind_prefix=prefix,
        senders=(options.sender,) if options.sender else (),
        recipients=(options.recipient,) if options.recipient else (),
        correlation_ids=(options.correlation,) if options.correlation else (),
        since=None if options.since is None else int(options.since),
        until=None if options.until is None else int(options.until),
        public_only=options.public,
        limit=None if limit is None else max(0, limit),
    )


# How an event looks


def _print_all(options: argparse.Namespace, query: EventQuery) -> int:
    from moot.cli.table_output import TableWriter
    from moot.operations.terminal_escape import printable_json
    from moot.xprotocol.event_store.event_query import read_all

    with _opened(options.data) as connection:
        if options.json:
            for event in read_all(connection, query):
                print(printable_json(event.raw))
        else:
            TableWriter(*_HEADINGS, right={6}).write(map(_row, read_all(connection, query)))
    return 0


def _row(event: StoredEvent) -> tuple[str, ...]:
    """When, which, from whom to whom, in which conversation, how large; never what is in it."""
    import orjson

    members = orjson.loads(event.raw)
    recipient = members.get("recipient")
    answers = f"answers {members['in_reply_to'][:12]}" if members.get("in_reply_to") else ""
    return (
        _time(event.timestamp),
        members["id"][:12],
        members["kind"],
        _key(members["sender"]),
        "everyone" if recipient is None else _key(recipient),
        " ".join(each for each in (members.get("correlation_id") or "", answers) if each),
        str(len(event.raw)),
    )


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
