"""A grant takes the place of an agent's own "always", inside the folder and nowhere else (decision 0150)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.acp.agent_space import AgentSpace, agent_space, diff, tool_update
from tests.waiting import until


async def grant(space: AgentSpace, tool: str) -> None:
    """As `moot member grant agent mcp/request:tools/call:TOOL` does it."""
    right = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": tool}}}
    await space.alice.admin.grant("agent", [right])
    rights = {"name": tool, "arguments": {}}
    await until(lambda: space.turns.space.may_request("agent", "tools/call", rights))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/etc/passwd", "leads out of my folder"),
        ("../out.txt", "leads out of my folder"),
        ("link/passwd", "leads out of my folder"),
        (".claude/settings.json", "concerns settings of an agent"),
        ("sub/.claude/skills/x/SKILL.md", "concerns settings of an agent"),
        (".CLAUDE/settings.json", "concerns settings of an agent"),
        (".mcp.json", "concerns settings of an agent"),
        (".codex/config.toml", "concerns settings of an agent"),
        (".gemini/settings.json", "concerns settings of an agent"),
        ("opencode.json", "concerns settings of an agent"),
        # What git runs is a shell by another name as well.
        (".git/hooks/pre-commit", "concerns settings of an agent or of git"),
        (".qwen/settings.json", "concerns settings of an agent"),
        # A link inside the folder that leads to settings inside the folder.
        ("harmless/settings.json", "concerns settings of an agent"),
    ],
)
async def test_a_plain_grant_does_not_cover_what_is_outside_or_settings(
    tmp_path: Path, path: str, why: str
) -> None:
    work = tmp_path / "work"
    (work / ".claude").mkdir(parents=True)
    (work / "link").symlink_to("/etc")
    (work / "harmless").symlink_to(work / ".claude")
    ask = {"toolCallId": "c1", "kind": "edit", "content": [diff(path, None, "x")]}
    async with agent_space(tmp_path, [{"ask": ask}]) as space:
        await grant(space, "edit")
        await space.ask()
        proposal = await space.proposal()
        named = proposal.payload["params"]["arguments"]
        assert named.get("outside_folder") == [path] or named.get("agent_settings") == [path]
        said = await space.wait_for("chat", "I ask although edit is granted to me")
        assert why in said.payload["text"]
        await space.alice.reject(proposal.id)
        await space.decided("no")


@pytest.mark.parametrize(
    ("tool", "ask"),
    [
        # What was not told may be anywhere.
        ("edit", {"kind": "edit", "title": "Edit files"}),
        ("execute", {"kind": "execute", "title": "ls"}),
        ("execute", {"kind": "execute", "rawInput": {"command": "cp x .claude/settings.json"}}),
        ("execute", {"kind": "execute", "rawInput": {"command": "ls", "cwd": "/etc"}}),
        # A harmless kind that is only said.
        ("read", {"kind": "read", "title": "Read README.md"}),
    ],
)
async def test_a_plain_grant_does_not_cover_what_was_not_told(
    tmp_path: Path, tool: str, ask: dict[str, Any]
) -> None:
    async with agent_space(tmp_path, [{"ask": ask | {"toolCallId": "c1"}}]) as space:
        await grant(space, tool)
        await space.ask()
        await space.alice.reject((await space.proposal()).id)
        await space.decided("no")


@pytest.mark.parametrize(
    ("tool", "ask"),
    [
        ("edit", {"kind": "edit", "content": [diff("a.txt", None, "x")]}),
        ("execute", {"kind": "execute", "rawInput": {"command": "ls"}}),
        ("read", {"kind": "read", "rawInput": {"path": "a.txt"}}),
    ],
)
async def test_inside_the_folder_a_grant_lets_it_go_on_unasked(
    tmp_path: Path, tool: str, ask: dict[str, Any]
) -> None:
    done = [tool_update("c1", status="completed"), {"say": "Done."}]
    async with agent_space(tmp_path, [{"ask": ask | {"toolCallId": "c1"}, "allowed": done}]) as space:
        await grant(space, tool)
        await space.ask()
        await space.wait_for("chat", "Done.")
        assert not space.of("mcp/proposal")
        # It asked, and a grant has answered: nothing was done that nobody was asked about.
        assert not [each for each in space.of("chat") if "nobody was asked" in each.payload["text"]]
        await space.decided("once")
