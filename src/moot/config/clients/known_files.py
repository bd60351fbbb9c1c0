"""Where MCP clients keep their configurations."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
