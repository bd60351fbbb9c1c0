"""`moot mcp --print-config CLIENT`: the configuration in the form of each client, and its place.

No form holds a token. Over stdio the client starts `moot mcp`, which reads its token from a file. Over HTTP
the client takes it from its environment, or asks for it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moot.cli.mcp.defaults import DECISION_SECONDS
from moot.cli.mcp.http_service import http_token, url_of
from moot.cli.options.member_options import member_environ, member_overrides, overrides_of
from moot.errors import UsageError

# The variable from which clients take the token of `moot mcp --http`.
TOKEN_VARIABLE: Final = "MOOT_MCP_TOKEN"
_NAME: Final = "moot"
_INPUT: Final = "moot-token"
# Clients whose entries say which kind they are.
_TYPED: Final = frozenset({"claude-code", "vscode"})
_SECTIONS: Final = {"vscode": "servers", "zed": "context_servers"}
_ADDRESS_KEYS: Final = {"gemini": "httpUrl", "windsurf": "serverUrl"}
# How a client's file refers to a variable of its environment.
_REFERENCES: Final = {
    "claude-code": f"${{{TOKEN_VARIABLE}}}",
    "cursor": f"${{env:{TOKEN_VARIABLE}}}",
    "gemini": f"${{{TOKEN_VARIABLE}}}",
    "generic": f"${{{TOKEN_VARIABLE}}}",
    "vscode": f"${{input:{_INPUT}}}",
    "windsurf": f"${{env:{TOKEN_VARIABLE}}}",
}
_PLACES: Final = {
    "claude-code": "Save this as .mcp.json in your project",
    "claude-desktop": (
        "Put this into claude_desktop_config.json (Settings, Developer, Edit Config):\n"
        "  macOS    ~/Library/Application Support/Claude/claude_desktop_config.json\n"
        "  Windows  %APPDATA%\\Claude\\claude_desktop_config.json\n"
        "  Linux    ~/.config/Claude/claude_desktop_config.json\n"
        "Then quit Claude Desktop and start it again."
    ),
    "codex": "Put this into ~/.codex/config.toml, or into .codex/config.toml in a project that Codex trusts.",
    "cursor": "Put this into .cursor/mcp.json in your project, or into ~/.cursor/mcp.json.",
    "gemini": "Put this into .gemini/settings.json in your project, or into ~/.gemini/settings.json.",
    "vscode": "Put this into .vscode/mcp.json in your workspace.",
    "windsurf": "Put this into ~/.codeium/windsurf/mcp_config.json.",
    "zed": "Put this into ~/.config/zed/settings.json (in Zed: `zed: open settings file`).",
    "generic": "Any client that starts a command (or opens this URL) can use it.",
}


@dataclass(frozen=True, slots=True)
class StdioEntry:
    """The client starts this."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HttpEntry:
    """The client connects to this, with the token in the file if there is one."""

    url: str
    token_file: Path | None


def print_config(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the entry for one client, and on stderr where it belongs."""
    if options.http:
        # Read here only to find out that it is one: its text stands in no configuration.
        http_token(options)
        entry: HttpEntry | StdioEntry = HttpEntry(url_of(options), options.http_token_file)
    else:
        # An absolute path to this installation: clients start programs with their own PATH.
        program = Path(sys.executable).absolute().with_name("moot")
        command = [str(program)] if program.is_file() else [sys.executable, "-m", "moot.cli"]
        entry = StdioEntry((*command, *_arguments(options, environ)))
    print(format_config(options.print_config, entry))
    print(where_to_put(options.print_config, entry), file=sys.stderr)
    return 0


def _arguments(options: argparse.Namespace, environ: Mapping[str, str]) -> list[str]:
    """The arguments with which the client starts us: independent of its folder and environment."""
    gateway, space, file = _find_settings(options, environ)
    made = ["mcp", "--gateway", gateway]
    if space:
        made += ["--space", space]
    made += ["--token-file", str(file.resolve())]
    if options.decision_seconds != DECISION_SECONDS:
        made += ["--decision-seconds", f"{options.decision_seconds:g}"]
    if options.person_token_file is not None:
        made += ["--person-token-file", str(options.person_token_file.resolve())]
    if options.wait_for_others:
        made += ["--wait-for-others"]
    if options.operator:
        made += ["--operator"]
        made += [part for name in options.assistant for part in ("--assistant", name)]
        made += [part for call in options.skip_confirmation for part in ("--skip-confirmation", call)]
    if options.names_file:
        made += ["--names-file", options.names_file]
    if options.calls_file:
        made += ["--calls-file", options.calls_file]
    return made


def _find_settings(options: argparse.Namespace, environ: Mapping[str, str]) -> tuple[str, str, Path]:
    """Gateway, space and token file: as given, or of the space in the current folder.

    Of a person only with --operator: else the client would do everything in their name.
    """
    from moot.config import load
    from moot.config.connect_settings import connect_settings, find_config

    if options.operator:
        overrides = overrides_of(options)
    else:
        overrides, environ = member_overrides(options), member_environ(environ)
    gateway, space = (
        overrides.gateway or environ.get("MOOT_URL"),
        overrides.space or environ.get("MOOT_SPACE", ""),
    )
    file = overrides.token_file or (
        Path(environ["MOOT_TOKEN_FILE"]) if environ.get("MOOT_TOKEN_FILE") else None
    )
    if gateway and file is not None and overrides.name is None:
        if not file.is_file():
            print(f"note: {file.resolve()} does not exist yet", file=sys.stderr)
        return gateway, space, file
    where = connect_settings(overrides, environ=environ, folder=Path.cwd())
    if file is not None and overrides.name is None:
        return where.url, where.space, file
    config = overrides.config or find_config(Path.cwd())
    if config is not None and where.participant is not None:
        files = load(config, environ=environ, dry=True, unset={}).spaces[where.space].token_files
        if where.participant in files:
            return where.url, where.space, files[where.participant]
    raise UsageError("a client's configuration needs a token file: give --gateway URL and --token-file FILE")


def format_config(client: str, entry: StdioEntry | HttpEntry) -> str:
    """The configuration as text; raises UsageError if the client cannot have it."""
    if client == "codex":
        return _codex(entry)
    made = _json_entry(client, entry)
    if client == "generic":
        return json.dumps(made, indent=2)
    document: dict[str, Any] = {_SECTIONS.get(client, "mcpServers"): {_NAME: made}}
    if client == "vscode" and "headers" in made:
        asked = "The token of moot mcp, as it is in its token file"
        inputs = [{"type": "promptString", "id": _INPUT, "description": asked, "password": True}]
        document = {"inputs": inputs, **document}
    return json.dumps(document, indent=2)


def where_to_put(client: str, entry: StdioEntry | HttpEntry) -> str:
    """For the person: the file, and what else there is to do."""
    place = _PLACES[client]
    if client == "claude-code":
        added = shlex.quote(json.dumps(_json_entry(client, entry)))
        place += f", or run:\n  claude mcp add-json {_NAME} {added}"
    if isinstance(entry, StdioEntry) or entry.token_file is None:
        return place
    file = shlex.quote(str(entry.token_file.resolve()))
    if client == "vscode":
        return f"{place}\nVS Code asks for the token and keeps it; it is in {file}."
    return (
        f"{place}\nStart the client with the token in its environment:\n"
        f'  export {TOKEN_VARIABLE}="$(cat {file})"'
    )


def _json_entry(client: str, entry: StdioEntry | HttpEntry) -> dict[str, Any]:
    kind = "stdio" if isinstance(entry, StdioEntry) else "http"
    made: dict[str, Any] = {"type": kind} if client in _TYPED else {}
    if isinstance(entry, StdioEntry):
        return made | {"command": entry.argv[0], "args": list(entry.argv[1:])}
    if client == "claude-desktop":
        raise UsageError("Claude Desktop's file supports only stdio servers: leave out --http")
    made[_ADDRESS_KEYS.get(client, "url")] = entry.url
    if entry.token_file is not None:
        if client not in _REFERENCES:
            raise UsageError(
                "Zed's file would have to hold the token itself: leave out --http, and Zed starts moot mcp"
            )
        made["headers"] = {"Authorization": f"Bearer {_REFERENCES[client]}"}
    return made


def _codex(entry: StdioEntry | HttpEntry) -> str:
    lines = [f"[mcp_servers.{_NAME}]"]
    if isinstance(entry, StdioEntry):
        lines.append(f"command = {_toml_string(entry.argv[0])}")
        lines.append(f"args = [{', '.join(_toml_string(argument) for argument in entry.argv[1:])}]")
    else:
        lines.append(f"url = {_toml_string(entry.url)}")
        if entry.token_file is not None:
            lines.append(f"bearer_token_env_var = {_toml_string(TOKEN_VARIABLE)}")
    return "\n".join(lines)


def _toml_string(text: str) -> str:
    # A string of JSON is one of TOML, but for pairs of surrogates and for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
