"""What holds for all tests of XProtocol."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_publishing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a relay refused for the moment is soon published again."""
    monkeypatch.setattr("moot.xprotocol.endpoint.relay_client.PUBLISH_RETRY_SECONDS", 0.1)
