"""What the tests of the approvals view share: proposing, finding rows, and deciding as a person does."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page, expect

from moot.participant import Proposal
from moot.protocol.operation import Json
from tests.console.gateway_and_members import Driven

# The rule itself: a second press counts no sooner than 400 ms after the first.
SETTLED = 450


def propose(agent: Driven, tool: str, *, to: str = "files", **arguments: Json) -> Proposal:
    """A proposal that stays open until somebody decides, whoever says no."""
    return agent.run(
        lambda space: space.propose(
            to, "tools/call", {"name": tool, "arguments": arguments}, wait_for_others=True
        )
    )


def outcome(agent: Driven, proposal: Proposal) -> Any:
    """What a proposal came to, as its proposer hears it."""
    return agent.run(lambda space: proposal.outcome())


def row(page: Page, words: str) -> Locator:
    return page.locator(".approvals-row").filter(has_text=words)


def waiting(page: Page) -> Locator:
    return page.get_by_role("list", name="Pending proposals").locator(".approvals-row")


def for_others(page: Page) -> Locator:
    """Own proposals, and those that this person has rejected."""
    return page.get_by_role("list", name="Waiting for others").locator(".approvals-row")


def detail(page: Page) -> Locator:
    return page.locator(".approvals-detail")


def shown(page: Page, words: str) -> None:
    """Wait until this is the proposal that is shown, and for the moment in which nothing counts."""
    expect(detail(page).locator(".proposal-head")).to_contain_text(words)
    page.wait_for_timeout(SETTLED)


def approve(page: Page) -> None:
    """Both presses, with the mouse."""
    detail(page).get_by_role("button", name="Approve once").click()
    page.wait_for_timeout(SETTLED)
    detail(page).get_by_role("button", name="Yes, approve").click()


def dialog_button(page: Page, words: str) -> Locator:
    return page.locator("dialog").get_by_role("button", name=words)
