"""A few files lost at random; `make soak` does thousands (tests/gateway/hosting/lost_files_soak.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.hosting.lost_files_soak import lose_files


@pytest.mark.parametrize("seed", range(2))
async def test_rights_are_never_wider_whatever_is_lost(tmp_path: Path, seed: int) -> None:
    """D-98."""
    outcomes = await lose_files(tmp_path, 20, seed)
    assert outcomes["started"]
    assert outcomes["refused"]
