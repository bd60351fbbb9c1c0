"""`moot journal`: read, search, export and check what was journaled. `repair` and `erase` write to it."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from moot.cli.journal import journal_send
from moot.cli.journal.journal_check import run_repair, run_verify
from moot.cli.journal.journal_erasure import add_actions as add_erasure_actions
from moot.cli.journal.journal_folder import add_journal_options, journal_folder_of
from moot.cli.journal.journal_log import add_verify_options, run_keys, run_publish, run_rotate
from moot.cli.options.shared_options import add_json, add_latest, add_time_range
from moot.cli.process import program
from moot.cli.process.output_file import open_new_file
from moot.cli.process.table_output import TableWriter
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable, printable_json
from moot.operations.text.text_table import cut
from moot.protocol import strict_json
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.store.journal_index import JournalIndex
from moot.store.journal_reader import JournalRecord, follow_records, last_records, read_records
from moot.store.journal_search import JournalQuery, find_number, search, whole_id

# How long a command that looks something up works on the index before it answers by reading.
_INDEX_SECONDS: Final = 2.0
_FOLLOW_SECONDS: Final = 0.2
_SUMMARY_CHARACTERS: Final = 120
# Members that the line of a record shows by themselves, or that are nothing for the eye.
_KNOWN: Final = frozenset(
    {
        "n",
        "t",
        "in",
        "session",
        "who",
        "out",
        "mint",
        "tokens",
        "kind",
        "id",
        "raw",
        "h",
        "s",
        "state",
        "config",
        "acts",
    }
)

_EXAMPLES = """\
  moot journal tail --follow
  moot journal search --from agent --kind 'mcp/*' --since 1h
  moot journal show 3f1c-77
  moot journal export --csv records.csv
  moot journal verify
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="read, search, export, verify and repair the journal",
        about="Every input of a space is journaled with its outcome, one JSON object a line, tied "
        "to what was written before by hashes. These commands read it, also while a gateway writes it.",
        examples=_EXAMPLES,
    )

    tail = _add_action(
        group,
        "tail",
        _tail,
        "show the last records",
        "  moot journal tail -n 100\n  moot journal tail --follow --json | jq .kind\n",
    )
    add_latest(tail, 20)
    tail.add_argument("--follow", action="store_true", help="go on with those that come, until Ctrl-C")
    add_json(tail)

    show = _add_action(
        group,
        "show",
        _show,
        "show one record, what it correlates to and what correlates to it",
        "  moot journal show 3f1c-77\n  moot journal show 1042 --json\n",
    )
    show.add_argument(
        "wanted", metavar="ID_OR_NUMBER", help="the id of an envelope or its beginning, or a record's number"
    )
    add_json(show)

    find = _add_action(
        group,
        "search",
        _search,
        "show the records that match everything that is given",
        "  moot journal search --from agent --kind 'mcp/*' --since 1h\n"
        "  moot journal search --outcome capability_violation --json\n"
        "  moot journal search --text notes.md --since 2026-01-31 --until 2026-02-01\n",
    )
    find.add_argument("--kind", help="a kind, or what it starts with and a *; also join, leave, admin, …")
    find.add_argument("--from", dest="who", metavar="NAME", help="who caused it")
    find.add_argument("--text", help="words in it, in any letter case")
    add_time_range(find)
    find.add_argument("--outcome", metavar="CODE", help="accepted, or the code of a refusal")
    find.add_argument("--id", help="the id of the envelope")
    find.add_argument("--about", metavar="ID", help="what correlates to this id")
    add_json(find)

    export = _add_action(
        group,
        "export",
        _export,
        "write all records into a new file",
        "  moot journal export records.jsonl\n  moot journal export --csv - | head\n",
    )
    form = export.add_mutually_exclusive_group()
    form.add_argument("--jsonl", action="store_true", help="the lines as they are (default)")
    form.add_argument(
        "--csv", action="store_true", help="a table; what a sheet would run as a formula gets a '"
    )
    export.add_argument("file", metavar="FILE", help="- is the standard output")

    check = _add_action(
        group,
        "verify",
        run_verify,
        "check the chain of hashes, the signed log, and that the journal holds all that snapshots know of",
        "  moot journal verify\n  moot journal verify --data /var/lib/moot --space lab\n"
        "  moot journal verify --against /mnt/elsewhere/anchor.jsonl --policy witnesses.txt\n",
    )
    add_verify_options(check)
    publish = _add_action(
        group,
        "publish",
        run_publish,
        "write the log as files that any web server can serve, for auditors and witnesses",
        "  moot journal publish /var/www/lab-log\n",
    )
    publish.add_argument("folder", type=Path, metavar="DIR", help="where; it is made, or brought up to date")
    _add_action(
        group,
        "keys",
        run_keys,
        "show the public keys of the logs, as lines of a policy",
        "  moot journal keys\n  moot journal keys --data /var/lib/moot\n",
    )
    _add_action(
        group,
        "rotate-key",
        run_rotate,
        "sign the logs with a new key from the next start on",
        "  moot journal rotate-key --data /var/lib/moot\n",
    )
    repair = _add_action(
        group,
        "repair",
        run_repair,
        "give up what a damaged journal has lost, after saying what that is",
        "  moot journal repair\n  moot journal repair --data /var/lib/moot --space lab --yes\n",
    )
    repair.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    add_erasure_actions(partial(_add_action, group))
    journal_send.add_action(partial(_add_action, group))


def _add_action(group: Any, name: str, run: Any, help: str, examples: str) -> Any:
    parser = program.add_command(group, name, help=help, examples=examples)
    add_journal_options(parser)
    parser.set_defaults(run=run)
    return parser


@contextmanager
def open_index(folder: Path) -> Iterator[JournalIndex | None]:
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


def _tail(options: argparse.Namespace) -> int:
    folder = journal_folder_of(options)
    # One at least, to know where to go on.
    last = last_records(folder, max(1, options.n))
    output = _RecordOutput(as_json=options.json)
    output.write(last if options.n > 0 else [])
    if options.follow:
        for record in follow_records(folder, last[-1].number if last else 0, _pause):
            output.write([record])
    return 0


def _pause() -> None:
    sys.stdout.flush()
    time.sleep(_FOLLOW_SECONDS)


def _show(options: argparse.Namespace) -> int:
    folder, wanted = journal_folder_of(options), options.wanted
    with open_index(folder) as index:
        number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 19 else 0
        record = find_number(folder, number, index=index) if number else None
        id = wanted if record else whole_id(folder, wanted, index=index)
        found = [record] if record else list(search(folder, JournalQuery(id=id), index=index))
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
            if options.json:
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


def _search(options: argparse.Namespace) -> int:
    folder = journal_folder_of(options)
    query = JournalQuery(
        id=options.id,
        kind=options.kind,
        who=options.who,
        outcome=options.outcome,
        about=options.about,
        text=options.text,
        since=options.since,
        until=options.until,
    )
    with open_index(folder) as index:
        _RecordOutput(as_json=options.json).write(search(folder, query, index=index))
    return 0


def _export(options: argparse.Namespace) -> int:
    folder = journal_folder_of(options)
    with open_new_file(options.file) as file:
        count = _write_table(folder, file) if options.csv else _write_lines(folder, file)
    if options.file != "-":
        print(f"{count} records in {printable(options.file)}")
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


# How a record looks


class _RecordOutput:
    """Prints records: as they were journaled, or as a table."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._table = TableWriter(*_HEADINGS, right={0})

    def write(self, records: Iterable[JournalRecord]) -> None:
        if not self._as_json:
            self._table.write(map(_table_row, records))
            return
        for record in records:
            print(printable_json(record.line[:-1]))


_HEADINGS: Final = ("NUMBER", "TIME", "WHO", "KIND", "ID", "TO", "ABOUT", "OUTCOME", "CONTENT")


def _table_row(record: JournalRecord) -> tuple[str, ...]:
    """Number, time, who, what, to whom, about what, what came of it, and the beginning of the rest."""
    envelope = record.envelope_fields
    rest: Json = envelope.get("payload")
    if rest is None:
        rest = {name: value for name, value in record.fields.items() if name not in _KNOWN}
    summary = "" if rest in ({}, None) else printable_json(strict_json.encode(rest))
    return (
        str(record.number),
        _time_of(record),
        record.text("who") or "-",
        record.kind,
        record.id or "",
        ", ".join(_names(envelope.get("to"))),
        ", ".join(record.correlations),
        record.text("out"),
        cut(summary, _SUMMARY_CHARACTERS),
    )


def _line_of(record: JournalRecord) -> str:
    """The same in a line by itself."""
    return "  ".join(printable(cell) for cell in _table_row(record) if cell)


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
    payload = record.envelope_fields.get("payload")
    return [
        str(record.number),
        _time_of(record),
        *(record.text(member) for member in ("in", "kind", "who", "session")),
        record.id,
        " ".join(_names(record.envelope_fields.get("to"))),
        " ".join(record.correlations),
        record.text("out"),
        "" if payload is None else strict_json.encode(payload).decode(),
        record.hash,
    ]


def _cell(text: str) -> str:
    # A sheet takes these for a formula and runs it: what a peer wrote must stay text.
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
