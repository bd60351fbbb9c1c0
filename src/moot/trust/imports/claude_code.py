"""Permissions of Claude Code: `permissions.allow`, `ask` and `deny` of a settings.json.

An entry is `Tool` or `Tool(specifier)`: `Bash(npm run test:*)`, `Read(./.env)`,
`WebFetch(domain:example.com)`, `mcp__server__tool`. Denying comes before asking, and that before allowing,
whichever is more specific.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.imports.permissions import (
    ANY_TEXT,
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

CLIENT: Final = "claude-code"
_DECISIONS: Final[dict[str, RuleDecision]] = {"deny": "reject", "ask": "ask", "allow": "approve"}
_ENTRY: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*|mcp__[^()]+)(?:\((.*)\))?", re.DOTALL)
_HOST: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
# The others of their kind, such as Write(docs/**), are read by Claude Code, but never consulted.
_PATH_TOOLS: Final = {"Read": False, "Edit": True}
_BARE_PATH_TOOLS: Final = {"Read": False, "Edit": True, "Write": True}


def read_permissions(document: Mapping[str, Json]) -> PermissionFile:
    """Read a settings.json; raises UsageError."""
    found = document.get("permissions")
    if not isinstance(found, dict):
        raise UsageError("has no `permissions`")
    permissions: list[Permission] = []
    for key, decision in _DECISIONS.items():
        listed = found.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
            raise UsageError(f"permissions.{key} must be a list of texts")
        permissions += [_permission(entry, decision) for entry in listed]
    notes = []
    if found.get("defaultMode") not in (None, "default"):
        notes.append(
            f"defaultMode {found['defaultMode']!r} is not imported: what no rule covers is left to people"
        )
    if found.get("additionalDirectories"):
        notes.append("additionalDirectories is not imported: what a tool can reach is up to its server")
    return PermissionFile(CLIENT, tuple(permissions), tuple(notes))


def _permission(entry: str, decision: RuleDecision) -> Permission:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        return Permission(entry, decision, note="it is no Tool or Tool(specifier)")
    tool, specifier = found[1], found[2]
    try:
        return Permission(entry, decision, _subject(tool, specifier, decision))
    except UsageError as fault:
        return Permission(entry, decision, note=str(fault))


def _subject(tool: str, specifier: str | None, decision: RuleDecision) -> Subject:
    everything = specifier in (None, "", "*", ":*")
    if tool == "Bash":
        if everything or specifier is None:
            return CommandPattern(((ANY_TEXT,),))
        if re.match(r"[a-z_]+:(?!\*$)[^*]*\*", specifier) and not specifier.endswith(":*"):
            raise UsageError("Claude Code ignores entries with the name of a parameter for Bash")
        return command_pattern(specifier)
    if everything and tool in _BARE_PATH_TOOLS:
        return PathPattern("**", "anywhere", _BARE_PATH_TOOLS[tool])
    if specifier is not None and tool in _PATH_TOOLS:
        return _path(specifier, writes=_PATH_TOOLS[tool])
    if tool == "WebFetch":
        if everything or specifier is None:
            return HostPattern(None)
        host = specifier.removeprefix("domain:")
        if host == specifier or not _HOST.fullmatch(host):
            raise UsageError("it names no domain, as in WebFetch(domain:example.com)")
        return HostPattern(host.lower())
    if tool.startswith("mcp__"):
        return _server_tool(tool, specifier, decision)
    if tool in ("Write", "MultiEdit", "NotebookEdit", "Glob", "Grep"):
        raise UsageError("Claude Code reads it, but never consults it; write Read(…) or Edit(…)")
    raise UsageError(f"{tool} is a tool of Claude Code itself, which no space has")


def _path(specifier: str, *, writes: bool) -> PathPattern:
    for start, base in (("//", "absolute"), ("~/", "home"), ("/", "project"), ("./", "project")):
        if specifier.startswith(start):
            return PathPattern(specifier.removeprefix(start), base, writes)
    return PathPattern(specifier, "project" if "/" in specifier.rstrip("/") else "any folder", writes)


def _server_tool(name: str, specifier: str | None, decision: RuleDecision) -> ServerToolPattern:
    if specifier is not None:
        raise UsageError("Claude Code ignores entries for MCP tools with parentheses")
    server, _, tool = name.removeprefix("mcp__").partition("__")
    if decision == "approve" and "*" in server:
        raise UsageError("Claude Code ignores entries that allow tools of any server")
    return ServerToolPattern(server, tool or "*")
