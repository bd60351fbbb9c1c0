"""What holds for all tests of A2A: what agents do again and again, they do soon."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.agents.a2a.task_tracker.SETTLE_SECONDS", 0.02)
    monkeypatch.setattr("moot.agents.a2a.push_sender.PUSH_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("moot.agents.a2a.agent_client.POLL_FIRST_SECONDS", 0.01)
    monkeypatch.setattr("moot.agents.a2a.agent_client.POLL_MAX_SECONDS", 0.05)
    monkeypatch.setattr("moot.agents.a2a.agent_client.CANCEL_SECONDS", 5.0)
