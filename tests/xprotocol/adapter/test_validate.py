"""`xprotocol-adapter validate`: exactly what is wrong, and nothing else (XP Appendix A)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from moot.xprotocol.identity import keyfile
from tests.xprotocol.adapter.adapter_environment import notes_server, tool
from tests.xprotocol.adapter.command_runner import CommandResult, Shell, run_program
from tests.xprotocol.adapter.test_settings import HERE, MINIMAL, written
from tests.xprotocol.people import ALICE, BOB, person


def checked(shell: Shell, folder: Path, *options: str, **sections: Any) -> CommandResult:
    document = MINIMAL | {"identity": {"key_file": "adapter.key"}} | sections
    return shell("validate", "--config", written(folder, document), *options)


EXPECTED = [
    ("identity.parent_key", "a placeholder, not a key"),
    ("identity.parent_delegation_event", "there is no file /"),
    ("mcp_sources[1].auth.token_env", "is not set or empty"),
]


def examples() -> list[str]:
    """Our example with every key, and the document's own where it is at hand."""
    shared = Path(os.environ.get("MOOT_SHARED_DATA", HERE.parents[3] / "shared" / "data")).parent
    seed = shared / "seeds" / "xprotocol-mcp-adapter-v0.1.md"
    found = [(HERE / "full.yml").read_text()]
    if seed.exists():
        text = seed.read_text()
        found.append(text[text.index("# xprotocol-mcp-adapter.yml") : text.index("3.2 — Minimal")])
    return found


@pytest.mark.requirement("XP-A-4", "XP-3.1-28")
@pytest.mark.parametrize("text", examples(), ids=["ours", "the document's"][: len(examples())])
def test_the_full_example_lacks_a_key_a_file_and_a_variable_and_nothing_else(
    shell: Shell, tmp_path: Path, text: str
) -> None:
    """The issue asks for these three, exactly."""
    file = written(tmp_path, text)
    output = shell("validate", "--config", file)
    assert (output.code, output.out) == (1, "")
    lines = output.err.strip().split("\n")
    assert len(lines) == len(EXPECTED)
    for line, (path, words) in zip(lines, EXPECTED, strict=True):
        assert line.startswith(f"{file}: {path}: ")
        assert words in line
    as_json = shell("validate", "--config", file, "--json")
    assert as_json.code == 1
    assert as_json.json["ok"] is False
    assert [problem["path"] for problem in as_json.json["problems"]] == [path for path, _ in EXPECTED]


@pytest.mark.requirement("XP-A-4", "XP-3.1-47")
def test_a_sound_file_is_0_and_a_mistyped_key_is_1_with_its_path(shell: Shell, tmp_path: Path) -> None:
    assert checked(shell, tmp_path).code == 0
    output = checked(shell, tmp_path, discovery={"publish_dsn": True})
    assert output.code == 1
    assert "discovery.publish_dsn: unknown key; did you mean publish_dns?" in output.err
    assert checked(shell, tmp_path, "--json").json["problems"] == []


@pytest.mark.requirement("XP-3.1-9")
def test_two_sources_of_one_name_do_not_validate(shell: Shell, tmp_path: Path) -> None:
    output = checked(shell, tmp_path, mcp_sources=MINIMAL["mcp_sources"] * 2)
    assert output.code == 1
    assert "mcp_sources[1].name" in output.err


def test_without_a_file_it_says_how_to_give_one(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = shell("validate")
    assert output.code == 2
    assert "--config FILE" in output.err
    assert shell("validate", "--config", tmp_path / "none.yml").code == 1
    written(tmp_path, MINIMAL).rename(tmp_path / "xprotocol-mcp-adapter.yml")
    assert shell("validate").code == 0


def test_a_key_file_that_others_can_read_is_a_problem(shell: Shell, tmp_path: Path) -> None:
    keyfile.create(tmp_path / "adapter.key", ALICE)
    assert checked(shell, tmp_path).code == 0
    (tmp_path / "adapter.key").chmod(0o644)
    output = checked(shell, tmp_path)
    assert output.code == 1
    assert "identity.key_file: others may use" in output.err


def test_a_delegation_has_to_be_for_this_key_by_this_parent_and_still_hold(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XP 3.1: what would stop the start is said before."""
    org = person("org")
    keyfile.create(tmp_path / "adapter.key", ALICE)
    keyfile.create(tmp_path / "org.key", org)
    words = ("--parent-key", tmp_path / "org.key", "--capabilities", "com.mine.server.*", "--force")
    made = tmp_path / "made.json"
    shell("register", "--key", tmp_path / "adapter.key", *words, "--output", made)
    identity = {"key_file": "adapter.key", "parent_delegation_event": str(made)}

    def validated(**more: str) -> CommandResult:
        return checked(shell, tmp_path, identity=identity | more)

    assert validated(parent_key=org.key.text).code == 0
    assert "is not by identity.parent_key" in validated(parent_key=BOB.key.text).err
    assert "set identity.parent_key to" in validated().err
    assert "the adapter's own key" in validated(parent_key=ALICE.key.text).err

    event = json.loads(made.read_text())
    made.write_text(json.dumps(event | {"timestamp": event["timestamp"] + 1}))
    assert "does not verify" in validated(parent_key=org.key.text).err
    shell("register", "--key", BOB.key.text, *words, "--output", made)
    assert "expected one delegation to" in validated(parent_key=org.key.text).err
    soon, now = str(int(time.time()) + 600), time.time
    shell("register", "--key", tmp_path / "adapter.key", *words, "--output", made, "--expires", soon)
    assert validated(parent_key=org.key.text).code == 0
    monkeypatch.setattr(time, "time", lambda: now() + 601)
    assert "the delegation ended" in validated(parent_key=org.key.text).err


def test_one_port_for_two_things_is_a_problem(shell: Shell, tmp_path: Path) -> None:
    output = checked(
        shell,
        tmp_path,
        mcp_server={"transport": "sse", "sse_port": 9000},
        discovery={"well_known_port": 9000},
    )
    assert output.code == 1
    assert "mcp_server.sse_port" in output.err


def test_what_may_not_be_meant_is_noted_and_is_no_failure(shell: Shell, tmp_path: Path) -> None:
    output = checked(shell, tmp_path, discovery={"well_known_host": "0.0.0.0"})  # noqa: S104  # nothing listens
    assert output.code == 0
    assert "note: discovery.well_known_host: listens on every address" in output.out
    assert "the program my-server is not found" in output.out


# The MCP servers


@pytest.mark.requirement("XP-4.6-32")
def test_it_advises_on_tools_that_nobody_will_find(shell: Shell, tmp_path: Path) -> None:
    """XP 4.6, D-64: what is described poorly, and what contradicts itself, each with what to do."""
    server = notes_server(tmp_path)
    server.list_tools(
        [
            tool("read_note"),
            {"name": "handle_thing", "description": "Handles it", "inputSchema": {"type": "object"}},
            tool("get_rid", annotations={"destructiveHint": True}),
        ]
    )
    quiet = checked(shell, tmp_path, "--offline", mcp_sources=[server.source])
    assert (quiet.code, "handle_thing" in quiet.out) == (0, False)
    assert not (server.folder / "requests.jsonl").exists()
    output = checked(shell, tmp_path, mcp_sources=[server.source])
    assert output.code == 0
    (low,) = [line for line in output.out.split("\n") if "handle_thing" in line]
    assert "Mend it at the server, or write a description in schema_overrides" in low
    assert any("get_rid" in line and "destructiveHint" in line for line in output.out.split("\n"))
    assert "read_note" not in output.out


def test_it_fails_for_a_tool_without_a_listed_capability(shell: Shell, tmp_path: Path) -> None:
    """D-61."""
    server = notes_server(tmp_path, capability_inference="explicit", capabilities=["desk.read"])
    server.list_tools([tool("read_note"), tool("delete_note")])
    output = checked(shell, tmp_path, mcp_sources=[server.source])
    assert output.code == 1
    (line,) = output.err.strip().split("\n")
    assert "mcp_sources[0].capabilities" in line
    assert "delete_note" in line


def test_a_server_that_does_not_start_is_noted_and_fails_only_when_all_have_to_answer(
    shell: Shell, tmp_path: Path
) -> None:
    entry = MINIMAL["mcp_sources"][0] | {"command": f"{sys.executable} -c 'raise SystemExit(3)'"}
    noted = checked(shell, tmp_path, mcp_sources=[entry])
    assert noted.code == 0
    assert "note: mcp_sources[0]: mine could not be contacted" in noted.out
    output = checked(shell, tmp_path, "--connect", "--json", mcp_sources=[entry])
    assert output.code == 1
    assert output.json["problems"][0]["path"] == "mcp_sources[0]"
    assert output.json["sources"] == [{"name": "mine", "ok": False, "tools": 0}]


def test_a_server_elsewhere_is_only_asked_when_that_is_wanted(shell: Shell, tmp_path: Path) -> None:
    """Its credentials go nowhere for a look at a file."""
    entry = MINIMAL["mcp_sources"][0] | {"transport": "http", "url": "https://mcp.invalid/mcp"}
    del entry["command"]
    output = checked(shell, tmp_path, "--json", mcp_sources=[entry])
    assert output.code == 0
    assert any("mine was not contacted; use --connect" in note for note in output.json["notes"])
    assert output.json["sources"] == []


def test_the_installed_command_says_the_same(tmp_path: Path) -> None:
    output = run_program(
        "validate",
        "--config",
        written(tmp_path, (HERE / "full.yml").read_text()),
        env={"HOME": str(tmp_path)},
    )
    assert output.code == 1
    assert len(output.err.strip().split("\n")) == 3
