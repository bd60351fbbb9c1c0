"""The commands of `moot rules` that talk to the approver, and their options."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.options.shared_options import add_json
from moot.cli.process import program
from moot.cli.process.table_output import print_table
from moot.cli.rules import rule_changes
from moot.cli.rules.approver_client import ask_approver
from moot.operations.operation import OperationResult, add_reason
from moot.operations.text.terminal_escape import printable
from moot.operations.text.text_table import TextTable

if TYPE_CHECKING:
    from moot.participant import JoinedSpace


Act = Callable[["JoinedSpace", argparse.Namespace], Awaitable[Any]]


def add_actions(group: Any) -> None:
    """Add the commands that talk to the approver of a space."""
    add_action(group, "list", print_rules, "list the rules with their state", "  moot rules list --json\n")
    add_action(group, "suggestions", print_suggestions, "list suggested rules", "  moot rules suggestions\n")
    accept = add_action(
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
    dismiss = add_action(
        group,
        "dismiss",
        rule_changes.dismiss,
        "refuse a suggestion for good",
        '  moot rules dismiss s-3fa1 --reason "never without me"\n',
    )
    dismiss.add_argument("suggestion", metavar="ID")
    add_reason(dismiss, "")
    review = add_action(
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
    stop = add_action(
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
    add_reason(stop, "")
    resume = add_action(
        group,
        "resume",
        rule_changes.resume,
        "let a suspended rule, or all rules after a stop, decide again",
        "  moot rules resume reports                      a rule that was suspended\n"
        "  moot rules resume                              all of them, after `moot rules stop`\n"
        "  moot rules resume --all                        whatever is suspended or stopped\n",
    )
    resume.add_argument("rule", nargs="?", metavar="RULE", help="leave it out to undo a stop of them all")
    observe = add_action(
        group,
        "observe",
        rule_changes.observe,
        "let a rule decide nothing and only be compared with what people decide",
        "  moot rules observe reports on                  from now on people decide, and it is measured\n"
        "  moot rules report                              how often it agreed\n"
        "  moot rules observe reports off                 it decides again\n",
    )
    observe.add_argument("rule", metavar="RULE")
    observe.add_argument("switch", choices=("on", "off"))
    resume.add_argument("--all", action="store_true", help="all suspended rules, and a stop of them all")
    remove = add_action(
        group,
        "remove",
        rule_changes.remove,
        "remove a rule, or a remembered call, for good",
        "  moot rules remove reports\n"
        "  moot rules remove again-pay-3fa1c09b2e         this call is asked about again\n",
    )
    remove.add_argument("rule", metavar="RULE")
    add_reason(remove, "")
    ignore = add_action(
        group,
        "ignore",
        rule_changes.ignore,
        "say that an argument of a tool does not matter",
        "  moot rules ignore shell/run description        it may be any plain words from now on\n"
        "  moot rules ignore shell/run description --undo it matters again\n\n"
        "Rules and remembered calls then compare it no longer. It still has to be there and to be plain\n"
        "words: code, addresses, long numbers, keys and words such as password are asked about.\n",
    )
    ignore.add_argument("tool", metavar="TOOL", help="MEMBER/TOOL, or the tool if one member offers it")
    ignore.add_argument("argument", nargs="+", metavar="ARGUMENT")
    ignore.add_argument("--undo", action="store_true", help="it matters again")
    add_action(
        group,
        "report",
        print_report,
        "show how much is automatic, and how rules did in observe mode",
        "  moot rules report\n",
    )


def add_action(group: Any, name: str, act: Act, help: str, examples: str) -> Any:
    parser = program.add_command(group, name, help=help, examples=f"{examples}\n{CONNECT_HELP}")
    parser.add_argument("--approver", default="approver", metavar="NAME", help="its name (default approver)")
    add_json(parser)
    add_connect_options(parser)
    parser.set_defaults(run=_run_action, act=act)
    return parser


@program.tells_errors
def _run_action(options: argparse.Namespace) -> int:
    from moot.cli.client.operation_output import print_result
    from moot.cli.process.interruption import run_errand

    found = run_errand(_perform(options))
    if isinstance(found, OperationResult):
        print_result(found, as_json=options.json)
    elif options.json:
        print(json.dumps(found, ensure_ascii=False))
    return 0


async def _perform(options: argparse.Namespace) -> Any:
    from moot.participant import connect

    settings = connect_settings_of(options)
    token = settings.token.reveal()
    url, space_name, name = settings.url, settings.space, settings.name
    async with connect(url, space_name, token, name=name, passive=True, reconnect=False) as space:
        return await options.act(space, options)


async def print_suggestions(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.operations.text.rule_lines import suggestion_lines
    from moot.operations.trust_log import SuggestionEntry

    answer = await ask_approver(space, options, "trust_suggestions")
    found = answer["suggestions"]
    if not options.json:
        entries = [SuggestionEntry(each["suggestion"], each, options.approver, "") for each in found]
        if entries:
            rows = [(each.name, each.text) for each in entries]
            print_table(TextTable(("SUGGESTION", "RULE"), rows, [suggestion_lines(each) for each in entries]))
        else:
            print("nothing is suggested")
        _print_progress(answer)
    return [_renamed(each, suggestion="id", words="description") for each in found]


def _print_progress(answer: dict[str, Any]) -> None:
    """What was approved and is not suggested, and why; approvers of 0.2 do not tell."""
    progress = answer.get("progress")
    if progress is None:
        return
    for each in progress:
        print(printable(f"not suggested: {each['call']}: {each['why']}"))
    if not progress and not answer["suggestions"]:
        print("no person approved a call yet that a rule could cover")


async def print_rules(space: JoinedSpace, options: argparse.Namespace) -> Any:
    found = await ask_approver(space, options, "trust_rules")
    # As 0.2 called it.
    observes = found.get("observe", found.get("shadow", False))
    if not options.json:
        if found["stopped"] is not None:
            print(printable(f"STOPPED by {found['stopped']['by']}: {found['stopped']['why']}"))
            if found.get("resumed_by"):
                print(printable(f"resumed by {', '.join(found['resumed_by'])}; another person has to, too"))
        if found["fault"] is not None:
            print(printable(f"the rules cannot be read: {found['fault']}"))
        if observes:
            print("observe mode: nothing is decided")
        if found.get("accepting_people", 1) > 1:
            print(f"{found['accepting_people']} people have to accept a rule")
        if found["rules"]:
            print_table(_rules_table(found["rules"]))
            listed = sum(each["rule"]["name"].startswith(("again-", "reads-")) for each in found["rules"])
            if found.get("remembered", 0) > listed:
                print(f"{found['remembered']} calls are remembered; those used last are shown")
        else:
            print("there are no rules")
    rules = [
        {"name": each["rule"]["name"]}
        | _renamed(each, words="description", why="reason", hits="decisions", left="decisions_left")
        for each in found["rules"]
    ]
    stopped = None if found["stopped"] is None else _renamed(found["stopped"], why="reason", at="stopped_at")
    return {
        "rules": rules,
        "stopped": stopped,
        "error": found["fault"],
        "observe": observes,
        "accepting_people": found.get("accepting_people", 1),
    }


def _rules_table(rules: list[Any]) -> TextTable:
    rows = [
        (
            each["rule"]["name"],
            each["state"],
            str(each["hits"]),
            "" if each["left"] is None else str(each["left"]),
        )
        for each in rules
    ]
    details = [_rule_details(each) for each in rules]
    return TextTable(("RULE", "STATE", "DECISIONS", "LEFT"), rows, details, right={2, 3})


def _rule_details(rule: dict[str, Any]) -> list[str]:
    lines = [rule["words"], *([f"since {rule['why']}"] if rule["why"] else [])]
    if rule.get("review_due"):
        lines.append(f"{rule['unreviewed']} decisions should be reviewed: moot rules review")
    by = rule.get("resumed_by")
    return [*lines, f"resumed by {', '.join(by)}; another person has to, too"] if by else lines


def _renamed(fields: dict[str, Any], **names: str) -> dict[str, Any]:
    """What the approver answered, in the field names of all commands."""
    return {names.get(name, name): value for name, value in fields.items()}


async def print_report(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.cli.proposal.history import shares_table

    found = await ask_approver(space, options, "trust_report")
    if not options.json:
        print_table(shares_table(found["days"]))
        if found.get("rule_history"):
            print_table(_outcomes_table(found["rule_history"]))
        for name, record in found.get("observe", found.get("shadow", {})).items():
            total = record["agreements"] + record["conflicts"]
            agreement = f"agrees with {record['agreements']} of {total} decisions"
            print(
                printable(
                    f"{name} in observe mode: {agreement}; error rate up to {record['error_bound']:.0%}"
                )
            )
    return found


def _outcomes_table(days: list[Any]) -> TextTable:
    """Decisions, contradictions and suspensions of each rule, by day, the latest last."""
    rows = [
        (each["day"], each["rule"], *(str(each[key]) for key in ("automatic", "wrong", "tripped")))
        for each in days
    ]
    return TextTable(("DAY", "RULE", "AUTOMATIC", "WRONG", "SUSPENDED"), rows, right={2, 3, 4})
