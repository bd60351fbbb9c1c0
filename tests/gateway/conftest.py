"""Whatever a peer does, the gateway's log holds no traceback: looked at after every test of this folder.

And figures are never those of a moment ago, however long a slow machine takes to write them down.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

import pytest

from moot.gateway import gateway_metrics
from moot.resilience.rate_limits import TokenBucket


@pytest.fixture(autouse=True)
def _fresh_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_metrics, "_CHEAP_SECONDS", math.inf)


@pytest.fixture
def no_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates give nothing back: what a test counts is the same however slow the machine is."""
    monkeypatch.setattr(TokenBucket, "_refill", lambda *_: None)


@pytest.fixture(autouse=True)
def _no_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO):
        yield
    found = [
        record
        for when in ("setup", "call")
        for record in caplog.get_records(when)
        if record.exc_info or "Traceback" in record.getMessage()
    ]
    assert [f"{record.name}: {record.getMessage()} {record.exc_info}" for record in found] == []
