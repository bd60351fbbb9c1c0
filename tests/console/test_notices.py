"""Notices say what they are about, and nothing that can be pressed is under one."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.console.approvals_page import SETTLED, detail, propose, row, shown, waiting
from tests.console.conftest import MemberAs, PageAs, view_ids

WIDTHS: list[ViewportSize] = [{"width": 1440, "height": 900}, {"width": 390, "height": 780}]

# Controls whose middle belongs to a notice.
COVERED = """() => [...document.querySelectorAll("button, a[href], input, select, textarea")]
    .filter((each) => !each.closest(".notice") && each.checkVisibility())
    .filter((each) => {
        const box = each.getBoundingClientRect();
        const found = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
        return found?.closest(".notice") != null;
    })
    .map((each) => each.textContent)"""


def make_notices(page: Page) -> None:
    """An error, which stays, of the page of a message that is nowhere; and one of what went well."""
    page.evaluate("location.hash = '#/lab/timeline/no-such-message'")
    expect(page.locator(".notice.bad")).to_have_count(1)
    page.keyboard.press("\\")
    expect(page.locator(".notice").filter(has_text="Theme")).to_be_visible()


@pytest.mark.parametrize("viewport", WIDTHS)
def test_no_notice_covers_anything_that_can_be_pressed(
    page_as: PageAs, member: MemberAs, viewport: ViewportSize
) -> None:
    member("files")
    propose(member("agent"), "add", a=1)
    page = page_as("human", "timeline", viewport=viewport)
    make_notices(page)
    for view in view_ids(page):
        page.evaluate("(view) => { location.hash = `#/lab/${view}`; }", view)
        expect(page.locator(f".view-{view}")).to_be_visible()
        assert page.evaluate(COVERED) == []
    page.evaluate("location.hash = '#/lab/approvals'")
    waiting(page).first.click()
    expect(detail(page).get_by_role("button", name="Reject", exact=True)).to_be_visible()
    assert page.evaluate(COVERED) == []
    detail(page).get_by_role("button", name="Reject", exact=True).click(trial=True)
    page.evaluate("location.hash = '#/lab/chat'")
    page.get_by_role("textbox").last.click(trial=True)


def test_a_notice_names_the_proposal_that_it_is_about(page_as: PageAs, member: MemberAs) -> None:
    """Somebody who decides one after the other has another before them when it arrives."""
    member("files")
    agent, second = member("agent"), member("second")
    first = propose(agent, "write_file", path="a.txt", content="a")
    page = page_as("human", "approvals", first.id)
    shown(page, "write_file")
    second.sees(lambda space: space.proposals.get(first.id))
    second.run(lambda space: space.approve(first.id))
    expect(detail(page).locator(".settled-text")).to_contain_text("second approved it")
    page.keyboard.press("a")
    expect(page.locator(".notice.bad")).to_contain_text("write_file of agent: Too late: second approved it")


def test_of_several_decisions_those_that_failed_are_named(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    taken = propose(agent, "write_file", path="a.txt", content="a")
    propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    expect(waiting(page)).to_have_count(2)
    for each in ("write_file", "add"):
        row(page, each).get_by_role("checkbox").check()
    page.get_by_role("button", name="Approve 2…").click()
    second.sees(lambda space: space.proposals.get(taken.id))
    second.run(lambda space: space.approve(taken.id))
    expect(page.locator("dialog .left-out")).to_have_count(1)
    page.wait_for_timeout(SETTLED)
    page.locator("dialog").get_by_role("button", name="Approve 1 call").click()
    expect(page.locator(".notice.bad")).to_contain_text("1 of 2 approved. write_file of agent: Too late")
