"""`moot mcp --permission-tool`: what Claude Code would ask its user is decided in the space, or denied."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp import Client, StdioServerParameters
from moot.agents.hook.hook_call import MAX_CALL_BYTES, HookCall
from moot.agents.hook.hook_gate import HookMember
from moot.agents.hook.permission_tool import PERMISSION_TOOL, PermissionBackend
from moot.cli import main
from moot.errors import McpError
from moot.mcp.downstream.backend import BackendCall
from tests.agents.hook.test_agent_hook import AGENT, the_proposal
from tests.bridges.served_space import served_space, text_of
from tests.bridges.space.test_mcp_command import token_file
from tests.waiting import bounded
from tests.warm_start import warm_programs

ASKED: dict[str, Any] = {"tool_name": "Bash", "input": {"command": "make"}, "tool_use_id": "t1"}


async def ask(backend: PermissionBackend, arguments: Any = None) -> dict[str, Any]:
    params = {"name": PERMISSION_TOOL, "arguments": ASKED if arguments is None else arguments}
    answer = await backend.perform(BackendCall("tools/call", params))
    assert isinstance(answer["content"], list)
    found: dict[str, Any] = json.loads(answer["content"][0]["text"])
    return found


def member(gateway: str, folder: Path) -> HookMember:
    return HookMember(gateway=gateway, space="lab", token="t-claude", state_folder=folder)


async def test_an_approval_allows_exactly_that_call_and_a_rejection_denies_it(tmp_path: Path) -> None:
    async with served_space(tmp_path, AGENT) as served:
        alice = await served.join("alice")
        backend = PermissionBackend(member(served.gateway.url, tmp_path), "/w", 1e6)
        asking = asyncio.ensure_future(ask(backend))
        seen = await the_proposal(alice)
        arguments = {"input": {"command": "make"}, "folder": "/w"}
        assert (seen.to, seen.params) == (("claude",), {"name": "Bash", "arguments": arguments})
        await alice.approve(seen)
        assert await asking == {"behavior": "allow", "updatedInput": {"command": "make"}}
        # One approval is for one call.
        again = asyncio.ensure_future(ask(backend))
        await alice.reject(await the_proposal(alice), "unsafe")
        denied = await again
        assert denied["behavior"] == "deny"
        assert denied["message"] == "Not allowed by the Moot space: rejected by alice: unsafe"


class Broken:
    async def wait_for_release(self, call: HookCall, wait_seconds: float) -> str:
        raise RuntimeError("a fault of ours, with /secret/path")


async def test_everything_that_is_no_approval_is_denied(tmp_path: Path) -> None:
    backend = PermissionBackend(member("http://127.0.0.1:9", tmp_path), "/w", 1e6)
    big = ASKED | {"input": {"x": "y" * MAX_CALL_BYTES}}
    bad: list[Any] = [None, [], {}, ASKED | {"tool_name": ""}, ASKED | {"input": "make"}, big]
    for given in bad:
        assert (await ask(backend, given))["behavior"] == "deny", given
    broken = await ask(PermissionBackend(Broken(), "/w", 1e6))
    assert broken == {
        "behavior": "deny",
        "message": "Not allowed by the Moot space: the permission prompt failed",
    }
    with pytest.raises(McpError):
        await backend.perform(BackendCall("tools/call", {"name": "other"}))


async def test_nobody_decides_in_time_and_the_call_is_denied(tmp_path: Path) -> None:
    async with served_space(tmp_path, AGENT) as served:
        denied = await ask(PermissionBackend(member(served.gateway.url, tmp_path), "/w", 0.05))
        assert "nobody decided within 0.05 s" in denied["message"]


async def test_claude_code_starts_it_and_finds_one_tool(tmp_path: Path) -> None:
    """The process, with the official client."""
    file = str(token_file(tmp_path, "claude"))
    async with served_space(tmp_path, AGENT) as served:
        alice = await served.join("alice")
        words = [
            "mcp",
            "--permission-tool",
            "--gateway",
            served.gateway.url,
            "--space",
            "lab",
        ]
        started = StdioServerParameters(
            command=str(warm_programs() / "moot"),
            args=[*words, "--token-file", file],
            env={"XDG_STATE_HOME": str(tmp_path / "state")},
            cwd=tmp_path,
        )
        async with bounded(), Client(started) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [PERMISSION_TOOL]
            asking = asyncio.ensure_future(client.call_tool(PERMISSION_TOOL, ASKED))
            seen = await the_proposal(alice)
            assert seen.params["arguments"]["folder"] == str(tmp_path)
            await alice.approve(seen)
            assert json.loads(text_of(await asking))["behavior"] == "allow"


def test_a_token_of_the_person_is_never_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may do everything, so every call would be allowed without a question."""
    monkeypatch.setenv("MOOT_TOKEN", "t-alice")
    monkeypatch.setenv("MOOT_URL", "http://127.0.0.1:9")
    assert main(["mcp", "--permission-tool"]) == 2
    assert "needs --token-file FILE or --as NAME" in capsys.readouterr().err
    for more in (["--http", "127.0.0.1:0"], ["--operator"]):
        assert main(["mcp", "--permission-tool", "--token-file", "x", *more]) == 2
