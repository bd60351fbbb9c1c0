"""The settings of an approver."""

from __future__ import annotations

from dataclasses import dataclass

from moot.trust.learning.learning_settings import DEFAULTS, LearningSettings
from moot.trust.rules.budgets import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproverSettings:
    """How an approver behaves."""

    # Only predict, and compare with what people decide.
    observe: bool = False
    # For all rules together; None: only each rule's own limits.
    budget: Budget | None = None
    learning: LearningSettings = DEFAULTS
    makes_suggestions: bool = True
    call_seconds: float = 300.0
