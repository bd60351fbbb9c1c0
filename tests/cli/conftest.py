"""A town for each test that types commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.town import Town, town


@pytest.fixture
def lab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Town]:
    for name in ("MOOT_URL", "MOOT_SPACE", "MOOT_TOKEN", "MOOT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with town(tmp_path, capsys) as here:
        yield here
