"""What every command of the adapter is called with in tests: a home folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.xprotocol.adapter.command_runner import Shell


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """Commands in this process; whatever key or configuration there is on this machine is not looked at."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for variable in ("MOOT_TEST_SUPPLIER_TOKEN", "SALESFORCE_MCP_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return Shell(capsys)
