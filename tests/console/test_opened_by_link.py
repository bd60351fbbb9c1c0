"""A proposal stays the same, whichever way it comes onto a page: by its link, a reload, the history, live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.approvals_page import approve, detail, outcome, propose, row, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.in_node import in_node

HISTORY = "**/participants/*/messages*"
BY_LINK = "**/spaces/*/proposals/*"


class HeldRoute:
    """Keeps requests of a page back until they are let through."""

    def __init__(self, page: Page, pattern: str) -> None:
        self.waiting: list[Route] = []
        self._holds = True
        page.route(pattern, self._take)

    def _take(self, route: Route) -> None:
        if self._holds:
            self.waiting.append(route)
        else:
            route.continue_()

    def release(self) -> None:
        self._holds = False
        for each in self.waiting:
            each.continue_()


def by_link(page: Page, agent: str) -> None:
    """The link is answered first, as on most lines, and then comes the history with the same proposal."""
    held = HeldRoute(page, HISTORY)
    page.reload()
    expect(detail(page).get_by_role("heading", level=2)).to_contain_text(agent)
    held.release()
    expect(page.locator(".top .pill")).to_have_text("Live")


def by_history(page: Page, agent: str) -> None:
    held = HeldRoute(page, BY_LINK)
    page.reload()
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(detail(page).get_by_role("heading", level=2)).to_contain_text(agent)
    held.release()


def by_sync(page: Page, agent: str) -> None:
    page.route(BY_LINK, lambda route: route.abort())
    page.route(HISTORY, lambda route: route.fulfill(json={"messages": []}))
    page.reload()
    expect(detail(page).get_by_role("heading", level=2)).to_contain_text(agent)
    page.unroute(BY_LINK)
    page.unroute(HISTORY)


WAYS: list[Any] = [by_link, by_history, by_sync]


@pytest.mark.parametrize("come", WAYS)
def test_what_i_approve_shows_its_result(
    page_as: PageAs, member: MemberAs, come: Callable[[Page, str], None]
) -> None:
    member("files")
    agent = member("agent")
    proposal = propose(agent, "add", a=20, b=22)
    page = page_as("human", "approvals", proposal.id, alone=True)
    come(page, "agent")
    shown(page, "add")
    approve(page)
    assert outcome(agent, proposal).result["structuredContent"] == {"result": 42}
    expect(detail(page).locator(".settled-text")).to_contain_text("You approved it")
    expect(detail(page).locator(".history-result")).to_contain_text("42")
    expect(detail(page).get_by_role("button", name="Approve once")).to_have_count(0)
    expect(row(page, "add")).to_have_count(1)


@pytest.mark.parametrize("come", WAYS)
def test_what_others_approve_can_no_longer_be_approved_here(
    page_as: PageAs, member: MemberAs, come: Callable[[Page, str], None]
) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    proposal = propose(agent, "add", a=20, b=22)
    page = page_as("human", "approvals", proposal.id, alone=True)
    come(page, "agent")
    shown(page, "add")
    second.sees(lambda space: space.proposals.get(proposal.id))
    second.run(lambda space: space.approve(proposal.id))
    expect(detail(page).locator(".settled-text")).to_contain_text("second approved it")
    expect(detail(page).locator(".history-result")).to_contain_text("42")
    expect(detail(page).get_by_role("button", name="Approve once")).to_have_count(0)


def test_a_rejection_that_the_history_repeats_is_one_rejection_with_its_reason(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    proposal = propose(agent, "add", a=1)
    second.sees(lambda space: space.proposals.get(proposal.id))
    second.run(lambda space: space.reject(proposal.id, "too_expensive"))
    page = page_as("human", "approvals", proposal.id, alone=True)
    expect(detail(page).locator(".history-step[data-tone=no]")).to_have_count(1)
    by_link(page, "agent")
    expect(detail(page).locator(".history-step[data-tone=no]")).to_have_count(1)
    expect(detail(page).locator(".history-step[data-tone=no]")).to_contain_text("too_expensive")


def test_another_proposal_under_the_same_id_is_not_what_was_shown() -> None:
    """D-94: a sender that was restarted may use an id again; the same text again is the same proposal."""
    found = in_node(
        """async (bring) => {
        const { Proposals } = await bring("core/state/state-proposals.js");
        const text = (tool) => JSON.stringify({id: "p", from: "agent", to: ["files"],
            kind: "mcp/proposal", payload: {method: "tools/call", params: {name: tool}}});
        const row = (raw) => ({id: "p", from: "agent", to: ["files"], about: [], at: 1, raw});
        const proposals = new Proposals();
        const receive = (raw) => { proposals.receive(JSON.parse(raw), row(raw)); return proposals.get("p"); };
        const first = receive(text("add"));
        const again = receive(text("add"));
        const other = receive(text("remove"));
        return [first === again, first === other, other.call.name, proposals.open().length];
        }"""
    )
    assert found == [True, False, "remove", 1]
