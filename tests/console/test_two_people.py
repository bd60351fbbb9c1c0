"""Two people decide on one proposal: one decision wins, the other sees it, and nothing runs twice (D-28)."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from tests.console.approvals_page import (
    SETTLED,
    approve,
    detail,
    for_others,
    outcome,
    propose,
    row,
    shown,
    waiting,
)
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import gathered

# Hold back what a page hears, as a slow line would: its person then decides without knowing of the other.
_DEAF = """
(() => {
  const Real = window.WebSocket;
  window.held = [];
  window.WebSocket = class extends Real {
    set onmessage(handler) {
      super.onmessage = (event) => {
        if (!window.deaf) return handler(event);
        window.held.push([handler, event]);
        if (event.data.includes("proposal_settled")) document.documentElement.dataset.refused = "yes";
      };
    }
  };
  window.hear = () => {
    window.deaf = false;
    window.held.splice(0).forEach(([handler, event]) => handler(event));
  };
})();
"""


def executions(space: JoinedSpace, into: list[Envelope]) -> None:
    @space.on("mcp/request")
    def remember(envelope: Envelope) -> None:
        if envelope.payload.get("method") == "tools/call":
            into.append(envelope)


def arm(page: Page) -> None:
    detail(page).get_by_role("button", name="Approve once").click()
    expect(detail(page).locator(".armed")).to_be_visible()


@pytest.mark.requirement("MEW-3.2.1-4")
def test_of_two_who_approve_at_once_one_wins_and_the_other_is_told_by_whom(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    ran: list[Envelope] = []
    watcher.run(lambda space: executions(space, ran))
    proposal = propose(agent, "add", a=1)
    first, second = page_as("human", "approvals"), page_as("second", "approvals", script=_DEAF)
    for page in (first, second):
        shown(page, "add")
        arm(page)
    second.evaluate("window.deaf = true")
    first.wait_for_timeout(SETTLED)
    first.keyboard.press("a")
    expect(detail(first).locator(".approvals-actions")).to_contain_text("You approved it")
    second.keyboard.press("a")
    expect(detail(second).locator(".approvals-actions")).to_contain_text("Approving…")
    # The gateway has refused it by now; the page hears of both, in the gateway's order.
    expect(second.locator("html")).to_have_attribute("data-refused", "yes")
    second.evaluate("window.hear()")
    expect(detail(second).locator(".outcome")).to_contain_text("Too late: human approved it")
    expect(detail(second).locator(".outcome")).to_contain_text("Your decision had no effect.")
    expect(detail(second).locator(".settled-text")).to_contain_text("human approved it")
    assert outcome(agent, proposal).text == "2"
    assert [each.sender for each in gathered(ran, 1)] == ["human"]


@pytest.mark.requirement("MEW-3.3.1-5")
def test_who_has_it_before_their_eyes_sees_it_settled_and_cannot_approve_any_more(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    propose(agent, "add", a=1)
    proposal = propose(agent, "add", a=2)
    first, second = page_as("human", "approvals"), page_as("second", "approvals")
    for page in (first, second):
        shown(page, "add")
    arm(second)
    approve(first)
    expect(detail(second).locator(".settled-text")).to_contain_text("human approved it")
    expect(detail(second).locator(".armed")).to_have_count(0)
    second.keyboard.press("a")
    expect(second.locator(".notices")).to_contain_text("Too late: human approved it")
    expect(row(second, "approved by human")).to_be_visible()
    # The list has moved up meanwhile; the other one is still there, untouched.
    expect(waiting(second)).to_have_count(1)
    agent.run(lambda space: proposal.withdraw("no_longer_needed"))
    second.keyboard.press("k")
    expect(detail(second).locator(".settled-text")).to_contain_text("agent withdrew it")
    expect(detail(second).get_by_role("button", name="Approve once")).to_have_count(0)


def test_one_rejects_and_the_other_may_still_approve(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3.3.2: a rejection is said to all and leaves it open."""
    member("files")
    agent = member("agent")
    proposal = propose(agent, "add", a=1)
    first, second = page_as("human", "approvals"), page_as("second", "approvals")
    for page in (first, second):
        shown(page, "add")
    first.keyboard.press("r")
    first.wait_for_timeout(SETTLED)
    first.keyboard.press("Control+Enter")
    expect(detail(second)).to_contain_text("human rejected it: disagree")
    approve(second)
    assert outcome(agent, proposal).text == "2"


def test_one_person_on_two_devices_sees_one_queue(page_as: PageAs, member: MemberAs) -> None:
    """What is decided on the phone is decided on the desktop, and the other way round."""
    member("files")
    agent = member("agent")
    first, second = propose(agent, "add", a=1), propose(agent, "add", a=2)
    desktop = page_as("human", "approvals")
    phone = page_as("human", "approvals", viewport={"width": 390, "height": 844})
    for page in (desktop, phone):
        expect(page).to_have_title("(2) Inbox · lab · Moot")
    waiting(phone).first.locator(".approvals-row-open").click()
    shown(phone, "add")
    phone.get_by_role("button", name="Reject", exact=True).click()
    phone.wait_for_timeout(SETTLED)
    phone.get_by_role("button", name="Yes, reject").click()
    for page in (desktop, phone):
        expect(page).to_have_title("(1) Inbox · lab · Moot")
    # It leaves the queue of the desktop, too, and is still said to be open to others.
    expect(for_others(desktop)).to_contain_text("Rejected by you")
    expect(waiting(desktop)).to_have_count(1)
    waiting(desktop).first.locator(".approvals-row-open").click()
    desktop.wait_for_timeout(SETTLED)
    approve(desktop)
    assert outcome(agent, second).text == "3"
    assert first.seen.status == "pending"
    for page in (desktop, phone):
        expect(page).to_have_title("Inbox · lab · Moot")
