"""`moot proposal history`: what was proposed, who decided, and what came of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from moot.cli import program
from moot.cli.escape_output import printable
from moot.cli.journal_folder import add_journal_options, journal_folder_of
from moot.cli.time_argument import TIME_HELP, parse_time

if TYPE_CHECKING:
    from moot.trust.decision_ledger import Decision

_EXAMPLES: Final = """\
  moot proposal history                                     all of them, the latest last
  moot proposal history --how rejected --since 7d
  moot proposal history --proposer agent --tool write_file --people
  moot proposal history --json > decisions.jsonl            one object a line: who, what, verdict, result
  moot proposal history --summary                           the share that was automatic, day by day
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="list and export what was decided on proposals",
        about="Reads the journal of a space and shows every proposal with who decided, how, how long "
        "it took, by which rule, and the result.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add_journal_options(parser)
    add(
        "--how",
        action="append",
        default=[],
        choices=("open", "fulfilled", "rejected", "withdrawn", "expired"),
    )
    add("--proposer", metavar="NAME")
    add("--by", metavar="NAME", help="who decided")
    add("--tool", metavar="NAME")
    add("--rule", metavar="NAME", help="decided by this rule")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--people", action="store_true", help="decided by people")
    who.add_argument("--automatic", action="store_true", help="decided by rules")
    add("--since", type=parse_time, metavar="TIME", help=TIME_HELP)
    add("--until", type=parse_time, metavar="TIME", help="likewise")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line")
    form.add_argument(
        "--summary", action="store_true", help="counts and the share that was automatic, by day"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from moot.trust.approver_status import daily_shares
    from moot.trust.decision_ledger import export_lines, filter_decisions
    from moot.trust.ledger_reader import read_ledger

    automated = True if options.automatic else False if options.people else None
    found = list(
        filter_decisions(
            read_ledger(journal_folder_of(options), now=time.time()),
            status=options.how,
            proposer=options.proposer,
            by=options.by,
            tool=options.tool,
            rule=options.rule,
            automated=automated,
            since=options.since,
            until=options.until,
        )
    )
    if options.json:
        for line in export_lines(found):
            sys.stdout.write(line.decode())
        return 0
    if options.summary:
        print(f"{'day':12}{'people':>8}{'rules':>8}{'automatic':>11}")
        for day in daily_shares(found):
            assert isinstance(day, dict)  # noqa: S101  # as `shares` makes it
            print(f"{day['day']:12}{day['people']:8}{day['rules']:8}{day['share']:11.0%}")
        return 0
    _print(found)
    return 0


def _print(found: Iterable[Decision]) -> None:
    from moot.protocol.envelope import rfc3339

    for decision in found:
        case = decision.case
        what = printable(case.tool or case.method or "?")
        took = "" if decision.duration_seconds is None else f" after {decision.duration_seconds:.0f} s"
        by = f" by {printable(decision.by)}" if decision.by else ""
        rule = f" (rule {printable(decision.rule)})" if decision.rule else ""
        reason = f": {printable(decision.reason)}" if decision.reason else ""
        result = f", {decision.result}" if decision.result else ""
        when = rfc3339(case.at)[:19].replace("T", " ")
        print(
            f"{when}  {printable(case.proposer):12} {what:24} {decision.status}{by}{took}"
            f"{rule}{reason}{result}"
        )
        print(f"{'':21}{printable(case.id)}  {printable(_short(case.arguments))}")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 120 else text[:119] + "…"
