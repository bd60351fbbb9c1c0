"""`moot join`, from a pipe and on a terminal of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moot.participant import Chunk, JoinedSpace, StreamHandle, StreamInfo
from tests.cli.space_with_members import SpaceWithMembers
from tests.cli.terminals import MOOT, environment, program_on_terminal, terminal
from tests.waiting import HANG_SECONDS, until


def piped(lab: SpaceWithMembers, script: str, *options: str) -> tuple[int, str]:
    """Exit code and output of a script at the end of a pipe."""
    reading, writing = os.pipe()
    os.write(writing, script.encode())
    os.close(writing)
    lab.capsys.readouterr()
    with os.fdopen(reading) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        code = lab.type("join", *options)
    printed = lab.capsys.readouterr()
    assert printed.err == ""
    return code, printed.out


def test_the_command_ends_by_itself_when_its_input_is_at_an_end(lab: SpaceWithMembers) -> None:
    """As a process of its own: nothing is left that would keep it, and nothing complains."""
    done = subprocess.run(  # noqa: S603
        [*MOOT, "join", "--linger", "0.2"],
        input="hello\n",
        cwd=lab.folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^\d\d:\d\d:\d\d alice: hello$", done.stdout, re.MULTILINE)


def offering_host(lab: SpaceWithMembers) -> JoinedSpace:
    host = lab.join("host")

    async def offer() -> None:
        @host.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

    lab.do(offer())
    return host


def offering_wait(lab: SpaceWithMembers, member: JoinedSpace) -> asyncio.Event:
    """A script that calls `wait` of this member goes on when the event is set, and has heard all before."""
    event = asyncio.Event()

    async def offer() -> None:
        @member.tool
        async def wait() -> str:
            await event.wait()
            return "now"

    lab.do(offer())
    return event


def test_a_script_is_carried_out_line_by_line(lab: SpaceWithMembers) -> None:
    """Chat, an operation, a mistake that ends nothing, a slash that is none."""
    offering_host(lab)
    agent = lab.join("agent")
    proposal = lab.do(agent.propose("host", "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}))
    answer: list[str] = []
    agent.on("chat")(lambda chat: answer.append(chat.payload["text"]))
    script = (
        "hello there\n/approve 1\n/to agent\njust you\n//not a command\n/nonsense\n/call host add a:=1 b:=1\n"
    )
    code, output = piped(lab, script)
    assert lab.do(proposal.outcome(HANG_SECONDS)).text == "5"
    lab.do(until(lambda: len(answer) == 3))
    assert answer == ["hello there", "just you", "/not a command"]
    # What went wrong was told, and is the script's exit code.
    assert "! unknown command /nonsense: /help lists the commands" in output
    assert code == 1
    lines = output.splitlines()
    assert lines[lines.index(f"approved {proposal.id[:8]}; host answered:") + 1] == "5"
    assert "your chat is for agent" in lines
    assert "2" in lines
    assert re.search(r"^\d\d:\d\d:\d\d alice → agent: just you$", output, re.MULTILINE)


def test_a_script_without_a_mistake_ends_with_0_and_proposals_are_numbered(lab: SpaceWithMembers) -> None:
    agent = lab.join("agent")
    first = lab.do(agent.propose("host", "tools/call", {"name": "add", "arguments": {"a": 2}}))
    code, output = piped(lab, '/reject 1 --reason policy --explain "no sums"\n/members\n/help pause\n')
    assert code == 0
    assert f"#1 {first.id[:8]}  agent proposes tools/call add on host" in output
    assert "    a: 2" in output
    assert f"rejected {first.id[:8]}: policy" in output
    assert "usage: /pause [--reason TEXT] [--for TIME] MEMBER" in output


def test_as_json_everything_heard_is_an_envelope_and_every_operation_has_a_result(
    lab: SpaceWithMembers,
) -> None:
    bob = lab.join("bob")
    lab.do(bob.chat("before"))
    answered = offering_wait(lab, bob)

    async def answer() -> None:
        await until(lambda: bob.chats.pending())
        await bob.chat("\x1b[2Jheard you")
        answered.set()

    answering = lab.begin(answer())
    code, output = piped(lab, "hello\n/call bob wait\n/members\n/approve nothing\n", "--json")
    answering.result(HANG_SECONDS)
    assert code == 1
    assert "\x1b" not in output
    rows = [json.loads(line) for line in output.splitlines()]
    chats = [row["payload"]["text"] for row in rows if row.get("kind") == "chat"]
    assert chats == ["hello", "\x1b[2Jheard you"]
    (members,) = [row["result"] for row in rows if row.get("operation") == "members"]
    assert {"alice", "bob"} == {row["id"] for row in members}
    (fault,) = [row for row in rows if row.get("error") == "usage_error"]
    assert "unknown proposal nothing" in fault["message"]


def test_streams_are_read_and_written(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")
    frames: list[str] = []
    written = asyncio.Event()

    @bob.streams.on_open
    async def read(info: StreamInfo) -> None:
        if info.owner == "alice":
            async for chunk in bob.streams.read(info.id):
                assert isinstance(chunk, Chunk)
                frames.append(chunk.text)
            written.set()

    handle = lab.do(open_stream(bob))
    talked = offering_wait(lab, bob)

    async def talk() -> None:
        await bob.roster.wait_for("alice", timeout_seconds=HANG_SECONDS)
        await handle.write("from bob")
        await handle.write(b"\0\1\2")
        talked.set()

    talking = lab.begin(talk())
    script = ["/streams", "/open my numbers", "/write - one two", "/writer let - bob", "/close -"]
    code, output = piped(lab, "\n".join([*script, "/call bob wait", f"/close {handle.id}", ""]))
    talking.result(HANG_SECONDS)
    lab.do(asyncio.wait_for(written.wait(), HANG_SECONDS))
    assert frames == ["one two"]
    assert f"{handle.id}  of bob to all  bob's own" in output
    assert f"stream {handle.id} of bob: from bob" in output
    assert f"stream {handle.id} of bob: [3 bytes]" in output
    assert "writers: alice, bob" in output
    # Only bob closes bob's stream.
    assert code == 1


async def open_stream(space: JoinedSpace) -> StreamHandle:
    return await space.streams.open(description="bob's own")


def test_the_gateways_end_is_exit_code_5(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")

    async def throw_out() -> None:
        await bob.roster.wait_for("agent", timeout_seconds=HANG_SECONDS)
        await bob.admin.kick("agent", "closing time")

    kicking = lab.begin(throw_out())
    code, output = piped(lab, "", "--as", "agent", "--linger", "0")
    kicking.result(HANG_SECONDS)
    assert code == 5
    assert "! the connection ended: " in output


# On a terminal


def test_on_a_terminal_what_others_say_stands_above_the_line_being_typed(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")
    with terminal(lab.folder, "join", "--plain") as (screen, process):
        screen.until(lambda shown: "joined lab as alice; also here: bob" in shown and shown.endswith("> "))
        screen.type("half a sen")
        screen.until(lambda shown: shown.endswith("half a sen"))
        lab.do(bob.chat("a word from bob"))
        screen.until(lambda shown: bool(re.search(r"bob: a word from bob\r?\n> half a sen$", shown)))
        screen.type("tence\r")
        lab.do(until_heard(bob, "half a sentence"))
        # A call that waits for a decision keeps nobody from typing.
        screen.type("/propose host add a:=1\r")
        screen.until(lambda shown: "alice proposes tools/call add on host" in shown)
        screen.type("/members\r")
        screen.until(lambda shown: "bob          *" in shown)
        screen.type("\x04")
        assert process.wait(HANG_SECONDS) == 0
    lab.do(until(lambda: not bob.proposals.open()))


_TWO_LINES = """
import sys
from moot.cli.client.screen import Screen, typed_lines

with Screen(as_json=False, verbose=False) as screen:
    lines = typed_lines(screen)
    print("first:", next(lines), flush=True)
    open(sys.argv[1]).close()  # A named pipe: waits until the test has pressed its key.
    print("then:", list(lines), flush=True)
"""


@pytest.mark.parametrize(("keys", "lines"), [("\x04", []), ("two\r\x04", ["two"])])
def test_ctrl_d_between_two_lines_is_not_lost(tmp_path: Path, keys: str, lines: list[str]) -> None:
    """Whoever presses it while the line before is being carried out leaves."""
    pressed = tmp_path / "pressed"
    os.mkfifo(pressed)
    with program_on_terminal(tmp_path, sys.executable, "-c", _TWO_LINES, str(pressed)) as (screen, process):
        screen.until(lambda shown: shown.endswith("> "))
        screen.type("one\r")
        screen.until(lambda shown: "first: one" in shown)
        screen.type(keys)
        pressed.write_bytes(b"")
        screen.until(lambda shown: f"then: {lines}" in shown)
        assert process.wait(HANG_SECONDS) == 0


async def until_heard(space: JoinedSpace, text: str) -> None:
    await until(lambda: any(chat.payload["text"] == text for chat in space.chats.pending()))


def test_ctrl_c_on_a_terminal_leaves_cleanly(lab: SpaceWithMembers) -> None:
    with terminal(lab.folder, "join", "--plain") as (screen, process):
        screen.until(lambda shown: shown.endswith("> "))
        process.send_signal(2)
        assert process.wait(HANG_SECONDS) == 0
    assert "Traceback" not in screen.shown
