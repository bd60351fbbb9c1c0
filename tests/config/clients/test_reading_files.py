"""Files of MCP clients are recognised, whatever editors left in them, and mistakes are named by place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from moot.config.clients import client_file
from moot.config.clients.client_file import ClientFile, existing_files, read_client_file
from moot.errors import UsageError

SERVER = {"command": "npx", "args": ["-y", "a-server"]}


def written(folder: Path, name: str, content: Any) -> ClientFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return read_client_file(path, home=folder / "home")


@pytest.mark.parametrize(
    ("name", "content", "client"),
    [
        ("mcp.json", {"mcpServers": {"a": SERVER}}, "generic"),
        (".mcp.json", {"mcpServers": {"a": SERVER}}, "claude-code"),
        ("claude_desktop_config.json", {"mcpServers": {"a": SERVER}, "globalShortcut": ""}, "claude-desktop"),
        (".vscode/mcp.json", {"servers": {"a": SERVER}}, "vscode"),
        ("mine.json", {"servers": {"a": SERVER}}, "vscode"),
        ("Code/User/settings.json", {"mcp": {"servers": {"a": SERVER}}, "editor.tabSize": 2}, "vscode"),
        (".cursor/mcp.json", {"mcpServers": {"a": SERVER}}, "cursor"),
        ("zed/settings.json", {"theme": "x", "context_servers": {"a": SERVER}}, "zed"),
        ("windsurf/mcp_config.json", {"mcpServers": {"a": SERVER}}, "windsurf"),
        (".gemini/settings.json", {"mcpServers": {"a": SERVER}, "ui": {}}, "gemini"),
        (".codex/config.toml", '[mcp_servers.a]\ncommand = "npx"\nargs = ["-y", "a-server"]\n', "codex"),
        (
            ".claude.json",
            {"projects": {"/p": {"mcpServers": {"a": SERVER}}}, "numStartups": 1},
            "claude-code",
        ),
        ("bare.json", {"a": SERVER}, "generic"),
    ],
)
def test_the_file_of_each_client_is_recognised(tmp_path: Path, name: str, content: Any, client: str) -> None:
    found = written(tmp_path, name, content)
    assert found.client == client
    assert [(server.name, server.entry) for server in found.servers] == [("a", SERVER)]


def test_comments_last_commas_and_byte_order_marks_are_read(tmp_path: Path) -> None:
    text = """\ufeff{
      // "mcpServers": {"no": {}}
      "mcpServers": { /* several
        lines */
        "a": {"command": "x", "args": ["http://y/*no comment*/", "\\"//,]",],}, // last
      },
    }"""
    found = written(tmp_path, "mcp.json", text)
    assert found.servers[0].entry == {"command": "x", "args": ["http://y/*no comment*/", '"//,]']}
    (tmp_path / "wide.json").write_text('{"mcpServers": {"ä": {"command": "x"}}}', "utf-16")
    assert read_client_file(tmp_path / "wide.json", home=tmp_path).servers[0].name == "ä"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "mcp.json",
            '{\n  // comment\n  "mcpServers": {"a" "sk-live"}\n}',
            "line 3, column 22: not valid JSON",
        ),
        ("mcp.json", '{"mcpServers": {}\n /* sk-live', "line 2, column 2: not valid JSON: a comment"),
        ("mcp.json", '{"mcpServers": {"a": "sk-live\n"}}', "line 1, column 30: not valid JSON"),
        ("config.toml", '[mcp_servers.a]\ncommand = "x"\nkey = sk-live', "line 3, column 7: not valid TOML"),
        ("config.toml", '[mcp_servers.a]\nkey = "sk-live', "end of document: not valid TOML"),
        ("mcp.json", "", "is empty"),
        ("mcp.json", "[1]", "is no object with servers"),
        ("mcp.json", "[" * 100_000, "nested too deep"),
        ("mcp.json", '{"mcpServers": ["sk-live"]}', "mcpServers: has to be an object"),
        ("mcp.json", '{"theme": "sk-live"}', "names no MCP servers"),
        ("mcp.json", '{"command": "sk-live"}', "a single server without a name"),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_without_its_text(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        written(tmp_path, name, text)
    assert words in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)
    assert "sk-live" not in str(caught.value)


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="`moot init --from` lists"):
        read_client_file(tmp_path / "none.json", home=tmp_path)
    (tmp_path / ".mcp.json").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(UsageError, match=r"is a folder; there is .*\.mcp\.json"):
        read_client_file(tmp_path, home=tmp_path)
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_client_file(tmp_path / ".mcp.json", home=tmp_path)
    monkeypatch.setattr(client_file, "MAX_FILE_BYTES", 20)
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {}}  ')
    read_client_file(tmp_path / ".mcp.json", home=tmp_path)
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {}}   ')
    with pytest.raises(UsageError, match="more than 20 bytes"):
        read_client_file(tmp_path / ".mcp.json", home=tmp_path)


def test_a_name_that_stands_twice_is_noted(tmp_path: Path) -> None:
    found = written(tmp_path, "mcp.json", '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}')
    assert [server.entry for server in found.servers] == [{"command": "y"}]
    assert found.notes == ("a: stands twice in one object; the last one counts",)


def test_the_projects_of_claude_code_are_read_besides_the_users_servers(tmp_path: Path) -> None:
    document = {
        "mcpServers": {"mine": SERVER},
        "projects": {
            "/srv/one": {"mcpServers": {"a": SERVER, "b": SERVER}, "disabledMcpServers": ["b"]},
            "/srv/two": {"history": []},
        },
    }
    found = written(tmp_path, "home/.claude.json", document)
    assert [(one.name, one.project, one.is_disabled) for one in found.servers] == [
        ("mine", None, False),
        ("a", Path("/srv/one"), False),
        ("b", Path("/srv/one"), True),
    ]


def test_gemini_has_a_list_of_servers_that_it_leaves_out(tmp_path: Path) -> None:
    document = {"mcpServers": {"a": SERVER, "b": SERVER, "c": SERVER}, "mcp": {"excluded": ["b"]}}
    found = written(tmp_path, ".gemini/settings.json", document)
    assert [one.is_disabled for one in found.servers] == [False, True, False]
    document["mcp"] = {"allowed": ["b"]}
    found = written(tmp_path, ".gemini/settings.json", document)
    assert [one.is_disabled for one in found.servers] == [True, False, True]


def test_the_project_of_a_file_is_its_folder_and_a_users_file_has_none(tmp_path: Path) -> None:
    content = {"mcpServers": {"a": SERVER}}
    for name in (".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"):
        assert written(tmp_path, name, content).workspace == tmp_path, name
    for name in (
        "home/.cursor/mcp.json",
        "home/.mcp.json",
        "Code/User/mcp.json",
        "claude_desktop_config.json",
    ):
        assert written(tmp_path, name, content).workspace is None, name


def test_files_of_clients_are_found(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    for path in (
        project / ".vscode/mcp.json",
        home / ".claude.json",
        home / ".codeium/windsurf/mcp_config.json",
        home / ".codex/config.toml",
        tmp_path / "codex/config.toml",
        tmp_path / "xdg/zed/settings.json",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "CODEX_HOME": str(tmp_path / "codex")}
    found = existing_files(project, home, environ)
    assert [(one.client, os.path.relpath(one.path, tmp_path)) for one in found] == [
        ("vscode", "project/.vscode/mcp.json"),
        ("claude-code", "home/.claude.json"),
        ("codex", "codex/config.toml"),
        ("windsurf", "home/.codeium/windsurf/mcp_config.json"),
        ("zed", "xdg/zed/settings.json"),
    ]
    # In the home folder a file is both, and listed once.
    assert len([one for one in existing_files(home, home, {}) if one.client == "codex"]) == 1
