"""Prints what the approver reports: rules, suggestions, and how much is automatic."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from moot.cli.rules.approver_client import (
    ask_approver,
)
from moot.cli.table_output import print_table
from moot.operations.terminal_escape import printable
from moot.operations.text_table import TextTable

if TYPE_CHECKING:
    from moot.participant import JoinedSpace


async def print_suggestions(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.operations.rule_lines import suggestion_lines
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
    if not options.json:
        if found["stopped"] is not None:
            print(printable(f"STOPPED by {found['stopped']['by']}: {found['stopped']['why']}"))
            if found.get("resumed_by"):
                print(printable(f"resumed by {', '.join(found['resumed_by'])}; another person has to, too"))
        if found["fault"] is not None:
            print(printable(f"the rules cannot be read: {found['fault']}"))
        if found["shadow"]:
            print("shadow mode: nothing is decided")
        if found.get("accepting_people", 1) > 1:
            print(f"{found['accepting_people']} people have to accept a rule")
        if found["rules"]:
            print_table(_rules_table(found["rules"]))
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
        "shadow": found["shadow"],
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
        for name, record in found["shadow"].items():
            total = record["agreements"] + record["conflicts"]
            agreement = f"agrees with {record['agreements']} of {total} decisions"
            print(
                printable(f"{name} in shadow mode: {agreement}; error rate up to {record['error_bound']:.0%}")
            )
    return found


def _outcomes_table(days: list[Any]) -> TextTable:
    """Decisions, contradictions and suspensions of each rule, by day, the latest last."""
    rows = [
        (each["day"], each["rule"], *(str(each[key]) for key in ("automatic", "wrong", "tripped")))
        for each in days
    ]
    return TextTable(("DAY", "RULE", "AUTOMATIC", "WRONG", "SUSPENDED"), rows, right={2, 3, 4})
