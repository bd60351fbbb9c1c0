"""People and agents in the console: who is here, what they may do, and stopping them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from moot.errors import MootError, Paused
from moot.participant import Control, Controls, JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.config.former_constants import change_constants
from tests.console.conftest import MemberAs, PageAs, sign_in
from tests.console.gateway_and_members import Driven, Loop, Running, gathered
from tests.console.test_reconnect import post
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command


def listed(page: Page, name: str) -> Locator:
    return page.locator(".member-row").filter(has_text=name)


def detail(page: Page) -> Locator:
    return page.get_by_role("region", name="Member", exact=True)


def press(page: Page, name: str) -> None:
    page.locator("dialog").get_by_role("button", name=name, exact=True).click()


def test_members_are_listed_with_presence_and_their_rights_in_plain_words(
    page_as: PageAs, member: MemberAs
) -> None:
    """MEW 3.7, 3.8.1: who is here, and what they may do; the exact JSON is one key away."""
    agent = member("agent")
    page = page_as("human", "members")
    expect(page.get_by_role("heading", name="Online 2")).to_be_visible()
    expect(listed(page, "agent")).to_contain_text("proposes")
    expect(listed(page, "human")).to_contain_text("full rights")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(detail(page)).to_contain_text("Withdraw proposals", ignore_case=True)
    expect(detail(page)).not_to_contain_text('{"kind":"mcp/withdraw"}')
    page.keyboard.press("x")
    expect(detail(page)).to_contain_text('{"kind":"mcp/withdraw"}')
    agent.leave()
    expect(page.get_by_role("heading", name="Offline 1")).to_be_visible()
    expect(detail(page).locator(".presence")).to_have_text("offline")


@pytest.mark.requirement("MEW-3.9.1-2", "MEW-3.9.2-2")
def test_a_pause_with_a_time_silences_a_member_until_it_is_resumed(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3.9.1, 3.9.2: with a reason and a time; the resume names the pause."""
    agent = member("agent")
    watcher = member("watcher")
    resumed: list[Envelope] = []
    paused: list[Envelope] = []
    watcher.run(lambda space: _collect(space, "participant/pause", paused))
    watcher.run(lambda space: _collect(space, "participant/resume", resumed))
    page = page_as("human", "members", "agent")
    page.keyboard.press("p")
    dialog = page.get_by_role("dialog", name="Pause agent?")
    dialog.get_by_label("Duration").select_option("5 minutes")
    dialog.get_by_label("Reason (optional)").fill("let us talk first")
    press(page, "Pause agent")
    expect(detail(page).locator(".presence")).to_have_text("paused")
    expect(detail(page)).to_contain_text("by human: let us talk first")
    expect(listed(page, "agent")).to_contain_text("paused")
    assert gathered(paused, 1)[0].payload == {"reason": "let us talk first", "timeout_seconds": 300}
    with pytest.raises(Paused):
        agent.run(lambda space: space.chat("may I?"))
    detail(page).get_by_role("button", name="Resume").click()
    expect(detail(page).locator(".presence")).to_have_text("online")
    assert gathered(resumed, 1)[0].correlation_id == [paused[0].id]
    agent.run(lambda space: space.chat("thanks"))


def test_a_pause_that_runs_out_is_seen_to_end(page_as: PageAs, member: MemberAs) -> None:
    """D-25: nobody says that its time is up."""
    human = member("human")
    member("agent")
    page = page_as("human", "members", "agent")
    human.run(lambda space: space.admin.pause("agent", timeout_seconds=3600))
    expect(detail(page).locator(".presence")).to_have_text("paused")
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 3_601_000; }")
    expect(detail(page).locator(".presence")).to_have_text("online")
    expect(listed(page, "agent").locator(".tag")).to_have_count(0)
    expect(detail(page).get_by_role("button", name="Pause…")).to_be_visible()


def test_a_shorter_pause_and_ones_own_resume_change_nothing_on_the_page(
    gateway: Running, page_as: PageAs, member: MemberAs
) -> None:
    """D-25: the page says what the gateway holds to."""
    human, second = member("human"), member("second")
    page = page_as("human", "members", "second")
    human.run(lambda space: space.admin.pause("second", reason="for an hour", timeout_seconds=3600))
    expect(detail(page)).to_contain_text("for an hour")
    human.run(lambda space: space.admin.pause("second", reason="for a moment", timeout_seconds=0.2))
    post(gateway, "second", {"kind": "participant/resume", "to": ["second"], "payload": {}})
    human.run(lambda space: space.chat("all of this was heard"))
    page.evaluate("location.hash = '#/lab/chat'")
    expect(page.locator(".chat-message")).to_contain_text("all of this was heard")
    page.evaluate("location.hash = '#/lab/members/second'")
    expect(detail(page).locator(".presence")).to_have_text("paused")
    expect(detail(page)).to_contain_text("for an hour")
    with pytest.raises(Paused):
        second.run(lambda space: space.chat("may I?"))
    human.run(lambda space: space.admin.resume("second"))
    expect(detail(page).locator(".presence")).to_have_text("online")


def test_everybody_can_be_paused_and_resumed_at_once(page_as: PageAs, member: MemberAs) -> None:
    """D-25: without an addressee, all but the sender."""
    member("agent")
    member("watcher")
    page = page_as("human", "members")
    page.get_by_role("button", name="Pause everyone…").click()
    press(page, "Pause everyone")
    expect(page.locator(".member-row .tag").filter(has_text="paused")).to_have_count(2)
    page.get_by_role("button", name="Resume everyone").click()
    expect(page.locator(".member-row .tag").filter(has_text="paused")).to_have_count(0)


def test_a_member_is_removed_only_after_a_question_that_says_what_goes_with_it(
    page_as: PageAs, member: MemberAs, gateway: Running, loop: Loop
) -> None:
    """D-24: disconnected, token void; Enter in the reason field alone does not do it."""
    agent = member("agent")
    agent.start(
        lambda space: space.propose(
            "files", "tools/call", {"name": "add", "arguments": {"a": 1}}, wait_for_others=True
        )
    )
    agent.run(lambda space: space.streams.open(description="my log", content_type="text/plain"))
    page = page_as("human", "members", "agent")
    expect(listed(page, "agent")).to_have_attribute("data-presence", "here")
    page.keyboard.press("Delete")
    dialog = page.get_by_role("dialog", name="Remove agent from the space?")
    expect(dialog).to_contain_text("1 pending proposal will be withdrawn")
    expect(dialog).to_contain_text("my log")
    dialog.get_by_label("Reason (optional)").fill("enough")
    dialog.get_by_label("Reason (optional)").press("Enter")
    expect(dialog).to_be_visible()
    press(page, "Remove agent")
    expect(detail(page).locator(".presence")).to_have_text("offline")
    expect(detail(page)).to_contain_text("enough")
    with pytest.raises(MootError):
        Driven(loop, "agent").enter(gateway.url, "lab", gateway.token("agent"))


def test_a_member_is_shut_down_and_leaves(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3.9.10."""
    member("agent")
    page = page_as("human", "members", "agent")
    detail(page).get_by_role("button", name="Shut down…").click()
    press(page, "Shut down agent")
    expect(detail(page).locator(".presence")).to_have_text("offline")


def test_a_status_is_asked_for_and_shown_with_tokens_and_messages(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3.9.3, 3.9.4."""

    class Telling(Controls):
        async def on_status(self, control: Control | None) -> Mapping[str, Json]:
            return {"tokens": 1500, "max_tokens": 6000, "model": "<b>small</b>"}

    member("agent", controls=Telling())
    page = page_as("human", "members", "agent")
    page.keyboard.press("s")
    expect(detail(page).get_by_role("heading", name="Last status")).to_be_visible()
    expect(detail(page)).to_contain_text("messages in context")
    expect(detail(page)).to_contain_text("25 % of tokens used")
    expect(detail(page)).to_contain_text("<b>small</b>")


def test_memory_is_compacted_forgotten_and_cleared_from_the_console(
    page_as: PageAs, member: MemberAs
) -> None:
    """MEW 3.9.5 to 3.9.8: each is answered, and the answer is told."""
    member("agent")
    page = page_as("human", "members", "agent")
    detail(page).locator("summary", has_text="Context").click()
    for verb, confirm in (
        ("Remove entries…", "Remove entries"),
        ("Compact…", "Compact"),
        ("Clear…", "Clear"),
    ):
        detail(page).get_by_role("button", name=verb).click()
        press(page, confirm)
        notice = page.locator(".notice").filter(has_text="agent replied").last
        expect(notice).to_be_visible()
        notice.get_by_role("button").click()


def test_who_may_not_is_told_so_and_a_refusal_of_the_gateway_is_shown_plainly(
    page_as: PageAs, member: MemberAs
) -> None:
    """The buttons that surely would be refused say why; what the gateway refuses stands in the dialog."""
    member("agent")
    watcher = page_as("watcher", "members", "agent")
    expect(detail(watcher).get_by_role("button", name="Pause…")).to_be_disabled()
    expect(detail(watcher)).to_contain_text("You have no permission to send: participant/pause")
    page = page_as("human", "members")
    page.keyboard.press("i")
    dialog = page.get_by_role("dialog", name="Invite a member")
    dialog.get_by_label("Name", exact=True).fill("watcher")
    press(page, "Invite")
    expect(dialog.get_by_role("alert").filter(has_text="Refused")).to_contain_text(
        "watcher is already a participant of this space"
    )


@pytest.mark.requirement("MEW-3.6.6-7")
def test_somebody_is_invited_and_joins_with_the_token_that_is_shown_once(
    page_as: PageAs, gateway: Running, loop: Loop, tmp_path: Path
) -> None:
    """MEW 3.6.5, 3.6.6: in one dialog of the inviter, and gone from the page when that is closed."""
    page = page_as("human", "members", permissions=["clipboard-read", "clipboard-write"])
    other = page_as("second", "members")
    page.get_by_role("button", name="Invite…").click()
    dialog = page.get_by_role("dialog", name="Invite a member")
    dialog.get_by_label("Name", exact=True).fill("not a name")
    press(page, "Invite")
    expect(dialog.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("Name", exact=True).fill("lisa")
    dialog.get_by_label("Additional permissions (optional)").fill(
        'stream/*\n{"kind": "mcp/request", "payload": {"method": "tools/list"}}'
    )
    expect(dialog).to_contain_text("call tools/list", ignore_case=True)
    press(page, "Invite")
    shown = page.get_by_role("dialog", name="lisa is invited")
    token = shown.get_by_label("Token", exact=True).input_value()
    assert len(token) > 20
    line = shown.get_by_role("group", name="Command").inner_text()
    assert line == f"moot join --gateway {gateway.url} --space lab --token-file lisa.token"
    # It cannot be shown again: a slip beside the dialog, or Escape, does not lose it before it was copied.
    page.mouse.click(5, 5)
    page.keyboard.press("Escape")
    expect(shown).to_be_visible()
    shown.get_by_role("button", name="Copy token").click()
    expect(page.locator(".notice").filter(has_text="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == token
    shown.get_by_role("button", name="Done").click()
    assert token not in page.content()
    assert token not in page.evaluate("JSON.stringify([sessionStorage, localStorage, location.href])")
    expect(other.get_by_role("heading", name="Invited 1")).to_be_visible()
    assert token not in other.content()

    (tmp_path / "lisa.token").write_text(token, "ascii")
    (tmp_path / "lisa.token").chmod(0o600)
    (tmp_path / "lisa.token").chmod(0o600)
    typed = [*warm_command(), *shlex.split(line)[1:], "--plain"]
    subprocess.run(typed, input="hello\n", text=True, cwd=tmp_path, check=True, timeout=HANG_SECONDS)  # noqa: S603
    expect(listed(other, "lisa")).to_have_attribute("data-presence", "away")

    page.evaluate("sessionStorage.clear()")
    page.reload()
    sign_in(page, token)
    expect(listed(page, "lisa")).to_contain_text("(you)")
    expect(other.get_by_role("heading", name="Online 2")).to_be_visible()
    lisa = Driven(loop, "lisa")
    lisa.enter(gateway.url, "lab", token)
    rights = lisa.run(lambda space: [each.original for each in space.rights.capabilities])
    assert {"kind": "mcp/request", "payload": {"method": "tools/list"}} in rights
    lisa.leave()


def _collect(space: JoinedSpace, kind: str, into: list[Envelope]) -> None:
    space.on(kind)(into.append)


def test_a_welcome_without_room_for_everybody_is_completed(
    gateway: Running, page_as: PageAs, member: MemberAs
) -> None:
    """The console asks for the rest, and nobody is shown as absent meanwhile or forgotten afterwards."""
    change_constants({"spaces.*.limits.max_welcome_bytes": 8_192})
    agent = member("agent")
    member("files")

    async def open_streams(space: JoinedSpace) -> None:
        for _ in range(6):
            await space.streams.open(description="d" * 2_000, content_type="text/plain")

    agent.run(open_streams)
    page = page_as("human", "streams")
    expect(page.get_by_role("heading", name="Open 6")).to_be_visible()
    page = page_as("human", "members")
    for name in ("agent", "files"):
        expect(listed(page, name)).to_be_visible()
