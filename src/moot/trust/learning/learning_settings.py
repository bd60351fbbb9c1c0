"""What learning requires before it suggests a rule, and the limits of suggested rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """What a suggestion requires, and the limits of a suggested rule."""

    # Ten in a row still allow an error rate of one in four (`bounds`), which the suggestion states.
    min_approvals: int = 10
    # Decisions that a suggestion must cover beyond the existing rules.
    min_new_decisions: int = 3
    # And this share of all that it covers: people should not read the same rule again for little.
    min_new_share: float = 0.05
    # How likely chance may be where decisions are mixed; small, since it is tried again with every decision.
    max_chance: float = 1e-4
    # From this many mixed decisions on, with so many of each, people are assumed to decide by something that
    # proposals do not show.
    min_mixed: int = 5
    min_contradictions: int = 3
    # The share of matches that people still decide, so that a wrong rule is noticed.
    check_share: float = 0.05
    # The share of a rule's decisions that may be unreviewed before people are asked to look at them.
    review_share: float = 0.02
    # The hourly limit of a rule: this factor times the most that people approved in one hour, at least
    # min_hourly.
    burst_factor: float = 2.0
    min_hourly: int = 10
    # A rule that nobody renews expires.
    expires_days: float = 90.0
    # Whether to suggest rejecting rules, too.
    rejecting: bool = True
    # Rules are learned from this many of the latest decisions by people (some seconds of work); older
    # rejections still prevent suggestions.
    max_decisions: int = 5_000
    # Whose approvals count; None: those of everyone who could fulfil. Anyone's rejection counts.
    people: frozenset[str] | None = None


DEFAULTS: Final = LearningSettings()
