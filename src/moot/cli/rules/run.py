"""`moot rules run`: the approver, a member that applies rules to proposals and learns from decisions."""

from __future__ import annotations

import argparse
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.client.connect_options import add_connect_options, connect_settings_of
from moot.cli.options.member_options import add_log_level
from moot.cli.options.shared_options import add_approver_state
from moot.cli.process import program
from moot.errors import UsageError
from moot.resilience.durations import UNITS, parse_duration

if TYPE_CHECKING:
    from moot.participant import JoinedSpace
    from moot.trust.approver.approver import Approver
    from moot.trust.approver.approver_settings import ApproverSettings
    from moot.trust.history.proposal_history import ProposalHistory
    from moot.trust.learning.suggestion_progress import SuggestionProgress
    from moot.trust.rules.budgets import Budget

_ABOUT: Final = """\
Joins a space, watches proposals, and decides those that a rule covers; the rest stays with people. Every such
act names its rule. From what people decide it suggests further rules, each with what it would allow, how many
decisions it rests on and its error rate; nothing becomes active before a person accepts it (`moot rules
accept`, the console or the terminal). Until there is enough for one it says what is missing. A rejection, a
complaint, a kick, a changed tool or an odd argument suspends a rule until a person resumes it.
"""

_EXAMPLES: Final = """\
  moot rules run --as approver                              in the folder of a space
  moot rules run --as approver --observe                    predict and compare, and decide nothing
  moot rules run --gateway http://localhost:8080 --token-file approver.token --budget 100/1h

Rules are in STATE/rules.yaml, in their order; edit it and it is read again. Its participant in moot.yaml:
  approver:
    capabilities:
      # What it may approve at most.
      - {kind: mcp/request, to: [files], payload: {method: tools/call}}
      # To compare tools; without it nothing is approved.
      - {kind: mcp/request, payload: {method: tools/list}}
      - {kind: [mcp/reject, mcp/response, chat, trust/suggestion, trust/rule, trust/dismiss, moot/origins]}
    command: moot
    args: [rules, run]
Never give it capability/grant.
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="run the approver: decide by rules, and learn rules from decisions",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add_approver_state(parser)
    add(
        "--journal",
        type=Path,
        metavar="DIR",
        help="learn from this journal, too (default: the space's, if it is here)",
    )
    observe_help = "decide nothing: say what rules would have decided, and compare it with what people decide"
    add("--observe", action="store_true", help=observe_help)
    # As 0.2 called it.
    add("--shadow", dest="observe", action="store_true", help=argparse.SUPPRESS)
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
    add(
        "--review",
        type=float,
        metavar="SHARE",
        help="of a suggested rule's decisions, unreviewed before people are asked to review them (default"
        " 0.02; 0: never)",
    )
    add("--no-suggestions", action="store_true", help="apply rules, suggest none")
    add(
        "--call-seconds",
        type=parse_duration,
        default=300.0,
        metavar="TIME",
        help="longest call (default 300)",
    )
    add(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve counts for Prometheus at /metrics (default: no)",
    )
    add("--metrics-host", default="127.0.0.1", metavar="HOST", help="where (default 127.0.0.1)")
    add_log_level(parser)
    add_connect_options(parser)
    parser.set_defaults(run=run_approver)


def run_approver(options: argparse.Namespace) -> int:
    from moot.cli.process.interruption import run_service

    return run_service(_stay(options))


async def _stay(options: argparse.Namespace) -> int:
    from moot import logs
    from moot.participant import connect
    from moot.trust.approver.approver import Approver
    from moot.trust.rules.rule_store import RuleStore

    settings = _settings(options)
    connection = connect_settings_of(options)
    logs.set_up(options.log_level, "text")
    token, name = connection.token.reveal(), connection.name
    async with connect(connection.url, connection.space, token, name=name) as space:
        _check_not_a_person(space)
        folder = options.state or Path(".moot") / "trust" / space.space
        store = RuleStore.open(folder)
        ledger = _history(options, space.space)
        approver = Approver(space, store, ledger, settings)
        approver.suggester.on_progress = _print_progress
        doing = "watching, deciding nothing (--observe)" if options.observe else "deciding by rules"
        print(
            f"the approver is {space.name} in {space.space}: {doing}; "
            f"{len(store.all_rules)} rules in {store.rules_file}, {len(ledger)} decisions known",
            flush=True,
        )
        async with _metrics(options, approver):
            await approver.run()
        ending = await space.stay()
    print(f"left: {ending.reason or ending.code}")
    return 0 if ending.code == 1000 else 1


def _check_not_a_person(space: JoinedSpace) -> None:
    """Raises UsageError for the token of somebody who decides: their own approvals would teach nothing."""
    decides = space.may("trust/accept") and not space.may("trust/suggestion")
    if decides or space.may("capability/grant"):
        raise UsageError(
            f"{space.name} is a person here, and the approver has to be a participant of its own with few"
            " rights. `moot up` starts the one that templates of `moot init` bring, and `moot rules run --as"
            " approver` does it by hand. Without one, add the lines that `moot rules run --help` shows to"
            " moot.yaml, then `moot reload`"
        )


def _print_progress(progress: Sequence[SuggestionProgress]) -> None:
    from moot.operations.text.terminal_escape import printable

    for each in progress:
        print(f"not suggested: {printable(each.call)}: {each.why}", flush=True)


@asynccontextmanager
async def _metrics(options: argparse.Namespace, approver: Approver) -> AsyncIterator[None]:
    from moot.trust.approver.approver_metrics import expose_metrics, serve_metrics

    if options.metrics_port is None:
        yield
        return
    read = partial(expose_metrics, approver.store, approver.history, approver.reviews)
    async with serve_metrics(read, options.metrics_host, options.metrics_port) as port:
        print(f"metrics: http://{options.metrics_host}:{port}/metrics", flush=True)
        yield


def _settings(options: argparse.Namespace) -> ApproverSettings:
    from dataclasses import replace

    from moot.trust.approver.approver_settings import ApproverSettings
    from moot.trust.learning.learning_settings import DEFAULTS

    learning = DEFAULTS
    if options.approvals is not None:
        if options.approvals < 2:
            raise UsageError(f"--approvals {options.approvals}: one decision is no pattern; 2 at least")
        learning = replace(learning, min_approvals=options.approvals)
    if options.check is not None:
        if not 0 <= options.check < 1:
            raise UsageError(f"--check {options.check:g}: a share below 1, such as 0.05")
        learning = replace(learning, check_share=options.check)
    if options.review is not None:
        if not 0 <= options.review < 1:
            raise UsageError(f"--review {options.review:g}: a share below 1, such as 0.02")
        learning = replace(learning, review_share=options.review)
    return ApproverSettings(
        observe=options.observe,
        budget=options.budget,
        learning=learning,
        makes_suggestions=not options.no_suggestions,
        call_seconds=options.call_seconds,
    )


def _history(options: argparse.Namespace, space: str) -> ProposalHistory:
    """What was decided before, where the journal can be read."""
    import time

    from moot.trust.history.ledger_reader import read_ledger
    from moot.trust.history.proposal_history import ProposalHistory

    folder = options.journal or Path(".moot") / "spaces" / space / "journal"
    if folder.is_dir():
        return read_ledger(folder, now=time.time())
    if options.journal is not None:
        raise UsageError(f"--journal {options.journal}: no such folder; it is DATA/spaces/{space}/journal")
    return ProposalHistory()


def _budget(text: str) -> Budget:
    from moot.trust.rules.budgets import Budget

    found = re.fullmatch(r"(\d{1,6})/(\d{0,4})([smhd])", text)
    if found is None or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write how many in which time, such as 100/1h")
    return Budget(int(found[1]), float(found[2] or 1) * UNITS[found[3]])
