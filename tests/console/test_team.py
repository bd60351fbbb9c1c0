"""A team in the console: who decides while somebody is away (0210), and who decided what (0211)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.approvals_page import SETTLED, approve, detail, dialog_button, outcome, propose, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.console.test_accessibility import issues
from tests.gateway.running_gateway import participants


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """The usual space, with somebody who may only chat."""
    lab = spaces()
    lab["lab"]["participants"] |= participants(bo=["chat"])
    running = Running(tmp_path, loop, lab, port=origin_port)
    yield running
    running.stop()


def test_somebody_decides_in_anothers_place_until_it_is_ended_and_both_see_it(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    delegate, page = page_as("bo", "approvals"), page_as("human", "approvals")
    proposal = propose(agent, "add", a=1)
    shown(delegate, "add")
    expect(detail(delegate).get_by_role("button", name="Approve once")).to_be_disabled()
    page.get_by_role("button", name="Space: ").click()
    page.get_by_role("menuitem", name="While you are away…").click()
    page.get_by_label("Who decides in your place").select_option("bo")
    page.get_by_label("Reason").fill("on holiday")
    dialog_button(page, "Let them decide").click()
    expect(page.locator("dialog .delegations")).to_contain_text("bo decides in your place")
    assert issues(page) == []
    expect(delegate.locator(".away-notice")).to_contain_text("on holiday")
    delegate.wait_for_timeout(SETTLED)
    approve(delegate)
    assert outcome(agent, proposal).text == "2"
    page.locator("dialog").get_by_role("button", name="End").click()
    expect(delegate.locator(".away-notice")).to_have_count(0)
    propose(agent, "write_file", path="b.txt", content="b")
    detail(delegate).get_by_role("button", name="Next pending").click()
    shown(delegate, "b.txt")
    expect(detail(delegate).get_by_role("button", name="Approve once")).to_be_disabled()


def test_who_approved_a_tool_is_one_press_away_from_a_proposal_and_downloads_as_csv(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    page = page_as("human", "approvals")
    first = propose(agent, "add", a=1)
    shown(page, "add")
    approve(page)
    outcome(agent, first)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save receipt").click()
    receipt = json.loads(Path(download.value.path()).read_text())
    assert (receipt["about"], receipt["claims"]["decisions"][0]["by"]) == (first.id, "human")
    propose(agent, "add", a=2)
    shown(page, "add")
    page.get_by_role("link", name="Earlier decisions").click()
    table = page.locator(".decisions-table tbody tr")
    expect(table).to_have_count(1)
    expect(table).to_contain_text("human")
    expect(table).to_contain_text("approved")
    page.get_by_label("Decision", exact=True).select_option("rejected")
    expect(page.locator(".decisions")).to_contain_text("Nobody decided anything like this")
    page.get_by_label("Decision", exact=True).select_option("")
    expect(table).to_have_count(2)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert [line.split(",")[5] for line in lines] == ["tool", "add", "add"]
