"""The slash commands for rules: list, review, accept, narrow, grant, dismiss, observe, stop, explain."""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from moot.errors import UsageError
from moot.operations.approver_client import ApproverClient
from moot.operations.operation import (
    ClientContext,
    OperationResult,
    Run,
    UserOperation,
    add_reason,
    no_arguments,
)
from moot.operations.text.rule_lines import (
    indent_lines,
    rule_head,
    rule_lines,
    share_lines,
    status_lines,
    suggestion_head,
    suggestion_lines,
)
from moot.operations.trust_log import TrustLog
from moot.protocol.operation import Json
from moot.trust.rules.rule_json import LIMIT_KEYS, RULE_KEYS
from moot.values.kinds import KINDS

# Fields of a rule; anything else that is set is an argument, also one that is called like a kind of value.
_FIELDS: Final = frozenset(RULE_KEYS) - {"name", "decision", "words", "extra_arguments", "origin", *KINDS}
_LIMITS: Final = frozenset(LIMIT_KEYS)


class TrustCommands:
    """The operations, with `log` as what is known of rules."""

    def __init__(self, log: TrustLog) -> None:
        self._log = log

    def operations(self) -> tuple[UserOperation, ...]:
        rows: tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None], Run], ...] = (
            (
                "suggestions",
                "list suggested rules",
                no_arguments,
                self._suggestions,
            ),
            (
                "rules",
                "list the rules, how often each decided, and the share of automatic decisions",
                no_arguments,
                self._rules,
            ),
            (
                "review",
                "list what rules decided and nobody has reviewed, or say that it was right",
                _review_arguments,
                self._review,
            ),
            (
                "accept",
                "accept a suggestion as a rule, narrow it, or grant the permission instead",
                _accept_arguments,
                self._accept,
            ),
            ("dismiss", "dismiss a suggestion for good", _dismiss_arguments, self._dismiss),
            (
                "observe-rule",
                "let a rule decide nothing and only be compared with what people decide, or decide again",
                _observe_arguments,
                self._observe,
            ),
            ("stop-rules", "suspend a rule, or stop all rules at once", _stop_arguments, self._stop),
            ("resume-rules", "resume a suspended rule, or all rules", _resume_arguments, self._resume),
            (
                "explain",
                "explain why a proposal was or was not decided by a rule",
                _explain_arguments,
                self._explain,
            ),
        )
        return tuple(
            UserOperation(name=name, help=help, arguments=arguments, run=run, interactive_only=True)
            for name, help, arguments, run in rows
        )

    # Lists and explanations

    async def _suggestions(self, context: ClientContext, _: argparse.Namespace) -> OperationResult:
        problem = await self._log.refresh(context.space)
        shown = self._log.open_suggestions()
        lines = [
            text for each in shown for text in (suggestion_head(each), *indent_lines(suggestion_lines(each)))
        ]
        none = [f"no suggestions{f' since you joined; {problem}' if problem else ''}"]
        return OperationResult([each.payload for each in shown], lines or none)

    async def _rules(self, context: ClientContext, _: argparse.Namespace) -> OperationResult:
        problem = await self._log.refresh(context.space)
        shown = self._log.rules()
        lines = status_lines(self._log)
        lines += [text for each in shown for text in (rule_head(each), *indent_lines(rule_lines(each)))]
        if not shown:
            lines.append(
                f"no rules announced since you joined; {problem}"
                if problem
                else "No rules yet: you are asked every time"
            )
        if self._log.report is not None:
            lines += share_lines(self._log.report.days)
        return OperationResult([asdict(each) for each in shown], lines)

    async def _review(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        return await self._approver(context).review(args.rule, args.confirm)

    async def _explain(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        if self._log.find_approver(context.space) is None:
            raise UsageError(
                "no approver is in this space; where the journal is, `moot proposal explain ID` explains it"
            )
        found = self._full_id(context, args.proposal)
        answer = await self._approver(context).ask("trust_explain", {"id": found})
        lines = answer.get("lines")
        return OperationResult(answer, [str(each) for each in lines] if isinstance(lines, list) else [])

    def _full_id(self, context: ClientContext, named: str) -> str:
        try:
            return context.proposal(named).id
        except UsageError:
            return named

    # Answers to the approver

    async def _accept(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        found, approver = self._log.suggestion(args.suggestion), self._approver(context)
        if args.grant:
            return await approver.grant(found.payload, found.name, about=found.envelope)
        rule = narrow_rule(found.payload.get("rule"), args.set) if args.set else None
        return await approver.accept(found.name, rule, to=found.sender, about=found.envelope)

    async def _dismiss(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        found = self._log.suggestion(args.suggestion)
        return await self._approver(context).dismiss(found.name, reason=args.reason, about=found.envelope)

    async def _stop(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        about = "" if args.about is None else self._full_id(context, args.about)
        return await self._approver(context).stop(args.rule, about=about, reason=args.reason)

    async def _observe(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        return await self._approver(context).observe(args.rule, on=args.switch == "on")

    async def _resume(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        return await self._approver(context).resume(args.rule)

    def _approver(self, context: ClientContext) -> ApproverClient:
        return ApproverClient(context.space, self._log.find_approver(context.space), command="/")


def narrow_rule(rule: Json, settings: Sequence[str]) -> Json:
    """A rule with some fields set, as `path=reports/a.md` or `count=5`; raises UsageError.

    The approver checks whether the result is narrower.
    """
    if not isinstance(rule, dict):
        raise UsageError("the suggestion contains no rule to narrow")
    edited = copy.deepcopy(rule)
    # The description was about the wider rule.
    edited.pop("words", None)
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign or not key:
            raise UsageError(f"{setting}: write FIELD=VALUE, such as path=reports/a.md")
        path = key.split(".")
        if path[0] in _LIMITS:
            path = ["limits", *path]
        elif path[0] not in _FIELDS:
            path = [_place_of(edited, path), *path]
        inner = edited
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{key}: {step} is not an object")
        inner[path[-1]] = _value(text, inner.get(path[-1]))
    return edited


def _place_of(rule: Mapping[str, Json], path: Sequence[str]) -> str:
    """Where a rule has the condition of an argument: under its kind of value, or among the arguments."""
    for kind in KINDS:
        inner: Json = rule.get(kind)
        for step in path:
            inner = inner.get(step) if isinstance(inner, Mapping) else None
        if inner is not None:
            return kind
    return "arguments"


def _value(text: str, before: Json) -> Json:
    if isinstance(before, str) and not text.startswith("["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _accept_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suggestion", metavar="ID", help="its id, or the start of it")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="FIELD=VALUE",
        help="narrow it: path=reports/a.md, count=5, hours=09:00-17:00, while_present=alice",
    )
    parser.add_argument("--grant", action="store_true", help="grant the agent the permission instead")


def _review_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", nargs="?", metavar="RULE", help="only this rule (default: all rules)")
    parser.add_argument("--confirm", metavar="ID", help="the listed decisions up to this one were right")


def _dismiss_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suggestion", metavar="ID", help="its id, or the start of it")
    add_reason(parser)


def _stop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", nargs="?", metavar="RULE", help="the rule (default: all rules)")
    parser.add_argument("--about", metavar="ID", help="a proposal: suspends the rule that decided it")
    add_reason(parser)


def _observe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", metavar="RULE", help="the rule")
    parser.add_argument("switch", choices=("on", "off"), help="on: it decides nothing")


def _resume_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", nargs="?", metavar="RULE", help="a suspended rule (default: all rules)")


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help="of a proposal, its approval or its result")
