"""`moot explain`: why something was or was not done."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from moot.cli.decisions import add_place
from moot.cli.escape_output import printable
from moot.cli.journal import folder_of
from moot.errors import UsageError


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="why something was or was not done",
        description="Tells of one proposal what became of it, by whom or by which rule, and what the rules "
        "would say now.",
        epilog="examples:\n  moot explain 3f1c-77    the id of a proposal, its fulfilment or its answer\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("id", metavar="ID")
    add_place(parser)
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="of the approver (default .moot/trust/SPACE)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from moot.trust.explain import explain
    from moot.trust.ledger_reader import ledger_of
    from moot.trust.rule_store import RuleStore

    journal = folder_of(chosen)
    ledger = ledger_of(journal, now=time.time())
    decision = ledger.get(chosen.id)
    if decision is None:
        raise UsageError(
            f"no proposal, request or response {chosen.id!r} in the journal: `moot decisions` lists them"
        )
    state = chosen.state or Path(".moot") / "trust" / journal.parent.name
    book = RuleStore.open(state) if state.is_dir() else None
    rules = () if book is None else book.rules
    suspensions = {} if book is None else book.suspensions
    found = explain(decision, rules, time.time(), suspensions=suspensions)
    if chosen.json:
        print(json.dumps(found.as_json(), ensure_ascii=False))
        return 0
    for line in found.lines():
        print(printable(line))
    if book is not None and book.stopped is not None:
        print(printable(f"All rules were stopped by {book.stopped.by}: {book.stopped.why}."))
    return 0
