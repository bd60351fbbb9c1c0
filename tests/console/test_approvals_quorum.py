"""Where a space requires several votes (D-28): the page shows how many are missing and sends votes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.approvals_page import SETTLED, approve, detail, outcome, propose, row, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running, spaces


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """The same space, where calls of tools need a vote before anybody may fulfil them."""
    lab = spaces()
    lab["lab"]["quorum"] = [{"payload": {"method": "tools/call"}, "approvals_needed": 1}]
    running = Running(tmp_path, loop, lab, port=origin_port)
    yield running
    running.stop()


def test_a_quorum_is_told_and_votes_are_counted(page_as: PageAs, member: MemberAs) -> None:
    """D-28: earlier fulfilment is refused with what is missing; one member counts once."""
    member("files")
    agent = member("agent")
    proposal = propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    expect(detail(page).get_by_role("button", name="Vote")).to_be_visible()
    approve(page)
    expect(detail(page).locator(".outcome")).to_contain_text("this space requires 1 vote first")
    page.keyboard.press("v")
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("v")
    expect(detail(page).get_by_role("region", name="History")).to_contain_text("1 of 1 vote")
    expect(row(page, "add")).to_contain_text("1 vote")
    approve(page)
    assert outcome(agent, proposal).text == "2"
