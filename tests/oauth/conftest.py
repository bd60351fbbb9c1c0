"""What holds for all tests of sign-ins: a provider has all the time it needs."""

from __future__ import annotations

import pytest

from tests.waiting import HANG_SECONDS


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.oauth.provider_http.REQUEST_SECONDS", HANG_SECONDS)
