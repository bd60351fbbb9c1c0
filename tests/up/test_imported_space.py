"""`moot init --from FILE`, followed as it is printed: the servers of a client run behind approval."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp import Client, StdioServerParameters
from moot.cli import main
from moot.config import load
from moot.errors import UsageError
from moot.protocol.patterns import Capability
from moot.trust.rules.rule_store import RuleStore
from tests.bridges.served_space import text_of
from tests.cli.terminals import terminal
from tests.mcp.upstreams import NODE
from tests.up.moot_up import MOOT, environment, moot_up, run_moot
from tests.waiting import HANG_SECONDS, bounded

SECRET = 'hunter2 with spaces\nand "quotes" $HOME #'
FILE = {
    "inputs": [{"type": "promptString", "id": "key", "description": "The key", "password": True}],
    "servers": {
        "Everything!": {
            "type": "stdio",
            "command": str(NODE / "mcp-server-everything"),
            "env": {"OWN_SECRET": SECRET, "ASKED": "${input:key}"},
        },
        "time": {"command": "mcp-server-time", "args": ["--local-timezone", "Europe/Berlin"]},
        "off": {"command": "false", "disabled": True},
    },
}


def write_file(folder: Path, content: Any, name: str = ".vscode/mcp.json") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"// made by an editor\n{json.dumps(content)}", "utf-8")
    return path


def may(rights: tuple[Capability, ...], method: str, **params: Any) -> bool:
    payload = {"method": method, "params": params}
    return any(right.matches("mcp/request", payload, to=["time"]) for right in rights)


async def test_the_printed_steps_lead_from_a_file_of_vs_code_to_an_approved_call(tmp_path: Path) -> None:
    write_file(tmp_path, FILE)
    code, output = await run_moot(tmp_path, "init", "--from", ".vscode/mcp.json", "lab")
    assert code == 0
    assert "hunter2" not in output
    assert "note: off: left out: it is disabled there" in output
    lab = tmp_path / "lab"
    # As the note says.
    assert "needs INPUT_KEY: write it into .moot/secrets/Everything.env" in output
    variables = lab / ".moot/secrets/Everything.env"
    with variables.open("a") as opened:
        opened.write("INPUT_KEY=filled-in\n")
    async with moot_up(lab) as up:
        await up.wait_for_state("Everything", "running", joined=True)
        await up.wait_for_state("time", "running", joined=True)
        (step,) = [line.split() for line in output.splitlines() if "--print-config" in line]
        code, printed = await run_moot(lab, *step[1:])
        assert code == 0
        made, _ = json.JSONDecoder().raw_decode(printed[printed.index("{") :])
        entry = made["servers"]["moot"]
        state = ["--names-file", "none", "--calls-file", "none", "--decision-seconds", str(HANG_SECONDS)]
        client = StdioServerParameters(command=entry["command"], args=[*entry["args"], *state], cwd="/")
        async with bounded(), Client(client, mode="legacy", read_timeout_seconds=HANG_SECONDS) as one:
            names = {tool.name for tool in (await one.list_tools()).tools}
            assert {"get-env", "get_current_time"} <= names
            calling = asyncio.create_task(one.call_tool("get-env", {}))
            await up.until(lambda: {"open_proposals": 1} in up.changes)
            assert not calling.done()
            _, listed = await run_moot(lab, "proposals", "--json")
            (proposal,) = json.loads(listed)
            assert (proposal["proposer"], proposal["params"]["name"]) == ("agent", "get-env")
            code, _ = await run_moot(lab, "approve", proposal["id"])
            assert code == 0
            given = json.loads(text_of(await calling))
    assert (given["OWN_SECRET"], given["ASKED"]) == (SECRET, "filled-in")
    assert "MOOT_TOKEN" not in given


async def test_no_secret_stands_in_what_git_would_commit(tmp_path: Path) -> None:
    """Also where the folder of the space is no repository of its own."""
    write_file(tmp_path, FILE, "elsewhere/.vscode/mcp.json")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)  # noqa: S607
    assert main(["init", "--from", str(tmp_path / "elsewhere/.vscode/mcp.json"), str(tmp_path / "lab")]) == 0
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "lab"],  # noqa: S607
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert sorted(listed.stdout.split()) == ["lab/.gitignore", "lab/moot.yaml"]
    assert "hunter2" not in (tmp_path / "lab/moot.yaml").read_text("utf-8")
    secrets = tmp_path / "lab/.moot/secrets"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert stat.S_IMODE((secrets / "Everything.env").stat().st_mode) == 0o600
    assert "hunter2" in (secrets / "Everything.env").read_text("utf-8")


def test_the_client_can_list_and_propose_and_call_nothing(tmp_path: Path) -> None:
    path = write_file(tmp_path, FILE)
    assert main(["init", "--from", str(path), str(tmp_path / "lab")]) == 0
    configuration = load(tmp_path / "lab/moot.yaml", environ={})
    assert configuration.notes == ()
    space = configuration.spaces["lab"]
    assert space.default_participant == "you"
    rights = space.config.participants["agent"].capabilities
    assert may(rights, "tools/list")
    assert not may(rights, "tools/call", name="get_current_time")
    assert not may(rights, "resources/read", uri="x:y")
    assert not any(right.matches("capability/grant", {}) for right in rights)
    assert any(right.matches("mcp/proposal", {"method": "tools/call"}) for right in rights)


async def test_a_header_reaches_the_server_and_a_missing_key_is_named(tmp_path: Path) -> None:
    asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        servers = {
            "docs": {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"Authorization": "Bearer hunter2"}},
            "other": {"url": f"http://127.0.0.1:{port}/x", "headers": {"X-Key": "${MISSING}"}},
            "local": {"command": "mcp-server-time", "args": ["${env:MISSING}"], "env": {"A": "b"}},
        }
        path = write_file(tmp_path, {"mcpServers": servers}, "mcp.json")
        assert main(["init", "--from", str(path), str(tmp_path / "lab")]) == 0
        async with moot_up(tmp_path / "lab") as up:
            async with bounded():
                request = await asked.get()
            assert b"\r\nauthorization: bearer hunter2\r\n" in request.lower()
            row = await up.wait_for_state("other", "waiting")
            assert "variable MISSING is not set" in row["message"]
            assert "or write MISSING=… into" in row["message"]
            row = await up.wait_for_state("local", "waiting")
            assert "or write MISSING=… into" in row["message"]
            assert "hunter2" not in json.dumps(up.changes)
            with (tmp_path / "lab/.moot/secrets/local.env").open("a") as opened:
                opened.write("MISSING=--help\n")
            # It is read whenever the server is started.
            await up.until(lambda: "MISSING" not in up.now["local"]["message"])


async def test_a_file_of_variables_that_others_can_read_starts_nothing(tmp_path: Path) -> None:
    path = write_file(tmp_path, {"mcpServers": {"time": {"command": "mcp-server-time", "env": {"A": "b"}}}})
    assert main(["init", "--from", str(path), str(tmp_path / "lab")]) == 0
    variables = tmp_path / "lab/.moot/secrets/time.env"
    variables.chmod(0o644)
    async with moot_up(tmp_path / "lab") as up:
        row = await up.wait_for_state("time", "waiting")
        assert "chmod 600" in row["message"]
        variables.chmod(0o600)
        await up.wait_for_state("time", "running", joined=True)


def test_nothing_is_overwritten_and_nothing_is_made_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_file(tmp_path, FILE, "mcp.json")
    secrets = tmp_path / "lab/.moot/secrets"
    secrets.mkdir(parents=True)
    (secrets / "Everything.env").write_text("mine")
    assert main(["init", "--from", str(path), str(tmp_path / "lab")]) == 2
    assert "would be overwritten: .moot/secrets/Everything.env" in capsys.readouterr().err
    assert not (tmp_path / "lab/moot.yaml").exists()
    (tmp_path / "lab/space.yaml").write_text("x")
    assert main(["init", "--from", str(path), str(tmp_path / "lab")]) == 2
    assert "this folder has a space" in capsys.readouterr().err
    path = write_file(tmp_path, {"mcpServers": {"a": {"command": "x", "disabled": True}}}, "off.json")
    assert main(["init", "--from", str(path), str(tmp_path / "none")]) == 2
    output = capsys.readouterr().err
    assert "no server that can be taken over" in output
    assert "a: left out: it is disabled there" in output
    assert not (tmp_path / "none").exists()


async def test_without_a_file_those_of_the_clients_are_listed(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    write_file(project, FILE)
    write_file(home, {"mcpServers": {"a": {"command": "x"}, "b": {"command": "hunter2"}}}, ".cursor/mcp.json")
    write_file(home, {"ui": {}}, ".gemini/settings.json")
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text("[mcp_servers\nkey = hunter2")
    listing = await asyncio.create_subprocess_exec(
        *MOOT, "init", "--from",
        cwd=project,
        env=environment(HOME=str(home)),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with bounded():
        answer = (await listing.communicate())[0].decode()
    assert listing.returncode == 0
    rows = [line.split(maxsplit=2) for line in answer.splitlines()]
    assert rows == [
        ["CLIENT", "FILE", "SERVERS"],
        ["vscode", str(project / ".vscode/mcp.json"), "Everything!, time, off"],
        ["codex", str(home / ".codex/config.toml"), rows[2][2]],
        ["cursor", str(home / ".cursor/mcp.json"), "a, b"],
    ]
    assert "line 1, column 13: not valid TOML" in rows[2][2]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (["filesystem", "lab", "--from", "mcp.json"], "takes the place of a template"),
        (["--from", "mcp.json", "--model", "x"], "--model is for templates"),
        (["--from", "none.json"], "there is no such file"),
        (["--from", "mcp.json", "--space", "a b"], "a space's name"),
    ],
)
def test_what_does_not_go_together_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    told: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_file(tmp_path, FILE, "mcp.json")
    assert main(["init", *told]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mcp.json"]


def test_a_report_for_programs_has_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, FILE)
    assert main(["init", "--from", str(path), str(tmp_path / "lab"), "--json"]) == 0
    output = capsys.readouterr().out
    report = json.loads(output)
    assert (report["client"], report["servers"]) == ("vscode", ["Everything", "time"])
    assert "hunter2" not in output
    with pytest.raises(UsageError):
        load(tmp_path / "none.yaml", environ={})


READS = {"mcpServers": {"files": {"command": sys.executable, "args": ["-m", "moot.up.servers.files", "."]}}}


@pytest.mark.parametrize(
    ("option", "allowed"), [("--allow-reads", True), ("--no-allow-reads", False), ("", False)]
)
async def test_tools_that_only_read_are_let_through_where_somebody_says_so(
    tmp_path: Path, option: str, allowed: bool
) -> None:
    """By name, and nothing else of that server; without a terminal and without an answer, nothing."""
    write_file(tmp_path, READS, "mcp.json")
    code, output = await run_moot(tmp_path, "init", "--from", "mcp.json", "lab", *filter(None, [option]))
    assert code == 0, output
    assert ("called without asking: list_files, read_file, search_files of files" in output) is allowed
    space = load(tmp_path / "lab/moot.yaml", environ={}).spaces["lab"]
    rights = space.config.participants["agent"].capabilities

    def may_call(tool: str, to: str = "files") -> bool:
        payload = {"method": "tools/call", "params": {"name": tool, "arguments": {}}}
        return any(right.matches("mcp/request", payload, to=[to]) for right in rights)

    assert may_call("read_file") is allowed
    assert not may_call("write_file")
    assert not may_call("read_file", "approver")
    # What the server says of its tools is believed where somebody says so, and then read as it is meant.
    store = RuleStore.open(tmp_path / "lab/.moot/trust/lab")
    assert [rule.name for rule in store.rules] == ["by-origin"]
    assert store.tools_json.get("files/read_file") == (
        {"effect": "reads", "outside": False} if allowed else None
    )
    assert store.tools_json.get("files/write_file") == ({"effect": "destroys"} if allowed else None)


def test_at_a_terminal_it_is_asked_once(tmp_path: Path) -> None:
    write_file(tmp_path, READS, "mcp.json")
    with terminal(tmp_path, "init", "--from", "mcp.json", "lab") as (screen, process):
        screen.until(lambda shown: "[y/N]" in shown)
        screen.type("y\n")
        shown = screen.until(lambda shown: "moot up" in shown)
        assert "called without asking: list_files, read_file, search_files of files" in shown
        assert process.wait(HANG_SECONDS) == 0


async def test_a_server_that_does_not_start_is_told_and_asks_for_everything(tmp_path: Path) -> None:
    write_file(tmp_path, {"mcpServers": {"broken": {"command": "false"}}}, "mcp.json")
    code, output = await run_moot(tmp_path, "init", "--from", "mcp.json", "lab", "--allow-reads")
    assert code == 0
    assert "note: broken: its tools are not known, so all of them ask: " in output
    assert "Traceback" not in output
