"""What the state of rules is made of: stops, uses, grants, and suggestions that wait for more people."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Path
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_json import rule_as_json


@dataclass(slots=True)
class RuleStop:
    """Somebody stopped all rules."""

    by: str
    why: str
    at: float


@dataclass(slots=True)
class RuleUses:
    """When a rule decided, and what the numbers in its calls came to."""

    times: list[float] = field(default_factory=list)
    sums: dict[Path, Decimal] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        return {"times": self.times, "sums": [[list(path), str(sum)] for path, sum in self.sums.items()]}


def is_counted(rule: Rule) -> bool:
    """Whether its uses are kept over restarts, whatever the gateway's history has of them."""
    return rule.origin.plan is not None or bool(rule.limits.sums) or rule.limits.gap_seconds > 0


@dataclass(frozen=True, slots=True)
class GrantedRule:
    """A suggestion that became a capability of the agent, and the grant that gave it, if it was named."""

    rule: Rule
    by: str
    grant: str | None

    def as_json(self) -> dict[str, Json]:
        return {"rule": rule_as_json(self.rule), "by": self.by, "grant": self.grant}


@dataclass(frozen=True, slots=True)
class PendingAcceptance:
    """A suggestion that some people have accepted, and not yet as many as have to."""

    rule: Rule
    by: tuple[str, ...]
    # Whether it covers less than what was suggested.
    narrowed: bool

    def as_json(self) -> dict[str, Json]:
        return {"rule": rule_as_json(self.rule), "by": list(self.by), "narrowed": self.narrowed}
