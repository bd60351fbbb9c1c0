"""What holds for all tests of agents: an endpoint has all the time it needs, and is asked again soon."""

from __future__ import annotations

import pytest

from tests.waiting import HANG_SECONDS


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.agents.model.model.MAX_RETRIES", 2)
    monkeypatch.setattr("moot.agents.model.model.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("moot.agents.model.model.SILENCE_SECONDS", HANG_SECONDS)
    monkeypatch.setattr("moot.agents.model.model.ANSWER_SECONDS", HANG_SECONDS)
