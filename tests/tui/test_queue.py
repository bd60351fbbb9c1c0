"""The queue in the terminal: what waits for this person, decided with one key, and taken back in time."""

from __future__ import annotations

from pathlib import Path

from textual import events

from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.tui.app import MootApp
from moot.tui.dialog import Dialog
from moot.tui.dialogs import ApproveDialog, RejectDialog
from tests.participant.gateway_with_members import ReceivedEnvelopes
from tests.tui.terminal_session import (
    pane_text,
    propose,
    save_screenshot,
    screen_text,
    settle,
    terminal_space,
    until,
)
from tests.waiting import HANG_SECONDS


async def test_it_opens_on_what_is_pending_with_the_arguments_in_the_list(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        await propose(agent, "first line\nsecond line", path="docs/plan.md")
        async with terminal.terminal() as (app, pilot):
            await until(pilot, lambda: app.focused is app.panes.approvals)
            text = pane_text(app.panes.approvals)
            assert "path=docs/plan.md  text=first line…" in text
            # What keys do is said for where the focus is, and follows it.
            await until(pilot, lambda: "Edit and call" in key_text(app))
            save_screenshot(app, "opened")
            await pilot.press("a")
            await settle(pilot)
            await until(pilot, lambda: "Edit and call" not in key_text(app))
            await pilot.press("escape")
            await until(pilot, lambda: "Edit and call" in key_text(app))
            await pilot.press("1")
            await until(pilot, lambda: "Edit and call" not in key_text(app))


async def test_what_a_removed_member_proposed_is_gone_at_once(tmp_path: Path) -> None:
    """Decision 0015."""
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        for number in range(3):
            await propose(agent, "text", path=f"docs/plan-{number}.md")
        async with terminal.terminal() as (app, pilot):
            await until(pilot, lambda: "plan-2" in pane_text(app.panes.approvals))
            await app.space.admin.kick("agent", "runaway")
            await until(pilot, lambda: "plan-" not in pane_text(app.panes.approvals))


async def test_what_deserves_a_second_look_stands_in_the_list_and_above_the_arguments(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        await propose(agent, "text\n" * 200, path="notes/../../.ssh/authorized_keys")
        async with terminal.terminal() as (app, pilot):
            await until(pilot, lambda: app.focused is app.panes.approvals)
            await until(pilot, lambda: "! path leaves its folder (..)" in pane_text(app.panes.approvals))
            await pilot.press("a")
            await settle(pilot)
            shown = screen_text(app)
            assert shown.index("! path leaves its folder") < shown.index("arguments")
            assert "! path looks like a file with secrets" in shown
            save_screenshot(app, "risks")


async def test_keys_that_decide_and_questions_of_programs_are_not_in_the_way(tmp_path: Path) -> None:
    """Without anything to decide there is nothing to press; who filters sees lists of tools."""
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent, bob = await terminal.join("agent"), await terminal.join("bob")
        async with terminal.terminal() as (app, pilot):
            await until(pilot, lambda: app.has_opened)
            await pilot.press("escape", "2")
            await until(pilot, lambda: app.focused is app.panes.approvals)
            await until(pilot, lambda: "Help" in key_text(app) and "Edit and call" not in key_text(app))
            await bob.perform("files", "tools/list")
            await bob.chat("after the list")
            await until(pilot, lambda: "after the list" in pane_text(app.panes.timeline))
            assert "tools/list" not in pane_text(app.panes.timeline)
            app.filter_by("kind:mcp/*")
            await until(pilot, lambda: "calls tools/list on files" in pane_text(app.panes.timeline))
            await propose(agent)
            await until(pilot, lambda: "Edit and call" in key_text(app))


def key_text(app: MootApp) -> str:
    return str(app.key_bar.render())


async def test_nothing_pending_leaves_the_input_line_to_the_person(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal, terminal.terminal() as (app, pilot):
        await until(pilot, lambda: app.has_opened)
        assert app.focused is app.input_line
        # What comes later takes the focus from nobody.
        await propose(await terminal.join("agent"))
        await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
        assert app.focused is app.input_line


async def test_keys_take_effect_in_the_order_in_which_they_were_pressed(tmp_path: Path) -> None:
    """However many come at once: a terminal hands them over together, and a busy machine reads them late."""
    async with terminal_space(tmp_path) as terminal, terminal.terminal() as (app, pilot):
        await until(pilot, lambda: app.has_opened)
        for key in ("a", "x", "backspace", "b", "enter", "d", "left", "c"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: app.input_line.value == "cd")
        await until(pilot, lambda: "alice: ab" in pane_text(app.panes.timeline))


async def test_a_plain_no_is_one_key_and_what_i_rejected_no_longer_waits_for_me(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        agent = await terminal.join("agent")
        received = ReceivedEnvelopes(agent)
        async with terminal.terminal() as (app, pilot):
            params: dict[str, Json] = {"name": "write_file", "arguments": {"path": "a", "text": "b"}}
            await agent.propose("files", "tools/call", params, wait_for_others=True)
            await until(pilot, lambda: app.panes.counts["approvals"] == 1)
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            assert isinstance(app.screen, ApproveDialog)
            await pilot.press("n")
            rejection = await received.wait("mcp/reject")
            assert rejection.payload["reason"] == "disagree"
            await until(pilot, lambda: app.panes.counts["approvals"] == 0)
            await until(pilot, lambda: "nothing pending" in screen_text(app))
            assert "rejected by you: others can still decide" in pane_text(app.panes.approvals)
            save_screenshot(app, "rejected")


async def test_no_with_words_asks_for_them(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal, terminal.terminal() as (app, pilot):
        await propose(await terminal.join("agent"))
        await until(pilot, lambda: app.panes.counts["approvals"] == 1)
        await pilot.press("escape", "2", "a")
        await settle(pilot)
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RejectDialog))


async def test_a_decision_is_taken_back_before_it_is_sent(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent, bob = await terminal.join("agent"), await terminal.join("bob")
        requests: list[Envelope] = []
        bob.on("mcp/request")(requests.append)
        async with terminal.terminal(take_back_seconds=int(HANG_SECONDS)) as (app, pilot):
            proposal = await propose(agent)
            await until(pilot, lambda: app.panes.counts["approvals"] == 1)
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            await pilot.press("y")
            # Behind a dialog that is closing it is on the screen already, and a key would go to the dialog.
            await until(
                pilot,
                lambda: not isinstance(app.screen, Dialog) and "approving write_file in" in screen_text(app),
            )
            assert "not sent if you quit" in screen_text(app)
            await pilot.press("z")
            await until(pilot, lambda: "taken back, nothing was sent" in pane_text(app.panes.timeline))
            assert not [each for each in requests if each.correlation_id]
            # Switched off, one press is sent at once.
            app.take_back.choose(0)
            await pilot.press("a")
            await settle(pilot)
            await pilot.press("y")
            assert (await proposal.outcome(HANG_SECONDS)).text.startswith("created")


async def test_a_held_decision_is_sent_when_its_time_is_over_and_not_by_leaving(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            first, second = await propose(agent, path="a"), await propose(agent, path="b")
            await until(pilot, lambda: app.panes.counts["approvals"] == 2)
            app.take_back.seconds = 1
            await pilot.press("escape", "2", "home", "a")
            await settle(pilot)
            await pilot.press("y")
            assert (await first.outcome(HANG_SECONDS)).text == "created a: 5 bytes"
            await until(pilot, lambda: app.panes.counts["approvals"] == 1)
            app.take_back.seconds = 10
            await pilot.press("a")
            await settle(pilot)
            await pilot.press("y")
            await until(pilot, lambda: app.take_back.status() != "")
            app.leave()
        assert app.take_back.status() == ""
        assert second.seen.status == "pending"


async def test_a_proposed_call_is_edited_in_the_input_line(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal, terminal.terminal() as (app, pilot):
        await propose(await terminal.join("agent"), "it's\ntwo lines", path="docs/a b.md")
        await until(pilot, lambda: app.panes.counts["approvals"] == 1)
        await pilot.press("escape", "2", "e")
        await until(pilot, lambda: app.input_line.value != "")
        assert app.input_line.value.startswith("/call files write_file 'path=docs/a b.md' ")
        assert app.input_line.value.endswith("'text:=\"it'\"'\"'s\\ntwo lines\"'")


async def test_a_filter_that_excludes_is_typed_as_the_help_says(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal, terminal.terminal() as (app, pilot):
        bob = await terminal.join("bob")
        await bob.chat("loud")
        await until(pilot, lambda: "loud" in pane_text(app.panes.timeline))
        app.input_line.value = "/filter -kind:chat"
        await pilot.press("enter")
        await until(pilot, lambda: "filter -kind:chat" in screen_text(app))
        await until(pilot, lambda: "bob: loud" not in screen_text(app))


async def test_a_row_and_a_dialog_are_copied_as_they_are_shown(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal, terminal.terminal() as (app, pilot):
        await propose(await terminal.join("agent"), "two\nlines", path="a\u001b[31m.md")
        await until(pilot, lambda: app.panes.counts["approvals"] == 1)
        await pilot.press("escape", "2", "C")
        await until(pilot, lambda: "write_file on files" in app.clipboard)
        assert "\u001b" not in app.clipboard
        await pilot.press("a")
        await settle(pilot)
        await pilot.press("C")
        await until(pilot, lambda: "    lines" in app.clipboard.split("\n"))
