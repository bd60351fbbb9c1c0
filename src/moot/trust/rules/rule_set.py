"""What decides a proposal together: Cedar policies, the rules of a file, and calls that people want again.

What a policy forbids comes before the rules, and what it permits behind them. What is remembered of a call
counts where no rule approves, rejects or asks people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moot.protocol.envelope import rfc3339
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.accepted_calls import RejectedCalls
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.cedar_policies import NO_POLICIES, CedarPolicies
from moot.trust.rules.remembered_calls import RememberedCalls
from moot.trust.rules.rule import ORIGINS_UNKNOWN, Rule
from moot.trust.rules.rule_evaluation import RuleVerdict, evaluate


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The deciders of one space, or of one file."""

    rules: Sequence[Rule] = ()
    policies: CedarPolicies | None = None
    remembered: RememberedCalls | None = None

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules, and each Cedar policy as a rule."""
        return (*self.rules, *(() if self.policies is None else self.policies.rules))

    @property
    def calls(self) -> tuple[Rule, ...]:
        """What is remembered, as rules."""
        return tuple(self.remembered or ())

    @property
    def everybody(self) -> frozenset[str]:
        """All whom rules want to be present."""
        return frozenset(name for rule in self.rules for name in rule.limits.while_present)

    def decide(
        self,
        case: Case,
        now: float,
        *args: Any,
        found: Sequence[Rule] | None = None,
        untrusted: str | None = ORIGINS_UNKNOWN,
        **known: Any,
    ) -> RuleVerdict:
        """What they say together; what else is known is as in `evaluate`.

        `found` is what is remembered of the call, if only some of that counts.
        """
        judged = NO_POLICIES if self.policies is None else self.policies.judge(case, untrusted)
        if found is None:
            found = () if self.remembered is None else self.remembered.find(case)
        rules = (*judged.forbids, *self.rules, *judged.permits)
        verdict = _decide(rules, found, case, now, *args, untrusted=untrusted, **known)
        if judged.fault is not None and verdict.decision != "reject":
            # Nobody knows whether a policy forbids it.
            return RuleVerdict("ask", None, judged.fault)
        return verdict

    def decide_after(
        self, earlier: Sequence[HistoryProposal], case: Case, at: float, **known: Any
    ) -> RuleVerdict:
        """The same after what was decided before, with everybody present."""
        tally = UseTally()
        tally.record_past(earlier, self.rules)
        rejected = RejectedCalls(earlier)
        return self.decide(case, at, self.everybody, tally.times(), rejected=rejected, **known)


def _decide(
    rules: Sequence[Rule], remembered: Sequence[Rule], case: Case, now: float, *args: Any, **known: Any
) -> RuleVerdict:
    found = evaluate(rules, case, now, *args, **known)
    if found.decision != "ask" or (found.rule is not None and found.rule.decision != "approve"):
        return found
    # One that approves and is held back may stand before one that rejects or asks.
    guards = [rule for rule in rules if rule.decision != "approve"] if found.rule is not None else []
    if evaluate(guards, case, now, *args, **known).rule is not None:
        return found
    for rule in remembered:
        names_values = rule.ask is not None and not rule.extra_arguments
        reason = known.get("unnamed_untrusted", lambda _: ORIGINS_UNKNOWN)(rule) if names_values else None
        own = evaluate([rule], case, now, *args, **(known | ({"untrusted": reason} if names_values else {})))
        if own.rule is None and rule.after is not None and now < rule.after:
            own = RuleVerdict(
                "ask", rule, f"rule {rule.name} approves it again from {rfc3339(rule.after)} on"
            )
        is_nearer = own.rule is not None and (found.rule is None or found.rule.ask is not None)
        if own.decision == "approve" or is_nearer:
            found = own
        if found.decision == "approve":
            break
    return found
