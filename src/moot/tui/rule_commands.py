"""What a person types about rules: look, accept, narrow, grant, dismiss, stop, lift, resume, explain."""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from moot.errors import UsageError
from moot.participant import JoinedSpace, SentEnvelope
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.tui.operations.operation import ClientContext, OperationResult, Run, UserOperation
from moot.tui.rule_lines import (
    indented,
    rule_head,
    rule_lines,
    share_lines,
    standing_lines,
    suggestion_head,
    suggestion_lines,
)
from moot.tui.trust_log import TrustLog, ask

# The approver answers at once unless it is busy learning.
ANSWER_SECONDS: Final = 5.0
# Fields of a rule; anything else that is set is an argument.
_FIELDS: Final = frozenset(
    {"proposer", "to", "method", "tool", "arguments", "range", "equals", "hours", "after", "before", "limits"}
)
_LIMITS: Final = frozenset({"count", "per", "expires", "while_present", "check"})


class TrustCommands:
    """The operations; `log` is what is known."""

    def __init__(self, log: TrustLog) -> None:
        self._log = log

    def operations(self) -> tuple[UserOperation, ...]:
        rows: tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None], Run], ...] = (
            (
                "suggestions",
                "list suggested rules",
                _nothing,
                self._suggestions,
            ),
            (
                "rules",
                "list the rules, how often each decided, and the share of automatic decisions",
                _nothing,
                self._rules,
            ),
            (
                "accept",
                "accept a suggestion as a rule, narrow it, or grant the permission instead",
                _accepting,
                self._accept,
            ),
            ("dismiss", "dismiss a suggestion for good", _dismissing, self._dismiss),
            ("stop-rules", "suspend a rule, or stop all rules at once", _stopping, self._stop),
            ("resume-rules", "resume a suspended rule, or all rules", _resuming, self._resume),
            (
                "explain",
                "explain why a proposal was or was not decided by a rule",
                _explaining,
                self._explain,
            ),
        )
        return tuple(
            UserOperation(name=name, help=help, arguments=arguments, run=run, only_joined=True)
            for name, help, arguments, run in rows
        )

    # Looking

    async def _suggestions(self, seat: ClientContext, _: argparse.Namespace) -> OperationResult:
        why_not = await self._log.learn(seat.space)
        shown = self._log.open_suggestions()
        lines = [
            text for each in shown for text in (suggestion_head(each), *indented(suggestion_lines(each)))
        ]
        none = [f"no suggestions{f' since you joined; {why_not}' if why_not else ''}"]
        return OperationResult([each.payload for each in shown], lines or none)

    async def _rules(self, seat: ClientContext, _: argparse.Namespace) -> OperationResult:
        why_not = await self._log.learn(seat.space)
        shown = self._log.rules()
        lines = standing_lines(self._log)
        lines += [text for each in shown for text in (rule_head(each), *indented(rule_lines(each)))]
        if not shown:
            lines.append(
                f"no rules announced since you joined; {why_not}"
                if why_not
                else "No rules yet: you are asked every time"
            )
        if self._log.told is not None:
            lines += share_lines(self._log.told.days)
        return OperationResult([asdict(each) for each in shown], lines)

    async def _explain(self, seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        approver = self._log.approver(seat.space)
        if approver is None:
            raise UsageError(
                "no approver is in this space; where the journal is, `moot proposal explain ID` explains it"
            )
        found = self._whole(seat, chosen.proposal)
        told = await ask(seat.space, approver, "trust_explain", {"id": found})
        lines = told.get("lines")
        return OperationResult(told, [str(each) for each in lines] if isinstance(lines, list) else [])

    def _whole(self, seat: ClientContext, named: str) -> str:
        try:
            return seat.proposal(named).id
        except UsageError:
            return named

    # Answering

    async def _accept(self, seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        found = self._log.suggestion(chosen.suggestion)
        payload: dict[str, Json] = {"suggestion": found.name, **_reason(chosen)}
        if chosen.grant:
            return await self._grant(seat, found.payload, payload, found.envelope)
        if chosen.set:
            payload["rule"] = narrowed(found.payload.get("rule"), chosen.set)
        words = f"accepted suggestion {found.name}"
        return await self._told(seat, "trust/accept", payload, words, to=found.sender, about=found.envelope)

    async def _grant(
        self, seat: ClientContext, suggestion: Json, payload: dict[str, Json], about: str
    ) -> OperationResult:
        """The person gives the right; the approver only hears of it."""
        grant = suggestion.get("grant")
        if not isinstance(grant, dict):
            raise UsageError(
                f"it cannot be granted: {suggestion.get('no_grant')}. Accept it as a rule instead"
            )
        who = str(grant.get("participant"))
        reason = f"suggestion {payload['suggestion']}"
        given = await seat.space.admin.grant(who, [grant.get("capability")], reason=reason)
        payload |= {"granted": True, "grant": given.id}
        back = f"granted: {grant.get('words')}. /revoke {who} --grant {given.id} revokes it"
        return await self._told(seat, "trust/accept", payload, back, about=about)

    async def _dismiss(self, seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        found = self._log.suggestion(chosen.suggestion)
        payload = {"suggestion": found.name, **_reason(chosen)}
        about = [found.envelope] if found.envelope else []
        sent = await seat.space.send("trust/dismiss", payload, about=about, confirm=True)
        return OperationResult({"id": sent.id}, [f"dismissed suggestion {found.name}"])

    async def _stop(self, seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        payload = _reason(chosen) | ({} if chosen.rule is None else {"rule": chosen.rule})
        about = "" if chosen.about is None else self._whole(seat, chosen.about)
        words = f"asked to stop {chosen.rule or ('the rule behind it' if about else 'all rules')}"
        return await self._told(seat, "trust/stop", payload, words, about=about)

    async def _resume(self, seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        payload: dict[str, Json] = {"resume": True} if chosen.rule is None else {"lift": chosen.rule}
        words = f"asked to resume {chosen.rule or 'all rules'}"
        return await self._told(seat, "trust/accept", payload, words)

    async def _told(
        self,
        seat: ClientContext,
        kind: str,
        payload: dict[str, Json],
        words: str,
        *,
        to: str = "",
        about: str = "",
    ) -> OperationResult:
        """Say it, and what the approver answers; raises UsageError when it says no."""
        approver = self._log.approver(seat.space)
        sent, answer = await said(seat.space, kind, payload, to=to, about=about, approver=approver)
        if answer is not None and answer.kind == "chat":
            raise UsageError(f"{approver}: {answer.payload.get('text')}")
        lines = [words]
        if answer is not None and answer.kind == "trust/rule":
            rule: Json = answer.payload.get("rule")
            name = rule.get("name") if isinstance(rule, dict) else rule
            state = answer.payload.get("state")
            lines.append(f"{approver}: {name or 'all rules'} {'resumed' if state == 'lifted' else state}")
        elif approver is None:
            lines.append("no approver is in this space; one that joins later will only notice a stop")
        return OperationResult({"id": sent.id}, lines)


async def said(
    space: JoinedSpace,
    kind: str,
    payload: dict[str, Json],
    *,
    to: str,
    about: str,
    approver: str | None,
) -> tuple[SentEnvelope, Envelope | None]:
    """What we said, and what the approver answered; None when it said nothing in time."""
    coming = space.envelopes()
    try:
        sent = await space.send(kind, payload, to=to or (), about=about or (), confirm=True)
        if approver is None:
            return sent, None
        async with asyncio.timeout(ANSWER_SECONDS):
            async for item in coming:
                if isinstance(item, Envelope) and item.sender == approver and sent.id in item.correlation_id:
                    return sent, item
        return sent, None
    except TimeoutError:
        return sent, None
    finally:
        await coming.aclose()


def narrowed(rule: Json, settings: Sequence[str]) -> Json:
    """A rule with some fields set, as `path=reports/a.md` or `count=5`; raises UsageError.

    Whether that is narrower the approver says.
    """
    if not isinstance(rule, dict):
        raise UsageError("the suggestion contains no rule to narrow")
    edited = copy.deepcopy(rule)
    # What it says in words was about the wider one.
    edited.pop("words", None)
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign or not key:
            raise UsageError(f"{setting}: write FIELD=VALUE, such as path=reports/a.md")
        path = key.split(".")
        if path[0] in _LIMITS:
            path = ["limits", *path]
        elif path[0] not in _FIELDS:
            path = ["arguments", *path]
        inner = edited
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{key}: {step} is not an object")
        inner[path[-1]] = _value(text, inner.get(path[-1]))
    return edited


def _value(text: str, before: Json) -> Json:
    if isinstance(before, str) and not text.startswith("["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _reason(chosen: argparse.Namespace) -> dict[str, Json]:
    reason = getattr(chosen, "reason", None)
    return {} if reason is None else {"reason": reason}


def _accepting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suggestion", metavar="ID", help="its id, or the start of it")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="FIELD=VALUE",
        help="narrow it: path=reports/a.md, count=5, hours=09:00-17:00, while_present=alice",
    )
    parser.add_argument("--grant", action="store_true", help="grant the agent the permission instead")


def _dismissing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suggestion", metavar="ID", help="its id, or the start of it")
    parser.add_argument("--reason", metavar="TEXT", help="why")


def _stopping(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", nargs="?", metavar="RULE", help="the rule (default: all rules)")
    parser.add_argument("--about", metavar="ID", help="a proposal: suspends the rule that decided it")
    parser.add_argument("--reason", metavar="TEXT", help="why")


def _resuming(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", nargs="?", metavar="RULE", help="a suspended rule (default: all rules)")


def _nothing(parser: argparse.ArgumentParser) -> None:
    del parser


def _explaining(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help="of a proposal, its approval or its result")
