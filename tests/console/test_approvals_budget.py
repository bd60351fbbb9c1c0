"""What a call would take of the space's budgets stands on its page, in the gateway's words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.approvals_page import approve, detail, propose, shown, waiting
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.gateway.running_gateway import participants


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    lab = spaces()
    lab["lab"] |= {"budgets": {"sums": {"tool": "add", "sum": "arguments.a", "ask_at": 400, "at_most": 500}}}
    lab["lab"]["participants"] |= participants(second=["*"])
    running = Running(tmp_path, loop, lab, port=origin_port)
    yield running
    running.stop()


def test_the_page_says_what_is_left_and_why_a_call_cannot_be_made(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    page = page_as("human", "approvals")
    expect(page.locator(".approvals-none")).to_be_visible()
    propose(agent, "add", a=95, b=0)
    shown(page, "add")
    line = detail(page).locator(".caution.budget")
    expect(line).to_have_text("sums: 0 of 500 used today; this one 95")
    second.run(lambda space: space.call("files", "add", {"a": 350, "b": 0}))
    expect(line).to_have_text(
        "sums: 350 of 500 used today; beyond 400 a person has to approve, this one 95 too"
    )
    second.run(lambda space: space.call("files", "add", {"a": 50, "b": 0}))
    other = propose(agent, "add", a=20, b=0)
    second.run(lambda space: space.approve(other.id))
    expect(line).to_have_text("sums: 420 of 500 used today; this one 95 would pass the limit")
    expect(waiting(page).locator(".approvals-row-why")).to_have_text(line.inner_text())
    expect(waiting(page)).not_to_contain_text("no hints")
    approve(page)
    expect(detail(page)).to_contain_text("would pass a budget of this space")
    expect(line).to_be_visible()
