"""Shadow mode: rules predict, people decide, and the two are compared. Nothing is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moot.protocol.operation import Json
from moot.trust.bounds import upper_bound
from moot.trust.decision_ledger import Decision
from moot.trust.rules import RuleVerdict

# Predictions that wait for a decision, and comparisons kept; the oldest go first.
MAX_WAITING: Final = 10_000
MAX_KEPT: Final = 10_000


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
    """How a rule did in the shadow: an upper bound on how often it would have been wrong (95 %)."""

    agreements: int
    conflicts: int

    @property
    def bound(self) -> float:
        return upper_bound(self.conflicts, self.agreements + self.conflicts)


class Shadow:
    """Predictions of one space, compared as decisions come."""

    def __init__(self) -> None:
        self._waiting: dict[str, RuleVerdict] = {}
        self.comparisons: list[Comparison] = []

    def predict(self, proposal: str, verdict: RuleVerdict) -> None:
        """Keep what the rules would have done; asking predicts nothing."""
        if verdict.rule is None or verdict.decision == "ask":
            return
        self._waiting[proposal] = verdict
        while len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def decided(self, decision: Decision) -> Comparison | None:
        """What came of a prediction; None for one that taught nothing (withdrawn, expired, automated)."""
        if decision.how == "open":
            return None
        verdict = self._waiting.get(decision.id)
        lesson = decision.lesson
        if verdict is None or verdict.rule is None or lesson is None:
            return None
        del self._waiting[decision.id]
        compared = Comparison(
            decision.id, verdict.rule.name, verdict.decision, lesson, decision.by, decision.at
        )
        self.comparisons.append(compared)
        del self.comparisons[:-MAX_KEPT]
        return compared

    def record(self, rule: str) -> ShadowRecord:
        of_rule = [compared for compared in self.comparisons if compared.rule == rule]
        agreements = sum(1 for compared in of_rule if compared.agrees)
        return ShadowRecord(agreements, len(of_rule) - agreements)
