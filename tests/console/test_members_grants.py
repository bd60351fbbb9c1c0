"""Grants in the console: where a right comes from, what falls with it, giving and taking back."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven, Loop, Running
from tests.console.test_members import detail, press

REQUEST: dict[str, Json] = {"kind": "mcp/request"}
GRANT: dict[str, Json] = {"kind": "capability/grant"}
READ: dict[str, Json] = {
    "kind": "mcp/request",
    "payload": {"method": "tools/call", "params": {"name": "read_*"}},
}


def rights_of(space: JoinedSpace) -> list[Json]:
    return [each.original for each in space.rights.capabilities]


@pytest.mark.requirement("MEW-3.6.8-3")
def test_a_chain_is_shown_to_its_root_and_what_falls_is_shown_before_it_is_revoked(
    page_as: PageAs, member: MemberAs
) -> None:
    """D-18: human gave agent, agent gave watcher; one key revokes, and what rests on it falls."""
    page = page_as("human", "members", "watcher")
    human, agent, watcher = member("human"), member("agent"), member("watcher")
    human.run(lambda space: space.admin.grant("agent", [REQUEST, GRANT], reason="lead this"))
    agent.run(lambda space: space.admin.grant("watcher", [READ]))
    granted = detail(page).locator(".grant")
    expect(granted).to_have_count(1)
    expect(granted.locator(".chain li")).to_have_text(
        [
            "human has full rights",
            "agent was granted: call anything, grant permissions",
            "watcher was granted: call read_*",
        ]
    )
    watcher.sees(lambda space: READ in rights_of(space))

    page.get_by_role("link", name="agent proposes").or_(page.get_by_role("link", name="agent calls")).click()
    expect(detail(page)).to_contain_text("“lead this”")
    page.keyboard.press("r")
    dialog = page.get_by_role("dialog", name="Revoke this grant?")
    expect(dialog.locator(".cascade")).to_contain_text("watcher from agent: call read_*")
    dialog.get_by_label("Reason (optional)").fill("done with it")
    dialog.get_by_label("Reason (optional)").press("Enter")
    expect(detail(page).locator(".grant")).to_have_count(0)
    expect(detail(page)).to_contain_text("Earlier grants (2)")
    page.get_by_role("link", name="watcher").click()
    expect(detail(page).locator(".grant")).to_have_count(0)
    detail(page).get_by_text("Earlier grants (1)").click()
    expect(detail(page)).to_contain_text("ended with the grant it depended on")
    watcher.sees(lambda space: READ not in rights_of(space))


def test_a_right_is_given_by_hand_and_one_that_is_not_held_is_refused_in_the_dialog(
    page_as: PageAs, member: MemberAs
) -> None:
    """D-16: nobody hands on what they do not hold; warned before, refused plainly after."""
    human, agent, watcher = member("human"), member("agent"), member("watcher")
    human.run(lambda space: space.admin.grant("agent", [GRANT, {"kind": "capability/revoke"}]))
    page = page_as("agent", "members", "watcher")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="Add permissions for watcher")
    dialog.get_by_label("Additional permissions (optional)").fill("mcp/*")
    expect(dialog).to_contain_text("you do not have this: likely refused")
    press(page, "Grant")
    expect(dialog.get_by_role("alert").filter(has_text="Refused")).to_contain_text(
        "you cannot hand on a capability that you do not hold yourself"
    )
    dialog.get_by_label("Additional permissions (optional)").fill("mcp/proposal")
    press(page, "Grant")
    expect(detail(page).locator(".grant")).to_contain_text("by agent")
    watcher.sees(lambda space: {"kind": "mcp/proposal"} in rights_of(space))
    detail(page).get_by_role("button", name="Revoke… propose").click()
    press(page, "Revoke")
    expect(detail(page).locator(".grant")).to_have_count(0)
    watcher.sees(lambda space: {"kind": "mcp/proposal"} not in rights_of(space))
    assert agent.run(rights_of)


def test_rights_of_the_configuration_stay_and_the_revoker_is_told(page_as: PageAs, member: MemberAs) -> None:
    """D-18: a leftover that nobody mentions would be taken for safety."""
    watcher = member("watcher")
    page = page_as("human", "members", "watcher")
    detail(page).get_by_role("button", name="Remove: chat").click()
    press(page, "Remove")
    expect(page.locator(".notice.bad")).to_contain_text("Remaining: chat")
    assert watcher.run(rights_of) == [{"kind": "chat"}]


def test_rights_that_an_invitation_lent_can_be_taken_back(
    page_as: PageAs, member: MemberAs, gateway: Running, loop: Loop
) -> None:
    """Nobody hears of them as a grant (D-23), but a pattern reaches them."""
    made = member("human").run(lambda space: space.admin.invite("lisa", [{"kind": "chat"}, READ]))
    lisa = Driven(loop, "lisa")
    lisa.enter(gateway.url, "lab", str(made.token))
    page = page_as("second", "members", "lisa")
    detail(page).get_by_role("button", name="Remove: call read_*").click()
    press(page, "Remove")
    expect(page.locator(".notice")).to_contain_text("keeps the permissions from the configuration")
    lisa.sees(lambda space: rights_of(space) == [{"kind": "chat"}])
    lisa.leave()
