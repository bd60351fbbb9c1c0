"""What people decide about rules: accept, narrow, dismiss, review, observe, stop, resume."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.rules.approver_client import approver_of, ask_approver, find_suggestion
from moot.errors import UsageError
from moot.operations.operation import OperationResult

if TYPE_CHECKING:
    from moot.participant import JoinedSpace


async def accept(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    suggestion = await find_suggestion(space, options)
    approver = approver_of(space, options)
    rule = None if options.narrow is None else _read_narrowed_rule(options.narrow)
    if not options.grant:
        return await approver.accept(options.suggestion, rule)
    if suggestion is None:
        raise UsageError(
            f"--grant needs to look at the suggestion: you may not ask {options.approver} for it"
            " (mcp/request)"
        )
    return await approver.grant(suggestion, options.suggestion)


def _read_narrowed_rule(file: Path) -> Any:
    from moot.config.strict_yaml import read_yaml
    from moot.trust.rules.rule_json import rule_as_json, rule_of_json
    from moot.trust.rules.rule_yaml import read_rules

    try:
        text = file.read_text("utf-8")
        value = read_yaml(text)
        if isinstance(value, dict) and "rules" not in value:
            # The rule alone, as `moot rules suggestions` shows it.
            return rule_as_json(rule_of_json(value))
        rules = read_rules(text)
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"{file} cannot be read: {fault}") from None
    if len(rules) != 1:
        raise UsageError(f"{file} holds {len(rules)} rules; it has to hold the one that you accept")
    return rule_as_json(rules[0])


async def review(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    return await approver_of(space, options).review(options.rule, options.confirm)


async def dismiss(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    looked = await find_suggestion(space, options)
    approver = approver_of(space, options)
    return await approver.dismiss(options.suggestion, reason=options.reason, listens=looked is None)


async def stop(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    # Said also where no approver is: one that comes back obeys it.
    approver = approver_of(space, options, must_be_here=False)
    return await approver.stop(options.rule, about=options.about or "", reason=options.reason)


async def resume(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    if options.all:
        return await _resume_all(space, options)
    return await approver_of(space, options).resume(options.rule)


async def _resume_all(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    """All that is suspended or stopped now; what trips while we ask stays suspended."""
    if options.rule:
        raise UsageError("name a rule, or --all")
    approver = approver_of(space, options)
    found = await approver.ask("trust_rules")
    names = [each["rule"]["name"] for each in found["rules"] if each["state"] == "suspended"]
    if not names and found["stopped"] is None:
        raise UsageError("no rule is suspended, and rules are not stopped")
    sent = None
    if found["stopped"] is not None:
        sent, _ = await approver.tell("trust/accept", {"resume": True})
    if names:
        sent, _ = await approver.tell("trust/accept", {"lift": names})
    text = f"resumed {', '.join(names)}" if names else "rules decide again"
    if found.get("accepting_people", 1) > 1:
        text += "; another person may have to resume, too: `moot rules list` tells"
    value = {"id": None if sent is None else sent.id, "kind": "trust/accept", "resumed": names}
    return OperationResult(value, [text])


async def observe(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    return await approver_of(space, options).observe(options.rule, on=options.switch == "on")


async def remove(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    return await approver_of(space, options).remove(options.rule, reason=options.reason)


async def ignore(space: JoinedSpace, options: argparse.Namespace) -> OperationResult:
    """Arguments of a tool that do not matter, or that matter again."""
    found = await ask_approver(space, options, "trust_origins")
    known = dict.fromkeys(
        [*(each["tool"] for each in found["tools"]), *(each["pattern"] for each in found["lines"])]
    )
    names = [key for key in known if options.tool in (key, key.partition("/")[2])]
    if not names and "/" in options.tool:
        names = [options.tool]
    if len(names) != 1:
        several = f"several members have it: {', '.join(sorted(names))}" if names else "no member offers it"
        raise UsageError(f"{options.tool}: {several}; write MEMBER/TOOL")
    (key,) = names
    word = "matters" if options.undo else "ignore"
    approver = approver_of(space, options)
    sent, _ = await approver.tell("trust/accept", {word: {key: options.argument}})
    now = "compared again" if options.undo else "not compared any more: any plain words will do"
    said = f"{', '.join(options.argument)} of {key}: {now}"
    return OperationResult({"id": sent.id, "kind": "trust/accept", "tool": key}, [said])
