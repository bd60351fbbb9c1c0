"""A safe start: an own home, the mode that asks, a probe, and settings of the folder that are found."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moot.agents.acp import agent_process
from moot.agents.acp.acp_member import AcpMember
from moot.agents.acp.agent_process import (
    AgentProcess,
    AgentUnusable,
    home_environment,
    link_sign_in,
    prepare_home,
)
from moot.agents.acp.agent_profiles import PROFILES, UNKNOWN, AgentProfile, profile_of
from moot.agents.acp.folder_settings import check_folder_settings
from moot.agents.acp.json_rpc import PeerGone
from moot.agents.acp.supervised_agent import ProbeResult
from moot.cli import main
from moot.errors import UsageError
from tests.agents.acp.agent_space import agent_space, settings_for, write_script
from tests.waiting import bounded, until

ASKING = AgentProfile(name="Scripted", mode="default", unasked=("reads files",))


async def start(folder: Path, profile: AgentProfile = UNKNOWN, **options: Any) -> AcpMember:
    """Start an agent as the command does, and end it."""
    settings = {name: options.pop(name) for name in list(options) if name in ("probe", "accept_unasked")}
    write_script(folder, **options)
    member = AcpMember(settings_for("http://127.0.0.1:9", folder, **settings), profile)
    try:
        async with bounded():
            await member.agent.start()
    finally:
        await member.agent.stop()
    return member


async def test_an_agent_that_asks_is_verified_by_what_it_did(tmp_path: Path) -> None:
    member = await start(tmp_path, probe=True)
    assert member.agent.asks == (
        "verified at the start: asks before writing a file and before running a command"
    )
    received = [json.loads(line) for line in (tmp_path / "received.jsonl").read_text().splitlines()]
    outcomes = [each["result"]["outcome"] for each in received if "outcome" in each.get("result", {})]
    assert outcomes == [{"outcome": "selected", "optionId": "no"}] * 2
    folders = [each["params"]["cwd"] for each in received if each.get("method") == "session/new"]
    # The probe has a folder of its own, which is gone.
    assert folders[-1] == str(tmp_path / "work")
    assert not any(Path(each).exists() for each in folders[:2])


async def test_an_agent_that_acts_without_asking_is_not_let_in(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"acts without asking: writing a file and running.*--accept-unasked"
    ):
        await start_acting(tmp_path)


async def start_acting(folder: Path, **settings: Any) -> AcpMember:
    write_script(folder, probe="act")
    member = AcpMember(settings_for("http://127.0.0.1:9", folder, **({"probe": True} | settings)))
    try:
        await member.agent.start()
    finally:
        await member.agent.stop()
    return member


async def test_an_agent_that_acts_without_asking_joins_only_marked(tmp_path: Path) -> None:
    member = await start_acting(tmp_path, accept_unasked=True)
    assert member.agent.asks.startswith("acts without asking: writing a file and running a command")


async def test_an_agent_that_was_not_probed_or_did_nothing_is_unverified(tmp_path: Path) -> None:
    assert str(ProbeResult({"writing a file": "asked", "running a command": "not tried"})) == (
        "unverified: may act without asking (it asked before writing a file)"
    )
    async with agent_space(tmp_path) as space:
        said = await space.wait_for("chat", "unverified: may act without asking (it was not probed)")
        assert "I am scripted 1, and work in" in said.payload["text"]
        status = await space.alice.admin.request_status("agent")
        assert "unverified" in status["asks"]


async def test_the_mode_that_asks_is_set_or_the_agent_is_not_used(tmp_path: Path) -> None:
    await start(tmp_path, ASKING, mode="yolo")
    received = [json.loads(line) for line in (tmp_path / "received.jsonl").read_text().splitlines()]
    (set_mode,) = [each["params"] for each in received if each.get("method") == "session/set_mode"]
    assert set_mode["modeId"] == "default"
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(AgentUnusable, match="'yolo' and refuses 'default', in which it asks"):
        await start(other, ASKING, mode="yolo", refuse_mode=True)


async def test_an_agent_that_changes_its_mode_is_stopped_and_set_back(tmp_path: Path) -> None:
    change = {"update": {"sessionUpdate": "current_mode_update", "currentModeId": "yolo"}}
    async with agent_space(tmp_path, [change, {"await_cancel": True}]) as space:
        space.member.agent.profile = ASKING
        space.member.agent.process.profile = ASKING
        await space.ask()
        await space.wait_for(
            "chat", "I stopped: it changed to the mode 'yolo', in which it may act without asking."
        )
        await until(lambda: space.received("session/set_mode"))
        assert space.received("session/set_mode")[-1]["params"]["modeId"] == "default"


async def test_an_agent_that_wants_a_key_only_when_it_is_prompted_does_not_join(
    tmp_path: Path,
) -> None:
    """As Claude Code does it. Joined, it could only say that it cannot work."""
    with pytest.raises(AgentUnusable, match=r"wants to sign in \(Authentication required\).*--env"):
        await start(tmp_path, probe=True, no_key=True)


async def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentUnusable, match="version 2 of ACP"):
        await start(tmp_path, version=2)


def test_every_tried_agent_is_known_by_its_command() -> None:
    for words, name in (
        (["npx", "-y", "@agentclientprotocol/claude-agent-acp"], "Claude Code"),
        (["npx", "@zed-industries/claude-code-acp@0.1"], "Claude Code"),
        (["/opt/x/codex-acp"], "Codex"),
        (["npx", "@agentclientprotocol/codex-acp@2.6.0"], "Codex"),
        (["gemini", "--acp"], "Gemini CLI"),
        (["npx", "@google/gemini-cli", "--acp"], "Gemini CLI"),
        (["node", "/x/opencode.js", "acp"], "OpenCode"),
        (["qwen", "--acp"], "Qwen Code"),
        (["goose", "acp"], UNKNOWN.name),
    ):
        assert profile_of(words).name == name
    assert all(profile.unasked for profile in PROFILES)


def test_each_agent_says_at_its_start_what_it_was_seen_to_run_unasked() -> None:
    """The page has what each program did; the first chat of an agent says the same."""
    page = (Path(__file__).parents[3] / "docs/topics/what-coding-agents-do.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if "|" in line]
    names = next(row for row in rows if row[0] == "Way")[1:]
    assert set(names) == {profile.name for profile in PROFILES}
    did = {
        way.strip("` "): dict(zip(names, row[1:], strict=True))
        for row in rows
        if len(row) == 6
        for way in row[0].split("<br>")
    }
    for profile in PROFILES:
        said = " ".join(profile.unasked)
        if did["ls"][profile.name] == "runs it, told":
            assert "runs commands" in said, profile.name
        outside = did["cat /etc/hostname"][profile.name] == "runs it, told"
        assert outside == any(words in said for words in ("outside of its folder", "all files")), profile.name


def test_a_home_is_emptied_but_for_sessions_and_through_no_link(tmp_path: Path) -> None:
    profile = AgentProfile(name="x", kept=(".agent/sessions",), environment={"AGENT_HOME": "{home}/.agent"})
    home, outside = tmp_path / "state" / "home", tmp_path / "precious"
    outside.mkdir()
    (outside / "file").touch()
    prepare_home(home, profile)
    (home / ".agent" / "sessions").mkdir(parents=True)
    (home / ".agent" / "sessions" / "one.json").touch()
    (home / ".agent" / "rules").write_text("allow everything")
    (home / "link").symlink_to(outside)
    (home / ".config").mkdir()
    prepare_home(home, profile)
    left = sorted(str(path.relative_to(home)) for path in home.rglob("*"))
    assert left == [".agent", ".agent/sessions", ".agent/sessions/one.json"]
    assert (outside / "file").exists()
    assert oct(home.stat().st_mode & 0o777) == "0o700"
    environment = home_environment(home, profile, ("npx",), {"HOME": "/h"})
    assert environment["HOME"] == str(home)
    assert environment["AGENT_HOME"] == f"{home}/.agent"
    assert environment["npm_config_cache"] == "/h/.npm"


async def test_an_agent_gets_its_own_home_and_only_the_variables_that_it_needs(tmp_path: Path) -> None:
    profile = AgentProfile(name="x", variables=("X_KEY",), environment={"X_MODE": "ask"})
    show = tmp_path / "show.py"
    show.write_text("import json, os, sys\nopen(sys.argv[1], 'w').write(json.dumps(dict(os.environ)))\n")
    out = tmp_path / "out.json"
    inherited = {"HOME": "/root", "PATH": os.environ["PATH"], "X_KEY": "k", "AWS_SECRET": "s"}
    member = AcpMember(
        settings_for(
            "http://127.0.0.1:9",
            tmp_path,
            argv=(sys.executable, str(show), str(out)),
            inherited=inherited,
            env={"LISTED": "1"},
        ),
        profile,
    )
    with pytest.raises(Exception, match="exit code 0"):
        await member.agent.start()
    await member.agent.stop()
    got = json.loads(out.read_text())
    assert got["HOME"] == str(tmp_path / "state" / "home")
    assert (got["X_KEY"], got["X_MODE"], got["LISTED"]) == ("k", "ask", "1")
    assert "AWS_SECRET" not in got


def test_why_an_agent_did_not_start_is_told_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `npx` does it without a network: an exit code says nothing, its stderr does."""
    token = tmp_path / "agent.token"
    token.write_text("t-agent")
    token.chmod(0o600)
    (tmp_path / "work").mkdir()
    where = ["--gateway", "http://127.0.0.1:9", "--space", "lab", "--token-file", str(token)]
    folders = ["--cwd", str(tmp_path / "work"), "--state", str(tmp_path / "state")]
    script = "import sys; sys.exit('npm error network\\x1b[31m')"
    assert main(["acp", *where, *folders, "--", sys.executable, "-c", script]) == 1
    told = capsys.readouterr().err
    assert "moot: the agent ended with exit code 1\n" in told
    assert "  | npm error network" in told
    assert "\x1b" not in told
    assert f"try it by itself: {sys.executable} -c" in told


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import sys; sys.stdin.close(); sys.exit(3)", "the agent ended with exit code 3"),
        ("import os, time; os.close(0); print('', flush=True); time.sleep(1e6)", "reads nothing any more"),
    ],
)
async def test_an_agent_whose_input_is_closed_is_told_by_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    """On a busy machine its pipe is broken a while before its exit code is there."""
    monkeypatch.setattr(agent_process, "_END_SECONDS", 10.0 if "exit" in script else 0.05)
    settings = settings_for("http://127.0.0.1:9", tmp_path, argv=(sys.executable, "-c", script))
    agent = AgentProcess(settings, UNKNOWN, lambda _call: None, lambda _method, _params: None)
    await agent.start()
    assert agent.child is not None
    pipe = agent.child._process.stdin
    assert pipe is not None
    try:
        # As when a write has failed.
        pipe.close()
        async with bounded():
            with pytest.raises(PeerGone, match=why):
                await agent.initialize()
    finally:
        await agent.stop()


def test_settings_of_the_agent_in_the_folder_are_found_before_it_starts(tmp_path: Path) -> None:
    settings = settings_for("http://127.0.0.1:9", tmp_path, argv=("claude-agent-acp",))
    check_folder_settings(settings)
    (settings.folder / ".claude").mkdir()
    (settings.folder / ".claude" / "settings.local.json").write_text('{"permissions":{"allow":["Bash(*)"]}}')
    with pytest.raises(UsageError, match=r"settings\.local\.json.*--trust-folder"):
        check_folder_settings(settings)
    (settings.folder / "deep").mkdir()
    with pytest.raises(UsageError):
        check_folder_settings(dataclasses.replace(settings, folder=settings.folder / "deep"))
    check_folder_settings(dataclasses.replace(settings, trust_folder=True))
    (settings.folder / ".moot").mkdir()
    with pytest.raises(UsageError, match="tokens of a space"):
        check_folder_settings(dataclasses.replace(settings, trust_folder=True))


def sign_in(folder: Path, agent: str) -> tuple[AgentProfile, Path, Path]:
    """The profile of an agent, the home of a person who has signed in with it, and that of the agent."""
    profile = next(each for each in PROFILES if each.name == agent)
    person, home = folder / "person", folder / "state" / "home"
    for name in profile.sign_in_files:
        (person / name).parent.mkdir(parents=True, exist_ok=True)
        (person / name).write_text(json.dumps({"tokens": {"refresh": "rt-0123456789abcdef0123456789"}}))
    (person / ".codex").mkdir(parents=True, exist_ok=True)
    (person / ".codex" / "config.toml").write_text('approval_policy = "never"')
    home.parent.mkdir(mode=0o700)
    prepare_home(home, profile)
    return profile, person, home


@pytest.mark.parametrize("agent", ["Claude Code", "Codex", "Gemini CLI", "OpenCode"])
def test_the_sign_in_of_a_person_is_used_alone(tmp_path: Path, agent: str) -> None:
    """A subscription without `--keep-home`, which would bring all that was ever allowed along."""
    profile, person, home = sign_in(tmp_path, agent)
    files = link_sign_in(home, profile, {"HOME": str(person)})
    assert files == [person / name for name in profile.sign_in_files]
    links = [path for path in home.rglob("*") if path.is_symlink()]
    assert sorted(links) == sorted(home / name for name in profile.sign_in_files)
    # What the agent renews there is renewed for the person.
    (home / profile.sign_in_files[0]).write_text("{}")
    assert files[0].read_text() == "{}"
    # The next start begins without it.
    prepare_home(home, profile)
    assert not [path for path in home.rglob("*") if path.is_symlink()]
    assert files[0].exists()


def test_a_sign_in_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    profile, person, home = sign_in(tmp_path, "Codex")
    (person / ".codex" / "auth.json").unlink()
    with pytest.raises(UsageError, match=r"no sign-in of Codex.*auth\.json.*codex login"):
        link_sign_in(home, profile, {"HOME": str(person)})
    # Where the person keeps it elsewhere, it is found there.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "auth.json").write_text("{}")
    assert link_sign_in(home, profile, {"HOME": str(person), "CODEX_HOME": str(tmp_path / "elsewhere")})


async def test_a_sign_in_is_told_to_the_agent_and_to_nobody_else(tmp_path: Path) -> None:
    token = "rt-0123456789abcdef0123456789"
    person = tmp_path / "person"
    person.mkdir()
    (person / "auth.json").write_text(json.dumps({"tokens": {"refresh": token}}))
    profile = AgentProfile(name="Scripted", sign_in_files=("auth.json",), sign_in_by_file="by-file")
    given = {"home": "signed_in", "inherited": {"HOME": str(person)}}
    turn = [{"say": f"my token is {token}"}]
    async with agent_space(tmp_path, turn, profile=profile, settings=given, sign_in="by-file") as space:
        await space.ask()
        await space.wait_for("chat", "[key withheld]")
        assert token not in str([each.raw for each in space.envelopes])
        (signed,) = space.received("authenticate")
        assert signed["params"] == {"methodId": "by-file"}


def test_git_of_an_agent_runs_no_program_that_the_repository_names(tmp_path: Path) -> None:
    """Claude Code runs `git status` unasked, and `core.fsmonitor` of a repository is any command."""
    environment = home_environment(tmp_path, UNKNOWN, ("agent",), {})
    given = {**os.environ, **environment, "HOME": str(tmp_path)}
    for words in (["init", "-q"], ["config", "core.fsmonitor", f"touch {tmp_path}/ran"], ["status"]):
        subprocess.run(["git", *words], cwd=tmp_path, env=given, check=True, capture_output=True)  # noqa: S603, S607
    assert not (tmp_path / "ran").exists()
