"""What holds for all tests of the SDK."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long before the first try to come back."""
    monkeypatch.setattr("moot.participant.connection.link.BACKOFF_FIRST_SECONDS", 0.02)
