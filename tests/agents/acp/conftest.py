"""What holds for all tests of ACP: nobody waits long for an agent, or for an explanation."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.agents.acp.permissions.EXPLANATION_SECONDS", 0.05)
    monkeypatch.setattr("moot.agents.acp.turn_runner.CANCEL_SECONDS", 2.0)
    monkeypatch.setattr("moot.agents.acp.acp_member.SETTINGS_CHECK_SECONDS", 0.05)
