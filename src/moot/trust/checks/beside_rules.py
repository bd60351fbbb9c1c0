"""What decides beside the rules of a file: Cedar policies, and the calls that people want again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from moot.trust.history.proposal_case import Case
from moot.trust.rules.cedar_policies import CedarPolicies, evaluate_with
from moot.trust.rules.remembered_calls import RememberedCalls
from moot.trust.rules.rule import ORIGINS_UNKNOWN, Rule
from moot.trust.rules.rule_evaluation import RuleVerdict


@dataclass(frozen=True, slots=True)
class BesideRules:
    """Of one rules file; None: there are none."""

    policies: CedarPolicies | None = None
    remembered: RememberedCalls | None = None

    @property
    def policy_rules(self) -> Sequence[Rule]:
        return self.policies.rules if self.policies is not None else ()

    @property
    def calls(self) -> Sequence[Rule]:
        return tuple(self.remembered or ())

    def decide(
        self,
        rules: Sequence[Rule],
        case: Case,
        at: float,
        present: Collection[str] = (),
        untrusted: str | None = ORIGINS_UNKNOWN,
    ) -> RuleVerdict:
        """What these and the rules say together."""
        found = self.remembered.find(case) if self.remembered is not None else ()
        return evaluate_with(self.policies, rules, found, case, at, present, untrusted=untrusted)


NOTHING_BESIDE: Final = BesideRules()
