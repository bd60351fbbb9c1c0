"""The results of one simulated person in `bench.trust`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.trust_baselines import BaselineRun


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """The results for one simulated person. `curve` is the automatic share in each stretch of decisions."""

    policy: str
    seed: int
    after: float
    curve: tuple[float, ...]
    approvals: int
    wrong_approvals: int
    wrong_rejections: int
    rules: int
    suspended: int
    # The largest bound of an accepted suggestion, and the number of rules that exceeded theirs.
    bound: float
    beyond: int
    baselines: Mapping[str, BaselineRun]
    # Suggestions that were shown, those whose rules were wrong, wrong approvals by rules that were suspended.
    shown: int
    false_suggestions: int
    after_contradiction: int
    # How often the person was asked to look at what a rule had decided.
    reviews: int = 0
