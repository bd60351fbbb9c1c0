"""What learning requires before it suggests a rule, and the limits of suggested rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """What a suggestion requires, and the limits of a suggested rule."""

    # Ten in a row still allow an error rate of one in four (`bounds`), which the suggestion states.
    min_approvals: int = 10
    # The share of matches that people still decide, so that a wrong rule is noticed.
    check_share: float = 0.05
    # The share of a rule's decisions that may be unreviewed before people are asked to look at them.
    review_share: float = 0.02
    # Whose approvals count; None: those of everyone who could fulfil. Anyone's rejection counts.
    people: frozenset[str] | None = None


DEFAULTS: Final = LearningSettings()
