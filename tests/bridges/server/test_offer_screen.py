"""What a bridged server cannot show in a space: hidden text; and what it is never called for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moot.errors import McpError
from moot.participant import JoinedSpace, Progress
from moot.protocol.hidden_text import has_hidden_in, is_visible_name, show_hidden
from tests.bridges.bridged_space import bridged_space, call
from tests.mcp.upstreams import script, text_of

HIDDEN_NAMES = ("", " ", "plain\u200b", "read\x1b[2J", "two\nlines", "x" * 129, "argued")


def called(log: Path) -> list[Any]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


async def listed(space: JoinedSpace, method: str) -> list[dict[str, Any]]:
    result = await space.request("host", method)
    assert not has_hidden_in(result)
    (entries,) = [value for value in result.values() if isinstance(value, list)]
    return entries


async def test_entries_without_a_visible_name_are_withheld_and_texts_are_made_visible(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("hidden", "--log", str(tmp_path / "calls")))
        alice = await space.join("alice")
        tools = await listed(alice, "tools/list")
        assert [tool["name"] for tool in tools] == ["plain", "described"]
        assert tools[0]["description"] == r"Reads\u202e a file\U000e0041"
        assert tools[0]["title"] == r"Pl\u200bain"
        assert tools[1]["inputSchema"]["properties"]["path"]["description"] == r"a\u202eb"
        assert [each["name"] for each in await listed(alice, "prompts/list")] == ["ask"]
        assert [each["uri"] for each in await listed(alice, "resources/list")] == ["note:///one"]
        templates = await listed(alice, "resources/templates/list")
        assert [each["uriTemplate"] for each in templates] == ["note:///{id}"]
        about = await alice.request("host", "initialize", {"protocolVersion": "2025-06-18"})
        assert about["serverInfo"]["name"] == r"hid\u200bden"
        assert about["instructions"] == r"Trust me\u202e\U000e0041"


async def test_tools_that_are_not_listed_are_never_called(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("hidden", "--log", str(log)))
        alice = await space.join("alice")
        for name in (*HIDDEN_NAMES, "never_listed", None, 7, ["plain"]):
            why = "withheld: its name or its arguments" if name in HIDDEN_NAMES else "lists no tool"
            with pytest.raises(McpError, match=why) as caught:
                await alice.request("host", "tools/call", {"name": name, "arguments": {}})
            assert caught.value.code == -32602
            assert not has_hidden_in(caught.value.message)
        with pytest.raises(McpError, match="no prompt of that name"):
            await alice.request("host", "prompts/get", {"name": "ask\u202e"})
        assert called(log) == []
        assert text_of(await call(alice, "plain")) == "done"
        assert called(log) == ["plain"]


async def test_an_error_of_a_server_cannot_hide_anything_either(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("hidden", "--log", str(tmp_path / "calls")))
        alice = await space.join("alice")
        with pytest.raises(McpError) as caught:
            await call(alice, "plain", {"fail": True})
        assert caught.value.message == r"no\x1b[2J\u202e"
        assert caught.value.data == {"why": r"\u200bso"}


async def test_progress_and_logs_of_a_server_cannot_either(tmp_path: Path) -> None:
    """They are shown to people in terminals and in the console while a call runs."""
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("hidden", "--log", str(tmp_path / "calls")))
        alice = await space.join("alice")
        progress: list[Progress] = []
        logs: list[Any] = []
        await alice.request("host", "logging/setLevel", {"level": "error"})
        await call(alice, "plain", {"tell": True}, progress=progress.append, log=logs.append)
        assert [each.message for each in progress] == [r"ha\u202elf\U000e0041"]
        assert [(each["logger"], each["data"]) for each in logs] == [
            (r"l\u200bog", {r"k\x1b[2Jey": [r"do\u202ene"]})
        ]


def test_names_of_any_script_can_be_seen() -> None:
    for name in ("read_file", "читать", "読む", "قراءة", "نامه\u200cها", "go 👩\u200d🔬", "a.b/c-d"):
        assert is_visible_name(name)
        assert show_hidden(name) == name
