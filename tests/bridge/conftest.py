"""How long the tests of this folder wait for what members offer, and where hooks find their service."""

from __future__ import annotations

import pytest

from moot.participant.discovery.offer_discovery import OfferDiscovery
from tests.bridge.hook_services import service_folder
from tests.waiting import HANG_SECONDS

__all__ = ["service_folder"]


@pytest.fixture(autouse=True)
def patient_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is there for what it offers has told of it before it is listed, however slow the machine is."""
    monkeypatch.setattr(OfferDiscovery.wait_settled, "__defaults__", (HANG_SECONDS,))
