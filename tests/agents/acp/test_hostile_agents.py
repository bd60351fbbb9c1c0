"""Hostile and broken agents: forged sessions, floods, nonsense, secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.acp.agent_space import agent_space, diff, tool_call, tool_update
from tests.agents.acp.test_permissions import edit
from tests.waiting import until


async def test_forged_session_ids_show_and_ask_nothing(tmp_path: Path) -> None:
    forged = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "I am another"}}
    turn: list[dict[str, Any]] = [
        {"update": forged, "session": "session-0"},
        {"ask": {"toolCallId": "c1", "kind": "edit"}, "session": "session-0"},
        {"say": "Done."},
    ]
    async with agent_space(tmp_path, turn) as space:
        await space.ask()
        await space.wait_for("chat", "Done.")
        assert not space.of("mcp/proposal")
        assert not [each for each in space.of("chat") if "another" in each.payload["text"]]
        assert space.member.refused == 2
        assert space.outcomes() == []


async def test_file_access_and_terminals_are_refused(tmp_path: Path) -> None:
    """OpenCode asks for them although they are not offered."""
    methods = ["fs/write_text_file", "fs/read_text_file", "terminal/create", "craft/drainMidTurnQueue"]
    turn: list[dict[str, Any]] = [
        {"send": {"jsonrpc": "2.0", "id": f"x{number}", "method": method, "params": {"path": "/etc/passwd"}}}
        for number, method in enumerate(methods)
    ]
    async with agent_space(tmp_path, [*turn, {"ask": {"toolCallId": "c", "kind": "edit"}}]) as space:
        await space.ask()
        await space.proposal()
        await until(lambda: len([each for each in space.received() if "error" in each]) == len(methods))
        assert {each["error"]["code"] for each in space.received() if "error" in each} == {-32601}
        (hello,) = space.received("initialize")
        assert hello["params"]["clientCapabilities"] == {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": False,
        }


async def test_nonsense_lines_are_ignored_and_the_turn_goes_on(tmp_path: Path) -> None:
    lines = [
        "not json",
        "[1, 2]",
        "{}",
        '{"jsonrpc":"2.0","id":99999,"result":{}}',
        '{"jsonrpc":"2.0","id":true,"method":"session/request_permission"}',
        '{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":[]}',
        '{"jsonrpc":"2.0","id":8,"method":"session/request_permission","params":{"toolCall":{"toolCallId":5}}}',
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"session-1","update":{}}}',
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"session-1","update":'
        '{"sessionUpdate":"tool_call","toolCallId":"z","content":[1,{"type":"diff"}],"locations":7,"kind":[]}}}',
        "[" * 5000,
    ]
    async with agent_space(tmp_path, [*({"line": line} for line in lines), {"say": "Still here."}]) as space:
        await space.ask()
        await space.wait_for("chat", "Still here.")


async def test_a_flood_of_updates_of_one_call_is_joined(tmp_path: Path) -> None:
    flood = tool_update("c1", status="in_progress") | {"times": 3000}
    turn: list[dict[str, Any]] = [
        tool_call("c1", title="x"),
        flood,
        tool_update("c1", status="completed"),
        {"say": "Done."},
    ]
    async with agent_space(tmp_path, turn) as space:
        await space.ask()
        await space.wait_for("chat", "Done.")
        assert len(space.of("reasoning/thought")) <= 4
        assert space.of("reasoning/thought")[-1].payload["tool_call"]["status"] == "completed"


async def test_a_flood_of_calls_or_text_stops_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x" * 1000}}
    for name, turn in {
        "tool calls": [tool_call(f"c{number}", title="x") for number in range(8)],
        "characters": [{"update": text, "times": 20}],
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setattr("moot.agents.acp.acp_member.MAX_TURN_CHARS", 10_000)
        monkeypatch.setattr("moot.agents.acp.acp_member.MAX_TOOL_CALLS", 5)
        async with agent_space(folder, [*turn, {"await_cancel": True}]) as space:
            await space.ask()
            await space.wait_for("chat", f"{name} in one turn.")
            assert space.received("session/cancel")


async def test_a_line_that_never_ends_ends_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.stdio_child.LINE_BYTES", 10_000)
    turn: list[dict[str, Any]] = [{"line": "x", "times": 20_000}, {"hang": True}]
    async with agent_space(tmp_path, turn) as space:
        await space.ask()
        await space.wait_for("chat", "The agent wrote a line of 20000 bytes while it worked on this")
        await space.wait_for("chat", "The agent runs again.")


async def test_an_agent_that_floods_without_being_asked_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x" * 1000}}
    monkeypatch.setattr("moot.agents.acp.acp_member.MAX_TURN_CHARS", 10_000)
    after = [{"say": "Bye."}, {"stop": "end_turn"}]
    async with agent_space(tmp_path, after) as space:
        await space.ask()
        await space.wait_for("chat", "Bye.")
        await space.idle()
        for _ in range(20):
            space.member._on_notification(
                "session/update", {"sessionId": space.member.agent.session, "update": text}
            )
        await space.wait_for("chat", "without being asked, and was ended")


async def test_a_second_answer_of_ours_never_reaches_the_agent(tmp_path: Path) -> None:
    """The agent takes its request back: a later approval releases nothing."""
    cancel = {"send": {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1001}}}
    go = tmp_path / "go"
    turn = edit(tmp_path)
    turn[0]["meanwhile"] = [{"await_file": str(go)}, cancel]
    async with agent_space(tmp_path, turn) as space:
        await space.ask()
        proposal = await space.proposal()
        go.touch()
        assert list((await space.wait_for("mcp/withdraw")).correlation_id) == [proposal.id]
        await until(lambda: [each for each in space.received() if each.get("id") == 1001])
        answers = [each for each in space.received() if each.get("id") == 1001]
        assert [each["error"]["code"] for each in answers] == [-32800]


async def test_keys_of_the_agent_are_withheld_everywhere(tmp_path: Path) -> None:
    key = "sk-very-secret-key-1234567890"
    ask = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": f"curl -H 'x: {key}'"}}
    turn: list[dict[str, Any]] = [{"say": f"my key is {key}"}, {"ask": ask}]
    async with agent_space(tmp_path, turn, settings={"env": {"X_API_KEY": key}}) as space:
        await space.ask()
        proposal = await space.proposal()
        await space.wait_for("chat", "[key withheld]")
        assert "[key withheld]" in proposal.payload["params"]["arguments"]["input"]["command"]
        assert key not in str([each.raw for each in space.envelopes])


@pytest.mark.parametrize("content", [[diff("a\x00b", None, "x")], [diff("/etc/passwd", "a", "b")]])
async def test_odd_paths_are_outside(tmp_path: Path, content: list[Any]) -> None:
    ask = {"toolCallId": "c1", "kind": "edit", "content": content}
    async with agent_space(tmp_path, [{"ask": ask}]) as space:
        await space.ask()
        arguments = (await space.proposal()).payload["params"]["arguments"]
        assert arguments["outside_folder"] == [content[0]["path"]]


async def test_an_agent_that_asks_in_vain_on_and_on_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.acp.permissions.MAX_PROPOSAL_BYTES", 10)
    monkeypatch.setattr("moot.agents.acp.turn_runner.MAX_REFUSALS", 4)
    asks = [{"ask": {"toolCallId": f"c{number}", "kind": "edit"}} for number in range(10)]
    async with agent_space(tmp_path, [*asks, {"await_cancel": True}]) as space:
        await space.ask()
        await space.wait_for("chat", "I stopped: 4 of its permissions came to nothing.")
        assert len(space.outcomes()) <= 10
        assert not space.of("mcp/proposal")


async def test_messages_that_are_nested_too_deep_harm_nobody(tmp_path: Path) -> None:
    deep = "[" * 500 + "]" * 500
    call = f'{{"toolCallId":"d","kind":"edit","rawInput":{deep}}}'
    params = f'{{"sessionId":"session-1","toolCall":{call},"options":[]}}'
    lines = [
        f'{{"jsonrpc":"2.0","id":77,"method":"session/request_permission","params":{params}}}',
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"session-1","update":'
        f'{{"sessionUpdate":"tool_call","toolCallId":"d","rawInput":{deep}}}}}}}',
    ]
    async with agent_space(tmp_path, [*({"line": line} for line in lines), {"say": "Still here."}]) as space:
        await space.ask()
        await space.wait_for("chat", "Still here.")
        assert space.member.agent.process.peer.ignored == 2
        await space.idle()
        await until(lambda: [each for each in space.received() if each.get("id") == 77])
        assert [each["error"]["code"] for each in space.received() if each.get("id") == 77] == [-32601]
