"""What rules would have decided over a history, beside what people and rules really decided.

Each proposal is judged at its own time, in the order of the history: limits are counted as they would have
been used up, and a call that people had rejected word for word is not approved. Not part of it: suspensions,
stops, the budget of all rules together, spot checks; and everybody counts as present, since the history does
not say who was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.accepted_calls import RejectedCalls
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.rule_evaluation import RuleVerdict, row_name
from moot.trust.rules.rule_set import RuleSet

# What would be different: people would have been spared, contradicted, or asked; or a rule decides otherwise.
Effect = Literal["same", "spared", "contradicts", "asks", "reversed", "decides_undecided"]
EFFECTS: Final[dict[Effect, str]] = {
    "same": "as it was",
    "spared": "decided by a rule, as people decided",
    "contradicts": "decided by a rule, against what people decided",
    "asks": "left to people, where a rule decided",
    "reversed": "decided by a rule, against what a rule decided",
    "decides_undecided": "decided by a rule, where nobody decided",
}


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """One proposal: what became of it, and what the rules say to it."""

    decision: HistoryProposal
    verdict: RuleVerdict
    effect: Effect

    def as_json(self) -> dict[str, Json]:
        case = self.decision.case
        return {
            "id": case.id,
            "proposed_at": rfc3339(case.at),
            "proposer": case.proposer,
            "to": list(case.to),
            "tool": case.tool,
            "arguments": case.arguments,
            "was": outcome_of(self.decision),
            "was_decided_by": self.decision.rule or self.decision.by,
            "decision": self.verdict.decision,
            "rule": None if self.verdict.rule is None else self.verdict.rule.name,
            "reason": self.verdict.why,
            "effect": self.effect,
        }


def replay(rules: RuleSet, decisions: Iterable[HistoryProposal]) -> list[ReplayedDecision]:
    """Judge every proposal of a history by these rules, policies, and calls that people want again."""
    history, present = list(decisions), rules.everybody
    tally = UseTally()
    rejected = RejectedCalls()
    settled = sorted((each for each in history if each.at is not None), key=lambda each: each.at or 0.0)
    known = 0
    found: list[ReplayedDecision] = []
    for decision in sorted(history, key=lambda each: each.case.at):
        case = decision.case
        while known < len(settled) and (settled[known].at or 0.0) <= case.at:
            rejected.note(settled[known])
            known += 1
        verdict = rules.decide(case, case.at, present, tally.times(), rejected=rejected)
        if verdict.rule is not None and verdict.decision != "ask":
            tally.record(verdict.rule.name, case.at, row=row_name(verdict.rule, case))
        found.append(ReplayedDecision(decision, verdict, _effect(decision, verdict)))
    return found


def outcome_of(decision: HistoryProposal) -> str:
    """What became of a proposal: approve, reject, or undecided. What people said counts before a rule."""
    if decision.lesson is None and decision.automated:
        return "approve" if decision.status == "fulfilled" else "reject"
    return decision.lesson or "undecided"


def _effect(decision: HistoryProposal, verdict: RuleVerdict) -> Effect:
    was, decides = outcome_of(decision), verdict.decision
    if decides == "ask":
        return "asks" if decision.automated else "same"
    if was == "undecided":
        return "decides_undecided"
    if was == decides:
        return "same" if decision.automated else "spared"
    return "reversed" if decision.lesson is None else "contradicts"


def differing(old: Sequence[ReplayedDecision], new: Sequence[ReplayedDecision]) -> list[ReplayedDecision]:
    """Of two replays of one history, what the new rules decide otherwise than the old ones."""
    before = {each.decision.id: each.verdict.decision for each in old}
    return [each for each in new if before[each.decision.id] != each.verdict.decision]
