"""Servers of clients become entries of `mcp_servers:`; what may be a secret stands in no configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from moot.config.clients.client_file import read_client_file
from moot.config.clients.server_import import ImportedServer, import_servers
from moot.config.clients.server_text import looks_secret, names_secret

# Variables that the environment has.
SET = {
    "A",
    "AUTH",
    "B",
    "HOME",
    "HOST",
    "MY_KEY",
    "ONE",
    "PORT",
    "ROOT",
    "TOKEN",
    "TWO",
    "DOCS_KEY",
    "DOCS_TOKEN",
}


def imported(
    folder: Path, entries: dict[str, Any], *, name: str = "mcp.json", **more: Any
) -> tuple[list[ImportedServer], list[str]]:
    key = "servers" if ".vscode" in name else "context_servers" if "zed" in name else "mcpServers"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: entries, **more}), "utf-8")
    file = read_client_file(path, home=folder / "home")
    return import_servers(file, folder, reserved=("you", "agent", "gateway", "system"), environ=SET)


def one(folder: Path, entry: dict[str, Any], **more: Any) -> ImportedServer:
    (server,), _ = imported(folder, {"a": entry}, **more)
    return server


def test_variables_and_headers_are_hidden_whole(tmp_path: Path) -> None:
    env = {"API_KEY": "the key", "PORT": 8080, "DEBUG": True, "GONE": None}
    server = one(tmp_path, {"command": "npx", "args": ["-y", "pkg@1.2"], "env": env})
    assert server.settings == {"command": "npx", "args": ["-y", "pkg@1.2"]}
    assert server.secrets == {"API_KEY": "the key", "PORT": "8080", "DEBUG": "true"}
    server = one(tmp_path, {"type": "http", "url": "https://x.org/mcp", "headers": {"X-Key": "the key"}})
    assert server.settings == {"url": "https://x.org/mcp", "headers": {"X-Key": "${env:HEADER_X_KEY}"}}
    assert server.secrets == {"HEADER_X_KEY": "the key"}
    assert "the key" not in repr(server)


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--api-key", "abc"], ["--api-key", "${env:ARG_API_KEY}"]),
        (["--api-key=abc"], ["--api-key=${env:ARG_API_KEY}"]),
        (["--token-file", "me.token"], ["--token-file", "me.token"]),
        (["postgresql://u:pw@h/db"], ["${env:ARG_1}"]),
        (["--url", "https://h/mcp?apiKey=abc"], ["--url", "${env:ARG_URL}"]),
        (["-H", "Authorization: Bearer abc"], ["-H", "${env:ARG_H}"]),
        (["--header", "Authorization:${AUTH}"], ["--header", "Authorization:${env:AUTH}"]),
        (
            ["run", "-e", "FOO=bar", "-e", "BAZ", "image"],
            ["run", "-e", "FOO=${env:FOO}", "-e", "BAZ", "image"],
        ),
        (["ghp_0123456789abcdef"], ["${env:ARG_1}"]),
        (["0a1b2c3d4e5f60718293a4b5"], ["${env:ARG_1}"]),
        (["-y", "@modelcontextprotocol/server-filesystem@2026.1.14", "/srv/my files"], None),
        (["--directory", "/home/me/projects/server", "run", "server.py", "--port", 8080], None),
        (["a$${B}"], ["${env:ARG_1}${env:B}"]),
    ],
)
def test_arguments_are_shown_unless_they_look_like_secrets(
    tmp_path: Path, args: list[Any], shown: list[str] | None
) -> None:
    server = one(tmp_path, {"command": "x", "args": args})
    assert server.settings["args"] == ([str(arg) for arg in args] if shown is None else shown)
    hidden = "".join(server.secrets.values())
    assert (hidden == "") == (shown is None or ("ARG" not in str(shown) and "FOO" not in str(shown)))


@pytest.mark.parametrize(
    "url",
    ["https://u:pw@h/mcp", "https://h/mcp?key=abc", "https://h/s/0a1b2c3d4e5f60718293a4b5/mcp"],
)
def test_addresses_with_keys_in_them_are_hidden(tmp_path: Path, url: str) -> None:
    server = one(tmp_path, {"url": url})
    assert server.settings == {"url": "${env:SERVER_URL}"}
    assert server.secrets == {"SERVER_URL": url}


def test_secrets_are_recognised_by_their_names_and_shapes() -> None:
    for name in ("--api-key", "--token", "-H", "--password", "GITHUB_PAT", "Authorization", "X-Api-Key"):
        assert names_secret(name), name
    for name in ("--token-file", "--key-env", "--port", "--directory", "--path", "-y", "--local-timezone"):
        assert not names_secret(name), name
    for text in ("Bearer x", "a-password=x", "xoxb-123456789012", "sk-proj-abcdefgh", "-----BEGIN KEY"):
        assert looks_secret(text), text
    for text in ("mcp-server-time", "Europe/Berlin", "https://mcp.example.org/mcp", "/opt/homebrew/bin/npx"):
        assert not looks_secret(text), text


def test_placeholders_of_clients_become_ours(tmp_path: Path) -> None:
    entry = {
        "command": "${workspaceFolder}/run",
        "args": [
            "${env:TOKEN}",
            "${PORT}",
            "${HOST:-localhost}",
            "${userHome}${/}x",
            "${workspaceFolderBasename}",
        ],
        "env": {"A": "${env:A}", "URL": "https://${HOST}/x", "KEY": "${KEY:-sk-proj-abcdefgh}"},
    }
    server = one(tmp_path, entry)
    assert server.settings == {
        "command": "${FOLDER}/run",
        # Not ${TOKEN}, which is the member's own here.
        "args": ["${env:TOKEN}", "${env:PORT}", "${env:HOST:-localhost}", "${env:HOME}/x", tmp_path.name],
        "env": {
            "A": "${env:A}",
            "URL": "${env:URL_2}${env:HOST}${env:URL_3}",
            "KEY": "${env:KEY_2}",
        },
    }
    assert server.secrets == {"URL_2": "https://", "URL_3": "/x", "KEY_2": "sk-proj-abcdefgh"}


def test_gemini_has_variables_without_braces(tmp_path: Path) -> None:
    entry = {"command": "x", "args": ["$ROOT/a"], "env": {"KEY": "$MY_KEY"}, "trust": True, "timeout": 5}
    (server,), notes = imported(tmp_path, {"a": entry}, name=".gemini/settings.json")
    assert server.settings == {"command": "x", "args": ["${env:ROOT}/a"], "env": {"KEY": "${env:MY_KEY}"}}
    assert notes == ["a: trust: not taken over; who may call what is decided in the space"]
    # Elsewhere a dollar sign is one.
    assert one(tmp_path, entry).secrets == {"KEY": "$MY_KEY"}


def test_what_vs_code_asks_for_is_left_to_be_filled_in(tmp_path: Path) -> None:
    inputs = [
        {"type": "promptString", "id": "api-key", "description": "Your\nkey", "password": True},
        {"type": "pickString", "id": "region", "options": ["eu", "us"], "default": "eu"},
    ]
    entry = {"type": "stdio", "command": "x", "env": {"K": "${input:api-key}"}, "args": ["${input:region}"]}
    (server,), notes = imported(tmp_path, {"a": entry}, name=".vscode/mcp.json", inputs=inputs)
    assert server.settings == {
        "command": "x",
        "args": ["${env:INPUT_REGION}"],
        "env": {"K": "${env:INPUT_API_KEY}"},
    }
    assert server.secrets == {"INPUT_REGION": "eu"}
    assert server.wanted == {"INPUT_API_KEY": "Your key"}
    assert "needs INPUT_API_KEY: write it into .moot/secrets/a.env" in notes[0]


def test_a_variable_that_is_not_set_is_left_to_be_filled_in(tmp_path: Path) -> None:
    """Nor is one that the server's own variables hold."""
    entry = {"command": "x", "args": ["${env:A}", "${env:UNSET}", "${OWN}"], "env": {"OWN": "x", "C": "${A}"}}
    (server,), notes = imported(tmp_path, {"a": entry})
    assert server.settings["args"] == ["${env:A}", "${env:UNSET}", "${env:OWN}"]
    assert server.wanted == {"UNSET": ""}
    assert "needs UNSET: write it into .moot/secrets/a.env" in notes[0]


def test_the_env_file_of_vs_code_is_copied_and_its_env_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=of-the-file\nOTHER=two words\n")
    entry = {"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"KEY": "own"}}
    (server,), notes = imported(tmp_path, {"a": entry}, name=".vscode/mcp.json")
    assert server.secrets == {"KEY": "own", "OTHER": "two words"}
    assert "was copied" in notes[0]
    entry["envFile"] = "${workspaceFolder}/none.env"
    (server,), notes = imported(tmp_path, {"a": entry}, name=".vscode/mcp.json")
    assert server.secrets == {"KEY": "own"}
    assert "its variables are missing" in notes[0]


def test_codex_names_variables_instead_of_values(tmp_path: Path) -> None:
    path = tmp_path / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text("""
        [mcp_servers.docs]
        url = "https://docs.example.org/mcp"
        bearer_token_env_var = "DOCS_TOKEN"
        http_headers = { "X-Region" = "eu" }
        env_http_headers = { "X-Key" = "DOCS_KEY" }
        [mcp_servers.local]
        command = "server"
        env_vars = ["ONE", { name = "TWO", source = "local" }]
        cwd = "sub"
        enabled_tools = ["a"]
        [mcp_servers.off]
        command = "server"
        enabled = false
    """)
    file = read_client_file(path, home=tmp_path / "home")
    (docs, local), notes = import_servers(file, tmp_path / "lab", reserved=(), environ=SET)
    assert docs.settings == {
        "url": "https://docs.example.org/mcp",
        "headers": {
            "X-Region": "${env:HEADER_X_REGION}",
            "X-Key": "${env:DOCS_KEY}",
            "Authorization": "Bearer ${env:DOCS_TOKEN}",
        },
    }
    assert local.settings == {
        "command": "server",
        "env": {"ONE": "${env:ONE}", "TWO": "${env:TWO}"},
        "cwd": f"{tmp_path}/sub",
    }
    assert notes == [
        "local: enabled_tools: not taken over; all its tools are there, each as a proposal",
        "off: left out: it is disabled there",
    ]


def test_zed_had_an_object_as_command_and_has_servers_of_extensions(tmp_path: Path) -> None:
    entries = {
        "old": {"command": {"path": "x", "args": ["y"], "env": {"K": "v"}}, "settings": {}},
        "new": {"source": "custom", "command": "x", "args": ["y"], "enabled": True},
        "extension": {"source": "extension", "enabled": True, "settings": {"key": "secret"}},
        "far": {"url": "https://x.org/mcp"},
    }
    servers, notes = imported(tmp_path, entries, name="zed/settings.json")
    assert [server.settings for server in servers] == [
        {"command": "x", "args": ["y"]},
        {"command": "x", "args": ["y"]},
        {"url": "https://x.org/mcp"},
    ]
    assert servers[0].secrets == {"K": "v"}
    assert "extension: left out: an extension of the client brings it; give its command here" in notes


@pytest.mark.parametrize("key", ["url", "httpUrl", "serverUrl"])
def test_addresses_have_several_names(tmp_path: Path, key: str) -> None:
    assert one(tmp_path, {key: "https://x.org/mcp"}).settings == {"url": "https://x.org/mcp"}
    server = one(tmp_path, {key: "http://localhost:1/sse", "type": "sse"})
    assert server.settings == {"url": "http://localhost:1/sse", "transport": "sse"}


def test_what_cannot_be_taken_over_is_left_out_with_the_reason(tmp_path: Path) -> None:
    entries = {
        "off": {"command": "x", "disabled": True},
        "text": "sk-live",
        "empty": {},
        "socket": {"url": "unix:///run/x.sock"},
        "moot": {"command": "/opt/bin/moot", "args": ["mcp", "--token-file", "x"]},
        "moot2": {"command": "python3", "args": ["-m", "moot.cli", "mcp"]},
        "list": {"command": "x", "args": [["sk-live"]]},
        "surrogate": {"command": "x\ud800"},
        "nul": {"command": "x", "args": ["a\0b"]},
        "good": {"command": "x", "flavour": "sk-live"},
    }
    (server,), notes = imported(tmp_path, entries)
    assert server.name == "good"
    left_out = {note.partition(":")[0] for note in notes if "left out" in note}
    assert left_out == set(entries) - {"good"}
    assert "good: flavour: not known here, ignored" in notes
    assert "moot: left out: it is Moot itself" in notes
    assert "sk-live" not in str(notes)


def test_a_placeholder_that_only_the_client_knows_keeps_the_server_from_starting(tmp_path: Path) -> None:
    (server,), notes = imported(tmp_path, {"a": {"command": "x", "args": ["${config:python.path}"]}})
    assert server.settings == {"command": "x", "args": ["$${config:python.path}"], "auto_start": False}
    assert "${config:python.path} has no meaning here" in notes[0]


def test_names_are_made_valid_and_unique_whatever_their_case(tmp_path: Path) -> None:
    names = [
        "Git Hub",
        "git-hub",
        "GIT-HUB",
        "you",
        "Agent",
        "…",
        "../../etc",
        "x" * 70,
        "x" * 70 + "y",
        "gateway",
    ]
    entries = {name: {"command": name} for name in names}
    servers, notes = imported(tmp_path, entries)
    assert [server.name for server in servers] == [
        "Git-Hub", "git-hub-2", "GIT-HUB-3", "you-2", "Agent-2", "server", "etc", "x" * 64, "x" * 62 + "-2",
        "gateway-2",
    ]  # fmt: skip
    assert "git-hub: is called git-hub-2 here" in notes


def test_a_server_of_several_projects_is_taken_over_once_and_runs_in_the_first(tmp_path: Path) -> None:
    same, other = {"command": "x"}, {"command": "x", "args": ["--verbose"]}
    projects = {"/one": {"mcpServers": {"a": same}}, "/two": {"mcpServers": {"a": same, "b": other}}}
    servers, notes = imported(tmp_path, {}, name=".claude.json", projects=projects)
    assert [(server.name, server.settings["cwd"]) for server in servers] == [("a", "/one"), ("b", "/two")]
    assert notes == ["a: configured for several projects in the same way; taken over once"]


def test_servers_of_a_project_run_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "./run"}, "b": {"command": "x", "cwd": "~/y"}}}')
    file = read_client_file(path, home=tmp_path / "home")
    (a, b), _ = import_servers(file, tmp_path / "lab", reserved=(), environ=SET)
    assert (a.settings["cwd"], b.settings["cwd"]) == (str(tmp_path), "${env:HOME}/y")
    (a, _), _ = import_servers(file, tmp_path, reserved=(), environ=SET)
    assert "cwd" not in a.settings


@pytest.mark.parametrize(
    ("command", "args", "shown", "told"),
    [
        ("cmd", ["/c", "npx", "-y", "pkg"], ["npx", "-y", "pkg"], ["starts npx"]),
        ("CMD.EXE", ["/d", "/s", "/C", "npx.cmd", "-y", "pkg"], ["npx", "-y", "pkg"], ["starts npx"]),
        ("C:\\Program Files\\nodejs\\npx.cmd", ["-y", "pkg"], ["npx", "-y", "pkg"], ["starts npx"]),
        ("uvx.exe", ["pkg", "--db=C:\\x.db"], ["uvx", "pkg", "--db=C:\\x.db"], ["starts uvx", "has a path"]),
        ("C:\\tools\\mine.exe", ["-v"], ["C:\\tools\\mine.exe", "-v"], ["has a path"]),
        ("npx", ["-y", "pkg", "C:/Users/me"], ["npx", "-y", "pkg", "C:/Users/me"], ["has a path"]),
        ("cmd", ["/c"], ["cmd", "/c"], []),
        ("npx", ["-y", "pkg", "/c", "http://x"], ["npx", "-y", "pkg", "/c", "http://x"], []),
        ("/Users/me/npx", ["-y", "pkg"], ["/Users/me/npx", "-y", "pkg"], ["which is not here: correct it"]),
        (sys.executable, ["x.py"], [sys.executable, "x.py"], []),
    ],
)
def test_what_is_written_for_another_machine_starts_here_or_is_told(
    tmp_path: Path, command: str, args: list[str], shown: list[str], told: list[str]
) -> None:
    (server,), notes = imported(tmp_path, {"a": {"command": command, "args": args}})
    assert [server.settings["command"], *server.settings["args"]] == shown
    assert [any(words in note for note in notes) for words in told] == [True] * len(told)
    assert len(notes) == len(told)
