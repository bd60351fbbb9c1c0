"""One key for yes, one for no, one for no with words; and seconds to take a decision back."""

from __future__ import annotations

from playwright.sync_api import Dialog, Page, expect

from moot.protocol.envelope import Envelope
from tests.console.approvals_page import (
    SETTLED,
    approve,
    detail,
    for_others,
    outcome,
    propose,
    shown,
    waiting,
)
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven, gathered
from tests.console.page_time import hold_long_timers, press_at_once
from tests.console.test_approvals import heard


def decisions(watcher: Driven) -> list[Envelope]:
    said: list[Envelope] = []
    watcher.run(lambda space: heard(space, "mcp/request", said, about=True))
    watcher.run(lambda space: heard(space, "mcp/reject", said, about=True))
    return said


def choose(page: Page, seconds: str) -> None:
    page.get_by_label("Undo delay").select_option(seconds)


def test_a_plain_no_takes_the_same_key_twice_and_leaves_my_queue(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    said = decisions(watcher)
    propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("n")
    expect(detail(page).locator(".armed")).to_contain_text("Reject add?")
    # Another key is no confirmation.
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("Escape")
    expect(detail(page).locator(".armed")).to_have_count(0)
    assert said == []
    page.keyboard.press("n")
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("n")
    (rejection,) = gathered(said, 1)
    assert (rejection.kind, rejection.payload["reason"]) == ("mcp/reject", "disagree")
    expect(waiting(page)).to_have_count(0)
    expect(for_others(page)).to_have_count(1)


def test_a_yes_can_be_taken_back_until_it_is_sent(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    said = decisions(watcher)
    proposal = propose(agent, "add", a=1, b=2)
    page = page_as("human", "approvals")
    shown(page, "add")
    choose(page, "10")
    hold_long_timers(page)
    page.locator("h1").click()
    page.keyboard.press("y")
    held = page.get_by_role("region", name="Decisions that can be undone")
    expect(held).to_contain_text("Approving add")
    expect(held).to_contain_text("Not sent if you close this page.")
    expect(detail(page)).to_contain_text("It is sent in")
    # On a phone it covers the header, and not what is decided next.
    page.set_viewport_size({"width": 390, "height": 844})
    box = held.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 80
    page.set_viewport_size({"width": 1280, "height": 800})
    # A second press out of habit changes nothing; in another view it is still there, and can be taken back.
    page.keyboard.press("y")
    press_at_once(page, "g", "t")
    expect(page.locator("h1")).to_have_text("Timeline")
    expect(held).to_be_visible()
    page.keyboard.press("z")
    expect(held).to_contain_text("Undone: add was not approved")
    expect(held.get_by_role("button")).to_have_count(0)
    assert said == []
    page.go_back()
    shown(page, "add")
    # The choice is the person's, wherever they go.
    expect(page.get_by_label("Undo delay")).to_have_value("10")
    page.keyboard.press("y")
    held.get_by_role("button", name="Send now").click()
    assert outcome(agent, proposal).text == "3"


def test_a_held_yes_is_sent_when_its_time_is_over_and_not_if_the_page_slept(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    propose(agent, "add", a=1, b=2)
    proposal = propose(agent, "add", a=3, b=4)
    page = page_as("human", "approvals", alone=True)
    shown(page, "add")
    expect(waiting(page)).to_have_count(2)
    choose(page, "5")
    page.clock.install()
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("a")
    held = page.get_by_role("region", name="Decisions that can be undone")
    expect(held).to_be_visible()
    page.clock.fast_forward(5_100)
    assert outcome(agent, proposal).text == "7"
    expect(held).to_be_hidden()
    expect(waiting(page)).to_have_count(1)
    waiting(page).locator(".approvals-row-open").click()
    page.keyboard.press("a")
    expect(held).to_be_visible()
    # As when a lid is closed for a minute.
    page.clock.fast_forward(60_000)
    expect(page.locator(".notices")).to_contain_text("Not sent, because this page was asleep")
    expect(held).to_be_hidden()
    expect(waiting(page)).to_have_count(1)


def test_closing_the_page_is_no_yes(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    said = decisions(watcher)
    propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    choose(page, "5")
    hold_long_timers(page)
    page.locator("h1").click()
    page.keyboard.press("a")
    expect(page.get_by_role("region", name="Decisions that can be undone")).to_be_visible()
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    page.close(run_before_unload=True)
    page.wait_for_event("close")
    assert asked == ["beforeunload"]
    other = page_as("second", "approvals")
    shown(other, "add")
    approve(other)
    (only,) = gathered(said, 1)
    assert only.sender == "second"
