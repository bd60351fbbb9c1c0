"""Permissions of Cursor: the lists of a permissions.json, and `permissions` of cli-config.json and cli.json.

The lists allow commands by how they begin (`terminalAllowlist`) and MCP tools (`mcpAllowlist`,
`server:tool`). The command line has `Shell(git)`, `Read(src/**)`, `Write(…)`, `WebFetch(docs.example.com)`
and `Mcp(server:tool)`, of which denying comes before allowing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.imports.permissions import (
    ANY_TEXT,
    ANY_WORDS,
    CommandPattern,
    HostPattern,
    PathPattern,
    Permission,
    PermissionFile,
    ServerToolPattern,
    Subject,
    command_pattern,
)
from moot.trust.rules.rule import RuleDecision

CLIENT: Final = "cursor"
LISTS: Final = ("terminalAllowlist", "mcpAllowlist")
_ENTRY: Final = re.compile(r"([A-Za-z]+)\((.*)\)", re.DOTALL)
_HOST: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")


def is_cursor(document: Mapping[str, Json]) -> bool:
    """Whether a file is Cursor's, by what it says: `Shell(…)` and `Mcp(…)` are words of no other client."""
    if any(key in document for key in LISTS):
        return True
    permissions = document.get("permissions")
    found = permissions if isinstance(permissions, dict) else {}
    listed = [found.get(key) for key in ("allow", "deny")]
    texts = [entry for each in listed if isinstance(each, list) for entry in each if isinstance(entry, str)]
    return any(text.startswith(("Shell(", "Mcp(")) for text in texts)


def read_permissions(document: Mapping[str, Json]) -> PermissionFile:
    """Read a file of Cursor; raises UsageError."""
    permissions: list[Permission] = []
    command_line: Any = document.get("permissions")
    if isinstance(command_line, dict):
        for key, decision in (("deny", "reject"), ("allow", "approve")):
            for entry in _texts(command_line.get(key, []), f"permissions.{key}"):
                permissions.append(_permission(entry, "reject" if decision == "reject" else "approve"))
    for entry in _texts(document.get("terminalAllowlist", []), "terminalAllowlist"):
        permissions.append(Permission(entry, "approve", _command(entry)))
    for entry in _texts(document.get("mcpAllowlist", []), "mcpAllowlist"):
        server, _, tool = entry.partition(":")
        permissions.append(Permission(entry, "approve", ServerToolPattern(server, tool or "*")))
    notes = ["autoRun is not imported: it is advice for a model"] if document.get("autoRun") else []
    return PermissionFile(CLIENT, tuple(permissions), tuple(notes))


def _texts(value: Json, where: str) -> list[str]:
    if not isinstance(value, list):
        raise UsageError(f"{where} must be a list of texts")
    # Cursor drops what is no text.
    return [entry for entry in value if isinstance(entry, str)]


def _permission(entry: str, decision: RuleDecision) -> Permission:
    found = _ENTRY.fullmatch(entry)
    try:
        if found is None:
            raise UsageError("it is no Tool(pattern)")
        return Permission(entry, decision, _subject(found[1], found[2]))
    except UsageError as fault:
        return Permission(entry, decision, note=str(fault))


def _subject(tool: str, pattern: str) -> Subject:
    match tool:
        case "Shell":
            return _command(pattern)
        case "Read" | "Write":
            return _path(pattern, writes=tool == "Write")
        case "WebFetch":
            if pattern == "*":
                return HostPattern(None)
            if not _HOST.fullmatch(pattern):
                raise UsageError("it names no domain, as in WebFetch(docs.example.com)")
            return HostPattern(pattern.lower())
        case "Mcp":
            server, _, name = pattern.replace(",", ":", 1).partition(":")
            return ServerToolPattern(server.strip(), name.strip() or "*")
    raise UsageError(f"{tool} is not known")


def _command(pattern: str) -> CommandPattern:
    """`git` is git with whatever follows; `npm:run test*` has a pattern for what follows."""
    if pattern in ("*", "**"):
        return CommandPattern(((ANY_TEXT,),))
    base, sign, arguments = pattern.partition(":")
    if not sign or arguments in ("*", "**"):
        return CommandPattern((*command_pattern(base).places, (ANY_WORDS,)))
    return command_pattern(f"{base} {arguments}")


def _path(pattern: str, *, writes: bool) -> PathPattern:
    for start, base in (("~/", "home"), ("/", "absolute"), ("./", "project")):
        if pattern.startswith(start):
            return PathPattern(pattern.removeprefix(start), base, writes)
    return PathPattern(pattern, "project", writes)
