"""A few kills of gateway, host and approver; `make soak` does many (`execution_soak`)."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.hosting.execution_soak import PARTS, kill_at_random


async def test_an_approved_call_runs_once_at_most_whoever_is_killed(tmp_path: Path) -> None:
    executions, outcomes = await kill_at_random(tmp_path, 4, seed=20_261_116)
    assert set(executions.killed) == set(PARTS)
    assert outcomes.total() == len(executions.proposed) == 20
    assert outcomes["done"] > 0
