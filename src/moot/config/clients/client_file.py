"""One configuration file of an MCP client: which one it is, and the servers in it as they stand there.

    mcpServers       Claude Desktop, Claude Code, Cursor, Windsurf, Gemini CLI and most others
    servers          VS Code's mcp.json; below `mcp` in its settings.json
    context_servers  Zed
    projects         ~/.claude.json: servers of each project, besides those of the user
    [mcp_servers.X]  Codex, in TOML

A file that is a mapping of servers itself is read, too.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from moot.config.clients.json_comments import decode_text, read_json_with_comments
from moot.errors import UsageError
from moot.protocol.operation import Json

# ~/.claude.json holds the history of all projects besides, which can be tens of MiB.
MAX_FILE_BYTES: Final = 64 << 20
_SECTIONS: Final = ("mcpServers", "servers", "context_servers", "mcp_servers")
_TOML_PLACE = re.compile(r"\s*\(at (line \d+, column \d+|end of document)\)$")


# Of a project, relative to its folder.
PROJECT_FILES: Final = {
    ".mcp.json": "claude-code",
    "mcp.json": "generic",
    ".vscode/mcp.json": "vscode",
    ".cursor/mcp.json": "cursor",
    ".gemini/settings.json": "gemini",
    ".codex/config.toml": "codex",
    ".zed/settings.json": "zed",
}


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file in which a client looks for servers."""

    client: str
    path: Path


def user_files(home: Path, environ: Mapping[str, str]) -> Iterator[KnownFile]:
    """The files of a user, whether they exist or not."""
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    applications = home / "Library" / "Application Support" if sys.platform == "darwin" else config
    yield KnownFile("claude-code", home / ".claude.json")
    yield KnownFile("claude-desktop", applications / "Claude" / "claude_desktop_config.json")
    yield KnownFile("codex", Path(environ.get("CODEX_HOME") or home / ".codex") / "config.toml")
    yield KnownFile("cursor", home / ".cursor" / "mcp.json")
    yield KnownFile("gemini", home / ".gemini" / "settings.json")
    yield KnownFile("vscode", applications / "Code" / "User" / "mcp.json")
    yield KnownFile("windsurf", home / ".codeium" / "windsurf" / "mcp_config.json")
    yield KnownFile("zed", config / "zed" / "settings.json")
    yield KnownFile("generic", home / ".copilot" / "mcp-config.json")


def existing_files(folder: Path, home: Path, environ: Mapping[str, str]) -> list[KnownFile]:
    """Those of a project in `folder` and of its user that exist, each once."""
    known = [KnownFile(client, folder / name) for name, client in PROJECT_FILES.items()]
    found = {file.path: file for file in (*known, *user_files(home, environ)) if file.path.is_file()}
    return list(found.values())


def client_of(path: Path) -> str:
    """The client that a file of this name belongs to; `generic` if the name does not tell."""
    parent = path.parent.name
    for name, client in PROJECT_FILES.items():
        known = Path(name)
        if path.name == known.name and parent == known.parent.name != "":
            return client
    match path.name:
        case ".mcp.json" | ".claude.json":
            return "claude-code"
        case "claude_desktop_config.json":
            return "claude-desktop"
        case "mcp_config.json":
            return "windsurf"
        case "mcp.json" if parent == "User":
            return "vscode"
        case "settings.json" if parent == "zed":
            return "zed"
    return "generic"


def workspace_of(path: Path, home: Path) -> Path | None:
    """The project that a file belongs to; None for a user's own file, which belongs to none."""
    for name in PROJECT_FILES:
        known = Path(name)
        if path.name == known.name and path.parent.name == known.parent.name and known.parent.name:
            return None if path.parent.parent == home else path.parent.parent
    is_project = path.name in (".mcp.json", "mcp.json") and path.parent.name not in ("User", ".cursor")
    return path.parent if is_project and path.parent != home else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """A server as a client's file has it."""

    name: str
    entry: Json = field(repr=False)
    # The folder of the project that it belongs to, if it is of one.
    project: Path | None = None
    is_disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFile:
    """A file with its servers; it is not known yet whether they can be run."""

    path: Path
    # As `moot mcp --print-config` calls it.
    client: str
    servers: tuple[FoundServer, ...]
    workspace: Path | None
    # What VS Code asks for, by id.
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_client_file(path: Path, *, home: Path) -> ClientFile:
    """Read and recognise a file; raises UsageError with the line and the column of what is wrong."""
    absolute = path.absolute()
    try:
        document, notes = _document(path)
        section = _recognise(document)
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}") from None
    workspace = workspace_of(absolute, home)
    client = client_of(absolute)
    if client == "generic":
        client = {"servers": "vscode", "context_servers": "zed", "mcp_servers": "codex"}.get(section, client)
    inner = _mapping(document.get("mcp"))
    inputs = document.get("inputs", inner.get("inputs"))
    return ClientFile(
        path=absolute,
        client="claude-code" if "projects" in document and section == "mcpServers" else client,
        servers=tuple(_servers(document, workspace)),
        workspace=workspace,
        inputs=_inputs(inputs),
        notes=tuple(notes),
    )


def _document(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        inside = [name for name in PROJECT_FILES if (path / name).is_file()]
        hint = f"; there is {path / inside[0]}" if inside else "; name the file in it"
        raise UsageError(f"is a folder{hint}") from None
    except FileNotFoundError:
        raise UsageError(
            "there is no such file; `moot init --from` lists those of your MCP clients"
        ) from None
    except OSError as fault:
        raise UsageError(f"cannot be read: {fault.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"has more than {MAX_FILE_BYTES} bytes")
    text = decode_text(data)
    if path.suffix.lower() == ".toml":
        return _toml(text), []
    document, twice = read_json_with_comments(text)
    if not isinstance(document, dict):
        raise UsageError("is no object with servers; it begins with {")
    return document, [f"{name}: stands twice in one object; the last one counts" for name in twice]


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        place = _TOML_PLACE.search(str(fault))
        where = f"{place[1]}: " if place else ""
        raise UsageError(f"{where}not valid TOML: {_TOML_PLACE.sub('', str(fault))}") from None
    except RecursionError:
        raise UsageError("not valid TOML: it is nested too deep") from None


def _recognise(document: Mapping[str, Any]) -> str:
    """The section in which the servers stand; empty if the document is one itself."""
    for name in _SECTIONS:
        if name in document:
            if not isinstance(document[name], dict):
                raise UsageError(f"{name}: has to be an object with a server under each name")
            return name
    if isinstance(_mapping(document.get("mcp")).get("servers"), dict):
        return "servers"
    if any(_mapping(project).get("mcpServers") for project in _mapping(document.get("projects")).values()):
        return "mcpServers"
    if document and all(_is_server(entry) for entry in document.values()):
        return ""
    if _is_server(document):
        raise UsageError('is a single server without a name; write {"mcpServers": {"NAME": …}} around it')
    raise UsageError(
        "names no MCP servers: they stand under mcpServers, servers (VS Code), context_servers (Zed), or"
        " [mcp_servers.NAME] (Codex, in a file that ends in .toml)"
    )


def _servers(document: Mapping[str, Any], workspace: Path | None) -> Iterator[FoundServer]:
    section = _recognise(document)
    filters = _mapping(document.get("mcp"))
    # Gemini CLI's switches for servers.
    allowed, excluded = filters.get("allowed"), filters.get("excluded")
    if not section:
        entries = document
    elif section in document:
        entries = document[section]
    else:
        entries = _mapping(filters.get(section))
    for name, entry in entries.items():
        is_disabled = _holds(excluded, name) or (bool(allowed) and not _holds(allowed, name))
        yield FoundServer(name=name, entry=entry, project=workspace, is_disabled=is_disabled)
    if section != "mcpServers":
        return
    for folder, project in _mapping(document.get("projects")).items():
        settings = _mapping(project)
        for name, entry in _mapping(settings.get("mcpServers")).items():
            yield FoundServer(
                name=name,
                entry=entry,
                project=Path(folder),
                is_disabled=_holds(settings.get("disabledMcpServers"), name),
            )


def _inputs(value: Json) -> dict[str, Mapping[str, Any]]:
    found = value if isinstance(value, list) else []
    return {
        entry["id"]: entry for entry in found if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    }


def _is_server(value: Json) -> bool:
    return isinstance(value, dict) and not {"command", "url", "httpUrl", "serverUrl"}.isdisjoint(value)


def _mapping(value: Json) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _holds(value: Json, name: str) -> bool:
    return isinstance(value, list) and name in value
