"""Approving with changes (decision 0208): the page edits, shows what differs, and runs exactly that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from moot.protocol.changes import change_lines
from tests.console.approvals_page import SETTLED, detail, dialog_button, outcome, propose, row, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.console.test_accessibility import issues
from tests.gateway.running_gateway import participants


def _change(page: Page, name: str, value: str) -> None:
    """Edit one argument of the proposal that is shown."""
    page.keyboard.press("e")
    dialog = page.get_by_role("dialog", name="Approve with changes")
    expect(dialog.locator(".changes-made")).to_contain_text("Nothing yet")
    dialog.locator(".form-object").get_by_label(name).first.fill(value)
    expect(dialog.locator(".changes-made")).not_to_contain_text("Nothing yet")
    page.wait_for_timeout(SETTLED)


def test_a_changed_call_runs_in_place_of_the_proposed_one_and_its_agent_is_told(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    page = page_as("human", "approvals")
    expect(page.locator(".approvals-none")).to_be_visible()
    proposal = propose(agent, "add", a=1, b=10)
    shown(page, "add")
    _change(page, "a", "5")
    dialog = page.get_by_role("dialog", name="Approve with changes")
    assert issues(page) == []
    expect(dialog.locator("del")).to_contain_text("1")
    expect(dialog.locator("ins")).to_contain_text("5")
    expect(dialog).to_contain_text("agent is told that it was approved with changes")
    dialog_button(page, "Approve with changes").click()
    expect(detail(page).get_by_role("region", name="History")).to_contain_text("approved it with changes")
    expect(detail(page).locator(".history-steps .changes")).to_contain_text("5")
    told = outcome(agent, proposal)
    assert told.text == "15"
    assert change_lines(told.changes) == ["arguments.a: 1 → 5"]


class TestWithVotes:
    """A changed call needs as many votes as the original."""

    @pytest.fixture
    def gateway(self, tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
        lab = spaces()
        lab["lab"] |= {"quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 2}]}
        lab["lab"]["participants"] |= participants(second=["*"])
        running = Running(tmp_path, loop, lab, port=origin_port)
        yield running
        running.stop()

    def test_a_change_is_proposed_with_its_authors_vote_and_the_next_one_runs_it(
        self, page_as: PageAs, member: MemberAs
    ) -> None:
        member("files")
        agent = member("agent")
        proposal = propose(agent, "add", a=1, b=10)
        page, other = page_as("human", "approvals"), page_as("second", "approvals")
        shown(page, "add")
        _change(page, "a", "5")
        dialog_button(page, "Vote for it with changes").click()
        expect(detail(page)).to_contain_text("Your changed version is proposed: 1 of 2 votes")
        changed = row(other, "human")
        expect(changed).to_contain_text("1 of 2 votes")
        changed.locator(".approvals-row-open").click()
        expect(detail(other)).to_contain_text("A changed version of")
        expect(detail(other).locator(".proposal-versions ins")).to_contain_text("5")
        detail(other).get_by_role("button", name="Vote", exact=True).click()
        other.wait_for_timeout(SETTLED)
        detail(other).get_by_role("button", name="Yes, vote").click()
        told = outcome(agent, proposal)
        assert told.text == "15"
        assert change_lines(told.changes) == ["arguments.a: 1 → 5"]
