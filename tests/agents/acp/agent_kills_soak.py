"""Agent, `moot acp` and gateway are killed at every step, again and again."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import uvloop

from tests.agents.acp.agent_kills import STEPS, VICTIMS, kill_at


def run_agent_kills(cases: int, seed: int) -> str:
    """Each victim at each step, as often as `cases` allow, in an order of chance."""
    pairs = [(victim, step) for victim in VICTIMS for step in STEPS]
    order = [pairs[number % len(pairs)] for number in range(cases)]
    random.Random(seed).shuffle(order)
    outcomes: Counter[str] = Counter()
    for victim, step in order:
        with tempfile.TemporaryDirectory(prefix="moot-kills-", ignore_cleanup_errors=True) as folder:
            outcomes[uvloop.run(kill_at(Path(folder), victim, step))] += 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    return f"{cases} kills of agent, moot acp and gateway: {told}; nothing twice, nothing lost"
