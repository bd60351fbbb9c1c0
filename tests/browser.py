"""One Chromium for all tests of a worker, whichever folder they are in.

A plugin and not a fixture of one folder: a thread takes no second Playwright beside the first one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

# Milliseconds between two steps of a test in the browser. With 1000 a test that passes only because it is
# quicker than the page (a timer, a retry, a notice that goes away) fails.
SLOW_MOTION_MILLISECONDS = float(os.environ.get("MOOT_TEST_SLOW_MOTION_MILLISECONDS", "0"))

# Chromium without what only a desktop needs: the same engine, and the tests take half as long.
# Distributions other than Debian's family have the whole of it only.
CHROMIUM = next(
    filter(
        None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))
    ),
    None,
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a worker."""
    if CHROMIUM is None:
        pytest.fail("Chromium is missing: tools/system_packages.sh installs it")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM,
            slow_mo=SLOW_MOTION_MILLISECONDS,
            args=["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"],
        )
        yield chromium
        chromium.close()
