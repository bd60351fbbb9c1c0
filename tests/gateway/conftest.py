"""Whatever a peer does, the gateway's log holds no traceback: looked at after every test of this folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


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
