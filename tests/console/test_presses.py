"""How many presses each task takes, counted in the page: docs/topics/design.md is held to what it says.

A press is a key or a button of the mouse that goes down; words that are typed into a field are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from moot.participant import JoinedSpace, Proposal
from tests.console.approvals_page import SETTLED, detail, for_others, outcome, propose, shown, waiting
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven, Loop, Running
from tests.console.rules_page import ApproverScene, trusting_spaces

PAGE = Path(__file__).parents[2] / "docs/topics/design.md"
_COUNT = """
window.__presses = 0;
const isTyped = ({ key, target, ctrlKey }) =>
  key.length === 1 && !ctrlKey && target instanceof Element && target.matches("input, textarea");
addEventListener("pointerdown", () => { window.__presses += 1; }, { capture: true });
addEventListener("keydown", (event) => {
  if (!isTyped(event) && !["Control", "Shift"].includes(event.key)) window.__presses += 1;
}, { capture: true });
"""


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    running = Running(tmp_path, loop, trusting_spaces(), port=origin_port)
    yield running
    running.stop()


def told(task: str) -> int:
    """What the table says of a task."""
    (row,) = re.findall(rf"^\| {re.escape(task)}[^|]*\| (\d+)", PAGE.read_text("utf-8"), re.MULTILINE)
    return int(row)


def taken(page: Page) -> int:
    """The presses since the last time."""
    count: int = page.evaluate(
        "() => { const count = window.__presses; window.__presses = 0; return count; }"
    )
    return count


def open_proposal(page: Page, proposal: Proposal, words: str) -> None:
    """Where somebody reads it; how they came there is not counted."""
    page.evaluate("id => { location.hash = `#/lab/approvals/${id}`; }", proposal.id)
    shown(page, words)
    taken(page)


def twice(page: Page, key: str) -> None:
    page.keyboard.press(key)
    page.wait_for_timeout(SETTLED)
    page.keyboard.press(key)


def approved(agent: Driven, proposal: Proposal) -> bool:
    return bool(outcome(agent, proposal).by == "human")


def test_tasks_about_proposals_take_as_many_presses_as_the_table_says(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    page = page_as("human", "approvals", script=_COUNT)
    expect(page.locator(".approvals-none")).to_be_visible()

    one = propose(agent, "add", a=1)
    open_proposal(page, one, "add")
    twice(page, "a")
    assert approved(agent, one)
    assert taken(page) == told("approve one")

    open_proposal(page, propose(agent, "write_file", path="b.txt", content="b"), "write_file")
    page.keyboard.press("r")
    expect(page.locator("dialog textarea")).to_be_focused()
    page.keyboard.type("that is one too many")
    # Nobody types that fast; what comes so soon after a dialog was meant for what was there before.
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("Control+Enter")
    expect(for_others(page)).to_have_count(1)
    assert taken(page) == told("reject with words")
    expect(for_others(page)).to_contain_text("Rejected by you")

    hour = propose(agent, "read_file", path="notes.txt")
    open_proposal(page, hour, "read_file")
    page.keyboard.press("Shift+A")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("One hour")).to_be_checked()
    page.wait_for_timeout(SETTLED)
    dialog.get_by_role("button", name="Approve and grant").click()
    assert approved(agent, hour)
    assert taken(page) == told("a grant for an hour")


def test_all_grants_of_a_member_are_taken_back_by_as_many_presses_as_the_table_says(
    page_as: PageAs, member: MemberAs
) -> None:
    member("agent")

    async def give(space: JoinedSpace) -> None:
        for kind in ("mcp/cancel", "participant/status", "space/invite", "moot/assign", "mcp/reject"):
            await space.admin.grant("agent", [{"kind": kind}])

    member("second").run(give)
    page = page_as("human", "members", "agent", script=_COUNT)
    every = page.get_by_role("button", name="Revoke all 5")
    expect(every).to_be_visible()
    taken(page)
    every.click()
    expect(page.get_by_role("button", name="Revoke all")).to_have_count(0)
    expect(page.get_by_role("heading", name="Granted to agent")).to_have_count(0)
    assert taken(page) == told("take all grants of a member back")


def test_twenty_alike_and_who_decided_take_as_many_presses_as_the_table_says(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    propose(agent, "read_file", path="notes.txt")
    alike = [propose(agent, "add", a=number) for number in range(20)]
    page = page_as("human", "approvals", alike[0].id, script=_COUNT)
    shown(page, "add")
    expect(waiting(page)).to_have_count(21)
    taken(page)
    page.keyboard.press("l")
    expect(page.locator("dialog tbody tr")).to_have_count(20)
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("Control+Enter")
    expect(waiting(page)).to_have_count(1)
    assert taken(page) == told("approve 20 that are alike")
    assert all(approved(agent, each) for each in alike)

    again = propose(agent, "add", a=1)
    open_proposal(page, again, "add")
    detail(page).get_by_role("link", name="Earlier decisions").click()
    expect(page.locator(".decisions-table")).to_contain_text("human")
    expect(page.locator(".decisions-table tbody tr")).to_have_count(20)
    assert taken(page) == told("who approved X last week")


def test_a_rule_takes_as_many_presses_as_the_table_says(
    page_as: PageAs, member: MemberAs, tmp_path: Path
) -> None:
    office = ApproverScene(member, tmp_path)
    office.mood = "none"
    page = page_as("human", "approvals", script=_COUNT)
    one = propose(office.agent, "read_file", path="notes.txt")
    shown(page, "read")
    expect(page.get_by_role("button", name="Approve, and again")).to_be_visible()
    taken(page)
    twice(page, "s")
    assert approved(office.agent, one)
    assert taken(page) == told("a rule: exactly this call")
    page.evaluate("location.hash = '#/lab/rules'")
    expect(page.locator(".rule")).to_contain_text("notes.txt")


def test_a_phone_takes_as_many_taps_as_the_table_says_with_the_one_on_its_notification(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    one = propose(agent, "add", a=1)
    # The address that a notification opens.
    phone = {"width": 390, "height": 844}
    page = page_as("human", "approvals", one.id, viewport=phone, has_touch=True, script=_COUNT)
    shown(page, "add")
    taken(page)
    detail(page).get_by_role("button", name="Approve once").tap()
    page.wait_for_timeout(SETTLED)
    detail(page).get_by_role("button", name="Yes, approve").tap()
    assert approved(agent, one)
    assert taken(page) + 1 == told("on a phone, after a notification")
