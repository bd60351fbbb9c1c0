"""`moot proposal explain`: why something was or was not done."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli import program
from moot.cli.journal_folder import add_journal_options, journal_folder_of
from moot.errors import UsageError
from moot.operations.terminal_escape import printable

if TYPE_CHECKING:
    from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="explain why a proposal was or was not carried out",
        about="Tells what became of a proposal, who or which rule decided it, and what the rules would "
        "decide now.",
        examples="  moot proposal explain 3f1c22ab   as `moot proposals` shows it\n",
    )
    parser.add_argument(
        "id", metavar="ID", help="of a proposal, or its beginning; or of its fulfilment or its answer"
    )
    add_journal_options(parser)
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="of the approver (default .moot/trust/SPACE)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def _find(ledger: ProposalHistory, named: str) -> HistoryProposal:
    """By an id, or by the beginning of a proposal's; raises UsageError."""
    from moot.operations.operation import MIN_PREFIX_CHARS

    found = ledger.get(named)
    like = [found] if found is not None else [each for each in ledger if each.id.startswith(named)]
    if len(like) == 1 and (found is not None or len(named) >= MIN_PREFIX_CHARS):
        return like[0]
    if like and named:
        many = f"{len(like)} proposals begin" if len(like) > 1 else "a proposal begins"
        raise UsageError(
            f"{many} with {named}: type more of the id, at least {MIN_PREFIX_CHARS} characters;"
            " `moot proposal history` lists them"
        )
    raise UsageError(
        f"no proposal, request or response {named!r} in the journal; `moot proposal history` lists them"
    )


def run(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from moot.cli.proposal.sign_in_notes import sign_in_notes
    from moot.trust.checks.explain import explain
    from moot.trust.checks.offline_verdict import judge_offline
    from moot.trust.history.ledger_reader import read_ledger
    from moot.trust.rules.rule_store import RuleStore

    journal = journal_folder_of(options)
    now = time.time()
    ledger = read_ledger(journal, now=now)
    decision = _find(ledger, options.id)
    state = options.state or Path(".moot") / "trust" / journal.parent.name
    store = RuleStore.open(state) if state.is_dir() else None
    if store is None:
        found = explain(decision, (), now)
    else:
        judged = judge_offline(decision, store, list(ledger), now)
        found = explain(
            decision,
            store.rules,
            now,
            verdict=judged.verdict,
            asked_because=judged.asked_because,
            notes=judged.notes,
        )
    found = replace(found, notes=(*found.notes, *sign_in_notes(journal, decision)))
    if options.json:
        shown = found.as_json()
        fields = {"id": shown.pop("proposal"), "reason": shown.pop("why"), **shown}
        print(json.dumps(fields, ensure_ascii=False))
        return 0
    for line in found.lines():
        print(printable(line))
    return 0
