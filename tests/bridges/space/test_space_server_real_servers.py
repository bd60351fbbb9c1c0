"""Servers of others in one space, used by the official SDK's client through the face in both eras."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import mcp_types as types

from moot.bridges.space.own_tools import OWN_NAMES
from tests.bridges.bridged_space import HOST, bridged_space
from tests.bridges.served_space import serve_member
from tests.bridges.server.test_real_servers import (
    ERAS,
    EVERYTHING,
    MEMORY,
    TIME,
    Calls,
    filesystem,
    git,
    join_all,
)

# Runs only as a task of 2025-11-25, of which the SDK's client knows nothing; it asks in the middle.
TASK_TOOL: Calls = {
    "simulate-research-query": ({"topic": "moots", "ambiguous": True}, "Research Report: moots (general)")
}


async def elicited(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    if getattr(params, "mode", "form") == "url":
        return types.ElicitResult(action="accept")
    return types.ElicitResult(action="accept", content={"name": "alice", "interpretation": "general"})


async def sampled(_: Any, _params: Any) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="sampled")
    return types.CreateMessageResult(role="assistant", content=content, model="m", stop_reason="endTurn")


async def rooted(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///srv", "name": "srv"}]})


def repository(folder: Path) -> Path:
    folder.mkdir()
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("config", "user.email", "a@example.org"),
        ("config", "user.name", "A"),
        ("commit", "-q", "--allow-empty", "-m", "first"),
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)  # noqa: S603, S607
    (folder / "b.txt").write_text("b")
    return folder


async def use(client: Any, calls: Calls) -> int:
    for tool, (arguments, says) in calls.items():
        result = await client.call_tool(tool, arguments)
        shown = " ".join(block.model_dump_json(by_alias=True) for block in result.content)
        assert not result.is_error, (tool, shown)
        assert says in shown, (tool, shown)
    return len(calls)


async def test_every_tool_of_five_servers_is_listed_and_called_in_both_eras(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    async with bridged_space(tmp_path, dict.fromkeys(ERAS, HOST)) as space:
        await join_all(space, files)
        shown = await serve_member(await space.join("bob"), space.stack)
        for mode in ("legacy", "2026-07-28"):
            below = files / mode
            below.mkdir()
            calls: list[Calls] = [
                EVERYTHING,
                filesystem(below) | {"list_allowed_directories": ({}, str(files))},
                MEMORY,
                TIME,
                git(repository(tmp_path / f"repository-{mode}")),
            ]
            asked = shown.client(
                mode, elicitation_callback=elicited, sampling_callback=sampled, list_roots_callback=rooted
            )
            async with asked as client:
                listed = {tool.name for tool in (await client.list_tools()).tools}
                assert listed == {*OWN_NAMES, *TASK_TOOL, *(tool for each in calls for tool in each)}
                assert sum([await use(client, each) for each in calls]) == 53
                await use(client, TASK_TOOL)
                assert (await client.list_resources()).resources
                assert (await client.list_prompts()).prompts
