"""Agents that lie about their calls: what is held, and what is only said loudly (docs: what is prevented)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moot.agents.acp.tool_calls import AgentToolCall
from moot.errors import MootError
from tests.agents.acp.agent_space import agent_space, diff, tool_update
from tests.waiting import until

OPTION = {"optionId": "once", "name": "Once", "kind": "allow_once"}
LIST: dict[str, Any] = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": "ls"}}


async def test_a_call_that_is_done_before_it_was_decided_is_said_loudly_and_releases_nothing(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    done = [{"await_file": str(go)}, tool_update("c1", status="completed")]
    async with agent_space(tmp_path, [{"ask": LIST, "meanwhile": done}]) as space:
        await space.ask()
        proposal = await space.proposal()
        go.touch()
        await space.wait_for(
            "chat", "WARNING: the agent reports this as done before it was decided: execute: ls"
        )
        await space.wait_for("mcp/withdraw")
        await space.decided("no")
        with pytest.raises(MootError):
            await space.alice.approve(proposal.id)


async def test_a_call_that_is_done_although_it_was_rejected_is_said_loudly(tmp_path: Path) -> None:
    refused = [tool_update("c1", status="completed")]
    async with agent_space(tmp_path, [{"ask": LIST, "refused": refused}]) as space:
        await space.ask()
        await space.alice.reject((await space.proposal()).id)
        await space.wait_for(
            "chat", "WARNING: the agent reports this as done although it was not allowed: execute: ls"
        )


async def test_a_second_request_about_the_same_call_cannot_use_the_approval_of_the_first(
    tmp_path: Path,
) -> None:
    """People see `ls`; meanwhile the agent asks for another command under the same id."""
    go = tmp_path / "go"
    other = LIST | {"rawInput": {"command": "rm -rf /"}}
    params = {"sessionId": "session-1", "toolCall": other, "options": [OPTION]}
    second = {"jsonrpc": "2.0", "id": 77, "method": "session/request_permission", "params": params}
    late = [{"await_file": str(go)}, {"send": second}]
    turn = {"ask": LIST, "meanwhile": late, "refused": [{"await_cancel": True}]}
    async with agent_space(tmp_path, [turn]) as space:
        await space.ask()
        first = await space.proposal()
        go.touch()
        shown = (await space.proposal(2)).payload["params"]["arguments"]
        assert shown["input"] == {"command": "rm -rf /"}
        await space.decided("no")
        with pytest.raises(MootError):
            await space.alice.approve(first.id)
        assert not [each for each in space.received() if each.get("id") == 77]


async def test_a_request_that_nobody_has_prompted_is_decided_like_any_other(tmp_path: Path) -> None:
    params = {"sessionId": "session-1", "toolCall": LIST, "options": [OPTION]}
    alone = {"jsonrpc": "2.0", "id": 77, "method": "session/request_permission", "params": params}
    async with agent_space(tmp_path, [{"say": "Done."}]) as space:
        await space.ask()
        await space.wait_for("chat", "Done.")
        await space.idle()
        space.member.agent.process.peer.feed(json.dumps(alone).encode())
        await space.alice.reject((await space.proposal()).id)
        await until(lambda: [each for each in space.received() if each.get("id") == 77])
        assert space.outcomes() == [{"outcome": "cancelled"}]


def test_paths_are_found_however_deep_they_are(tmp_path: Path) -> None:
    """What leads out of the folder is named, wherever in the input it stands."""
    call = AgentToolCall("c1")
    call.merge(
        {
            "rawInput": {
                "edits": [{"file_path": "/etc/passwd"}, {"file_path": "a.txt"}],
                "paths": ["../up", "b.txt"],
                "destination": "~/.ssh/config",
                "resource": {"uri": "file:///etc/hosts"},
                "url": "https://example.org/etc",
                "content": "/not/a/path/by/its/name",
            },
            "content": [diff("c.txt", None, "x")],
        }
    )
    assert call.outside(tmp_path) == ["/etc/passwd", "../up", "~/.ssh/config", "file:///etc/hosts"]
