"""The terminal's tests wait for what they look for, not for what Textual waits for."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot, WaitForScreenTimeout


@pytest.fixture(autouse=True)
def keys_wait_for_no_widget_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a key, Textual waits 30 seconds for every widget that was there, also if it is removed meanwhile
    or the machine is busy. Whatever a test expects then, it waits for by itself.
    """
    wait_for_screen = Pilot._wait_for_screen

    async def wait(pilot: Pilot[object], timeout: float = 30.0) -> bool:
        try:
            return await wait_for_screen(pilot, timeout)
        except WaitForScreenTimeout:
            return True

    monkeypatch.setattr(Pilot, "_wait_for_screen", wait)
