"""What every command of the adapter is called with in tests: a home folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.xprotocol.adapter.command_runner import Shell


@pytest.fixture(autouse=True)
def quick_announcing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an adapter does at most so often, it does soon again."""
    monkeypatch.setattr("moot.xprotocol.adapter.config.adapter_settings.ANNOUNCE_DEBOUNCE_SECONDS", 0.05)
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.source_set.MIN_REFRESH_INTERVAL_SECONDS", 0.05)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """Commands in this process; whatever key or configuration there is on this machine is not looked at."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for variable in ("MOOT_TEST_SUPPLIER_TOKEN", "SALESFORCE_MCP_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return Shell(capsys)
