"""Why something was done, or was not: the answer of `moot proposal explain ID`, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.trust.decision_ledger import Decision
from moot.trust.proposal_case import Case
from moot.trust.rule_words import list_of, rule_in_words
from moot.trust.rules import Rule, RuleVerdict, evaluate
from moot.trust.tripwires import Suspension, reasons

# Rules that do not match are named up to this number, the nearest first.
MOST_RULES: Final = 5
_PARTS: Final = {
    "proposer": "it is for another proposer",
    "to": "it is for another host",
    "method": "it is for another method",
    "tool": "it is for another tool",
    "hours": "it applies at other hours",
    "after": "it does not apply yet",
    "before": "it no longer applies",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of one proposal: what was done, what the rules say of it now, and why not more."""

    proposal: str
    done: str
    verdict: RuleVerdict
    others: tuple[str, ...]

    def lines(self) -> list[str]:
        said = [self.done, f"Current rules: {self.verdict.decision} ({self.verdict.why})."]
        return said + [f"  {other}" for other in self.others]

    def as_json(self) -> dict[str, Json]:
        return {
            "proposal": self.proposal,
            "done": self.done,
            "verdict": self.verdict.decision,
            "rule": None if self.verdict.rule is None else self.verdict.rule.name,
            "why": self.verdict.why,
            "others": list(self.others),
        }


def explain(
    decision: Decision,
    rules: Sequence[Rule],
    now: float,
    presence: Collection[str] = (),
    counts: Mapping[str, Sequence[float]] | None = None,
    *,
    suspensions: Mapping[str, Suspension] | None = None,
    verdict: RuleVerdict | None = None,
) -> Explanation:
    """Everything that can be said about one proposal; `verdict` of who knows more than the rules say."""
    suspended = suspensions or {}
    verdict = verdict or evaluate(
        rules, decision.case, now, presence, counts or {}, suspended=reasons(suspended)
    )
    others = _others(decision.case, rules, now, verdict)
    return Explanation(decision.id, _done(decision, rules), verdict, others)


def _done(decision: Decision, rules: Sequence[Rule]) -> str:
    case = decision.case
    what = f"{case.proposer} proposed {case.tool or case.method or 'something without a method'}"
    if case.to:
        what += f" on {list_of(case.to)}"
    what += f" at {rfc3339(case.at)}; "
    took = "" if decision.took is None else f" after {decision.took:.1f} s"
    match decision.how:
        case "open":
            what += "the proposal is pending."
        case "fulfilled":
            what += f"{decision.by} approved it{took} (envelope {decision.envelope})"
            if decision.approvals:
                what += f", after votes by {list_of(approval.by for approval in decision.approvals)}"
            what += "." if decision.result is None else f"; the result was {_result(decision)}."
        case "rejected":
            what += f"{decision.by} rejected it{took}: {decision.reason} (envelope {decision.envelope})."
        case "withdrawn":
            what += f"it was withdrawn{took}{f' ({decision.reason})' if decision.reason else ''}."
        case "expired":
            what += "it expired without a decision."
    if decision.how == "fulfilled" and decision.rejections:
        what += f" {list_of(r.by for r in decision.rejections)} had rejected it before."
    return what + _by_rule(decision, rules)


def _result(decision: Decision) -> str:
    return "ok" if decision.result == "ok" else f"an error: {decision.error}"


def _by_rule(decision: Decision, rules: Sequence[Rule]) -> str:
    if decision.rule is None:
        return ""
    rule = next((rule for rule in rules if rule.name == decision.rule), None)
    if rule is None:
        return f" Decided automatically by rule {decision.rule}, which no longer exists."
    said = f" Decided automatically by rule {rule.name}: {rule.words or rule_in_words(rule)}."
    origin = rule.origin
    if origin.accepted_by is not None:
        when = "" if origin.accepted is None else f" on {rfc3339(origin.accepted)}"
        source = "" if origin.suggestion is None else f" from suggestion {origin.suggestion}"
        said += f" {origin.accepted_by} accepted this rule{source}{when}."
    return said


def _others(case: Case, rules: Sequence[Rule], now: float, verdict: RuleVerdict) -> tuple[str, ...]:
    """Why the rules that did not decide did not, the nearest first."""
    misses: list[tuple[int, int, str]] = []
    for position, rule in enumerate(rules):
        if rule is verdict.rule:
            continue
        expires = rule.limits.expires
        if expires is not None and now >= expires:
            misses.append((0, position, f"{rule.name} expired on {rfc3339(expires)}"))
            continue
        misfits = rule.misfits(case, now)
        if misfits:
            why = list_of([_because(part) for part in misfits[:3]])
            misses.append((len(misfits), position, f"{rule.name} does not match: {why}"))
    return tuple(text for _, _, text in sorted(misses)[:MOST_RULES])


def _because(part: str) -> str:
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
