"""Nothing is approved by accident, whatever is proposed and whichever key is pressed."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from moot.participant import IncomingRequest, JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.console.approvals_page import (
    SETTLED,
    approve,
    detail,
    outcome,
    propose,
    row,
    shown,
    waiting,
)
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven
from tests.console.page_time import hold_long_timers, press_at_once
from tests.console.test_accessibility import in_both, issues

HOSTILE = "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'>"
TURNED = "invoice\u202egpj.exe\u200b\x07"


def decided(watcher: Driven) -> list[Envelope]:
    """Every request that fulfils something."""
    found: list[Envelope] = []

    def listen(space: JoinedSpace) -> None:
        @space.on("mcp/request")
        def remember(envelope: Envelope) -> None:
            if envelope.correlation_id:
                found.append(envelope)

    watcher.run(listen)
    return found


def armed(page: Page) -> None:
    expect(detail(page).locator(".armed")).to_be_visible()


def test_one_press_only_asks_and_escape_takes_it_back(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    requests = decided(watcher)
    propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("a")
    armed(page)
    expect(detail(page).locator(".armed")).to_contain_text("Run add on files once, exactly as shown?")
    page.keyboard.press("Escape")
    expect(detail(page).locator(".armed")).to_have_count(0)
    # Moving on takes it back, too.
    propose(agent, "add", a=2)
    expect(waiting(page)).to_have_count(2)
    page.keyboard.press("a")
    armed(page)
    page.keyboard.press("j")
    expect(detail(page).locator(".armed")).to_have_count(0)
    page.wait_for_timeout(SETTLED)
    assert requests == []
    expect(waiting(page)).to_have_count(2)


def test_a_second_press_too_soon_or_by_a_held_key_does_not_count(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    requests = decided(watcher)
    propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    hold_long_timers(page)
    press_at_once(page, "a", "a")
    armed(page)
    page.keyboard.press("Escape")
    # A key that is held down is pressed again and again by the keyboard itself.
    page.keyboard.down("a")
    page.wait_for_timeout(SETTLED)
    for _ in range(2):
        page.keyboard.down("a")
    page.keyboard.up("a")
    armed(page)
    page.keyboard.press("Escape")
    detail(page).get_by_role("button", name="Approve once").focus()
    page.keyboard.down("Enter")
    page.wait_for_timeout(SETTLED)
    for _ in range(2):
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    armed(page)
    page.keyboard.press("Escape")
    # A double click, the second on what the first has put in its place.
    page.evaluate(
        """() => {
            for (let count = 0; count < 2; count += 1)
                document.querySelector(".approvals-actions button.good").click();
        }"""
    )
    armed(page)
    page.wait_for_timeout(SETTLED)
    assert requests == []
    expect(waiting(page)).to_have_count(1)


def test_keys_pressed_while_a_proposal_comes_up_do_nothing(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    requests = decided(watcher)
    page = page_as("human", "approvals")
    expect(detail(page)).to_contain_text("No pending proposals")
    # Pressed in the very frame in which it is drawn.
    page.evaluate(
        """() => new MutationObserver((_, watching) => {
             if (!document.querySelector(".proposal")) return;
             watching.disconnect();
             for (const key of ["a", "r", "A", "v"])
               document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
             document.querySelector(".approvals-actions .good").click();
             document.documentElement.dataset.pressed = "all";
           }).observe(document.body, { childList: true, subtree: true })"""
    )
    propose(agent, "add", a=1)
    expect(page.locator("html")).to_have_attribute("data-pressed", "all")
    expect(page.locator("dialog")).to_have_count(0)
    expect(detail(page).locator(".armed")).to_have_count(0)
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("a")
    armed(page)
    assert requests == []


def test_a_new_proposal_never_takes_the_place_of_the_one_that_is_read(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("a")
    armed(page)
    proposals = [propose(agent, "write_file", path=f"{number}", content="x") for number in range(5)]
    expect(waiting(page)).to_have_count(6)
    expect(detail(page).get_by_role("heading", level=2)).to_have_text("agent wants to call add")
    armed(page)
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("a")
    expect(row(page, "add")).to_contain_text("Approved")
    expect(waiting(page)).to_have_count(5)
    assert {each.seen.status for each in proposals} == {"pending"}


def test_the_whole_inbox_is_worked_with_the_keyboard_alone(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    first, second, third = (propose(agent, "add", a=number) for number in (10, 20, 30))
    page = page_as("human", "approvals")
    shown(page, "add")
    press = page.keyboard.press
    press("j")
    expect(waiting(page).nth(1).locator(".approvals-row-open")).to_be_focused()
    press("a")
    page.wait_for_timeout(SETTLED)
    press("a")
    assert outcome(agent, second).text == "21"
    expect(waiting(page)).to_have_count(2)
    # What took its place is shown by itself.
    expect(waiting(page).nth(1)).to_contain_class("selected")
    press("k")
    press("Space")
    press("j")
    press("x")
    expect(page.get_by_role("group", name="Selected proposals")).to_contain_text("2 selected")
    press("a")
    page.wait_for_timeout(SETTLED)
    press("Tab")
    page.locator("dialog").get_by_role("button", name="Approve 2 calls").focus()
    press("Enter")
    assert (outcome(agent, first).text, outcome(agent, third).text) == ("11", "31")
    press("?")
    expect(page.locator("dialog")).to_contain_text("Yes: approve (press twice)")
    press("Escape")
    press_at_once(page, "g", "t")
    expect(page.get_by_role("heading", level=1)).to_have_text("Timeline")


def test_the_first_key_after_a_dialog_acts_and_none_below_one_does(page_as: PageAs, member: MemberAs) -> None:
    """In the very turn in which it closes: what had the focus in it must not swallow the key."""
    member("files")
    agent, watcher = member("agent"), member("watcher")
    requests = decided(watcher)
    propose(agent, "add", a=1)
    propose(agent, "write_file", path="notes.txt", content="x")
    page = page_as("human", "approvals")
    expect(waiting(page)).to_have_count(2)
    shown(page, "add")
    page.keyboard.press("Shift+A")
    dialog = page.locator("dialog")
    dialog.get_by_label("Custom pattern").check()
    dialog.locator(".capability-text").focus()
    # Wherever the focus is: the page below does not hear it.
    page.evaluate(
        """() => {
            for (const key of ["j", "a", "r"])
                document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        }"""
    )
    expect(dialog).to_have_count(1)
    expect(detail(page).get_by_role("heading", level=2)).to_contain_text("add")
    expect(detail(page).locator(".armed")).to_have_count(0)
    page.evaluate(
        """() => {
            document.querySelector("dialog .dialog-head button").click();
            const key = new KeyboardEvent("keydown", { key: "j", bubbles: true });
            document.activeElement.dispatchEvent(key);
        }"""
    )
    expect(dialog).to_have_count(0)
    expect(detail(page).locator(".proposal-head")).to_contain_text("write_file")
    # By Escape, as the browser closes it; and one press after it is not yet a yes.
    page.keyboard.press("Shift+A")
    dialog.get_by_text("Capability as JSON", exact=True).click()
    dialog.locator(".capability-text").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    expect(detail(page).get_by_role("heading", level=2)).to_contain_text("add")
    page.keyboard.press("Shift+A")
    dialog.get_by_text("Capability as JSON", exact=True).click()
    dialog.locator(".capability-text").focus()
    page.keyboard.press("Escape")
    press_at_once(page, "a", "a")
    armed(page)
    assert requests == []


def test_hostile_proposals_are_harmless_and_every_hidden_character_is_seen(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    odd: dict[str, Json] = {HOSTILE[:60]: [HOSTILE, TURNED]}
    proposal = propose(agent, "write_file", **odd, path=TURNED, content=HOSTILE)
    strange: dict[str, Json] = {"name": {"x": HOSTILE}, "arguments": HOSTILE}
    agent.run(lambda space: space.propose("files", HOSTILE, strange, wait_for_others=True))
    propose(agent, "\u202e" + HOSTILE)
    page = page_as("human", "approvals")
    shown(page, "write_file")
    path = (
        detail(page).locator(".arguments > div").filter(has=page.locator("dt", has_text=re.compile("^path$")))
    )
    expect(path.locator("dd")).to_have_text("invoice⟨U+202E⟩gpj.exe⟨U+200B⟩⟨U+0007⟩")
    expect(detail(page).locator(".arguments").first).to_contain_text(HOSTILE)
    expect(detail(page).locator(".caution").first).to_contain_text("Contains invisible characters")
    expect(row(page, "write_file").locator(".approvals-row-why")).to_contain_text(
        "Contains invisible characters"
    )
    page.keyboard.press("Shift+A")
    page.locator("dialog").get_by_label("Custom pattern").check()
    expect(page.locator("dialog .capability-text")).to_have_value(re.compile(r"\\u202e"))
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    for words in ("agent wants to call <script>", "⟨U+202E⟩<script>"):
        page.keyboard.press("j")
        expect(detail(page).get_by_role("heading", level=2)).to_contain_text(words)
    assert page.evaluate("[window.owned, document.querySelectorAll('img, script:not([src])').length]") == [
        None,
        0,
    ]
    page.keyboard.press("k")
    page.keyboard.press("k")
    shown(page, "write_file")
    approve(page)
    assert outcome(agent, proposal).is_error  # an argument that the tool does not know
    assert page.evaluate("window.owned") is None


def test_a_megabyte_of_argument_is_cut_said_so_and_approved_whole(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    # Nearly all that an envelope of 1 MiB takes, escapes counted.
    proposal = propose(agent, "write_file", path="big.txt", content="0123456789abcde\n" * 60_000)
    page = page_as("human", "approvals")
    shown(page, "write_file")
    expect(detail(page)).to_contain_text("960,000 bytes")
    assert page.locator(".diff-line").count() == 300
    detail(page).get_by_role("button", name="Approve once").click()
    expect(detail(page).locator(".armed")).to_contain_text("Part of it is still hidden.")
    page.wait_for_timeout(SETTLED)
    detail(page).get_by_role("button", name="Yes, approve").click()
    assert outcome(agent, proposal).text == "960000 characters written to big.txt"


def test_axe_finds_nothing_serious_at_the_desk(page_as: PageAs, member: MemberAs) -> None:
    """Each dialog and the confirmation, too; the rest of the console is in test_accessibility.py."""
    member("files")
    agent = member("agent")
    propose(agent, "write_file", path="notes.txt", content="first line\n2nd\n")
    page = page_as("human", "approvals")
    waiting(page).first.locator(".approvals-row-open").click()
    page.wait_for_timeout(SETTLED)
    for key in ("a", "r", "Shift+A"):
        page.keyboard.press(key)
        assert (in_both(page, issues) if key == "a" else issues(page)) == []
        page.keyboard.press("Escape")


def test_who_sees_two_alike_proposals_is_told(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    first = propose(agent, "write_file", path="notes.txt", content="new\n")
    page = page_as("human", "approvals")
    expect(detail(page)).to_contain_text("notes.txt")
    expect(detail(page)).not_to_contain_text("already pending")
    second = propose(agent, "write_file", content="new\n", path="notes.txt")
    page.evaluate(
        "id => { location.hash = location.hash.replace(/approvals.*/, `approvals/${id}`); }", second.id
    )
    said = detail(page).locator(".caution", has_text="The same call is already pending, proposed by agent")
    expect(said.get_by_role("link")).to_have_attribute("href", f"#/lab/approvals/{first.id}")


def test_input_that_an_approved_call_asked_for_is_shown_and_it_is_not_done_before(
    page_as: PageAs, member: MemberAs
) -> None:
    """One approval covers the whole call; what was answered is in its history."""
    files, agent = member("files"), member("agent")
    asks = {"resultType": "input_required", "inputRequests": {"k": {"method": "elicitation/create"}}}

    def ask_first(space: JoinedSpace) -> None:
        async def answer(request: IncomingRequest) -> dict[str, Json]:
            if "inputResponses" in request.params:
                return {"content": [{"type": "text", "text": "deployed"}]}
            return asks | {"requestState": "s1"}

        space.server.use_handler(answer)

    files.run(ask_first)
    proposal = propose(agent, "deploy")
    page = page_as("human", "approvals")
    expect(detail(page).get_by_role("button", name="Approve once")).to_be_visible()
    # What has just appeared takes no press.
    page.wait_for_timeout(SETTLED)
    approve(page)
    expect(detail(page)).to_contain_text("files asks agent for input")
    assert outcome(agent, proposal).input_required
    given = {"inputResponses": {"k": {"action": "accept"}}, "requestState": "s1"}
    params = {"name": "deploy", "arguments": {}} | given
    done = agent.run(lambda space: space.give_input(proposal.id, params))
    assert done.text == "deployed"
    expect(detail(page)).to_contain_text('agent answered: {"k":{"action":"accept"}}')
    expect(detail(page)).to_contain_text("deployed")
