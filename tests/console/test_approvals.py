"""The approvals view in a real browser: see, approve, reject, approve and grant, and what is sent."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from moot.errors import NotAllowed
from moot.participant import REJECT_REASONS, JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
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
from tests.console.gateway_and_members import Driven, Running, gathered
from tests.console.page_time import press_at_once
from tests.gateway.disk import no_room_on_disk

BIG = 9007199254740993


def heard(space: JoinedSpace, kind: str, into: list[Envelope], *, about: bool = False) -> None:
    """Keep what is said; `about`: only what is about something before it."""

    @space.on(kind)
    def remember(envelope: Envelope) -> None:
        if envelope.correlation_id or not about:
            into.append(envelope)


def test_an_open_proposal_shows_who_what_where_and_every_argument(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    propose(agent, "write_file", path="notes.txt", content="new\n", mode=BIG)
    page = page_as("human", "approvals")
    expect(page).to_have_title("(1) Inbox · lab · Moot")
    head = detail(page).get_by_role("heading", level=2)
    expect(head).to_contain_text("agent wants to write notes.txt")
    expect(detail(page)).to_contain_text("on files")
    expect(detail(page)).to_contain_text("Write a file: content replaces what was there.")
    call = detail(page).locator(".arguments")
    expect(call).to_contain_text("notes.txt")
    expect(call).to_contain_text(str(BIG))
    expect(detail(page).locator(".caution")).to_contain_text("mode is not an argument of this tool")
    detail(page).get_by_role("tab", name="Exact text").click()
    expect(detail(page).locator(".exact-text")).to_contain_text(f'"mode": {BIG}')
    assert str(BIG - 1) not in detail(page).inner_text()


@pytest.mark.requirement("MEW-3.2.1-1", "MEW-3.2.1-3")
def test_an_approval_repeats_the_proposed_call_to_the_byte(page_as: PageAs, member: MemberAs) -> None:
    """D-28: same method, params and addressee, correlated to the proposal, no digit rounded."""
    files, agent, watcher = member("files"), member("agent"), member("watcher")
    requests: list[Envelope] = []
    watcher.run(lambda space: heard(space, "mcp/request", requests, about=True))
    files.run(
        lambda space: space.tool(lambda number: str(number), name="echo", input_schema={"type": "object"})
    )
    proposal = agent.run(
        lambda space: space.propose(
            "files",
            "tools/call",
            {"name": "echo", "arguments": {"n": BIG, "é": "\u202e"}},
            wait_for_others=True,
        )
    )
    page = page_as("human", "approvals")
    shown(page, "echo")
    approve(page)
    expect(row(page, "echo")).to_contain_text("Approved")
    outcome(agent, proposal)
    (fulfilment,) = gathered(requests, 1)
    assert list(fulfilment.correlation_id) == [proposal.id]
    assert fulfilment.sender == "human"
    assert list(fulfilment.to) == ["files"]
    assert fulfilment.payload["method"] == "tools/call"
    assert fulfilment.payload["params"] == {"name": "echo", "arguments": {"n": BIG, "é": "\u202e"}}
    assert str(BIG).encode() in fulfilment.raw


def test_the_story_goes_from_the_proposal_to_its_result_and_leads_to_the_timeline(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    proposal = propose(agent, "add", a=40, b=2)
    page = page_as("human", "approvals")
    shown(page, "add")
    approve(page)
    story = detail(page).get_by_role("region", name="History")
    expect(story.get_by_role("listitem")).to_have_count(3)
    expect(story.get_by_role("listitem").nth(1)).to_contain_text("human (you) approved it")
    expect(story.locator(".history-result")).to_contain_text("42")
    expect(detail(page).locator(".approvals-actions")).to_contain_text("You approved it")
    story.get_by_role("link").first.click()
    expect(page).to_have_url(page.url.split("#")[0] + f"#/lab/timeline/{proposal.id}")


@pytest.mark.requirement("MEW-3.3.2-9", "MEW-3.3.3-4", "MEW-3.3.3-16")
def test_a_rejection_carries_its_reason_and_words_and_leaves_the_proposal_open(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    said: list[Envelope] = []
    watcher.run(lambda space: heard(space, "mcp/reject", said))
    watcher.run(lambda space: heard(space, "chat", said))
    proposal = propose(agent, "write_file", path="notes.txt", content="x")
    page = page_as("human", "approvals")
    shown(page, "write_file")
    page.keyboard.press("r")
    offered = page.locator("dialog .reasons input").evaluate_all("(all) => all.map((each) => each.value)")
    assert sorted(offered) == sorted(REJECT_REASONS)
    # Five are at hand, in words that people read; the words of this person can be typed at once.
    expect(page.locator("dialog .reasons label:visible")).to_have_count(5)
    expect(page.locator("dialog .reasons")).to_contain_text("No longer needed")
    page.keyboard.type("not on a Sunday")
    page.locator("dialog").get_by_label("unsafe").check()
    page.wait_for_timeout(SETTLED)
    dialog_button(page, "Reject").last.click()
    story = detail(page).get_by_role("region", name="History")
    expect(story).to_contain_text("human (you) rejected it: unsafe")
    expect(story).to_contain_text("not on a Sunday")
    expect(row(page, "write_file")).to_contain_text("Rejected by you")
    expect(detail(page).get_by_role("button", name="Approve once")).to_be_enabled()
    # Nobody is offered what they have done already.
    expect(detail(page).get_by_role("group", name="Decide")).to_contain_text("You rejected it.")
    expect(detail(page).get_by_role("button", name="Reject")).to_have_count(0)
    page.keyboard.press("r")
    page.keyboard.press("a")
    expect(detail(page).get_by_role("button", name="Yes, approve")).to_be_visible()
    expect(page.locator("dialog")).to_have_count(0)
    reject, chat = gathered(said, 2)
    assert (reject.payload, list(reject.correlation_id)) == ({"reason": "unsafe"}, [proposal.id])
    assert chat.payload["text"] == "not on a Sunday"
    assert list(chat.correlation_id) == [reject.id]


@pytest.mark.requirement("MEW-3.3.2-7", "MEW-3.3.3-15")
def test_all_who_said_no_are_listed_whatever_their_reason(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3.3.3: a code that nobody knows is shown as it is."""
    member("files")
    agent, second, human = member("agent"), member("second"), member("human")
    proposal = propose(agent, "add", a=1)
    second.run(lambda space: space.reject(proposal.id, "policy"))
    human.run(lambda space: space.reject(proposal.id, "xyzzy <b>\u202e"))
    page = page_as("human", "approvals")
    row(page, "add").locator(".approvals-row-open").click()
    story = detail(page).get_by_role("region", name="History")
    expect(story).to_contain_text("second rejected it: policy")
    expect(story).to_contain_text("human (you) rejected it: xyzzy <b>⟨U+202E⟩")
    expect(row(page, "add")).to_contain_text("Rejected by 2")


@pytest.mark.requirement("MEW-9.2-1")
def test_approve_and_grant_creates_the_capability_that_was_shown_and_the_agent_then_needs_nobody(
    page_as: PageAs, member: MemberAs
) -> None:
    """MEW 3.6.1, D-16: the width is chosen, shown as JSON and in words, and sent so."""
    member("files")
    agent, watcher = member("agent"), member("watcher")
    grants: list[Envelope] = []
    watcher.run(lambda space: heard(space, "capability/grant", grants))
    again: dict[str, Json] = {"name": "write_file", "arguments": {"path": "notes/b.txt", "content": "four"}}
    with pytest.raises(NotAllowed):
        agent.run(lambda space: space.request("files", "tools/call", again))
    proposal = propose(agent, "write_file", path="notes/a.txt", content="one")
    page = page_as("human", "approvals")
    shown(page, "write_file")
    page.keyboard.press("Shift+A")
    dialog = page.locator("dialog")
    dialog.get_by_label("Custom pattern").check()
    text = dialog.get_by_label("Capability", exact=True)
    assert json.loads(text.input_value()) == {
        "kind": "mcp/request",
        "payload": {
            "method": "tools/call",
            "params": {"name": "write_file", "arguments": {"path": "notes/**"}},
        },
        "to": ["files"],
    }
    expect(dialog).to_contain_text("agent will be able to call write_file with path=notes/** on files until")
    dialog.get_by_label("Until revoked").check()
    text.fill('{"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "add"}}}')
    expect(dialog).to_contain_text("This does not allow the proposed call.")
    expect(dialog_button(page, "Approve and grant")).to_be_disabled()
    text.fill(
        '{"kind": "mcp/request", "to": ["files"], "payload": {"method": "tools/call",'
        ' "params": {"name": "write_file", "arguments": {"path": "notes/*"}}}}'
    )
    page.wait_for_timeout(SETTLED)
    dialog_button(page, "Approve and grant").click()
    assert outcome(agent, proposal).text == "3 characters written to notes/a.txt"
    expect(detail(page).locator(".outcome")).to_contain_text(
        "agent can do this without asking until someone revokes it"
    )
    (grant,) = gathered(grants, 1)
    assert grant.payload["recipient"] == "agent"
    assert not {"expires_in_seconds", "max_uses"} & grant.payload.keys()
    assert grant.payload["capabilities"] == [
        {
            "kind": "mcp/request",
            "to": ["files"],
            "payload": {
                "method": "tools/call",
                "params": {"name": "write_file", "arguments": {"path": "notes/*"}},
            },
        }
    ]
    agent.sees(lambda space: space.may_request("files", "tools/call", again))
    answer = agent.run(lambda space: space.request("files", "tools/call", again))
    assert answer["content"][0]["text"] == "4 characters written to notes/b.txt"
    elsewhere: dict[str, Json] = {
        "name": "write_file",
        "arguments": {"path": "secrets/b.txt", "content": "four"},
    }
    with pytest.raises(NotAllowed):
        agent.run(lambda space: space.request("files", "tools/call", elsewhere))


def test_a_grant_of_this_exact_call_allows_no_further_arguments(page_as: PageAs, member: MemberAs) -> None:
    """D-102: neither more arguments nor others; lists, numbers and signs of patterns stand for themselves."""
    member("files")
    agent = member("agent")
    proposal = propose(agent, "add", a=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("Shift+A")
    dialog = page.locator("dialog")
    dialog.get_by_label("This exact call").check()
    expect(dialog).to_contain_text("call add with exactly a=1 on files")
    page.wait_for_timeout(SETTLED)
    dialog_button(page, "Approve and grant").click()
    outcome(agent, proposal)
    exact: dict[str, Json] = {"name": "add", "arguments": {"a": 1}}
    agent.sees(lambda space: space.may_request("files", "tools/call", exact))
    answer = agent.run(lambda space: space.request("files", "tools/call", exact))
    assert answer["structuredContent"] == {"result": 2}
    for arguments in ({"a": 1, "b": 5}, {"a": 2}, {}):
        with pytest.raises(NotAllowed):
            request(agent, {"name": "add", "arguments": arguments})


def request(agent: Driven, params: dict[str, Json]) -> Json:
    return agent.run(lambda space: space.request("files", "tools/call", params))


def test_widths_that_no_capability_can_state_are_not_offered(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    propose(member("agent"), "add", a="x" * 20_000)
    page = page_as("human", "approvals")
    shown(page, "add")
    press_at_once(page, "g", "g")
    dialog = page.locator("dialog")
    expect(dialog.get_by_label("This exact call")).to_be_disabled()
    expect(dialog).to_contain_text("a capability has at most 16 KiB")
    expect(dialog.get_by_label("This tool")).to_be_checked()


def test_several_are_decided_with_one_question_that_lists_them_all(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    proposals = [propose(agent, "add", a=number) for number in range(4)]
    page = page_as("human", "approvals")
    shown(page, "add")
    for number in range(3):
        waiting(page).nth(number).get_by_role("checkbox").check()
    bulk = page.get_by_role("group", name="Selected proposals")
    expect(bulk).to_contain_text("3 selected")
    page.keyboard.press("a")
    dialog = page.locator("dialog")
    expect(dialog.locator(".differences")).to_contain_text("agent proposes add on files 3 times.")
    expect(dialog.locator("thead th")).to_have_text(["#", "a"])
    expect(dialog.locator("tbody tr td:nth-child(2)")).to_have_text(["0", "1", "2"])
    # One of them is withdrawn while the question stands: it is left out, and said so.
    agent.run(lambda space: proposals[1].withdraw())
    expect(dialog.locator(".left-out")).to_contain_text("Skipped: Too late: agent withdrew it")
    page.wait_for_timeout(SETTLED)
    dialog_button(page, "Approve 2 calls").click()
    assert outcome(agent, proposals[0]).text == "1"
    assert outcome(agent, proposals[2]).text == "3"
    expect(waiting(page)).to_have_count(1)
    expect(bulk).to_be_hidden()
    waiting(page).first.get_by_role("checkbox").check()
    page.keyboard.press("r")
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("Control+Enter")
    expect(for_others(page)).to_contain_text("Rejected by you")
    expect(waiting(page)).to_have_count(0)


def test_own_proposals_are_withdrawn_not_approved(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    human = member("human")
    proposal = propose(human, "add", a=1)
    page = page_as("human", "approvals")
    for_others(page).locator(".approvals-row-open").click()
    shown(page, "human (you) wants to call add")
    expect(detail(page).get_by_role("button", name="Approve once")).to_have_count(0)
    page.keyboard.press("a")
    page.keyboard.press("w")
    expect(detail(page)).to_contain_text("Withdraw add?")
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("w")
    expect(detail(page).locator(".approvals-actions")).to_contain_text("You withdrew it")
    human.sees(lambda space: proposal.seen.status == "withdrawn")


def test_a_file_change_is_shown_as_a_difference(page_as: PageAs, member: MemberAs) -> None:
    """An edit with itself; a whole text with what stands there, read by whoever may."""
    member("files")
    agent = member("agent")
    propose(agent, "edit_file", path="notes.txt", old_string="a\nb\nc", new_string="a\nB\nc")
    propose(agent, "write_file", path="notes.txt", content="first line\n2nd line\n")
    page = page_as("human", "approvals")
    shown(page, "edit_file")
    expect(detail(page).locator(".diff-line.removed")).to_have_text(["2-b"])
    expect(detail(page).locator(".diff-line.added")).to_have_text(["2+B"])
    page.keyboard.press("j")
    shown(page, "write_file")
    # Nobody has read it here: nothing is called added.
    expect(detail(page).locator(".diff-line")).to_have_text(["1 first line", "2 2nd line"])
    expect(detail(page)).to_contain_text("its current content is not known here")
    detail(page).get_by_role("button", name="Compare with current file").click()
    expect(detail(page).locator(".diff-line")).to_have_text(["1 first line", "2-second line", "2+2nd line"])
    expect(detail(page)).to_contain_text("compared with the file on files now")
    # What a tool says of its failure is not what stands in the file.
    propose(agent, "write_file", path="new.txt", content="new\n")
    expect(waiting(page)).to_have_count(3)
    page.keyboard.press("j")
    expect(detail(page).locator(".diff-line")).to_have_text(["1 new"])
    detail(page).get_by_role("button", name="Compare with current file").click()
    expect(detail(page)).to_contain_text("new file: files has none at this path")
    expect(detail(page).locator(".diff-line")).to_have_text(["1+new"])


def test_who_may_not_make_the_call_is_told_so(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    propose(member("agent"), "add", a=1)
    page = page_as("watcher", "approvals")
    shown(page, "add")
    expect(detail(page)).to_contain_text("Your permissions do not allow this call")
    expect(detail(page).get_by_role("button", name="Approve once")).to_be_disabled()
    page.keyboard.press("a")
    expect(detail(page).locator(".armed")).to_have_count(0)


def test_a_tone_and_a_notification_come_by_choice_and_the_choice_is_remembered(
    page_as: PageAs, member: MemberAs, gateway: Running
) -> None:
    member("files")
    agent = member("agent")
    page = page_as("human", "approvals", permissions=["notifications"])
    page.evaluate(
        "() => { window.tones = 0; const audio = AudioContext.prototype, make = audio.createOscillator;"
        "audio.createOscillator = function () { window.tones += 1; return make.call(this); };"
        "window.Notification = class { static permission = 'granted';"
        "static async requestPermission() { return 'granted'; }"
        "constructor(title, options) { document.documentElement.dataset.told = options.body; } };"
        "document.hasFocus = () => false; }"
    )
    propose(agent, "add", a=1)
    expect(waiting(page)).to_have_count(1)
    assert page.evaluate("[window.tones, document.documentElement.dataset.told]") == [0, None]
    page.get_by_role("button", name="Sound").click()
    page.get_by_role("button", name="Notify").click()
    expect(page.get_by_role("button", name="Notify")).to_have_attribute("aria-pressed", "true")
    before = page.evaluate("window.tones")
    page.locator(".nav").get_by_role("link", name="Timeline").click()
    propose(agent, "add", a=2)
    expect(page.locator("html")).to_have_attribute("data-told", "agent wants to call add")
    assert page.evaluate("window.tones") == before + 2
    kept = page.evaluate("localStorage.getItem('moot.approvals.alerts')")
    assert kept == '{"sound":true,"notification":true}'


def test_a_proposal_that_names_no_host_is_carried_out_by_whom_the_person_chooses(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    call: dict[str, Json] = {"name": "add", "arguments": {"a": 1}}
    proposal = agent.run(lambda space: space.propose((), "tools/call", call, wait_for_others=True))
    page = page_as("human", "approvals")
    shown(page, "add")
    expect(detail(page)).to_contain_text("No host is named: choose who runs it.")
    expect(detail(page).get_by_role("button", name="Approve once")).to_be_disabled()
    page.keyboard.press("a")
    expect(detail(page).locator(".armed")).to_have_count(0)
    detail(page).get_by_label("Host").select_option("files")
    approve(page)
    assert outcome(agent, proposal).text == "2"


def test_on_a_phone_the_list_and_one_proposal_are_two_pages(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    proposal = propose(agent, "add", a=1)
    page = page_as("human", "approvals", viewport={"width": 390, "height": 844}, has_touch=True)
    expect(waiting(page)).to_have_count(1)
    expect(detail(page)).to_be_hidden()
    waiting(page).first.locator(".approvals-row-open").tap()
    expect(detail(page)).to_be_visible()
    expect(waiting(page)).to_be_hidden()
    expect(detail(page).get_by_role("heading", level=2)).to_be_focused()
    page.get_by_role("button", name="All proposals").tap()
    expect(detail(page)).to_be_hidden()
    page.go_back()
    page.wait_for_timeout(SETTLED)
    approve(page)
    assert outcome(agent, proposal).text == "2"
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    # A desktop of 1440 by 900 at 200 %: what is decided is in sight, and nothing asks for votes here.
    propose(agent, "add", a=7)
    page.set_viewport_size({"width": 720, "height": 450})
    page.get_by_role("button", name="All proposals").tap()
    waiting(page).first.locator(".approvals-row-open").tap()
    expect(detail(page).get_by_role("button")).not_to_contain_text(["Vote"])
    value = detail(page).locator(".arguments dd").first.bounding_box()
    buttons = detail(page).locator(".approvals-actions").bounding_box()
    assert value is not None
    assert buttons is not None
    assert value["y"] + value["height"] < buttons["y"]
    # How much is below is said, and is one press away.
    propose(agent, "write_file", path="long.txt", content="line\n" * 60)
    page.get_by_role("button", name="All proposals").tap()
    row(page, "long.txt").locator(".approvals-row-open").tap()
    fold = detail(page).locator(".approvals-fold")
    expect(fold).to_have_text(re.compile(r"^[1-9]\d+ more lines below ↓$"))
    before = int(fold.inner_text().split()[0])
    fold.tap()
    expect(fold).not_to_have_text(f"{before} more lines below ↓")
    page.locator(".approvals-body").evaluate("(body) => body.scrollTo(0, body.scrollHeight)")
    expect(fold).to_be_hidden()


def test_a_rejection_that_is_not_on_disk_holds_and_the_page_says_so(
    gateway: Running, page_as: PageAs, member: MemberAs
) -> None:
    """0021."""
    member("files")
    propose(member("agent"), "write_file", path="notes.txt", content="x")
    page = page_as("human", "approvals")
    shown(page, "write_file")
    with no_room_on_disk(gateway.gateway.config.data / "spaces" / "lab" / "journal"):
        page.keyboard.press("r")
        page.locator("dialog").get_by_label("unsafe").check()
        page.wait_for_timeout(SETTLED)
        dialog_button(page, "Reject").last.click()
        expect(row(page, "write_file")).to_contain_text("Rejected by you")
        told = page.locator(".notice").filter(has_text="It took effect, but is not on disk")
        expect(told).to_contain_text("Tell the operator to free the disk")
