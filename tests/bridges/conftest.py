"""How long the tests of this folder wait for what members offer."""

from __future__ import annotations

import pytest

from moot.participant.programs.offer_discovery import OfferDiscovery
from tests.waiting import HANG_SECONDS


@pytest.fixture(autouse=True)
def patient_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is there for what it offers has told of it before it is listed, however slow the machine is."""
    monkeypatch.setattr(OfferDiscovery.wait_settled, "__defaults__", (HANG_SECONDS,))
    monkeypatch.setattr("moot.bridges.space.space_backend.LIST_SECONDS", HANG_SECONDS)


@pytest.fixture(autouse=True)
def quick_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.downstream.client_requests.PROGRESS_SECONDS", 0.02)
