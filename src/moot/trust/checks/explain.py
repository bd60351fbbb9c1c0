"""Explains in sentences why a proposal was or was not decided by a rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.protocol.opinion import OPINION_RULE
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import RuleVerdict, evaluate
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.rule_words import describe_rule, join_names
from moot.trust.rules.tripwires import suspension_reasons

# How many rules that do not match are named, the nearest first.
MAX_OTHER_RULES: Final = 5
# How much of the arguments is shown as text; `as_json` has all of it.
MAX_ARGUMENT_CHARS: Final = 2_000
_PARTS: Final = {
    "proposer": "it is for another proposer",
    "to": "it is for another host",
    "method": "it is for another method",
    "tool": "it is for another tool",
    "hours": "it applies at other hours",
    "after": "it does not apply yet",
    "before": "it no longer applies",
}
_BUDGET_NOTE: Final = "The approver may have a budget for all rules together, which is not known here."


@dataclass(frozen=True, slots=True)
class Explanation:
    """What happened to one proposal, what the rules say about it now, and why other rules do not match."""

    proposal: str
    outcome: str
    verdict: RuleVerdict
    others: tuple[str, ...]
    arguments: Mapping[str, Json]
    # Why people were asked; None if a rule decided it, or nobody knows.
    asked_because: str | None = None
    # What whoever explains it does not know.
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        lines = [self.outcome, f"Arguments: {_short(self.arguments)}"]
        if self.asked_because is not None:
            lines.append(f"People were asked because: {self.asked_because}.")
        lines.append(f"Current rules: {self.verdict.decision} ({self.verdict.why}).")
        return lines + [f"  {text}" for text in (*self.notes, *self.others)]

    def as_json(self) -> dict[str, Json]:
        return {
            "proposal": self.proposal,
            "done": self.outcome,
            "verdict": self.verdict.decision,
            "rule": None if self.verdict.rule is None else self.verdict.rule.name,
            "why": self.verdict.why,
            "others": list(self.others),
            "arguments": dict(self.arguments),
            "asked_because": self.asked_because,
            "notes": list(self.notes),
        }


def explain(
    decision: HistoryProposal,
    rules: Sequence[Rule],
    now: float,
    *,
    verdict: RuleVerdict | None = None,
    asked_because: str | None = None,
    notes: Sequence[str] = (),
) -> Explanation:
    """Explain one proposal; `verdict` replaces evaluating the rules, for a caller that knows more."""
    case, verdict = decision.case, verdict or evaluate(rules, decision.case, now)
    outcome, others = _outcome(decision, rules), _others(case, rules, now, verdict)
    return Explanation(decision.id, outcome, verdict, others, case.arguments, asked_because, tuple(notes))


def judge_offline(
    decision: HistoryProposal, store: RuleStore, history: Sequence[HistoryProposal], now: float
) -> tuple[RuleVerdict, tuple[str, ...]]:
    """What the rules say now, judged from files alone: the approver's folder and the journal.

    Who is present and the approver's budget are not known there: notes say so. What the rules said then is
    told by `rules_then`.
    """
    verdict = store.blocked() or store.rule_set.decide_after(
        history,
        decision.case,
        now,
        suspended=suspension_reasons(store.suspensions),
        expired=store.expired_names(),
    )
    return verdict, tuple(_notes(verdict))


def _notes(verdict: RuleVerdict) -> list[str]:
    if verdict.rule is None or verdict.decision == "ask":
        return []
    notes = []
    limits = verdict.rule.limits
    if limits.while_present:
        verb = "is" if len(limits.while_present) == 1 else "are"
        names = join_names(limits.while_present)
        notes.append(f"Only while {names} {verb} present; who is present is not known here.")
    if limits.check_share:
        notes.append(f"{limits.check_share:.0%} of such proposals are left to people as spot checks.")
    return [*notes, _BUDGET_NOTE]


def _short(arguments: Mapping[str, Json]) -> str:
    text = json.dumps(dict(arguments), ensure_ascii=False)
    return (
        text if len(text) <= MAX_ARGUMENT_CHARS else f"{text[:MAX_ARGUMENT_CHARS]}… ({len(text)} characters)"
    )


def _outcome(decision: HistoryProposal, rules: Sequence[Rule]) -> str:
    case = decision.case
    what = f"{case.proposer} proposed {case.tool or case.method or 'something without a method'}"
    if case.to:
        what += f" on {join_names(case.to)}"
    what += f" at {rfc3339(case.at)}; "
    took = "" if decision.duration_seconds is None else f" after {decision.duration_seconds:.1f} s"
    decided = decision.decided
    match decision.verdict:
        case "pending":
            what += "the proposal is pending."
        case "fulfilled":
            what += f"{decided.by} approved it{took} (envelope {decided.envelope})"
            if decision.votes:
                what += f", after votes by {join_names(decision.votes)}"
            if decision.result is None:
                what += "; no answer of its host is known, so it may have been carried out or not."
            elif decision.assessed_by is not None:
                note = f" ({decision.note})" if decision.note else ""
                settled = f"{decision.assessed_by} settled it as {decision.outcome}{note}"
                what += f"; its host did not answer, and {settled}."
            else:
                what += f"; the result was {_result(decision)}."
        case "rejected":
            what += f"{decided.by} rejected it{took}: {decided.reason} (envelope {decided.envelope})."
        case "withdrawn":
            what += f"it was withdrawn{took}{f' ({decision.reason})' if decision.reason else ''}."
        case "expired":
            what += "it expired without a decision."
    if decision.status == "fulfilled" and decision.rejections:
        what += f" {join_names(r.by for r in decision.rejections)} had rejected it before."
    return what + _deciding_rule(decision, rules)


def _result(decision: HistoryProposal) -> str:
    return "ok" if decision.result == "ok" else f"an error: {decision.error}"


def _deciding_rule(decision: HistoryProposal, rules: Sequence[Rule]) -> str:
    if decision.rule is None:
        return ""
    if decision.rule == OPINION_RULE:
        return " A second opinion did, in a model's words, and no person or rule."
    rule = next((rule for rule in rules if rule.name == decision.rule), None)
    if rule is None:
        return f" Decided automatically by rule {decision.rule}, which no longer exists."
    text = f" Decided automatically by rule {rule.name}: {rule.words or describe_rule(rule)}."
    origin = rule.origin
    if origin.accepted_by is not None:
        when = "" if origin.accepted is None else f" on {rfc3339(origin.accepted)}"
        source = "" if origin.suggestion is None else f" from suggestion {origin.suggestion}"
        text += f" {origin.accepted_by} accepted this rule{source}{when}."
    return text


def _others(case: Case, rules: Sequence[Rule], now: float, verdict: RuleVerdict) -> tuple[str, ...]:
    """Why other rules do not match, the nearest first."""
    misses: list[tuple[int, int, str]] = []
    for position, rule in enumerate(rules):
        if rule is verdict.rule:
            continue
        expires = rule.limits.expires_at
        if expires is not None and now >= expires:
            misses.append((0, position, f"{rule.name} expired on {rfc3339(expires)}"))
            continue
        mismatches = rule.mismatches(case, now)
        if rule.observe and not mismatches:
            misses.append((0, position, f"{rule.name} only observes: it would {rule.decision} this"))
        if mismatches:
            why = join_names([_mismatch_text(part) for part in mismatches[:3]])
            misses.append((len(mismatches), position, f"{rule.name} does not match: {why}"))
    return tuple(text for _, _, text in sorted(misses)[:MAX_OTHER_RULES])


def _mismatch_text(part: str) -> str:
    if part in _PARTS:
        return _PARTS[part]
    if part.startswith("extra argument"):
        return f"there is an {part}"
    if part.startswith("range."):
        return f"{part.removeprefix('range.')} is outside its range"
    if part.startswith("equals."):
        return f"{part.removeprefix('equals.')} is not exactly the value in the rule"
    if part.startswith("arguments."):
        return f"{part.removeprefix('arguments.')} does not match"
    return f"no rule covers {part}"
