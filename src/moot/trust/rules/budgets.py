"""How often rules decided, for their limits and for the budget of all rules together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from moot.trust.history.proposal_case import Case, Path
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import count_recent, row_name

# Decisions kept for one rule; no budget is larger.
MAX_DECISIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `max_decisions` automatic decisions in `per_seconds`, by all rules together."""

    max_decisions: int
    per_seconds: float


class UseTally:
    """The times of automatic decisions, oldest first, by rule."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}
        # All of them, also those whose times are not kept any more.
        self._counts: dict[str, int] = {}
        self._all: deque[float] = deque(maxlen=MAX_DECISIONS)
        self._sums: dict[str, dict[Path, Decimal]] = {}

    def record(
        self,
        rule: str,
        at: float,
        amounts: Mapping[Path, Decimal | None] | None = None,
        *,
        row: str | None = None,
    ) -> None:
        """Count a decision; `row` as `row_name` gives it."""
        for name in (rule, row):
            if name is not None:
                times = self._times.setdefault(name, deque(maxlen=MAX_DECISIONS))
                is_late = bool(times) and at < times[-1]
                times.append(at)
                if is_late:
                    self._times[name] = deque(sorted(times), maxlen=MAX_DECISIONS)
        self._counts[rule] = self._counts.get(rule, 0) + 1
        self._all.append(at)
        sums = self._sums.setdefault(rule, {}) if amounts else {}
        for path, amount in (amounts or {}).items():
            sums[path] = sums.get(path, Decimal(0)) + (amount or Decimal(0))

    def restore(self, rule: str, times: Iterable[float], sums: Mapping[Path, Decimal]) -> None:
        """Count what a rule decided in earlier runs."""
        for at in times:
            self.record(rule, at)
        self._sums[rule] = dict(sums)

    def spent(self) -> Mapping[str, Mapping[Path, Decimal]]:
        """What the numbers in the calls of each rule came to, as `evaluate` takes it; not a copy."""
        return self._sums

    def record_past(
        self,
        decisions: Sequence[HistoryProposal],
        rules: Iterable[Rule],
        as_used: Callable[[Rule, Case], Rule] = lambda rule, _: rule,
    ) -> None:
        """Record the automatic decisions of a ledger, so that a restart does not reset a budget.

        `as_used`: a rule as it is when it decides a call.
        """
        known = {rule.name: rule for rule in rules}
        past = [(d.at, d.rule, d.case) for d in decisions if d.rule is not None and d.at is not None]
        for at, name, case in sorted(past, key=lambda each: each[:2]):
            self.record(name, at, row=row_name(as_used(known[name], case), case) if name in known else None)

    def times(self) -> Mapping[str, Sequence[float]]:
        """The times by rule, as `evaluate` takes them; not a copy."""
        return self._times

    def count(self, rule: str) -> int:
        return self._counts.get(rule, 0)

    def is_used_up(self, budget: Budget, now: float) -> bool:
        """Whether all rules together have used up the budget."""
        return self.remaining_of(budget, now) == 0

    def remaining_of(self, budget: Budget, now: float) -> int:
        """How many decisions all rules together have left."""
        used = 0
        for at in reversed(self._all):
            if at <= now - budget.per_seconds:
                break
            used += 1
        return max(0, budget.max_decisions - used)

    def remaining(self, rule: Rule, now: float) -> int | None:
        """How many decisions the rule has left before its limit; None without one."""
        limits = rule.limits
        if limits.max_decisions is None:
            return None
        used = count_recent(self._times.get(rule.name, ()), limits.per_seconds, now)
        return max(0, limits.max_decisions - used)
