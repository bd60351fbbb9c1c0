"""What tools do and what people endorsed, in the rules view, with a real approver that finds origins out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.approvals_page import detail, dialog_button, propose
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running
from tests.console.rules_page import ApproverScene, trusting_spaces
from tests.console.test_accessibility import in_both, issues
from tests.console.test_members_page import too_wide


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    running = Running(tmp_path, loop, trusting_spaces(), port=origin_port)
    yield running
    running.stop()


@pytest.fixture
def office(member: MemberAs, tmp_path: Path) -> ApproverScene:
    return ApproverScene(member, tmp_path)


def item(page: Page, text: str) -> Locator:
    return page.locator(".tool-origins > li").filter(has_text=text)


def test_people_say_in_words_what_a_tool_does(page_as: PageAs, office: ApproverScene) -> None:
    page = page_as("human", "rules")
    tool = item(page, "files/write_file")
    expect(tool.locator(".tag")).to_have_text("not set")
    tool.get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Its results", exact=True).select_option("trusted")
    dialog.get_by_label("A call", exact=True).select_option("reads")
    dialog.get_by_label("Its results are private").uncheck()
    dialog.get_by_label("A call reaches the outside").uncheck()
    assert in_both(page, issues) == []
    dialog_button(page, "Save").click()
    expect(tool.locator(".tag")).to_have_count(0)
    before = tool.inner_text()
    assert in_both(page, issues, too_wide) == []
    # What was said can be taken back.
    tool.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("Remove what was said").check()
    dialog_button(page, "Save").click()
    expect(tool.locator(".tag")).to_have_text("not set")
    assert tool.inner_text() != before


def test_who_may_not_accept_rules_changes_nothing_here(page_as: PageAs, office: ApproverScene) -> None:
    page = page_as("guest", "rules")
    expect(item(page, "files/write_file").get_by_role("button", name="Change")).to_be_disabled()


def test_what_is_endorsed_at_a_proposal_is_listed_with_the_rules_and_revoked_there(
    page_as: PageAs, office: ApproverScene
) -> None:
    office.mood = ""
    propose(office.agent, "write_file", path="account-77193.txt", content="x")
    page = page_as("human", "approvals")
    # The approver's own words, whatever they are.
    expect(detail(page).locator(".origin-why").first).to_contain_text("account-77193.txt")
    detail(page).get_by_role("button", name="Endorse path").click()
    dialog_button(page, "Endorse").click()
    expect(detail(page).locator(".arguments")).to_contain_text("you endorsed this")
    rules = page_as("human", "rules")
    endorsed = item(rules, "account-77193.txt")
    expect(endorsed).to_contain_text("human")
    endorsed.get_by_role("button", name="Revoke").click()
    expect(endorsed).to_have_count(0)
    expect(detail(page).locator(".origin-why").first).to_contain_text("account-77193.txt")
