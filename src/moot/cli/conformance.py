"""`moot conformance`: run the vectors and report by requirement id."""

from __future__ import annotations

import argparse
import json
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from moot.cli.options.member_options import SPACE_HELP, TOKEN_FILE_HELP
from moot.cli.options.shared_options import add_json
from moot.cli.process import program
from moot.cli.process.program import RefuseToken
from moot.cli.process.table_output import print_table
from moot.conformance.blocking_client import GatewayAddress, NoReply
from moot.conformance.manifest import load_manifest
from moot.conformance.pure_driver import PureDriver
from moot.conformance.remote_runner import run_all
from moot.conformance.row_verdicts import LEVELS, VectorOutcome, by_row, count_levels, summary
from moot.conformance.runner import Failed, run_vector
from moot.conformance.vectors import Vector, load_vectors
from moot.errors import UsageError
from moot.net.connect_errors import explain_unreachable
from moot.operations.text.text_table import TextTable
from moot.participant import token_from

Vectors = Iterable[tuple[str, Vector]]


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="run the conformance vectors and report by requirement id",
        about="Runs every conformance vector against the space state machine of this installation "
        "(no socket involved), or, with a URL, over WebSockets against any MEW gateway that runs there, and "
        "reports which requirement rows they show. A gateway is asked with one token whose participant may "
        "do everything ({kind: *}): it invites the people of each vector under fresh names and removes them "
        "again, in a space where nobody else is. Vectors that need more than inviting (settings of the "
        "space, other dialects, the gateway's clock) are reported as not runnable.",
        examples="  moot conformance --only MEW-3.6.1\n"
        "  moot conformance http://localhost:8080 --token-file admin.token --space check\n",
    )
    add = parser.add_argument
    add("url", nargs="?", metavar="URL", help="a gateway that runs, such as http://localhost:8080")
    add("--token-file", type=Path, metavar="FILE", help=TOKEN_FILE_HELP)
    add("--token", action=RefuseToken)
    add("--space", metavar="NAME", help=SPACE_HELP)
    add("--only", metavar="ID", help="only vectors that show this row, or rows that start with it")
    add_json(parser)
    parser.set_defaults(run=run_conformance)


def run_conformance(options: argparse.Namespace) -> int:
    if options.url is None:
        if options.token_file is not None or options.space is not None:
            raise UsageError("--token-file and --space go with the URL of a gateway")
        return _pure(_select(options.only), as_json=options.json)
    if options.token_file is None:
        raise UsageError("--token-file FILE is missing: the token of a participant that may do everything")
    address, token = GatewayAddress(options.url), token_from(options.token_file)
    running = run_all(address, token, _select(options.only), space=options.space)
    try:
        return _remote(running, as_json=options.json)
    except NoReply as fault:
        if isinstance(fault.__cause__, ConnectionRefusedError | socket.gaierror):
            raise explain_unreachable(address.url, fault) from None
        raise


def _select(only: str | None) -> Iterator[tuple[str, Vector]]:
    for source, vector in load_vectors():
        if only is None or any(row.startswith(only) for row in vector.rows):
            yield source, vector


# On the space of this installation


def _pure(vectors: Vectors, *, as_json: bool) -> int:
    manifest = load_manifest()
    outcomes = list(_print_as_json(_run_here(vectors), as_json=as_json))
    if not as_json:
        shown = {id for outcome in outcomes if outcome.verdict == "passed" for id in outcome.vector.rows}
        for outcome in outcomes:
            if outcome.verdict == "failed":
                print(f"FAILED {outcome.source}: {outcome.message}")
        levels = Counter(manifest[id].level for id in shown if id in manifest)
        print_table(TextTable(("LEVEL", "ROWS"), [(each, str(levels[each])) for each in LEVELS], right={1}))
        failed = _failed(outcomes)
        print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if _failed(outcomes) else 0


def _run_here(vectors: Vectors) -> Iterator[VectorOutcome]:
    for source, vector in vectors:
        try:
            run_vector(vector, PureDriver(vector.space))
        except Failed as difference:
            yield VectorOutcome(source, vector, "failed", str(difference), difference.rows)
        else:
            yield VectorOutcome(source, vector, "passed")


# On a gateway that runs somewhere


def _remote(running: Iterable[VectorOutcome], *, as_json: bool) -> int:
    outcomes = list(_print_as_json(running, as_json=as_json))
    ran = [outcome for outcome in outcomes if outcome.verdict != "not runnable"]
    if not as_json:
        rows = by_row(outcomes, load_manifest())
        if rows:
            cells = [(each.row.level, each.verdict, each.id, each.row.words) for each in rows]
            headings = ("LEVEL", "RESULT", "ROW", "REQUIREMENT")
            print_table(TextTable(headings, cells, [each.why for each in rows]))
        for line in count_levels(rows):
            print(line)
        print(summary(outcomes))
        if not ran:
            print("nothing was run, so nothing is shown")
    return 1 if _failed(outcomes) or not ran else 0


# Both


def _failed(outcomes: Iterable[VectorOutcome]) -> int:
    return sum(outcome.verdict == "failed" for outcome in outcomes)


def _print_as_json(outcomes: Iterable[VectorOutcome], *, as_json: bool) -> Iterator[VectorOutcome]:
    """The same outcomes; with --json each is printed as it comes."""
    for outcome in outcomes:
        if as_json:
            row = {
                "name": outcome.vector.name,
                "file": outcome.source,
                "rows": outcome.vector.rows,
                "passed": None if outcome.verdict == "not runnable" else outcome.verdict == "passed",
                "message": outcome.message,
                "breaks": outcome.breaks,
            }
            print(json.dumps(row), flush=True)
        yield outcome
