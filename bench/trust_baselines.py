"""Simple ways to decide, beside which the learned rules are measured: always ask, an exact list, a list of
prefixes in the manner of coding agents, and a tool after some approvals.

All of them see the same proposals, ask the same person, and leave the same share to people as a spot check.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from bench.trust_people import World
from moot.trust.history.proposal_case import Case
from moot.trust.learning.learning_settings import DEFAULTS
from moot.trust.rules.conditions import canonical

# After so many approvals without a rejection a person would have clicked "always allow".
CLICKS: Final = 3
# Arguments that a list of prefixes looks at, the first that is there.
_MAIN: Final = ("command", "url", "path", "query", "to", "channel")


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """One simple way with one person: the share that is automatic, and how much of it was wrong."""

    share: float
    approvals: int
    wrong: int


def call_of(case: Case) -> Hashable:
    return case.tool, canonical(dict(case.arguments))


def tool_of(case: Case) -> Hashable:
    return case.tool


def prefix_of(case: Case) -> Hashable:
    """What `Bash(git log:*)`, `WebFetch(domain:…)` or a folder would name."""
    name = next((name for name in _MAIN if isinstance(case.arguments.get(name), str)), None)
    if name is None:
        return call_of(case)
    text: str = case.arguments[name]
    if name == "command":
        words = text.split()
        return case.tool, tuple(words[: 1 if len(words) > 1 and words[1].startswith("-") else 2])
    if name == "url":
        return case.tool, tuple(text.split("/")[:3])
    if name == "path":
        return case.tool, text.rpartition("/")[0]
    if name == "query":
        return case.tool, text.split()[0]
    return case.tool, text


BASELINES: Final[dict[str, tuple[Callable[[Case], Hashable], int]]] = {
    "exact_list": (call_of, CLICKS),
    "prefix_list": (prefix_of, CLICKS),
    "tool_after_k": (tool_of, DEFAULTS.min_approvals),
}


def run_baseline(
    world: World, name: str, *, seed: int, proposals: int, after: int, window: int
) -> BaselineRun:
    """Approve whatever has a key that was approved often enough and never rejected."""
    key_of, clicks = BASELINES[name]
    checks = random.Random(seed + 1)
    approved: dict[Hashable, int] = {}
    rejected: set[Hashable] = set()
    automatic: list[bool | None] = []
    approvals = wrong = 0
    for case, wanted, answer in world.proposals(proposals):
        key = key_of(case)
        known = approved.get(key, 0) >= clicks and (key not in rejected or name == "tool_after_k")
        runs = known and checks.random() >= DEFAULTS.check_share
        automatic.append(runs if wanted else None)
        if runs:
            approvals += 1
            wrong += not wanted
        elif answer:
            approved[key] = approved.get(key, 0) + 1
        else:
            rejected.add(key)
    return BaselineRun(share_of(automatic[after : after + window]), approvals, wrong)


def share_of(automatic: Sequence[bool | None]) -> float:
    """The share that ran without a question of what was wanted."""
    return mean([each for each in automatic if each is not None] or [False])
