"""On top of many: twenty alike in two presses, one member stopped in two, a red one only when held."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.approvals_page import (
    SETTLED,
    approve,
    detail,
    dialog_button,
    for_others,
    outcome,
    propose,
    row,
    shown,
    waiting,
)
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven, Loop, Running
from tests.console.test_accessibility import in_both, issues

# The rule itself: how long a red approval is held.
HELD_MILLISECONDS = 800


def test_twenty_alike_are_one_table_and_take_two_presses(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    proposals = [
        propose(agent, "transfer", amount=number + 0.25, currency="EUR", note="invoice")
        for number in range(20)
    ]
    propose(agent, "add", a=1)
    page = page_as("human", "approvals", proposals[0].id)
    shown(page, "transfer")
    expect(detail(page)).to_contain_text("19 more transfer calls by agent are pending.")
    page.keyboard.press("l")
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text("agent proposes transfer on files 20 times.")
    expect(dialog.locator(".arguments")).to_have_text("currencyEURnoteinvoice")
    expect(dialog.locator(".differences-sum")).to_have_text("amount, sum of 20: 195.00 EUR")
    expect(dialog.locator("tbody tr")).to_have_count(20)
    expect(dialog.locator("tbody tr").nth(3)).to_contain_text("43.25")
    assert in_both(page, issues) == []
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("Control+Enter")
    expect(waiting(page)).to_have_count(1)
    # What is left is shown by itself.
    expect(detail(page).get_by_role("heading", level=2)).to_have_text("agent wants to call add")


def test_all_of_one_member_are_rejected_and_it_is_paused_in_two_presses(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    for number in range(6):
        propose(agent, "add", a=number)
    propose(second, "add", a=7)
    page = page_as("human", "approvals")
    expect(waiting(page)).to_have_count(7)
    page.get_by_label("Group").select_option("agent")
    groups = page.locator(".approvals-group")
    expect(groups.get_by_role("heading")).to_have_text(["agent", "second"])
    assert in_both(page, issues) == []
    groups.first.get_by_role("button", name="Reject all and pause…").click()
    dialog_button(page, "Reject 6 and pause agent").click()
    expect(for_others(page)).to_have_count(6)
    expect(waiting(page)).to_have_count(1)
    expect(page.locator(".notices-said")).to_contain_text("agent is paused; 6 of 6 rejected")
    page.evaluate("location.hash = '#/lab/members/agent'")
    expect(page.locator(".detail-title")).to_contain_text("paused")


def test_a_red_one_is_approved_only_by_a_press_that_is_held(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    proposal = propose(agent, "write_file", path="../up.txt", content="x")
    page = page_as("human", "approvals")
    expect(row(page, "../up.txt").locator(".approvals-row-why")).to_contain_text("leaves its folder")
    shown(page, "write_file")
    detail(page).get_by_role("button", name="Approve once").click()
    page.wait_for_timeout(SETTLED)
    held = detail(page).get_by_role("button", name="Hold to approve")
    held.click()
    expect(held).to_have_count(0)
    again = detail(page).get_by_role("button", name="Hold, or press once more")
    expect(again).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("h1").click()
    # By key: down for a moment is not enough.
    page.keyboard.press("a")
    page.wait_for_timeout(SETTLED)
    page.keyboard.down("a")
    page.wait_for_timeout(HELD_MILLISECONDS + 200)
    page.keyboard.up("a")
    assert outcome(agent, proposal).text == "1 characters written to ../up.txt"


def test_rows_lead_to_the_member_and_are_found_by_search_and_risk(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    for number in range(5):
        propose(agent, "add", a=number)
    propose(agent, "run_command", command="rm -rf /")
    page = page_as("human", "approvals")
    expect(waiting(page)).to_have_count(6)
    expect(row(page, "rm -rf /")).to_contain_text("left")
    page.keyboard.press("/")
    page.keyboard.type("rm -rf")
    expect(waiting(page)).to_have_count(1)
    expect(page.get_by_role("search")).to_contain_text("1 of 6.")
    page.get_by_role("button", name="Show all").click()
    page.get_by_label("Risk").select_option("bad")
    expect(waiting(page)).to_have_count(1)
    waiting(page).locator(".approvals-row-member").click()
    expect(page.locator(".detail-title")).to_contain_text("agent")
    expect(page.get_by_role("region", name="Proposals")).to_contain_text("6 pending")


def test_people_talk_about_a_proposal_on_its_page_and_say_whom_it_is_for(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    proposal = propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("c")
    page.keyboard.type("what for, @second?")
    page.keyboard.press("Enter")
    talk = detail(page).get_by_role("region", name="Comments")
    expect(talk.get_by_role("listitem")).to_contain_text("what for, @second?")
    (comment,) = agent.sees(lambda space: proposal.comments)
    assert comment.text == "what for, @second?"
    agent.run(lambda space: space.chat("to test <b>", about=comment.id))
    expect(talk.get_by_role("listitem").nth(1)).to_contain_text("to test <b>")
    second.run(lambda space: space.assign(proposal.id, "human"))
    expect(row(page, "add")).to_contain_text("for you")
    expect(row(page, "add")).to_contain_text("2 comments")
    # A tag in the row that is chosen has a ground of its own.
    script = "each => getComputedStyle(each).backgroundColor"
    chosen = row(page, "add")
    grounds = [each.evaluate(script) for each in (chosen, chosen.locator("[data-tone=accent]"))]
    assert len({*grounds}) == 2
    talk.get_by_label("For").select_option("second")
    expect(row(page, "add")).to_contain_text("for second")
    assert in_both(page, issues) == []


def test_after_one_group_of_alike_calls_the_next_is_shown_and_takes_one_press(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    for name in ("agent", "second"):
        proposer = member(name)
        for n in range(3):
            propose(proposer, "add", a=n)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("l")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Next: 3 similar calls by second.")
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("Control+Enter")
    expect(dialog.locator(".differences")).to_contain_text("second proposes")
    expect(dialog).not_to_contain_text("Next:")
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("Control+Enter")
    expect(dialog).to_have_count(0)
    expect(page.locator(".view-head")).to_contain_text("none pending")


def test_what_the_page_hears_late_and_what_it_cannot_know_is_said_as_that(
    page_as: PageAs, member: MemberAs
) -> None:
    """The history comes after what is pending; when members joined before us, nobody tells."""
    member("files")
    agent, second = member("agent"), member("second")
    second.run(lambda space: space.call("files", "read_file", {"path": "notes.txt"}))
    text = "first line\nsecond line\nthird line\n"
    proposal = propose(agent, "write_file", path="notes.txt", content=text)
    page = page_as("human", "approvals")
    shown(page, "write_file")
    expect(detail(page).get_by_role("heading", level=2)).to_have_text(
        "agent wants to replace notes.txt, +1 −0"
    )
    expect(row(page, "notes.txt").locator(".approvals-row-open")).to_contain_text("replace")
    for _ in range(3):
        propose(agent, "write_file", path="notes.txt", content=text)
    alike = detail(page).locator(".caution", has_text="The same call is already pending")
    expect(alike).to_have_count(1)
    expect(alike).to_contain_text("and 2 more. Each one that is approved is carried out.")
    second.run(lambda space: space.reject(proposal.id, "unsafe"))
    page.evaluate("location.hash = '#/lab/members/agent'")
    expect(page.locator(".view-members")).to_contain_text("joined before you")
    page.evaluate("location.hash = '#/lab/decisions/write_file'")
    expect(page.locator(".decisions-table")).to_contain_text("rejected, still open")


def test_a_long_name_leaves_a_line_for_what_is_proposed(
    page_as: PageAs, member: MemberAs, gateway: Running, loop: Loop
) -> None:
    member("files")
    name = f"release-engineer-{'x' * 47}"
    invited = member("second").run(lambda space: space.admin.invite(name, [{"kind": "mcp/proposal"}]))
    engineer = Driven(loop, name)
    engineer.enter(gateway.url, "lab", invited.token or "")
    propose(engineer, "add", a=1)
    page = page_as("human", "approvals")
    what = row(page, "add").locator(".proposal-what").bounding_box()
    line = row(page, "add").locator(".approvals-row-what").bounding_box()
    engineer.leave()
    assert what is not None
    assert line is not None
    assert what["y"] + what["height"] <= line["y"] + line["height"] + 1


# An animation stays at its beginning.
_HELD = """
window.__moved = [];
const animate = Element.prototype.animate;
Element.prototype.animate = function (...given) {
  const made = animate.apply(this, given);
  made.pause();
  window.__moved.push(this.dataset.id);
  return made;
};
"""


def test_the_gap_of_a_decided_row_closes_from_where_the_next_one_was(
    page_as: PageAs, member: MemberAs
) -> None:
    """And not at all where people prefer reduced motion."""
    member("files")
    agent = member("agent")
    proposals = [propose(agent, "add", a=number) for number in range(7)]
    page = page_as("human", "approvals", proposals[1].id, script=_HELD, reduced_motion="no-preference")
    shown(page, "add")
    expect(waiting(page)).to_have_count(7)
    below = page.locator(f'.approvals-row[data-id="{proposals[2].id}"]')
    before = below.bounding_box()
    approve(page)
    expect(waiting(page)).to_have_count(6)
    assert page.evaluate("window.__moved") == [proposals[2].id]
    after = below.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) < 0.5
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_timeout(SETTLED)
    approve(page)
    expect(waiting(page)).to_have_count(5)
    assert page.evaluate("window.__moved") == [proposals[2].id]


def test_after_a_decision_by_keys_the_focus_is_on_the_row_of_what_is_shown(
    page_as: PageAs, member: MemberAs
) -> None:
    """Not on the decided one, which keeps its row among recent decisions."""
    member("files")
    agent = member("agent")
    proposals = [propose(agent, "add", a=number) for number in range(3)]
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("j")
    rows = page.locator(".approvals-row-open")
    expect(rows.nth(1)).to_be_focused()
    for _ in range(2):
        page.wait_for_timeout(SETTLED)
        page.keyboard.press("a")
    expect(waiting(page)).to_have_count(2)
    after = page.locator(f'.approvals-row.selected[data-id="{proposals[2].id}"]')
    expect(after.locator(".approvals-row-open")).to_be_focused()
