"""A worker that had a browser can run any other test."""

from __future__ import annotations

import asyncio

import pytest
from playwright.sync_api import Browser

from tests.async_tests import beside_a_halted_loop


async def one() -> int:
    await asyncio.sleep(0)
    return 1


def test_loops_run_while_that_of_the_browser_is_halted_and_it_goes_on(browser: Browser) -> None:
    halted = one()
    with pytest.raises(RuntimeError, match="running event loop"):
        asyncio.run(halted)
    halted.close()
    with beside_a_halted_loop():
        assert asyncio.run(one()) == 1
    with browser.new_page() as page:
        assert page.evaluate("1 + 1") == 2
