"""`moot proposal history`: what was proposed, who decided, and what came of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any, Final

from moot.cli.client.decisions import decision_table
from moot.cli.journal.journal_folder import add_journal_options, journal_folder_of
from moot.cli.options.shared_options import add_decision_filters, add_json
from moot.cli.process import program
from moot.cli.process.table_output import print_table
from moot.operations.text.text_table import TextTable
from moot.protocol import strict_json

_EXAMPLES: Final = """\
  moot proposal history                                     all of them, the latest last
  moot proposal history --how rejected --since 7d
  moot proposal history --proposer agent --tool write_file --people
  moot proposal history --json > decisions.jsonl            one object a line: who, what, verdict, result
  moot proposal history --summary                           the share that was automatic, day by day
"""


_VERDICTS: Final = ("pending", "fulfilled", "rejected", "withdrawn", "expired")


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="list and export what was decided on proposals",
        about="Reads the journal of a space and shows every proposal with who decided, how, how long "
        "it took, by which rule, and the result.",
        examples=_EXAMPLES,
    )
    add_journal_options(parser)
    add_decision_filters(parser, _VERDICTS)
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--people", action="store_true", help="decided by people")
    who.add_argument("--automatic", action="store_true", help="decided by rules")
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument(
        "--summary", action="store_true", help="counts and the share that was automatic, by day"
    )
    parser.set_defaults(run=_run_history)


def _run_history(options: argparse.Namespace) -> int:
    from moot.trust.approver.rule_history import RuleHistory
    from moot.trust.history.ledger_reader import read_ledger
    from moot.trust.history.proposal_history import filter_proposals

    automated = True if options.automatic else False if options.people else None
    found = list(
        filter_proposals(
            read_ledger(journal_folder_of(options), now=time.time()),
            verdict=options.how,
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
        for decision in found:
            print(strict_json.encode(decision.as_json()).decode())
    elif options.summary:
        shares = RuleHistory()
        for each in found:
            if each.is_decided and each.at is not None:
                shares.count("automatic" if each.automated else "people", each.at, rule=each.rule or "")
        print_table(shares_table(shares.shares(len(found))))
    elif found:
        print_table(decision_table([each.as_json() for each in found], "proposed"))
    return 0


def shares_table(days: Iterable[Any]) -> TextTable:
    """How much was decided by people and by rules, day by day."""
    rows = [(day["day"], str(day["people"]), str(day["rules"]), f"{day['share']:.0%}") for day in days]
    return TextTable(("DAY", "PEOPLE", "RULES", "AUTOMATIC"), rows, right={1, 2, 3})
