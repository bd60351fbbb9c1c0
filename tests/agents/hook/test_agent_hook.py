"""`moot hook`: a coding agent's call waits for a decision in the space, and is released once or never."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import pytest

from moot.agents.hook.hook_call import (
    AFTER_EVENTS,
    EVENTS,
    MAX_CALL_BYTES,
    MAX_REPORT_CHARS,
    AgentName,
    allow_answer,
    read_call,
    read_report,
)
from moot.agents.hook.hook_config import FILES, merge_settings
from moot.agents.hook.hook_gate import HookGate, describe_refusal
from moot.cli import main
from moot.errors import Rejected, TimedOut, UsageError, VoteCounted
from moot.participant import JoinedSpace
from tests.bridges.served_space import PROPOSER, ServedSpace, served_space
from tests.bridges.space.test_mcp_command import process, token_file
from tests.waiting import HANG_SECONDS, until

AGENT = {"claude": PROPOSER}
PARAMS: dict[str, Any] = {"name": "Bash", "arguments": {"input": {"command": "make"}, "folder": "/w"}}


def told(agent: AgentName = "claude-code", **more: Any) -> bytes:
    call = {"hook_event_name": EVENTS[agent], "tool_name": "Bash", "tool_input": {"command": "make"}}
    return json.dumps(call | {"cwd": "/w", "session_id": "s", "tool_use_id": "t"} | more).encode()


class Hook:
    """One hook, as its own connection of the agent's member."""

    def __init__(self, space: JoinedSpace, folder: Path, seconds: float) -> None:
        self._stack = ExitStack()
        self._space = space
        gate = HookGate(space, folder, self._stack)
        self.task = asyncio.ensure_future(gate.wait_for_release(PARAMS, seconds))

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._space.close()
        self._stack.close()


async def start_hook(served: ServedSpace, folder: Path, seconds: float = 20.0) -> Hook:
    return Hook(await served.join("claude", passive=True), folder, seconds)


async def the_proposal(alice: JoinedSpace, count: int = 1) -> Any:
    await until(lambda: len(alice.proposals.open()) == count)
    return alice.proposals.open()[-1]


async def test_an_approval_releases_the_call_and_tells_the_approver(tmp_path: Path) -> None:
    async with served_space(tmp_path, AGENT) as served:
        alice = await served.join("alice")
        hook = await start_hook(served, tmp_path)
        seen = await the_proposal(alice)
        assert (seen.proposer, seen.to, seen.params) == ("claude", ("claude",), PARAMS)
        outcome = await alice.approve(seen)
        assert "the agent makes this call itself" in outcome.text
        assert await hook.task == "alice"


async def test_a_rejection_stops_it_and_leaves_nothing_to_approve(tmp_path: Path) -> None:
    async with served_space(tmp_path, AGENT) as served:
        alice = await served.join("alice")
        hook = await start_hook(served, tmp_path)
        await alice.reject(await the_proposal(alice), "unsafe", explanation="use the trash")
        with pytest.raises(Rejected) as refused:
            await hook.task
        await until(lambda: not alice.proposals.open())
    assert describe_refusal(refused.value) == "rejected by alice: unsafe; alice wrote: use the trash"


async def test_a_retry_waits_for_the_same_proposal_which_releases_once(tmp_path: Path) -> None:
    async with served_space(tmp_path, AGENT) as served:
        alice = await served.join("alice")
        first = await start_hook(served, tmp_path, 0.05)
        with pytest.raises(TimedOut, match="stays open"):
            await first.task
        seen = await the_proposal(alice)
        await first.kill()
        again = await start_hook(served, tmp_path)
        # The same call at the same time is another execution: it needs an approval of its own.
        beside = await start_hook(served, tmp_path)
        other = await the_proposal(alice, 2)
        assert other.id != seen.id
        await alice.approve(seen)
        tasks = {again.task, beside.task}
        done, left = await asyncio.wait(tasks, timeout=HANG_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(left)) == (1, 1)
        # Everything that the first approval could release has been heard by now.
        await (await served.join("bob")).chat("?")
        assert not left.pop().done()
        await alice.approve(other)
        assert [await task for task in tasks] == ["alice", "alice"]


async def test_an_approval_after_the_time_is_over_releases_nothing(tmp_path: Path) -> None:
    """The hook is about to end and still connected: it must not say that it was released."""
    async with served_space(tmp_path, AGENT) as served:
        alice = await served.join("alice")
        late = await start_hook(served, tmp_path, 0.05)
        with pytest.raises(TimedOut):
            await late.task
        outcome = await alice.approve(await the_proposal(alice))
        assert (outcome.is_error, "was not used" in outcome.text) == (True, True)


async def test_an_approval_for_a_hook_that_is_gone_is_not_used(tmp_path: Path) -> None:
    async with served_space(tmp_path, AGENT) as served:
        alice = await served.join("alice")
        gone = await start_hook(served, tmp_path)
        seen = await the_proposal(alice)
        await gone.kill()
        stack = ExitStack()
        HookGate(await served.join("claude", passive=True), tmp_path, stack)
        outcome = await alice.approve(seen)
        assert outcome.is_error
        assert "the approval was not used" in outcome.text
        stack.close()


async def test_a_grant_releases_without_asking_and_is_seen(tmp_path: Path) -> None:
    right = {"kind": "mcp/request", "to": ["claude"], "payload": {"method": "tools/call"}}
    async with served_space(tmp_path, {"claude": [*PROPOSER, right]}) as served:
        alice = await served.join("alice")
        received: list[str] = []
        alice.on("mcp/request")(lambda envelope: received.append(envelope.sender))
        hook = await start_hook(served, tmp_path)
        assert await hook.task == "a grant"
        await until(lambda: received == ["claude"])
        assert not alice.proposals.open()


async def test_a_grant_does_not_release_what_needs_several_approvals(tmp_path: Path) -> None:
    """D-103: then the hook asks as if there were no grant."""
    right = {"kind": "mcp/request", "to": ["claude"], "payload": {"method": "tools/call"}}
    rules = {"quorum": [{"approvals_needed": 2}]}
    async with served_space(tmp_path, {"claude": [*PROPOSER, right]}, rules) as served:
        alice, bob = await served.join("alice"), await served.join("bob")
        hook = await start_hook(served, tmp_path)
        seen = await the_proposal(alice)
        with pytest.raises(VoteCounted):
            await alice.approve(seen)
        assert not hook.task.done()
        assert "the agent makes this call itself" in (await bob.approve(await the_proposal(bob))).text
        assert await hook.task == "bob"


@pytest.mark.parametrize("has_service", [True, False])
async def test_the_command_allows_what_was_approved_and_stops_everything_else(
    tmp_path: Path, service_folder: Path, has_service: bool
) -> None:
    """A real process: approved it prints "allow"; killed, or without a gateway, it never does."""
    if not has_service:
        # Others could put a socket there: each hook does all by itself.
        service_folder.chmod(0o755)
    async with served_space(tmp_path, AGENT) as served:
        alice = await served.join("alice")
        state = tmp_path / "state"
        fixed = ["-m", "moot.cli", "hook", "claude-code", "--token-file", str(token_file(tmp_path, "claude"))]
        fixed += ["--state", str(state), "--space", "lab", "--gateway"]
        async with process([*fixed, served.gateway.url]) as killed:
            assert killed.stdin is not None
            killed.stdin.write(told())
            killed.stdin.close()
            seen = await the_proposal(alice)
            killed.kill()
            assert await killed.wait() != 0
        async with (
            process([*fixed, served.gateway.url]) as retry,
            process([*fixed, "http://127.0.0.1:9"]) as lost,
        ):
            retried = asyncio.ensure_future(retry.communicate(told()))
            _, why = await lost.communicate(told())
            assert (lost.returncode, b"Not allowed" in why) == (2, True)
            await until(lambda: "claude" in alice.roster)
            await _approve_when_present(alice, seen.id)
            out, _ = await retried
            assert retry.returncode == 0
            assert json.loads(out)["hookSpecificOutput"]["permissionDecision"] == "allow"
        assert len(list(alice.proposals)) == 1
        assert bool(list(service_folder.iterdir())) == has_service
        chats: list[str] = []
        alice.on("chat")(lambda chat: chats.append(chat.payload["text"]))
        async with (
            process([*fixed, served.gateway.url]) as report,
            process([*fixed, "http://127.0.0.1:9"]) as lost,
        ):
            await report.communicate(told(hook_event_name="PostToolUse", tool_response={"stdout": "secret"}))
            await lost.communicate(told(hook_event_name="PostToolUse"))
            assert (report.returncode, lost.returncode) == (0, 1)
        await until(lambda: chats == ['Reported by the agent: has ended: Bash {"command":"make"}'])


@pytest.mark.parametrize("agent", get_args(AgentName))
def test_a_report_has_the_call_and_whether_it_failed_and_not_what_came_out(agent: AgentName) -> None:
    def report(event: str, **more: Any) -> str | None:
        return read_report(agent, told(agent, hook_event_name=event, **more))

    after = AFTER_EVENTS[agent]
    for event in after:
        assert "secret" not in str(report(event, tool_response={"stdout": "secret"}))
    assert str(report(after[0], tool_response="secret")).endswith('has ended: Bash {"command":"make"}')
    assert "failed: Bash" in str(report(after[0], tool_response={"error": "secret"}))
    assert ("failed: Bash" in str(report(after[-1]))) == (agent == "claude-code")
    # Hidden characters are seen, and a long call is cut.
    long = str(report(after[0], tool_input={"command": "\u202e" + "x" * 10_000}))
    assert "\u202e" not in long
    assert len(long) < MAX_REPORT_CHARS + 100
    # An event before the call is no report: it has to be decided.
    assert report(EVENTS[agent]) is None


async def _approve_when_present(alice: JoinedSpace, id: str) -> None:
    """Approve once the retry holds the proposal; before that the gateway refuses, as its host is absent."""
    from moot.errors import TargetAbsent

    while True:
        try:
            outcome = await alice.approve(id)
            assert not outcome.is_error
            return
        except TargetAbsent:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("agent", get_args(AgentName))
def test_each_agent_is_read_and_answered_in_its_own_form(agent: AgentName) -> None:
    call = read_call(agent, told(agent))
    assert call.params == PARAMS
    answer = json.loads(allow_answer(agent, "alice"))
    if agent == "gemini":
        assert answer["decision"] == "allow"
    else:
        assert answer["hookSpecificOutput"]["hookEventName"] == EVENTS[agent]
        assert "allow" in json.dumps(answer)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        told(hook_event_name="PostToolUse"),
        told(tool_input="x"),
        told(tool_name=""),
        told(cwd=1),
    ],
)
def test_a_call_that_cannot_be_shown_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError):
        read_call("claude-code", data)


def test_a_call_that_is_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match="smaller parts"):
        read_call("claude-code", told(tool_input={"x": "y" * MAX_CALL_BYTES}))


@pytest.mark.parametrize("agent", get_args(AgentName))
def test_init_adds_the_hook_beside_what_is_there(
    tmp_path: Path, agent: AgentName, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "project" / FILES[agent]
    path.parent.mkdir(parents=True)
    other = {"matcher": "Write", "hooks": [{"type": "command", "command": "lint"}]}
    before = {
        "model": "ü",
        "hooks": {EVENTS[agent]: [other], "Stop": [other]},
        "permissions": {"deny": ["X"]},
    }
    path.write_text(json.dumps(before))
    file = token_file(tmp_path, "claude")
    words = ["init", agent, str(tmp_path / "project"), "--gateway", "http://g:1", "--token-file", str(file)]
    assert main([*words, "--print"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(path.read_text()) == before
    for _ in range(2):
        assert main(words) == 0
    after = json.loads(path.read_text())
    ours = after["hooks"][EVENTS[agent]].pop()
    reports = {event: after["hooks"].pop(event) for event in AFTER_EVENTS[agent]}
    assert after == before
    assert printed["hooks"] == {EVENTS[agent]: [ours]} | reports
    for (report,) in reports.values():
        # What has happened is not stopped by a report that fails.
        assert "exit 2" not in report["hooks"][0]["command"]
    (hook,) = ours["hooks"]
    assert str(file) in hook["command"]
    assert hook["command"].endswith("|| exit 2")
    assert (hook.get("onFailure") == "block") == (agent == "claude-code")
    (backup,) = path.parent.glob("*.before-moot-*")
    assert json.loads(backup.read_text()) == before


def test_settings_that_are_no_plain_json_are_left_alone(tmp_path: Path) -> None:
    for text in ("{// comment\n}", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}'):
        with pytest.raises(UsageError, match="nothing was changed"):
            merge_settings("claude-code", text, ["moot"])
    assert main(["init", "claude-code", str(tmp_path)]) == 2


def test_the_hook_of_claude_code_is_in_the_file_of_one_person_and_nowhere_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names a token file and an installation, which others who work on the project do not have."""
    shared = tmp_path / ".claude" / "settings.json"
    shared.parent.mkdir()
    others = {
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]}]}
    }
    old = merge_settings(
        "claude-code", json.dumps(others), ["/old/moot", "hook", "claude-code", "--space", "x"]
    )
    shared.write_text(old)
    token = token_file(tmp_path, "claude")
    options = ["--gateway", "http://127.0.0.1:9", "--space", "lab", "--token-file", str(token)]
    assert main(["init", "claude-code", str(tmp_path), *options]) == 0
    assert json.loads(shared.read_text()) == others
    own = (tmp_path / ".claude" / "settings.local.json").read_text()
    assert own.count(" hook claude-code ") == 3
    assert "removed the hook of an earlier run" in capsys.readouterr().err
