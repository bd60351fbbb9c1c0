"""A town for each test that types commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.space_with_members import SpaceWithMembers, space_with_members


@pytest.fixture
def lab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SpaceWithMembers]:
    for name in ("MOOT_URL", "MOOT_SPACE", "MOOT_TOKEN", "MOOT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with space_with_members(tmp_path, capsys) as members:
        yield members
