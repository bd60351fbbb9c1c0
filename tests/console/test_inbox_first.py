"""What waits for a decision comes before the history, which may take long on a slow line."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.approvals_page import approve, detail, outcome, propose, row, shown, waiting
from tests.console.conftest import MemberAs, PageAs
from tests.console.test_opened_by_link import HISTORY, HeldRoute


def test_one_can_decide_before_the_history_is_here(page_as: PageAs, member: MemberAs) -> None:
    """Also what is proposed and decided meanwhile is there; afterwards everything is in its place, once."""
    member("files")
    agent, second = member("agent"), member("second")
    agent.run(lambda space: space.chat("an old message"))
    old = propose(agent, "add", a=20, b=22)
    page = page_as("human", "approvals", alone=True)
    held = HeldRoute(page, HISTORY)
    page.reload()
    expect(waiting(page)).to_have_count(1)
    expect(page.locator(".view-head")).to_contain_text("1 pending")
    expect(page.locator(".top .pill")).not_to_have_text("Live")
    shown(page, "add")
    approve(page)
    assert outcome(agent, old).result["structuredContent"] == {"result": 42}
    expect(detail(page).locator(".history-result")).to_contain_text("42")
    new = propose(agent, "write_file", path="a.txt", content="a")
    expect(waiting(page)).to_have_count(1)
    second.sees(lambda space: space.proposals.get(new.id))
    second.run(lambda space: space.reject(new.id, "unsafe"))
    expect(row(page, "write_file")).to_contain_text("Rejected by second")
    assert [each.request.url for each in held.waiting if "space=lab" in each.request.url]
    held.release()
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(page.locator(".view-head")).to_contain_text("1 pending")
    expect(row(page, "add")).to_have_count(1)
    row(page, "write_file").click()
    expect(detail(page).locator(".history-step[data-tone=no]")).to_have_count(1)
    page.evaluate("location.hash = '#/lab/chat'")
    expect(page.locator(".view-chat")).to_contain_text("an old message")
