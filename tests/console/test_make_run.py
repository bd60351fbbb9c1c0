"""`make run`: whoever opens the printed address and pastes the printed token has something to decide."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Watched, sign_in
from tests.waiting import HANG_SECONDS


@pytest.fixture
def demo() -> Iterator[tuple[str, str]]:
    """Where its console is, and the token that it prints."""
    running = subprocess.Popen(
        [sys.executable, "-m", "moot.cli", "demo", "--live", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    told = ""
    for line in running.stdout:
        told += line
        if "Ctrl-C" in line:
            break
    found = re.search(r"open +(http://\S+)\n +sign in +(\S+)\n", told)
    assert found is not None, told
    yield found[1], found[2]
    running.terminate()
    running.communicate(timeout=HANG_SECONDS)


def test_it_opens_onto_the_desk_with_something_to_approve(demo: tuple[str, str], watched: Watched) -> None:
    address, token = demo
    page = watched.page()
    page.goto(address)
    sign_in(page, token)
    expect(page.locator(".view-approvals")).to_be_visible()
    expect(page.locator(".approvals-list")).to_contain_text("write_note")
    expect(page.get_by_role("region", name="Proposal")).to_contain_text("note 1 by the agent")
    expect(page.get_by_role("button", name="Approve once")).to_be_enabled()
    assert token not in page.url
