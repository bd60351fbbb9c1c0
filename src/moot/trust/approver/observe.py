"""Observe mode, of all rules or of one: it predicts, people decide, and the two are compared.

It goes on after a disagreement, so that people learn how often a rule is wrong, and over restarts:
predictions and results are in the history of rules.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from moot.protocol.operation import Json
from moot.trust.approver.rule_history import Prediction, RuleHistory, What
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.bounds import upper_bound
from moot.trust.rules.conditions import canonical
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import RuleVerdict
from moot.trust.rules.rule_writer import rule_as_json

# Comparisons that are kept; the oldest are dropped first.
MAX_COMPARISONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a rule would have done, and what people did."""

    proposal: str
    rule: str
    predicted: str
    decided: str
    by: str | None
    at: float | None

    @property
    def agrees(self) -> bool:
        return self.predicted == self.decided

    def as_json(self) -> dict[str, Json]:
        return {
            "proposal": self.proposal,
            "rule": self.rule,
            "predicted": self.predicted,
            "decided": self.decided,
            "agrees": self.agrees,
            "by": self.by,
            "at": self.at,
        }


@dataclass(frozen=True, slots=True)
class ObserveRecord:
    """The results of a rule in observe mode, with an upper bound of its error rate (95 % confidence)."""

    agreements: int
    conflicts: int

    @property
    def bound(self) -> float:
        return upper_bound(self.conflicts, self.agreements + self.conflicts)


class ObserveMode:
    """Predictions of one space, compared as decisions come."""

    def __init__(self, history: RuleHistory | None = None) -> None:
        self._history = history or RuleHistory()
        # Of this run.
        self.comparisons: list[Comparison] = []

    def predict(self, proposal: str, verdict: RuleVerdict) -> None:
        """Keep what the rules would have decided; `ask` is no prediction."""
        if verdict.rule is None or verdict.decision == "ask" or self._history.find_prediction(proposal):
            return
        found = Prediction(verdict.rule.name, rule_version(verdict.rule), verdict.decision)
        self._history.keep_prediction(proposal, found)

    def compare(self, decision: HistoryProposal) -> Comparison | None:
        """Compare a decision with its prediction; None if there is none, or nobody decided."""
        lesson = decision.lesson
        if decision.verdict == "pending" or lesson is None:
            return None
        found = self._history.take_prediction(decision.id)
        if found is None:
            return None
        compared = Comparison(decision.id, found.rule, found.decision, lesson, decision.by, decision.at)
        at = decision.case.at if decision.at is None else decision.at
        what: What = "agreements" if compared.agrees else "conflicts"
        self._history.count(what, at, rule=found.rule, version=found.version)
        self.comparisons.append(compared)
        del self.comparisons[:-MAX_COMPARISONS]
        return compared

    def record(self, rule: str, *, version: str | None = None) -> ObserveRecord:
        """The results of a rule; of its present version alone, if that is given."""
        total = self._history.total
        return ObserveRecord(
            total("agreements", rule, version=version), total("conflicts", rule, version=version)
        )


def rule_version(rule: Rule) -> str:
    """Tells a rule from another one that had its name, whose results say nothing about it."""
    fields = rule_as_json(rule)
    for key in ("words", "origin", "limits", "observe"):
        fields.pop(key, None)
    return hashlib.sha256(canonical(fields)).hexdigest()[:12]
