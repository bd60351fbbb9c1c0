"""Shadow mode: rules predict, people decide, and the two are compared. No rule decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moot.protocol.operation import Json
from moot.trust.bounds import upper_bound
from moot.trust.decision_ledger import Decision
from moot.trust.rules import RuleVerdict

# Predictions without a decision yet, and comparisons that are kept; the oldest are dropped first.
MAX_PREDICTIONS: Final = 10_000
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
class ShadowRecord:
    """The results of a rule in shadow mode, with an upper bound of its error rate (95 % confidence)."""

    agreements: int
    conflicts: int

    @property
    def bound(self) -> float:
        return upper_bound(self.conflicts, self.agreements + self.conflicts)


class Shadow:
    """Predictions of one space, compared as decisions come."""

    def __init__(self) -> None:
        self._predictions: dict[str, RuleVerdict] = {}
        self.comparisons: list[Comparison] = []

    def predict(self, proposal: str, verdict: RuleVerdict) -> None:
        """Keep what the rules would have decided; `ask` is no prediction."""
        if verdict.rule is None or verdict.decision == "ask":
            return
        self._predictions[proposal] = verdict
        while len(self._predictions) > MAX_PREDICTIONS:
            del self._predictions[next(iter(self._predictions))]

    def compare(self, decision: Decision) -> Comparison | None:
        """Compare a decision with its prediction; None if there is none, or nobody decided."""
        if decision.status == "open":
            return None
        verdict = self._predictions.get(decision.id)
        lesson = decision.lesson
        if verdict is None or verdict.rule is None or lesson is None:
            return None
        del self._predictions[decision.id]
        compared = Comparison(
            decision.id, verdict.rule.name, verdict.decision, lesson, decision.by, decision.at
        )
        self.comparisons.append(compared)
        del self.comparisons[:-MAX_COMPARISONS]
        return compared

    def record(self, rule: str) -> ShadowRecord:
        of_rule = [compared for compared in self.comparisons if compared.rule == rule]
        agreements = sum(1 for compared in of_rule if compared.agrees)
        return ShadowRecord(agreements, len(of_rule) - agreements)
