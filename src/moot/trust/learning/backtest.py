"""Applies rules to past decisions: agreements, conflicts and near misses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.rule import Rule

# Near misses that are kept.
MAX_NEAR_MISSES = 5


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A past decision that the rule misses by one part only."""

    proposal: str
    decision: str
    part: str


@dataclass(frozen=True, slots=True)
class BackTest:
    """The result of a rule on a whole history, without its limits.

    `undecided` were withdrawn or expired, `automated` were decided by a rule already.
    """

    history: int
    covered: int
    agreements: int
    conflicts: tuple[str, ...]
    undecided: int
    automated: int
    near_misses: tuple[NearMiss, ...]


def back_test(rule: Rule, decisions: Iterable[HistoryProposal]) -> BackTest:
    """Apply the rule to every past decision, at the time of its proposal."""
    history = covered = agreements = undecided = automated = 0
    conflicts: list[str] = []
    near: dict[tuple[str, str], NearMiss] = {}
    for decision in decisions:
        if decision.verdict == "pending":
            continue
        history += 1
        mismatches = rule.mismatches(decision.case, decision.case.at)
        lesson = decision.lesson
        if mismatches:
            if len(mismatches) == 1 and lesson is not None:
                # One example for each part and outcome.
                near.setdefault((mismatches[0], lesson), NearMiss(decision.id, lesson, mismatches[0]))
            continue
        covered += 1
        if decision.automated:
            automated += 1
        elif lesson is None:
            undecided += 1
        elif lesson == rule.decision:
            agreements += 1
        else:
            conflicts.append(decision.id)
    # Rejections first: they show where people drew the line.
    misses = sorted(near.values(), key=lambda miss: miss.decision != "reject")[:MAX_NEAR_MISSES]
    return BackTest(history, covered, agreements, tuple(conflicts), undecided, automated, tuple(misses))
