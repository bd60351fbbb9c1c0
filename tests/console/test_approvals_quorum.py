"""Where a space requires several votes (D-103): the page shows the gateway's count; approving is voting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import expect

from moot.errors import VoteCounted
from moot.participant import JoinedSpace
from tests.console.approvals_page import SETTLED, approve, detail, outcome, propose, row, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.gateway.running_gateway import participants
from tests.waiting import until


@pytest.fixture
def rules() -> dict[str, bool]:
    return {}


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int, rules: dict[str, bool]) -> Iterator[Running]:
    """The same space, where calls of tools need two votes."""
    lab = spaces()
    lab["lab"] |= {"quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 2}], **rules}
    lab["lab"]["participants"] |= participants(second=["*"], third=["*"])
    running = Running(tmp_path, loop, lab, port=origin_port)
    yield running
    running.stop()


def test_an_open_page_shows_the_gateways_count_and_the_last_vote_runs_it(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent, second, third = member("agent"), member("second"), member("third")
    page = page_as("human", "approvals")
    expect(page.locator(".approvals-none")).to_be_visible()
    proposal = propose(agent, "add", a=1)
    shown(page, "add")
    history = detail(page).get_by_role("region", name="History")
    expect(history).to_contain_text("0 of 2 votes, 2 more needed")
    expect(detail(page).get_by_role("button", name="Vote")).to_be_visible()
    third.run(lambda space: space.vote(proposal.id))
    expect(row(page, "add")).to_contain_text("1 of 2 votes, 1 more needed")
    # Whoever is removed does not count any more.
    second.run(lambda space: space.admin.kick("third"))
    expect(row(page, "add")).to_contain_text("0 of 2 votes, 2 more needed")
    expect(history).not_to_contain_text("voted for it")
    expect(detail(page)).to_contain_text("Needs 2 approvals, 0 so far: vote")
    detail(page).get_by_role("button", name="Vote").click()
    page.wait_for_timeout(SETTLED)
    detail(page).get_by_role("button", name="Yes, vote").click()
    expect(history).to_contain_text("1 of 2 votes, 1 more needed")
    expect(detail(page)).to_contain_text("You voted")
    expect(detail(page).get_by_role("button", name="Vote")).to_have_count(0)
    second.run(lambda space: space.approve(proposal.id))
    expect(history).to_contain_text("second approved it")
    assert outcome(agent, proposal).text == "2"


@pytest.mark.parametrize("rules", [{"last_vote_carries_out": False}])
def test_a_complete_vote_says_that_somebody_approves_now(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    proposal = propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("v")
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("v")
    expect(row(page, "add")).to_contain_text("1 of 2 votes, 1 more needed")
    second.run(lambda space: space.vote(proposal.id))
    expect(row(page, "add")).to_contain_text("complete, approve it now")
    page.wait_for_timeout(SETTLED)
    approve(page)
    assert outcome(agent, proposal).text == "2"


def test_a_call_of_somebody_who_may_make_it_is_proposed(page_as: PageAs, member: MemberAs) -> None:
    """D-103: a right does not lift a quorum."""
    member("files")
    second, third = member("second"), member("third")
    page = page_as("human", "call", "files", "add")
    page.locator(".call-form").get_by_label("a").first.fill("1")
    page.get_by_role("button", name="Send request").click()
    made = page.locator(".made")
    expect(made.locator(".tag")).to_have_text("pending")
    expect(made).to_have_count(1)

    async def approve_it(space: JoinedSpace) -> None:
        await until(lambda: bool(space.proposals.open()))
        with suppress(VoteCounted):
            await space.approve(space.proposals.open()[0])

    second.run(approve_it)
    third.run(approve_it)
    expect(made).to_contain_text("2")
    expect(made.locator(".tag").first).to_have_text("done")
