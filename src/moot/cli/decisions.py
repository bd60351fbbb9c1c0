"""`moot decisions`: what was proposed, who decided, and what came of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.escape_output import printable
from moot.cli.journal import folder_of, moment

if TYPE_CHECKING:
    from moot.trust.decision_ledger import Decision

_EXAMPLES: Final = """\
examples:
  moot decisions                                            all of them, the latest last
  moot decisions --how rejected --since 7d
  moot decisions --proposer agent --tool write_file --people
  moot decisions --json > decisions.jsonl                   one object a line: who, what, verdict, result
  moot decisions --summary                                  the share that was automatic, day by day
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "decisions",
        help="list and export what was decided on proposals",
        description="Reads the journal of a space and shows every proposal with who decided, how, how long "
        "it took, by which rule, and what came of it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add_place(parser)
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
    add("--since", type=moment, metavar="TIME", help="2026-01-31, 2026-01-31T12:00Z, or 90m ago")
    add("--until", type=moment, metavar="TIME", help="likewise")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line")
    form.add_argument(
        "--summary", action="store_true", help="counts and the share that was automatic, by day"
    )
    parser.set_defaults(run=_decisions)


def add_place(parser: Any) -> None:
    """Where the journal is."""
    parser.add_argument(
        "--data", type=Path, default=Path(".moot"), metavar="DIR", help="of the gateway (default .moot)"
    )
    parser.add_argument("--space", metavar="NAME", help="which space; not needed when there is only one")


def _decisions(chosen: argparse.Namespace) -> int:
    from moot.trust.approver_status import shares
    from moot.trust.decision_ledger import chosen as chosen_of
    from moot.trust.decision_ledger import export
    from moot.trust.ledger_reader import ledger_of

    automated = True if chosen.automatic else False if chosen.people else None
    found = list(
        chosen_of(
            ledger_of(folder_of(chosen), now=time.time()),
            how=chosen.how,
            proposer=chosen.proposer,
            by=chosen.by,
            tool=chosen.tool,
            rule=chosen.rule,
            automated=automated,
            since=chosen.since,
            until=chosen.until,
        )
    )
    if chosen.json:
        for line in export(found):
            sys.stdout.write(line.decode())
        return 0
    if chosen.summary:
        print(f"{'day':12}{'people':>8}{'rules':>8}{'automatic':>11}")
        for day in shares(found):
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
        took = "" if decision.took is None else f" after {decision.took:.0f} s"
        by = f" by {printable(decision.by)}" if decision.by else ""
        rule = f" (rule {printable(decision.rule)})" if decision.rule else ""
        reason = f": {printable(decision.reason)}" if decision.reason else ""
        result = f", {decision.result}" if decision.result else ""
        when = rfc3339(case.at)[:19].replace("T", " ")
        print(
            f"{when}  {printable(case.proposer):12} {what:24} {decision.how}{by}{took}{rule}{reason}{result}"
        )
        print(f"{'':21}{printable(case.id)}  {printable(_short(case.arguments))}")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 120 else text[:119] + "…"
