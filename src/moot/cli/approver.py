"""`moot approver`: a member that applies rules to proposals, and learns new ones from what people decide."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.client import add_where, where_of
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.trust.approver import ApproverSettings
    from moot.trust.budgets import Budget
    from moot.trust.decision_ledger import DecisionLedger

_ABOUT: Final = """\
Joins a space, watches proposals, and decides those that a rule covers; the rest stays with people. Every such
act names its rule. From what people decide it suggests further rules, each with what it would allow, how many
decisions it rests on and how wrong it may be; nothing becomes active before a person accepts it (`moot
trust`, the console or the terminal). A rejection, a complaint, a kick, a changed tool or an odd argument
suspends a rule until a person has looked.
"""

_EXAMPLES: Final = """\
examples:
  moot approver --as approver                               in the folder of a space
  moot approver --as approver --shadow                      predict and compare, and decide nothing
  moot approver --gateway http://localhost:8080 --token-file approver.token --budget 100/1h

Rules are in STATE/rules.yaml, in their order; edit it and it is read again. What its participant needs:
  {kind: mcp/request, to: [HOSTS], payload: {method: tools/call}}    what it may approve at most
  {kind: mcp/request, payload: {method: tools/list}}                 to notice that a tool changed
  {kind: mcp/reject}, {kind: chat}, {kind: "trust/*"}, {kind: mcp/response}
and never capability/grant.
"""
_LASTS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "approver",
        help="decide on proposals by rules, and learn rules from decisions",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--state", type=Path, metavar="DIR", help="rules and their standing (default .moot/trust/SPACE)")
    add(
        "--journal",
        type=Path,
        metavar="DIR",
        help="learn from this journal, too (default: the space's, if it is here)",
    )
    add("--shadow", action="store_true", help="predict, compare with what people decide, and do nothing")
    add("--budget", type=_budget, metavar="N/TIME", help="all rules together, such as 100/1h or 1000/1d")
    add(
        "--approvals",
        type=int,
        metavar="K",
        help="decisions that a suggestion rests on at least (default 10)",
    )
    add(
        "--check",
        type=float,
        metavar="SHARE",
        help="of what a suggested rule covers, left to people anyway (default 0.05)",
    )
    add("--no-suggestions", action="store_true", help="apply rules, suggest none")
    add("--call-seconds", type=float, default=300.0, metavar="N", help="longest call (default 300)")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="(default info)")
    add_where(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from moot.cli.interruption import run_service

    return run_service(_stay(chosen))


async def _stay(chosen: argparse.Namespace) -> int:
    from moot import logs
    from moot.participant import connect
    from moot.trust.approver import Approver
    from moot.trust.rule_store import RuleStore

    settings = _settings(chosen)
    where = where_of(chosen)
    logs.set_up(chosen.log_level, "text")
    async with connect(where.url, where.space, where.token.reveal()) as space:
        folder = chosen.state or Path(".moot") / "trust" / space.space
        book = RuleStore.open(folder)
        ledger = _history(chosen, space.space)
        approver = Approver(space, book, ledger, settings)
        doing = "watching, deciding nothing (--shadow)" if chosen.shadow else "deciding by rules"
        print(
            f"moot approver is {space.name} in {space.space}: {doing}; "
            f"{len(book.rules)} rules in {book.rules_file}, {len(ledger)} decisions known",
            flush=True,
        )
        await approver.run()
        ending = await space.stay()
    print(f"left: {ending.reason or ending.code}")
    return 0 if ending.code == 1000 else 1


def _settings(chosen: argparse.Namespace) -> ApproverSettings:
    from dataclasses import replace

    from moot.trust.approver import ApproverSettings
    from moot.trust.learner import DEFAULTS

    learning = DEFAULTS
    if chosen.approvals is not None:
        if chosen.approvals < 2:
            raise UsageError(f"--approvals {chosen.approvals}: one decision is no pattern; 2 at least")
        learning = replace(learning, approvals=chosen.approvals)
    if chosen.check is not None:
        if not 0 <= chosen.check < 1:
            raise UsageError(f"--check {chosen.check:g}: a share below 1, such as 0.05")
        learning = replace(learning, check=chosen.check)
    return ApproverSettings(
        shadow=chosen.shadow,
        budget=chosen.budget,
        learning=learning,
        suggests=not chosen.no_suggestions,
        call_seconds=chosen.call_seconds,
    )


def _history(chosen: argparse.Namespace, space: str) -> DecisionLedger:
    """What was decided before, where the journal can be read."""
    import time

    from moot.trust.decision_ledger import DecisionLedger
    from moot.trust.ledger_reader import ledger_of

    folder = chosen.journal or Path(".moot") / "spaces" / space / "journal"
    if folder.is_dir():
        return ledger_of(folder, now=time.time())
    if chosen.journal is not None:
        raise UsageError(f"--journal {chosen.journal}: no such folder; it is DATA/spaces/{space}/journal")
    return DecisionLedger()


def _budget(text: str) -> Budget:
    from moot.trust.budgets import Budget

    found = re.fullmatch(r"(\d{1,6})/(\d{0,4})([smhd])", text)
    if found is None or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write how many in which time, such as 100/1h")
    return Budget(int(found[1]), float(found[2] or 1) * _LASTS[found[3]])
