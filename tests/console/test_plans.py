"""Plans in the console: seen as sentences, approved or cut once, and the same for the rest of a task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from moot.participant import JoinedSpace, LaidOutPlan
from moot.protocol.operation import Json
from tests.console.approvals_page import SETTLED, detail, dialog_button
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running
from tests.console.rules_page import ApproverScene, trusting_spaces
from tests.console.test_accessibility import in_both, issues
from tests.console.test_members_page import too_wide
from tests.waiting import HANG_SECONDS

LINES: list[dict[str, Json]] = [
    {
        "to": "files",
        "tool": "write_file",
        "path": {"path": "reports/<file>.md"},
        "text": {"content": "<text>"},
        "count": 5,
    },
    {"to": "files", "tool": "delete_file", "arguments": {"path": "old.md"}},
]


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    running = Running(tmp_path, loop, trusting_spaces(), port=origin_port)
    yield running
    running.stop()


@pytest.fixture
def office(member: MemberAs, tmp_path: Path) -> ApproverScene:
    scene = ApproverScene(member, tmp_path)
    scene.mood = "nothing"
    return scene


async def lay_out(space: JoinedSpace) -> LaidOutPlan:
    plan = await space.plan("Write the reports of March", LINES, hours=2)
    await plan.read(HANG_SECONDS)
    return plan


def test_a_plan_is_cut_approved_used_and_ended(page_as: PageAs, office: ApproverScene) -> None:
    plan = office.agent.run(lay_out)
    page = page_as("human", "approvals")
    expect(page.locator(".plan-notice")).to_contain_text("A plan waits: Write the reports of March (agent)")
    page.get_by_role("link", name="Look at it in Rules").click()
    card = page.locator(".card.plan")
    expect(card).to_contain_text("write_file of files with path “reports/<file>.md” and content any text")
    assert in_both(page, issues, too_wide) == []
    card.get_by_role("button", name="Cut…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Keep this line").nth(1).uncheck()
    dialog.get_by_label("At most (times)").nth(0).fill("2")
    assert in_both(page, issues) == []
    dialog_button(page, "Approve what is left").click()
    expect(card.locator(".tag")).to_have_text("approved")
    expect(card).not_to_contain_text("delete_file")
    assert plan.state == "active"
    assert office.write("reports/march.md") == "by approver"
    card.get_by_role("button", name="End plan…").click()
    dialog_button(page, "End plan").click()
    expect(card.locator(".tag")).to_have_text("over")
    assert not [rule for rule in office.approver.store.rules if rule.origin.plan]


def test_the_same_for_the_rest_of_a_task(page_as: PageAs, office: ApproverScene) -> None:
    page = page_as("human", "approvals")
    office.agent.run(
        lambda space: space.propose(
            "files",
            "tools/call",
            {"name": "write_file", "arguments": {"path": "notes.md", "content": "first draft"}},
            wait_for_others=True,
        )
    )
    expect(detail(page)).to_contain_text("notes.md")
    page.wait_for_timeout(SETTLED)
    page.get_by_role("button", name="Same for this task…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("write_file of files with path “notes.md”")
    expect(dialog).to_contain_text("at most 20 times")
    assert in_both(page, issues) == []
    dialog_button(page, "Approve, and the same again").click()
    expect(page.locator(".approvals-actions")).to_contain_text("the same for the rest of this task")
    assert office.write("notes.md") == "by approver"
