"""A backend that is not there yet tells clients why, as soon as an attempt has failed."""

from __future__ import annotations

import asyncio

from moot.bridges.space.late_backend import LateBackend
from tests.waiting import bounded


async def test_the_first_attempt_has_an_end_that_can_be_waited_for() -> None:
    """Whatever the clock says: a client that is answered after it reads the reason."""
    late = LateBackend("http://gateway")
    waiting = asyncio.ensure_future(late.wait_tried())
    await asyncio.sleep(0)
    assert not waiting.done()
    late.report_problem("connection refused")
    async with bounded():
        await waiting
    assert late.problem == "connection refused"
