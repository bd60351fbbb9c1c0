"""`moot mcp --print-config CLIENT`: each client's own form, read as that client reads it, without a token."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.cli.mcp import CLIENTS
from moot.cli.mcp.print_config import HttpEntry, StdioEntry, format_config
from moot.config.clients.client_file import read_client_file
from moot.config.clients.json_comments import read_json_with_comments
from moot.config.clients.server_import import import_servers

TOKEN = "a-token-of-some-length"  # of a test
HTTP = ["mcp", "--http", "127.0.0.1:8090", "--http-token-file", "http.token", "--print-config"]
URL = "http://127.0.0.1:8090/mcp"
FROM_ENVIRONMENT = {"Authorization": "Bearer ${MOOT_MCP_TOKEN}"}
# Where the entry stands, what it has besides a command, and the file.
FORMS: list[tuple[str, list[str], dict[str, str], str]] = [
    ("claude-code", ["mcpServers", "moot"], {"type": "stdio"}, ".mcp.json in your project"),
    ("claude-desktop", ["mcpServers", "moot"], {}, "Claude/claude_desktop_config.json"),
    ("codex", ["mcp_servers", "moot"], {}, "~/.codex/config.toml"),
    ("cursor", ["mcpServers", "moot"], {}, "~/.cursor/mcp.json"),
    ("gemini", ["mcpServers", "moot"], {}, "~/.gemini/settings.json"),
    ("vscode", ["servers", "moot"], {"type": "stdio"}, ".vscode/mcp.json"),
    ("windsurf", ["mcpServers", "moot"], {}, "~/.codeium/windsurf/mcp_config.json"),
    ("zed", ["context_servers", "moot"], {}, "~/.config/zed/settings.json"),
    ("generic", [], {}, "Any client"),
]


def test_every_client_is_tried_here() -> None:
    assert {form[0] for form in FORMS} == set(CLIENTS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("bob.token", "http.token"):
        (tmp_path / name).write_text(f"{TOKEN}\n")
        (tmp_path / name).chmod(0o600)
    return tmp_path


def parsed(client: str, text: str) -> Any:
    return tomllib.loads(text) if client == "codex" else read_json_with_comments(text)[0]


@pytest.mark.parametrize(("client", "path", "kind", "place"), FORMS)
def test_each_client_gets_its_form_and_the_path_of_its_file(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    client: str,
    path: list[str],
    kind: dict[str, str],
    place: str,
) -> None:
    options = ["--gateway", "http://localhost:8080", "--space", "lab", "--token-file", "bob.token"]
    assert main(["mcp", *options, "--print-config", client]) == 0
    output = capsys.readouterr()
    entry = parsed(client, output.out)
    for name in path:
        # Nothing else is in it that would replace what the file has.
        assert list(entry) == [name]
        entry = entry[name]
    command, arguments = entry.pop("command"), entry.pop("args")
    assert Path(command).is_absolute()
    assert arguments[arguments.index("mcp") :] == ["mcp", *options[:-1], str(folder / "bob.token")]
    assert entry == kind
    assert place in output.err
    assert TOKEN not in output.out + output.err


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        (
            "claude-code",
            {"type": "http", "url": URL, "headers": FROM_ENVIRONMENT},
        ),
        ("codex", {"url": URL, "bearer_token_env_var": "MOOT_MCP_TOKEN"}),
        ("cursor", {"url": URL, "headers": {"Authorization": "Bearer ${env:MOOT_MCP_TOKEN}"}}),
        ("gemini", {"httpUrl": URL, "headers": FROM_ENVIRONMENT}),
        ("vscode", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${input:moot-token}"}}),
        ("windsurf", {"serverUrl": URL, "headers": {"Authorization": "Bearer ${env:MOOT_MCP_TOKEN}"}}),
    ],
)
def test_over_http_the_token_is_named_and_never_printed(
    folder: Path, capsys: pytest.CaptureFixture[str], client: str, entry: dict[str, Any]
) -> None:
    assert main([*HTTP, client]) == 0
    output = capsys.readouterr()
    document = parsed(client, output.out)
    section = next(key for key in document if key != "inputs")
    assert document[section] == {"moot": entry}
    assert TOKEN not in output.out + output.err
    # How the client gets it.
    assert str(folder / "http.token") in output.err
    if client == "vscode":
        (asked,) = document["inputs"]
        assert (asked["id"], asked["type"], asked["password"]) == ("moot-token", "promptString", True)
    else:
        assert "export MOOT_MCP_TOKEN=" in output.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("client", "words"), [("claude-desktop", "only stdio"), ("zed", "leave out --http")])
def test_a_client_whose_file_would_hold_the_token_does_not_get_it(
    capsys: pytest.CaptureFixture[str], client: str, words: str
) -> None:
    assert main([*HTTP, client]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert words in output.err
    assert TOKEN not in output.err


@pytest.mark.parametrize("path", ['/a b/"c"', "/back\\slash", "/ünïcödé/😀", "/control\x01\x7f\n"])
def test_any_path_is_read_back_from_toml(path: str) -> None:
    entry = tomllib.loads(format_config("codex", StdioEntry(("moot", "mcp", path))))["mcp_servers"]["moot"]
    assert entry == {"command": "moot", "args": ["mcp", path]}


@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "generic"])
def test_what_is_printed_is_recognised_by_moot_init_and_not_taken_over(tmp_path: Path, client: str) -> None:
    """A space in which Moot is a member through itself would be a loop."""
    file = tmp_path / ("config.toml" if client == "codex" else "x.json")
    file.write_text(format_config(client, StdioEntry(("/opt/bin/moot", "mcp", "--space", "lab"))))
    found = read_client_file(file, home=tmp_path)
    servers, notes = import_servers(found, tmp_path, reserved=(), environ=())
    assert (servers, notes) == ([], ["moot: left out: it is Moot itself"])


def test_without_a_token_there_is_no_header() -> None:
    made = json.loads(format_config("zed", HttpEntry(URL, None)))
    assert made == {"context_servers": {"moot": {"url": URL}}}
