"""The commands of `moot rules` that talk to the approver, and their options."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli import program
from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.rules import rule_changes
from moot.cli.rules.rule_reports import print_report, print_rules, print_suggestions
from moot.errors import MootError

if TYPE_CHECKING:
    from moot.participant import JoinedSpace

Act = Callable[["JoinedSpace", argparse.Namespace], Awaitable[Any]]


def add_actions(group: Any) -> None:
    """Add the commands that talk to the approver of a space."""
    _add_action(group, "list", print_rules, "list the rules with their state", "  moot rules list --json\n")
    _add_action(group, "suggestions", print_suggestions, "list suggested rules", "  moot rules suggestions\n")
    accept = _add_action(
        group,
        "accept",
        rule_changes.accept,
        "make a suggestion a rule",
        "  moot rules accept s-3fa1                       as it is suggested\n"
        "  moot rules accept s-3fa1 --narrow rule.yaml    a rule that covers less\n"
        "  moot rules accept s-3fa1 --grant               give the agent the right itself instead\n",
    )
    accept.add_argument("suggestion", metavar="ID")
    accept.add_argument("--narrow", type=Path, metavar="FILE", help="a rule in YAML that covers less")
    accept.add_argument(
        "--grant", action="store_true", help="grant the right to the agent itself, for these arguments"
    )
    dismiss = _add_action(
        group,
        "dismiss",
        rule_changes.dismiss,
        "refuse a suggestion for good",
        '  moot rules dismiss s-3fa1 --reason "never without me"\n',
    )
    dismiss.add_argument("suggestion", metavar="ID")
    dismiss.add_argument("--reason", default="", metavar="TEXT")
    review = _add_action(
        group,
        "review",
        rule_changes.review,
        "show what rules decided and nobody has reviewed, or say that it was right",
        "  moot rules review                              what nobody has reviewed yet\n"
        "  moot rules review --confirm 3f1c-77            all that was shown up to this one was right\n"
        "  moot rules stop --about 3f1c-77                this one was wrong\n",
    )
    review.add_argument("rule", nargs="?", metavar="RULE", help="only of this rule (default: all rules)")
    review.add_argument("--confirm", metavar="ID", help="the last of the decisions that were right")
    stop = _add_action(
        group,
        "stop",
        rule_changes.stop,
        "suspend a rule, or all of them at once",
        "  moot rules stop                                nothing is decided by rules any more\n"
        '  moot rules stop reports --reason "odd file names"\n'
        "  moot rules stop --about 3f1c-77                the rule that decided this proposal\n",
    )
    stop.add_argument("rule", nargs="?", metavar="RULE", help="leave it out to stop them all")
    stop.add_argument("--about", metavar="ID", help="the proposal that a rule should not have decided")
    stop.add_argument("--reason", default="", metavar="TEXT")
    resume = _add_action(
        group,
        "resume",
        rule_changes.resume,
        "let a suspended rule, or all rules after a stop, decide again",
        "  moot rules resume reports                      a rule that was suspended\n"
        "  moot rules resume                              all of them, after `moot rules stop`\n",
    )
    resume.add_argument("rule", nargs="?", metavar="RULE", help="leave it out to undo a stop of them all")
    _add_action(
        group,
        "report",
        print_report,
        "show how much is automatic, and how rules did in shadow mode",
        "  moot rules report\n",
    )


def _add_action(group: Any, name: str, act: Act, help: str, examples: str) -> Any:
    parser = program.add_command(group, name, help=help, examples=f"{examples}\n{CONNECT_HELP}")
    parser.add_argument("--approver", default="approver", metavar="NAME", help="its name (default approver)")
    parser.add_argument("--json", action="store_true", help="print one JSON value, for programs")
    add_connect_options(parser)
    parser.set_defaults(run=_run, act=act)
    return parser


def _run(options: argparse.Namespace) -> int:
    from moot.cli.client.operation_output import print_error
    from moot.cli.interruption import run_errand

    try:
        found = run_errand(_perform(options))
    except MootError as fault:
        return print_error(fault, as_json=options.json)
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    return 0


async def _perform(options: argparse.Namespace) -> Any:
    from moot.participant import connect

    settings = connect_settings_of(options)
    token = settings.token.reveal()
    url, space_name, name = settings.url, settings.space, settings.name
    async with connect(url, space_name, token, name=name, passive=True, reconnect=False) as space:
        return await options.act(space, options)
