"""A call that changes while people decide: what was not shown cannot be approved (decision 0149)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moot.agents.acp.shown_call import show
from moot.agents.acp.tool_calls import AgentToolCall
from moot.errors import MootError
from moot.trust.learning.learner import suggest
from tests.agents.acp.agent_space import agent_space, diff, tool_update
from tests.trust.histories import START, history
from tests.trust.histories import call as decided_call
from tests.waiting import until

WORK = Path("/srv/work")


def call(**fields: Any) -> AgentToolCall:
    made = AgentToolCall("c1")
    made.merge(fields)
    return made


def title_only(kind: str, title: str) -> dict[str, Any]:
    return {"toolCallId": "c1", "kind": kind, "title": title}


@pytest.mark.parametrize(
    ("asked", "later", "shown"),
    [
        # By title alone, then a command.
        (title_only("read", "Read README.md"), {"rawInput": {"command": "rm -rf ~"}}, "rm -rf ~"),
        (title_only("read", "Read README.md"), {"title": "Read ~/.ssh/id_rsa"}, "id_rsa"),
        (title_only("execute", "ls"), {"title": "rm -rf ~"}, "rm -rf ~"),
        # Another command, another folder for it, another program for it.
        ({"toolCallId": "c1", "rawInput": {"command": "ls"}}, {"rawInput": {"command": "rm"}}, "rm"),
        ({"toolCallId": "c1", "rawInput": {"command": "ls"}},
         {"rawInput": {"command": "ls", "cwd": "/etc"}}, "/etc"),
        ({"toolCallId": "c1", "rawInput": {"command": "ls", "cwd": "a"}},
         {"rawInput": {"command": "ls", "cwd": "b"}}, "b"),
        ({"toolCallId": "c1", "rawInput": {"command": "sh"}},
         {"rawInput": {"command": "sh", "args": ["-c", "rm"]}}, "-c"),
        # Another text, another target.
        ({"toolCallId": "c1", "kind": "edit", "content": [diff("a", None, "1")]},
         {"content": [diff("a", None, "2")]}, "2"),
        ({"toolCallId": "c1", "kind": "edit", "content": [diff("a", None, "1")]},
         {"content": [diff("b", None, "1")]}, "b"),
        ({"toolCallId": "c1", "kind": "read", "rawInput": {"path": "a"}},
         {"locations": [{"path": "/etc/passwd"}]}, "/etc/passwd"),
    ],
)  # fmt: skip
async def test_another_command_text_or_target_starts_over(
    tmp_path: Path, asked: dict[str, Any], later: dict[str, Any], shown: str
) -> None:
    go = tmp_path / "go"
    late = [{"await_file": str(go)}, tool_update("c1", **later)]
    async with agent_space(
        tmp_path, [{"ask": asked, "meanwhile": late, "allowed": [{"say": "Done."}]}]
    ) as space:
        await space.ask()
        first = await space.proposal()
        go.touch()
        withdrawn = await space.wait_for("mcp/withdraw")
        assert list(withdrawn.correlation_id) == [first.id]
        assert withdrawn.payload["reason"] == "superseded"
        await space.wait_for("chat", "the agent changed the call while it was being decided")
        second = await space.proposal(2)
        assert shown in str(second.payload["params"]["arguments"])
        with pytest.raises(MootError):
            await space.alice.approve(first.id)
        assert space.outcomes() == []
        space.approve_later(second)
        await space.wait_for("chat", "Done.")
        await space.decided("once")


async def test_facts_that_are_added_to_the_same_command_change_nothing(tmp_path: Path) -> None:
    """OpenCode asks with the command alone, and tells its description and its folder in the same moment."""
    command = "echo hi > out.txt"
    facts = {"command": command, "description": "makes a file", "cwd": str(tmp_path / "work")}
    go = tmp_path / "go"
    later = tool_update("c1", status="in_progress", rawInput=facts)
    ask = {"toolCallId": "c1", "kind": "execute", "title": command, "rawInput": {"command": command}}
    told = {"output": "done\n", "metadata": {"exit": 3}}
    done = [tool_update("c1", status="completed", rawInput=facts, rawOutput=told)]
    turn = {"ask": ask, "meanwhile": [{"await_file": str(go)}, later, {"say": "told"}], "allowed": done}
    async with agent_space(tmp_path, [turn]) as space:
        await space.ask()
        proposal = await space.proposal()
        go.touch()
        await until(lambda: "makes a file" in str([each.payload for each in space.of("reasoning/thought")]))
        outcome = await space.alice.approve(proposal.id)
        assert not outcome.is_error
        assert "exit code 3" in outcome.text
        assert len(space.of("mcp/proposal")) == 1
        await space.decided("once")


async def test_an_agent_that_changes_its_call_on_and_on_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.acp.permissions.MAX_CALL_CHANGES", 2)
    late = [
        step
        for number in range(3)
        for step in (
            {"await_file": str(tmp_path / f"go-{number}")},
            tool_update("c1", rawInput={"command": f"rm {number}"}),
        )
    ]
    ask = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": "ls"}}
    async with agent_space(tmp_path, [{"ask": ask, "meanwhile": late}]) as space:
        await space.ask()
        for number in range(3):
            await space.proposal(number + 1)
            (tmp_path / f"go-{number}").touch()
        await space.decided("no")
        assert len(space.of("mcp/proposal")) == 3


async def test_another_call_than_the_title_that_was_approved_is_said_loudly(tmp_path: Path) -> None:
    done = [tool_update("c1", status="completed", rawInput={"command": "rm -rf ~"})]
    turn = {"ask": title_only("read", "Read README.md"), "allowed": done}
    async with agent_space(tmp_path, [turn]) as space:
        await space.ask()
        outcome = await space.alice.approve((await space.proposal()).id)
        assert outcome.is_error
        await space.wait_for("chat", "WARNING: the agent reports another call than the one that was approved")


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "read", "rawInput": {"command": "rm -rf ~"}},
        {"kind": "edit", "rawInput": {"command": "rm -rf ~"}},
        {"kind": "search", "rawInput": {"call": {"steps": [{"shell_command": "rm -rf ~"}]}}},
        {"kind": "read", "rawInput": {"argv": ["rm", "-rf", "~"]}},
        {"kind": "read", "title": "`rm -rf ~`"},
        {"kind": "read", "title": "Read a", "rawInput": {"path": "a"},
         "content": [{"type": "content", "content": {"type": "text", "text": "Run:\n```sh\nrm -rf ~\n```"}}]},
        {"kind": "read", "title": "Read a", "content": [{"type": "terminal", "terminalId": "t"}]},
    ],
)  # fmt: skip
def test_a_command_is_recognised_wherever_it_stands(fields: dict[str, Any]) -> None:
    shown = show(call(**fields), WORK)
    assert shown.name == "execute"
    assert "rm" in str(shown.arguments) or "command" in str(shown.arguments["missing"])


@pytest.mark.parametrize("kind", ["read", "search", "think", "fetch", "switch_mode", "other", "nonsense"])
def test_a_harmless_kind_with_a_title_alone_is_not_believed(kind: str) -> None:
    shown = show(call(kind=kind, title="rm -rf ~"), WORK)
    assert (shown.name, shown.arguments) == ("other", {"title": "rm -rf ~", "missing": ["input"]})


def test_a_harmless_kind_with_an_input_that_shows_no_command_is_believed() -> None:
    assert show(call(kind="read", rawInput={"path": "a.txt"}), WORK).name == "read"


def test_a_command_of_gemini_is_its_title_and_alike_each_time() -> None:
    """It tells the folder and a description as text; rules can name such a call by its title."""
    text = f"[current working directory {WORK}/sub] (lists the files)"
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    shown = show(call(kind="execute", title="ls -l", content=content), WORK)
    assert shown.arguments == {"title": "ls -l", "missing": ["input", "command"]}
    content[0]["content"]["text"] = "[current working directory /etc] (lists the files)"  # type: ignore[index]
    shown = show(call(kind="execute", title="ls -l", content=content), WORK)
    assert shown.arguments["outside_folder"] == ["/etc"]


async def test_what_codex_and_gemini_tell_of_a_command_reaches_who_approved(tmp_path: Path) -> None:
    ask = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": "make"}}
    parts = [
        tool_update("c1", _meta={"terminal_output_delta": {"data": part, "terminal_id": "c1"}})
        for part in ("one\n", "two\n")
    ]
    end = tool_update("c1", status="failed", _meta={"terminal_exit": {"exit_code": 2, "signal": None}})
    bare = {"toolCallId": "c2", "kind": "execute", "title": "make"}
    over = tool_update("c2", status="completed", content=[])
    turn = [{"ask": ask, "allowed": [*parts, end]}, {"ask": bare, "allowed": [over]}]
    async with agent_space(tmp_path, turn) as space:
        await space.ask()
        codex = await space.alice.approve((await space.proposal()).id)
        assert codex.is_error
        assert codex.text.endswith("exit code 2\none\ntwo\n")
        await space.wait_for("reasoning/thought", "exit code 2")
        gemini = await space.alice.approve((await space.proposal(2)).id)
        assert gemini.text.endswith("(the agent told neither output nor exit code)")


async def test_of_two_things_under_one_id_the_rejected_one_is_not_called_allowed(tmp_path: Path) -> None:
    """Codex writes to a shell that runs under the id of that shell, and ends its turn when it may not."""
    shell = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": "bash -i"}}
    typed = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": "write_stdin 'rm -rf ~'"}}
    turn = {"ask": shell, "allowed": [{"ask": typed, "refused": [{"stop": "cancelled"}]}]}
    async with agent_space(tmp_path, [turn]) as space:
        await space.ask()
        space.approve_later(await space.proposal())
        await space.alice.reject((await space.proposal(2)).id)
        told = await space.wait_for("chat", "This was allowed, and whether it was done is not known")
        assert "execute: bash -i" in told.payload["text"]
        assert not [
            each
            for each in space.of("chat")
            if "allowed" in each.payload["text"] and "rm" in each.payload["text"]
        ]


def test_rules_are_learned_for_calls_that_come_with_a_title_alone() -> None:
    """Gemini CLI describes each command in other words, which are no part of what is decided."""
    shown = []
    for number in range(12):
        text = f"[current working directory {WORK}] (step {number}: see what has changed)"
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        shown.append(show(call(kind="execute", title="git status", content=content), WORK).arguments)
    (suggestion,) = suggest(history(shown, tool="execute"), now=START + 86_400.0)
    assert suggestion.rule.matches(decided_call(shown[0], tool="execute"), START)
    other = show(call(kind="execute", title="git push"), WORK).arguments
    assert not suggestion.rule.matches(decided_call(other, tool="execute"), START)
