"""One press beside Approve: exactly this call from now on, told in words before it is sent."""

from __future__ import annotations

from playwright.sync_api import expect

from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.console.approvals_page import SETTLED, detail
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import gathered
from tests.console.test_proposal_origins import report, scene, tell

OFFER: Json = {"until": "90d", "text": "at most 5 times in 30 days, not twice within 10 minutes; for 90 days"}


def accepts(space: JoinedSpace, into: list[Envelope]) -> None:
    @space.on("trust/accept")
    def remember(envelope: Envelope) -> None:
        into.append(envelope)


def test_again_is_offered_only_where_an_approver_offers_it_and_sends_what_was_shown(
    page_as: PageAs, member: MemberAs
) -> None:
    second, proposal = scene(member)
    heard: list[Envelope] = []
    second.run(lambda space: accepts(space, heard))
    page = page_as("human", "approvals")
    button = detail(page).get_by_role("button", name="Approve, and again")
    expect(detail(page).locator(".arguments")).to_contain_text("UK12-9021")
    assert button.count() == 0
    tell(second, proposal, report(again=OFFER))
    expect(button).to_be_visible()
    page.wait_for_timeout(SETTLED)
    button.click()
    expect(detail(page).locator(".armed")).to_contain_text("at most 5 times in 30 days")
    page.wait_for_timeout(SETTLED)
    detail(page).get_by_role("button", name="Yes, and again").click()
    assert gathered(heard, 1)[0].payload == {"again": proposal.id, "until": "90d"}


def test_an_argument_of_several_words_can_be_said_not_to_matter(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    heard: list[Envelope] = []
    second.run(lambda space: accepts(space, heard))
    arguments: Json = {"to": "UK12-9021", "memo": "The invoice of May"}
    proposal = agent.run(
        lambda space: space.propose(
            "files", "tools/call", {"name": "send_money", "arguments": arguments}, wait_for_others=True
        )
    )
    page = page_as("human", "approvals")
    tell(second, proposal, {"asks": False, "again": OFFER})
    buttons = detail(page).get_by_role("button", name="does not matter…")
    expect(buttons).to_have_count(1)
    buttons.click()
    expect(page.get_by_role("dialog")).to_contain_text("any plain text, up to 4,000 characters")
    page.get_by_role("dialog").get_by_role("button", name="It does not matter").click()
    assert gathered(heard, 1)[0].payload == {"ignore": {"files/send_money": ["memo"]}}
