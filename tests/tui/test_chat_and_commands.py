"""Everything else at the full-screen terminal: talking, watching, looking after the space."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from moot.operations.operation_table import OPERATIONS
from moot.participant import ReasoningSequence
from moot.participant.connection.link import Link
from moot.tui.dialog import DetailDialog, Dialog
from moot.tui.panes import PANES
from tests.participant.gateway_with_members import ReceivedEnvelopes
from tests.tui.terminal_session import (
    enter_line,
    pane_text,
    propose,
    save_screenshot,
    screen_text,
    settle,
    terminal_space,
    until,
)
from tests.waiting import HANG_SECONDS


async def test_chat_goes_out_and_comes_in(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        bob = await terminal.join("bob")
        received = ReceivedEnvelopes(bob)
        await bob.chat("said before")
        async with terminal.terminal() as (app, pilot):
            await until(pilot, lambda: "bob: said before" in pane_text(app.panes.timeline))
            await pilot.press(*"hello", "enter")
            assert (await received.wait(lambda each: each.sender == "alice" and each.kind == "chat")).payload[
                "text"
            ] == "hello"
            await bob.chat("good morning", to="alice")
            await until(pilot, lambda: "bob → alice: good morning" in pane_text(app.panes.timeline))
            await enter_line(pilot, "/to bob")
            await enter_line(pilot, "//just you")
            answer = await received.wait(lambda each: each.payload.get("text") == "/just you")
            assert answer.to == ["bob"]
            assert "did not receive it" not in pane_text(app.panes.timeline)
            await enter_line(pilot, "/to bob ghost")
            await enter_line(pilot, "anybody there?")
            told = "ghost is not in the space and did not receive it"
            await until(pilot, lambda: told in pane_text(app.panes.timeline))
            # What waits to be acknowledged is in a pane of its own.
            await until(pilot, lambda: len(app.panes.chats.rows) == 2)
            await pilot.press("escape", "6", "space")
            ack = await received.wait("chat/acknowledge")
            assert ack.payload["status"] == "read"
            await until(pilot, lambda: len(app.panes.chats.rows) == 1)


async def test_every_operation_is_a_slash_command_with_help(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal, terminal.terminal() as (app, pilot):
        needed = {
            "chat", "ack", "cancel", "propose", "request", "call", "approve", "reject", "withdraw",
            "vote", "grant", "revoke", "invite", "kick", "pause", "resume", "shutdown", "status",
            "control", "reasoning", "stop", "streams", "open", "tail", "write", "close", "grant-write",
            "transfer", "tools", "capabilities", "members", "why", "look", "filter", "theme", "help",
            "quit", "suggestions", "rules", "proposals", "send", "to", "pane",
        }  # fmt: skip
        assert needed <= set(app.commands)
        assert {operation.name for operation in OPERATIONS} <= set(app.commands)
        for name, operation in app.commands.items():
            assert operation.help
            assert operation.slash_parser().format_usage().startswith(f"usage: /{name}")
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, DetailDialog) and bool(app.screen.rows.rows))
        assert isinstance(app.screen, DetailDialog)
        text = pane_text(app.screen.rows)
        for name in app.commands:
            assert f"/{name} " in text
        await pilot.press("escape")
        await enter_line(pilot, "/help grant")
        await until(pilot, lambda: "usage: /grant" in screen_text(app))
        save_screenshot(app, "help")


async def test_operations_are_carried_out_and_mistakes_end_nothing(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        bob, agent = await terminal.join("bob"), await terminal.join("agent")
        received = ReceivedEnvelopes(bob)
        async with terminal.terminal() as (app, pilot):
            for line, answer in (
                ("/call files read_file path=notes.md", "  three"),
                ("/members", "PERMISSIONS"),
                ("/capabilities agent", "  propose"),
                ("/tools files", "files   read_file   path"),
                ("/nonsense", "! unknown command /nonsense"),
                ("/kick", "! the following arguments are required: MEMBER"),
                ("/approve 7", "! unknown proposal 7"),
                ("/call files 'open", "! No closing quotation"),
                ("/grant agent mcp/request:tools/list", "granted to agent"),
                ("/pause agent --reason wait", "agent is paused until resumed"),
                ("/resume agent", "agent resumed"),
                ("/reasoning cancel", "! name one: nobody is sharing reasoning"),
                ("/invite carol chat", "token (shown only once): "),
                ("/rules", "no rules announced"),
            ):
                await enter_line(pilot, line)
                await until(pilot, lambda answer=answer: answer in pane_text(app.panes.timeline))  # type: ignore[misc]
            await enter_line(pilot, "/shutdown agent --reason enough")
            await received.wait("participant/shutdown")
            assert (await asyncio.wait_for(agent.stay(), HANG_SECONDS)).reason == "enough"


async def test_what_is_typed_is_completed(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):

            def offered(text: str) -> list[str]:
                return [each.text for each in app._complete(text).candidates]

            assert offered("hello") == []
            assert offered("/app") == ["/approve"]
            assert offered("/pau") == ["/pause"]
            assert offered("/pause a") == ["agent"]
            assert offered("/pause agent --") == ["--reason", "--for"]
            assert "unsafe" in offered("/reject abc --reason ")
            assert "mcp/proposal" in offered("/grant agent mcp/p")
            assert offered("/theme moot-l") == ["moot-light"]
            assert offered("/filter ki") == ["kind:"]
            assert offered("/pane reas") == ["reasoning"]
            assert offered("/pane mem") == ["members"]
            # Tools are asked for when somebody begins to name one.
            assert "read_file" not in offered("/call files ")
            await until(pilot, lambda: "read_file" in offered("/call files "))
            assert offered("/call files write_file te") == ["text="]
            proposal = await propose(agent)
            await until(pilot, lambda: offered("/approve ") != ["--to"])
            assert proposal.id[:8] in offered("/approve ")
            # With keys.
            await pilot.press(*"/pau", "tab", *"ag", "tab")
            assert app.input_line.value == "/pause agent "
            await pilot.press("enter", "up")
            assert app.input_line.value == "/pause agent "


async def test_any_active_reasoning_is_watched_and_cancelled_by_a_command_and_by_a_key(
    tmp_path: Path,
) -> None:
    """MEW 3.5.5, the command; the console has the button."""
    async with terminal_space(tmp_path) as terminal:
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            for how in ("/reasoning cancel", "/stop", "key"):
                stopped = asyncio.Event()
                thoughts = agent.reasoning("Which file?", stop=False)
                async with thoughts:
                    agent.contexts.on_cancel.append(lambda _, stopped=stopped: stopped.set())  # type: ignore[misc]
                    await thoughts.thought("the newest one, probably")
                    await until(pilot, lambda: "the newest one" in pane_text(app.panes.reasoning))
                    if how == "key":
                        await pilot.press("escape", "4", "home", "s")
                    else:
                        await enter_line(pilot, how if how != "/stop" else f"/stop {thoughts.id[:8]}")
                    await asyncio.wait_for(stopped.wait(), HANG_SECONDS)
                sequence = app.space.contexts.get(thoughts.id)
                assert isinstance(sequence, ReasoningSequence)
                await until(pilot, lambda each=sequence: each.state == "cancelled")  # type: ignore[misc]
                assert sequence.cancelled_by == "alice"
            await until(pilot, lambda: "stopped by alice" in pane_text(app.panes.reasoning))
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, DetailDialog))


async def test_a_stream_is_followed_as_it_speaks(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            stream = await agent.streams.open(description="the draft", content_type="text/plain")
            await stream.write("first\n\x1b[2Jsecond")
            await stream.write(b"\0\1\2")
            await until(pilot, lambda: "[3 bytes]" in pane_text(app.panes.streams))
            assert "\\x1b[2Jsecond" in pane_text(app.panes.streams)
            await enter_line(pilot, f"/tail {stream.id[:12]}")
            await until(pilot, lambda: isinstance(app.screen, DetailDialog))
            await stream.write("third")
            await until(pilot, lambda: "third" in screen_text(app))
            await pilot.press("escape")
            await enter_line(pilot, "/open my own")
            await until(pilot, lambda: len(app.space.streams.owned()) == 1)
            await enter_line(pilot, "/write - some words")
            await until(pilot, lambda: "some words" in pane_text(app.panes.streams))
            await enter_line(pilot, "/grant-write - agent")
            await until(pilot, lambda: "writers: alice, agent" in pane_text(app.panes.timeline))
            await stream.close()
            await until(pilot, lambda: "closed: complete" in pane_text(app.panes.streams))


async def test_the_members_pane_writes_commands_that_enter_carries_out(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            await until(pilot, lambda: "propose" in pane_text(app.panes.members))
            await pilot.press("escape", "3", "home", "down", "p")
            await until(pilot, lambda: app.input_line.value == "/pause agent ")
            assert agent.paused is None
            await pilot.press("enter")
            await until(pilot, lambda: agent.paused is not None)
            await until(pilot, lambda: "paused by alice" in pane_text(app.panes.members))
            await pilot.press("escape", "3", "u", "enter")
            await until(pilot, lambda: agent.paused is None)


async def test_the_timeline_is_filtered_opened_and_followed_to_causes(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        bob, agent = await terminal.join("bob"), await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            await bob.chat("a word")
            await agent.chat("another")
            proposal = await propose(agent)
            await until(pilot, lambda: "proposes write_file on files" in pane_text(app.panes.timeline))
            await bob.approve(proposal.id)
            await until(pilot, lambda: "bob approves" in pane_text(app.panes.timeline))
            await enter_line(pilot, "/filter from:agent kind:chat")
            await until(pilot, lambda: "a word" not in pane_text(app.panes.timeline))
            assert "another" in pane_text(app.panes.timeline)
            await bob.chat("filtered out")
            await agent.chat("let in")
            await until(pilot, lambda: "let in" in pane_text(app.panes.timeline))
            assert "filtered out" not in pane_text(app.panes.timeline)
            await until(pilot, lambda: "filter from:agent" in screen_text(app))
            await enter_line(pilot, "/filter")
            await until(pilot, lambda: "filtered out" in pane_text(app.panes.timeline))
            await pilot.press("escape", "1")
            assert app.panes.timeline.select(proposal.id)
            await pilot.press("e")
            assert app.panes.timeline.selected is not None
            cause = app.panes.timeline.find(app.panes.timeline.selected.key)
            assert cause is not None
            assert cause.kind == "mcp/request"
            await pilot.press("c")
            assert app.panes.timeline.selected.key == proposal.id
            await pilot.press("enter")
            await until(pilot, lambda: '"name": "write_file"' in screen_text(app))


async def test_a_refusal_is_explained(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        async with terminal.terminal("agent") as (app, pilot):
            await enter_line(pilot, "/why")
            await until(pilot, lambda: "no message was refused" in pane_text(app.panes.timeline))
            proposal = await propose(app.space)
            # The SDK would not even send it: what a gateway says is what is explained.
            app.space._sender._allows = lambda *_: True  # type: ignore[method-assign]
            await enter_line(pilot, f"/reject {proposal.id}")
            await until(pilot, lambda: "capability_violation" in pane_text(app.panes.timeline))
            await enter_line(pilot, "/why")
            await until(
                pilot, lambda: "→ its sender has no permission for it" in pane_text(app.panes.timeline)
            )


async def test_a_lost_connection_is_shown_and_the_gap_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries again when all that is to be seen of it has been seen."""
    seen = asyncio.Event()

    async def rest(_link: Link, _seconds: float) -> None:
        await seen.wait()

    async with terminal_space(tmp_path) as terminal:
        bob = await terminal.join("bob")
        async with terminal.terminal() as (app, pilot):
            monkeypatch.setattr(Link, "_wait_before_retry", rest)
            await bob.chat("before")
            await until(pilot, lambda: "before" in pane_text(app.panes.timeline))
            app.space._sender.socket.abort()
            await until(pilot, lambda: "◌ reconnecting" in screen_text(app))
            await until(pilot, lambda: app.status_bar.has_class("-away"))
            await enter_line(pilot, "into the void")
            await until(pilot, lambda: "! not connected right now" in pane_text(app.panes.timeline))
            seen.set()
            await until(pilot, lambda: "missed: the connection was lost" in pane_text(app.panes.timeline))
            await until(pilot, lambda: app.space.state == "joined")
            await bob.chat("after")
            await until(pilot, lambda: "after" in pane_text(app.panes.timeline))
            await until(pilot, lambda: not app.status_bar.has_class("-away"))


async def test_the_end_of_a_connection_is_told_and_is_the_exit_code(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        bob = await terminal.join("bob")
        async with terminal.terminal() as (app, pilot):
            await bob.admin.kick("alice", "closing time")
            await until(pilot, lambda: "■ disconnected" in screen_text(app))
            await until(pilot, lambda: "connection closed" in pane_text(app.panes.timeline))
            await pilot.press("ctrl+c")
            await pilot.pause()
        assert app.return_value == 5


@pytest.mark.parametrize("key", ["ctrl+c", "q", "/quit"])
async def test_leaving_is_clean_and_takes_back_what_we_proposed(tmp_path: Path, key: str) -> None:
    async with terminal_space(tmp_path) as terminal:
        bob = await terminal.join("bob")
        received = ReceivedEnvelopes(bob)
        async with terminal.terminal("agent") as (app, pilot):
            await enter_line(pilot, "/propose files write_file path=a text=b")
            await received.wait("mcp/proposal")
            if key == "q":
                await pilot.press("escape", "q")
            elif key == "ctrl+c":
                # Also from within a dialog.
                await pilot.press("f1", "ctrl+c")
            else:
                await enter_line(pilot, key)
            await pilot.pause()
        await received.wait("mcp/withdraw")
        assert app.return_value == 0


async def test_sixty_columns_show_a_pane_at_a_time(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        agent = await terminal.join("agent")
        async with terminal.terminal(size=(60, 24)) as (app, pilot):
            await propose(agent)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await until(pilot, lambda: "2 ask(1) 3 member(2)" in screen_text(app))
            # The last tab is not cut.
            assert "6 chat 7 rule" in screen_text(app)
            assert app.panes.timeline.region.width == 60
            assert app.panes.approvals.region.width == 0
            for number, name in enumerate(PANES, 1):
                await pilot.press("escape" if app.input_line.has_focus else "1", str(number))
                pane = app.panes.by_name[name]
                await until(pilot, lambda pane=pane: pane.region.width == 60)  # type: ignore[misc]
                await until(pilot, lambda pane=pane: pane.has_focus)  # type: ignore[misc]
            assert all(len(line) <= 60 for line in screen_text(app).split("\n"))
            # By mouse, too.
            await pilot.click("#tab-approvals")
            await until(pilot, lambda: app.panes.approvals.region.width == 60)
            save_screenshot(app, "narrow")


async def test_without_colour_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR: states have signs, the focus has a mark and a heavy frame."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with terminal_space(tmp_path) as terminal:
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            assert app.no_color
            await propose(agent)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2")
            signs = ("● joined", "? agent proposes", "▌ #1 write_file", "┏", "pending")
            await until(pilot, lambda: all(sign in screen_text(app) for sign in signs))


async def test_themes_change_the_looks(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal, terminal.terminal(theme="moot-contrast") as (app, pilot):
        assert app.theme == "moot-contrast"
        for name in ("moot-light", "moot-terminal", "nord"):
            await enter_line(pilot, f"/theme {name}")
            await until(pilot, lambda name=name: app.theme == name)  # type: ignore[misc]
        await enter_line(pilot, "/theme pink-elephants")
        await until(pilot, lambda: "! unknown theme pink-elephants" in pane_text(app.panes.timeline))


async def test_suggestions_are_listed_and_answered(tmp_path: Path) -> None:
    """D-92: ordinary envelopes; who makes suggestions is another matter."""
    async with terminal_space(tmp_path) as terminal:
        bob = await terminal.join("bob")
        received = ReceivedEnvelopes(bob)
        async with terminal.terminal() as (app, pilot):
            made = await bob.send("trust/suggestion", {"suggestion": "s1", "words": "let agent read docs"})
            await bob.send("trust/rule", {"rule": "r1", "state": "active", "words": "reads are fine"})
            await until(pilot, lambda: len(app.trust.suggestions()) == 1)
            await enter_line(pilot, "/suggestions")
            await until(
                pilot,
                lambda: "s1  let agent read docs (suggested by bob, open)" in pane_text(app.panes.timeline),
            )
            await enter_line(pilot, f"/accept {made.id[:8]}")
            accepted = await received.wait("trust/accept")
            assert accepted.correlation_id == [made.id]
            assert accepted.payload == {"suggestion": "s1"}
            await until(pilot, lambda: not app.trust.open_suggestions())
            await enter_line(pilot, "/rules")
            await until(pilot, lambda: "reads are fine" in pane_text(app.panes.timeline))
            await enter_line(pilot, "/stop-rules r1 --reason enough")
            assert (await received.wait("trust/stop")).payload == {"reason": "enough", "rule": "r1"}
            await enter_line(pilot, "/resume-rules r1")
            assert (await received.wait("trust/accept", 2)).payload == {"lift": "r1"}
            await enter_line(pilot, "/resume-rules")
            assert (await received.wait("trust/accept", 3)).payload == {"resume": True}


HOSTILE = (
    "\x1b[2J\x1b[H\x1b]0;pwned\x07 \x1b]52;c;aGFjaw==\x07 \x9b31m \u202egnp.exe \u2066\u200b "
    "[red]red[/red] [@click=app.leave]click[/] [bold \n00:00:00 │ alice: I approve of everything\r"
)


async def test_hostile_names_and_payloads_are_shown_and_obeyed_by_nothing(tmp_path: Path) -> None:
    async with terminal_space(tmp_path, mallory=["*"]) as terminal:
        mallory = await terminal.join("mallory")
        async with terminal.terminal() as (app, pilot):
            await mallory.chat(HOSTILE)
            await mallory.propose(
                "files", "tools/call", {"name": HOSTILE, "arguments": {HOSTILE: HOSTILE, "path": HOSTILE}}
            )
            stream = await mallory.streams.open(description=HOSTILE)
            await stream.write(HOSTILE)
            await mallory.send("trust/suggestion", {"words": HOSTILE})
            await mallory.send(f"acme/\u202e[red]{'x' * 100}", {"a": HOSTILE})
            async with mallory.reasoning(HOSTILE) as thoughts:
                await thoughts.thought(HOSTILE)
                await until(
                    pilot, lambda: len(app.panes.approvals.rows) == 1 and len(app.panes.reasoning.rows) == 1
                )
                pictures = [screen_text(app)]
                for number in range(1, 7):
                    await pilot.press("escape" if app.input_line.has_focus else "1", str(number))
                    pane = app.panes.by_name[PANES[number - 1]]
                    await until(pilot, lambda pane=pane: pane.has_focus)  # type: ignore[misc]
                    pictures.append(screen_text(app))
                for key in ("a", "g", "r"):
                    await pilot.press("2", key)
                    await settle(pilot)
                    pictures.append(screen_text(app))
                    await pilot.press("escape")
                    await until(pilot, lambda: not isinstance(app.screen, Dialog))
                # Completion inserts no name that is not what it looks like.
                app.tools._remember("files", [{"name": HOSTILE}, {"name": "plain"}])
                assert app._complete("/call files ").candidates[0].text == "plain"
            for picture in pictures:
                assert picture.replace("\n", "").isprintable()
            whole = "".join(pictures)
            assert "[red]red[/red]" in whole
            assert "\\u202e" in whole
            assert "\\x1b]52;c;" in whole
            # The forged line stands further in than any real one.
            assert "\n00:00:00" not in whole
            assert not any(line.lstrip("│┃ ▌").startswith("00:00:00 │ alice") and line.index("0") < 8
                           for picture in pictures for line in picture.split("\n"))  # fmt: skip


async def test_a_storm_is_shown_to_its_end_within_bounds(tmp_path: Path) -> None:
    """Hundreds of messages at once: the last one is there, and every one of them was kept."""
    async with terminal_space(tmp_path) as terminal:
        bob = await terminal.join("bob")
        async with terminal.terminal() as (app, pilot):
            for number in range(400):
                await bob.send("chat", {"text": f"message {number}"})
            await until(pilot, lambda: "message 399" in pane_text(app.panes.timeline))
            assert len(app.panes.timeline.envelopes()) >= 400
            assert json.loads(app.panes.timeline.envelopes()[-1].raw)["payload"]["text"] == "message 399"
