"""How often rules acted: what `evaluate` counts by, and one budget for all of them together."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moot.trust.decision_ledger import Decision
from moot.trust.rules import Rule

# Moments kept for one rule; no budget counts further.
MAX_ACTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `count` automated acts in `seconds`, by all rules together."""

    count: int
    seconds: float


class UseTally:
    """The moments at which rules acted, oldest first, by rule."""

    def __init__(self) -> None:
        self._acts: dict[str, deque[float]] = {}
        self._all: deque[float] = deque(maxlen=MAX_ACTS)

    def acted(self, rule: str, at: float) -> None:
        self._acts.setdefault(rule, deque(maxlen=MAX_ACTS)).append(at)
        self._all.append(at)

    def take(self, decisions: Sequence[Decision]) -> None:
        """What a ledger says was automated, so that a restart does not begin a budget anew."""
        acts = [(d.at, d.rule) for d in decisions if d.rule is not None and d.at is not None]
        for at, rule in sorted(acts):
            self.acted(rule, at)

    def counts(self) -> Mapping[str, Sequence[float]]:
        """As `evaluate` takes them; live, not a copy."""
        return self._acts

    def hits(self, rule: str) -> int:
        return len(self._acts.get(rule, ()))

    def spent(self, budget: Budget, now: float) -> bool:
        """Whether all rules together have used the budget up."""
        used = 0
        for at in reversed(self._all):
            if at <= now - budget.seconds:
                break
            used += 1
        return used >= budget.count

    def left(self, rule: Rule, now: float) -> int | None:
        """How often the rule may act before its limit; None without one."""
        limits = rule.limits
        if limits.count is None:
            return None
        used = sum(1 for at in self._acts.get(rule.name, ()) if now - limits.seconds < at <= now)
        return max(0, limits.count - used)
