"""Settings of an agent in its folder: refused, left out or named, at each start and while it runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from moot.agents.acp.acp_member import AcpMember
from moot.agents.acp.agent_profiles import AgentProfile
from moot.agents.acp.folder_settings import check_folder_settings
from moot.errors import UsageError
from tests.agents.acp.agent_space import agent_space, settings_for, tool_call, tool_update, write_script
from tests.waiting import bounded, until

SCRIPTED = AgentProfile(name="Scripted", project_files=(".scripted",))
LEAVES_OUT = dataclasses.replace(SCRIPTED, planted_file=(".scripted", "{mark}"))


@pytest.mark.parametrize(
    ("program", "file"),
    [
        ("claude-agent-acp", ".claude/settings.json"),
        ("claude-agent-acp", ".claude/settings.local.json"),
        ("claude-agent-acp", ".claude/agents/x.md"),
        ("claude-agent-acp", ".claude/skills/x/SKILL.md"),
        ("claude-agent-acp", ".claude/commands/x.md"),
        ("claude-agent-acp", ".claude/workflows/x.js"),
        ("claude-agent-acp", ".claude/plugins/x/plugin.json"),
        ("claude-agent-acp", ".mcp.json"),
        ("codex-acp", ".codex/config.toml"),
        ("codex-acp", ".codex/hooks.json"),
        ("codex-acp", ".codex/rules/default.rules"),
        ("codex-acp", ".agents/skills/x/SKILL.md"),
        ("gemini", ".gemini/settings.json"),
        ("gemini", ".gemini/agents/x.md"),
        ("gemini", ".gemini/commands/x.toml"),
        ("gemini", ".gemini/policies/x.toml"),
        ("gemini", ".gemini/extensions/x/gemini-extension.json"),
        ("opencode", "opencode.jsonc"),
        ("opencode", ".opencode/plugin/x.js"),
        ("opencode", ".opencode/agent/x.md"),
        ("opencode", ".claude/skills/x/SKILL.md"),
        ("qwen", ".qwen/settings.json"),
        ("qwen", ".qwen/agents/x.md"),
        ("qwen", ".qwen/skills/x/SKILL.md"),
        ("qwen", ".mcp.json"),
    ],
)
def test_everything_that_may_allow_things_is_found_and_named(tmp_path: Path, program: str, file: str) -> None:
    settings = settings_for("http://127.0.0.1:9", tmp_path, argv=(program,))
    check_folder_settings(settings)
    path = settings.folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    with pytest.raises(UsageError, match="--trust-folder") as refused:
        check_folder_settings(settings)
    assert str(path) in str(refused.value)
    check_folder_settings(dataclasses.replace(settings, trust_folder=True))


def test_what_is_words_only_is_no_setting(tmp_path: Path) -> None:
    settings = settings_for("http://127.0.0.1:9", tmp_path, argv=("claude-agent-acp",))
    for name in (".claude/CLAUDE.md", ".claude/rules/style.md", "CLAUDE.md", "AGENTS.md"):
        (settings.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (settings.folder / name).write_text("Be kind.")
    check_folder_settings(settings)


def test_a_link_in_place_of_settings_is_found(tmp_path: Path) -> None:
    settings = settings_for("http://127.0.0.1:9", tmp_path, argv=("claude-agent-acp",))
    (tmp_path / "elsewhere" / "agents").mkdir(parents=True)
    (tmp_path / "elsewhere" / "agents" / "x.md").write_text("x")
    (settings.folder / ".claude").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"x\.md"):
        check_folder_settings(settings)


@pytest.mark.parametrize(
    ("program", "file"),
    [("claude-agent-acp", ".claude"), ("codex-acp", ".codex"), ("gemini", ".gemini"), ("qwen", ".qwen")],
)
def test_the_home_above_the_folder_is_left_out(tmp_path: Path, program: str, file: str) -> None:
    """Whoever already uses an agent has its settings there; it gets a home of its own in place of that."""
    home = tmp_path / "home"
    (home / file).mkdir(parents=True)
    (home / file / "settings.json").write_text("{}")
    (home / "project").mkdir()
    link = tmp_path / "link"
    link.symlink_to(home)
    for given in (home, link):
        settings = dataclasses.replace(
            settings_for("http://127.0.0.1:9", tmp_path, argv=(program,), inherited={"HOME": str(given)}),
            folder=home / "project",
        )
        check_folder_settings(settings)
        # Of any other folder above they count, and of the home if it is the folder itself.
        for other in (
            dataclasses.replace(settings, inherited={}),
            dataclasses.replace(settings, folder=home),
        ):
            with pytest.raises(UsageError, match=r"settings\.json"):
                check_folder_settings(other)


async def test_settings_that_appear_while_it_runs_end_it_until_they_are_gone(tmp_path: Path) -> None:
    conf = tmp_path / "work" / ".scripted"
    turn: list[dict[str, Any]] = [{"write": [str(conf), "x"]}, {"await_cancel": True}]
    async with agent_space(tmp_path, turn, profile=SCRIPTED) as space:
        await space.ask()
        said = await space.wait_for("chat", "WARNING: settings of the agent in its folder have changed")
        assert str(conf) in said.payload["text"]
        # At the restart they are found again.
        await space.wait_for("chat", "The agent cannot be started")
        assert not space.member.agent.ready.is_set()
        conf.unlink()
        await space.wait_for("chat", "The agent runs again.")


async def test_settings_of_a_trusted_folder_are_named_and_so_is_each_change(tmp_path: Path) -> None:
    conf = tmp_path / "work" / ".scripted"
    conf.parent.mkdir()
    conf.write_text("a")
    of_home = tmp_path / ".scripted"
    of_home.write_text("a")
    given = {"trust_folder": True, "inherited": {"HOME": str(tmp_path)}}
    async with agent_space(tmp_path, profile=SCRIPTED, settings=given) as space:
        said = await space.wait_for("chat", "Settings of the agent in my folder count")
        assert str(conf) in said.payload["text"]
        # To the agent the home of a person is a folder above its own.
        assert str(of_home) in said.payload["text"]
        assert str(conf) in (await space.alice.admin.request_status("agent"))["folder_settings"]
        conf.write_text("another")
        await space.wait_for("chat", "They count, and may allow things without asking.")
        assert space.member.agent.ready.is_set()


async def test_settings_that_an_agent_leaves_out_are_named_as_unused(tmp_path: Path) -> None:
    conf = tmp_path / "work" / ".scripted"
    conf.parent.mkdir()
    conf.write_text("a")
    given = {"probe": True}
    async with agent_space(tmp_path, profile=LEAVES_OUT, settings=given) as space:
        said = await space.wait_for("chat", "Settings of the agent in my folder are not used")
        assert str(conf) in said.payload["text"]
        conf.write_text("another")
        await space.wait_for("chat", "They are not used.")
        assert space.member.agent.ready.is_set()
        space.member.restart("alice")
        said = await space.wait_for(
            "chat", "The agent runs again. Settings of the agent in my folder are not"
        )
        assert str(conf) in said.payload["text"]


async def test_an_agent_that_does_not_leave_them_out_is_seen_by_the_probe(tmp_path: Path) -> None:
    """The folder of the probe has settings that make a file, if they count."""
    for name, has_settings in (("with", True), ("without", False)):
        folder = tmp_path / name
        folder.mkdir()
        settings = settings_for("http://127.0.0.1:9", folder, probe=True)
        write_script(folder, settings=".scripted")
        if has_settings:
            (settings.folder / ".scripted").write_text(str(folder / "made"))
        member = AcpMember(settings, LEAVES_OUT)
        try:
            async with bounded():
                if has_settings:
                    with pytest.raises(UsageError, match="--trust-folder"):
                        await member.agent.start()
                else:
                    await member.agent.start()
        finally:
            await member.agent.stop()
        # Where it found none, those that appear later end it.
        assert not member.agent.folder.leaves_out
        assert not (folder / "made").exists()


async def test_what_was_done_and_nobody_was_asked_about_is_said_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def done(id: str, **fields: Any) -> list[dict[str, Any]]:
        return [tool_call(id, **fields), tool_update(id, status="completed")]

    monkeypatch.setattr("moot.agents.acp.update_relay.MAX_UNASKED_NOTES", 2)
    turn = [
        *done("r", kind="read", rawInput={"path": "a"}),
        *done("c1", kind="execute", rawInput={"command": "ls"}),
        *done("c2", kind="edit", rawInput={"path": "a.txt"}),
        # As Codex tells of `ls`.
        tool_call("c3", kind="read", title="List files"),
        tool_update("c3", status="completed", rawOutput={"exit_code": 0}),
        tool_call("c4", kind="execute", rawInput={"command": "false"}),
        tool_update("c4", status="failed"),
        {"say": "Done."},
    ]
    async with agent_space(tmp_path, turn) as space:
        await space.ask()
        await space.wait_for("chat", "WARNING: done, and nobody was asked: execute: ls")
        await space.wait_for("chat", "WARNING: done, and nobody was asked: edit: a.txt")
        await space.wait_for("chat", "WARNING: 1 more edits or commands were done that nobody")
        status = await space.alice.admin.request_status("agent")
        assert status["unasked_acts"] == 3
        assert "since then it has changed something or run a command 3 times without asking" in status["asks"]


async def test_another_thing_under_an_id_that_was_approved_is_said_loudly_too(tmp_path: Path) -> None:
    ask = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": "ls"}}
    done = tool_update("c1", status="completed")
    other = tool_update("c1", rawInput={"command": "rm -rf ~"})
    turn = {"ask": ask, "allowed": [done, done, other, {"say": "Done."}]}
    async with agent_space(tmp_path, [turn]) as space:
        await space.ask()
        await space.alice.approve((await space.proposal()).id)
        await space.wait_for("chat", "Done.")
        await space.wait_for("chat", "WARNING: done, and nobody was asked: execute: rm -rf ~")
        assert space.member.agent.unasked_acts == 1


async def test_an_agent_that_is_stuck_is_told_of_once_and_not_while_people_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.acp.turn_runner.QUIET_SECONDS", 0.3)
    ask = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": "sleep 1"}}
    turn = {"ask": ask, "allowed": [tool_update("c1", status="in_progress"), {"await_cancel": True}]}
    async with agent_space(tmp_path, [turn]) as space:
        asked = await space.ask()
        proposal = await space.proposal()
        heard = space.turns.last_heard
        # Longer than it may be quiet.
        await until(lambda: space.turns.last_heard > heard + 1.0)
        assert not [each for each in space.of("chat") if "said nothing" in each.payload["text"]]
        space.approve_later(proposal)
        told = await space.wait_for("chat", "The agent has said nothing for 0.3 s")
        assert "Under way: execute: sleep 1." in told.payload["text"]
        await space.alice.chats.cancel(asked)
        await space.wait_for("chat", "I stopped")
        assert len([each for each in space.of("chat") if "said nothing" in each.payload["text"]]) == 1
