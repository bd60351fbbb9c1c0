"""A few rounds of kill -9 under load; `make soak` does a hundred (tests/gateway/hosting/crash_soak.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.hosting.crash_soak import crash, restart_with_many_records


@pytest.mark.parametrize("strict", [False, True], ids=["on", "strict"])
async def test_no_acknowledged_record_is_lost_or_doubled_by_a_crash(tmp_path: Path, strict: bool) -> None:
    crashes = await crash(tmp_path, 3, seed=20_261_115, strict=strict)
    assert crashes.rounds == 3
    assert len(crashes.acknowledged) > 20


async def test_a_restart_with_thousands_of_records_costs_little(tmp_path: Path) -> None:
    """Most of it is the interpreter; `make soak` asks for 2 s with 100,000 records."""
    _, cpu_seconds = await restart_with_many_records(tmp_path, 8_000)
    assert cpu_seconds < 8
