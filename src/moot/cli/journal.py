"""`moot journal`: read, search, export and check what a gateway journaled. It never writes to a journal."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from moot.cli.escape_output import printable, printable_json
from moot.errors import UsageError
from moot.protocol import strict_json
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.store.database import covered_position
from moot.store.journal_index import JournalIndex
from moot.store.journal_reader import JournalRecord, follow_records, last_records, read_records, verify
from moot.store.journal_search import JournalQuery, find_number, search

# How long a command that looks something up works on the index before it answers by reading.
_INDEX_SECONDS: Final = 2.0
_FOLLOW_SECONDS: Final = 0.2
_SUMMARY_CHARACTERS: Final = 120
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
# Members that the line of a record shows by themselves, or that are nothing for the eye.
_KNOWN: Final = frozenset(
    {"n", "t", "in", "session", "who", "out", "mint", "tokens", "kind", "id", "raw", "h"}
)

_EXAMPLES = """\
examples:
  moot journal tail --follow
  moot journal search --from agent --kind 'mcp/*' --since 1h
  moot journal search --outcome capability_violation --json
  moot journal show 3f1c-77
  moot journal export --csv records.csv
  moot journal verify
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "journal",
        help="read, search, export and check what was journaled",
        description="Every input of a space is journaled with its outcome, one JSON object a line, tied "
        "to what was written before by hashes. These commands read it, also while a gateway writes it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    tail = _action(actions, "tail", _tail, "the last records")
    tail.add_argument("-n", type=int, default=20, metavar="COUNT", help="how many (default 20)")
    tail.add_argument("--follow", action="store_true", help="go on with those that come, until Ctrl-C")
    _add_json(tail)

    show = _action(actions, "show", _show, "one record, what it correlates to and what correlates to it")
    show.add_argument(
        "wanted", metavar="ID_OR_NUMBER", help="the id of an envelope or the number of a record"
    )
    _add_json(show)

    find = _action(actions, "search", _search, "the records that match everything that is given")
    find.add_argument("--kind", help="a kind, or what it starts with and a *; also join, leave, admin, …")
    find.add_argument("--from", dest="who", metavar="NAME", help="who caused it")
    find.add_argument("--text", help="words in it, in any letter case")
    find.add_argument(
        "--since", type=moment, metavar="TIME", help="2026-01-31, 2026-01-31T12:00Z, or 90m ago"
    )
    find.add_argument("--until", type=moment, metavar="TIME", help="likewise")
    find.add_argument("--outcome", metavar="CODE", help="accepted, or the code of a refusal")
    find.add_argument("--id", help="the id of the envelope")
    find.add_argument("--about", metavar="ID", help="what correlates to this id")
    _add_json(find)

    export = _action(actions, "export", _export, "all records into a new file")
    form = export.add_mutually_exclusive_group()
    form.add_argument("--jsonl", action="store_true", help="the lines as they are (default)")
    form.add_argument(
        "--csv", action="store_true", help="a table; what a sheet would run as a formula gets a '"
    )
    export.add_argument("file", metavar="FILE", help="- is the standard output")

    _action(actions, "verify", _verify, "whether the chain of hashes holds, in all spaces or in one")


def _action(actions: Any, name: str, run: Any, help: str) -> Any:
    verb = "Writes" if name == "export" else "Shows"
    parser = actions.add_parser(name, help=help, description=f"{verb} {help}.")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(".moot"),
        metavar="DIR",
        help="data folder of the gateway (default .moot)",
    )
    parser.add_argument("--space", metavar="NAME", help="which space; not needed when there is only one")
    parser.set_defaults(run=run)
    return parser


def _add_json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def moment(text: str) -> float:
    """A date, a moment, seconds since 1970, or how long ago."""
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
        return time.time() - float(ago[1]) * _UNITS[ago[2]]
    if re.fullmatch(r"\d{9,}(\.\d+)?", text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2026-01-31, 2026-01-31T12:00:00Z, or 90m (also s, h, d, w) ago"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# Which journal


def _folders(chosen: argparse.Namespace) -> dict[str, Path]:
    """The journals of the data folder by the names of their spaces."""
    found = {path.parent.name: path for path in sorted(chosen.data.glob("spaces/*/journal"))}
    if not found:
        # Nothing there, or nothing that we may see: the latter is said by this.
        for folder in (chosen.data, chosen.data / "spaces"):
            if folder.is_dir():
                os.listdir(folder)
        raise UsageError(
            f"no journal in {chosen.data}: name the gateway's data folder with --data DIR "
            "(a gateway with `journal: off` writes none)"
        )
    if chosen.space is None:
        return found
    if chosen.space not in found:
        raise UsageError(f"no space {chosen.space!r} in {chosen.data}: there is {', '.join(found)}")
    return {chosen.space: found[chosen.space]}


def folder_of(chosen: argparse.Namespace) -> Path:
    """The one journal that `--data` and `--space` mean; raises UsageError when there are several or none."""
    found = _folders(chosen)
    if len(found) > 1:
        raise UsageError(f"several spaces in {chosen.data}: choose one with --space ({', '.join(found)})")
    return next(iter(found.values()))


@contextmanager
def _index_of(folder: Path) -> Iterator[JournalIndex | None]:
    index = JournalIndex.open(folder)
    try:
        if index is not None:
            index.catch_up(_INDEX_SECONDS)
        yield index
    except sqlite3.DatabaseError as fault:
        raise UsageError(f"{folder.parent / 'index.db'}: {fault}. Delete it: it is made anew") from None
    finally:
        if index is not None:
            index.close()


# The actions


def _tail(chosen: argparse.Namespace) -> int:
    folder = folder_of(chosen)
    # One at least, to know where to go on.
    last = last_records(folder, max(1, chosen.n))
    for record in last if chosen.n > 0 else []:
        _print(record, as_json=chosen.json)
    if chosen.follow:
        for record in follow_records(folder, last[-1].number if last else 0, _pause):
            _print(record, as_json=chosen.json)
    return 0


def _pause() -> None:
    sys.stdout.flush()
    time.sleep(_FOLLOW_SECONDS)


def _show(chosen: argparse.Namespace) -> int:
    folder, wanted = folder_of(chosen), chosen.wanted
    with _index_of(folder) as index:
        number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 19 else 0
        record = find_number(folder, number, index=index) if number else None
        found = [record] if record else list(search(folder, JournalQuery(id=wanted), index=index))
        if not found:
            raise UsageError(
                f"no record {wanted!r}: `moot journal search --text` finds words, `tail` the last ones"
            )
        for position, record in enumerate(found):
            before = [
                other
                for id in record.correlations
                for other in search(folder, JournalQuery(id=id), index=index)
            ]
            after = list(search(folder, JournalQuery(about=record.id), index=index)) if record.id else []
            if chosen.json:
                parts = ("record", [record]), ("correlates_to", before), ("correlated_by", after)
                for name, records in parts:
                    for other in records:
                        print(f'{{"{name}":{printable_json(other.line[:-1])}}}')
                continue
            if position:
                print()
            _show_one(record, before, after)
    return 0


def _show_one(record: JournalRecord, before: list[JournalRecord], after: list[JournalRecord]) -> None:
    print(_line_of(record))
    for line in json.dumps(record.fields, indent=2, ensure_ascii=False).split("\n"):
        print(printable_json(line.encode()))
    missing = [id for id in record.correlations if id not in {other.id for other in before}]
    for title, records in (("correlates to", before), ("correlated by", after)):
        for other in records:
            print(f"{title}: {_line_of(other)}")
    for id in missing:
        print(f"correlates to: {printable(id)} (not in this journal)")


def _search(chosen: argparse.Namespace) -> int:
    folder = folder_of(chosen)
    query = JournalQuery(
        id=chosen.id,
        kind=chosen.kind,
        who=chosen.who,
        outcome=chosen.outcome,
        about=chosen.about,
        text=chosen.text,
        since=chosen.since,
        until=chosen.until,
    )
    with _index_of(folder) as index:
        for record in search(folder, query, index=index):
            _print(record, as_json=chosen.json)
    return 0


def _export(chosen: argparse.Namespace) -> int:
    folder = folder_of(chosen)
    with _new_file(chosen.file) as file:
        count = _write_table(folder, file) if chosen.csv else _write_lines(folder, file)
    if chosen.file != "-":
        print(f"{count} records in {printable(chosen.file)}")
    return 0


def _write_lines(folder: Path, file: IO[bytes]) -> int:
    count = 0
    for record in read_records(folder):
        file.write(record.line)
        count += 1
    return count


def _write_table(folder: Path, file: IO[bytes]) -> int:
    text = io.TextIOWrapper(file, "utf-8", newline="")
    table = csv.writer(text)
    table.writerow(_COLUMNS)
    count = 0
    for record in read_records(folder):
        table.writerow(map(_cell, _row_of(record)))
        count += 1
    text.detach()
    return count


def _verify(chosen: argparse.Namespace) -> int:
    broken = False
    for space, folder in _folders(chosen).items():
        verdict = verify(folder)
        covered = covered_position(chosen.data / "moot.sqlite", space)
        problem = verdict.problem
        if problem is not None:
            place = f"{problem.segment} line {problem.line}: {problem.what}"
            print(f"{printable(space)}: broken at {place}: {problem.text}")
            print(f"  {verdict.count} records before it hold")
        elif covered > verdict.last:
            print(
                f"{printable(space)}: broken at its end: truncated: it ends with record {verdict.last}, "
                f"but a snapshot covers record {covered}"
            )
        else:
            extent = f", {verdict.first} to {verdict.last}" if verdict.count else ""
            print(f"{printable(space)}: {verdict.count} records{extent}: the chain holds")
            if verdict.torn:
                print(f"  {verdict.torn} bytes at the end are no whole record yet")
            continue
        broken = True
    return 1 if broken else 0


# How a record looks


def _print(record: JournalRecord, *, as_json: bool) -> None:
    print(printable_json(record.line[:-1]) if as_json else _line_of(record))


def _line_of(record: JournalRecord) -> str:
    """Number, time, who, what, to whom, about what, what came of it, and as much of the rest as fits."""
    said = record.said
    parts = [
        f"{record.number:>7}",
        _time_of(record),
        printable(record.word("who") or "-"),
        printable(record.kind),
    ]
    if record.id:
        parts.append(printable(record.id))
    if to := _names(said.get("to")):
        parts.append(f"to {printable(', '.join(to))}")
    if about := record.correlations:
        parts.append(f"about {printable(', '.join(about))}")
    outcome = record.word("out")
    if outcome not in ("", "accepted"):
        parts.append(f"refused: {printable(outcome)}")
    rest: Json = said.get("payload")
    if rest is None:
        rest = {name: value for name, value in record.fields.items() if name not in _KNOWN}
    if rest not in ({}, None):
        summary = printable_json(strict_json.encode(rest))
        parts.append(
            summary if len(summary) <= _SUMMARY_CHARACTERS else summary[: _SUMMARY_CHARACTERS - 1] + "…"
        )
    return "  ".join(parts)


def _time_of(record: JournalRecord) -> str:
    try:
        return rfc3339(record.time)
    except (OverflowError, ValueError, OSError):
        return str(record.time)


def _names(value: Json) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


_COLUMNS: Final = (
    "number", "time", "in", "kind", "who", "session", "id", "to", "correlation_id", "out", "payload", "h",
)  # fmt: skip


def _row_of(record: JournalRecord) -> list[str]:
    payload = record.said.get("payload")
    return [
        str(record.number),
        _time_of(record),
        *(record.word(member) for member in ("in", "kind", "who", "session")),
        record.id,
        " ".join(_names(record.said.get("to"))),
        " ".join(record.correlations),
        record.word("out"),
        "" if payload is None else strict_json.encode(payload).decode(),
        record.hash,
    ]


def _cell(text: str) -> str:
    # A sheet takes these for a formula and runs it: what a peer wrote must stay text.
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


@contextmanager
def _new_file(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{name} exists: choose another name, or remove it first") from None
    except OSError as fault:
        raise UsageError(f"cannot write {name}: {fault.strerror}") from None
    with open(descriptor, "wb") as file:
        yield file
