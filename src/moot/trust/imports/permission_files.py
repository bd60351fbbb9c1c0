"""Permissions of coding agents in one form, whichever client they were written for.

    Claude Code  settings.json    `permissions.deny`, `ask`, `allow`: `Bash(npm run test:*)`, `Read(./.env)`,
                                  `WebFetch(domain:example.com)`, `mcp__server__tool`
    Cursor       cli-config.json  `permissions.deny` and `allow`: `Shell(git)`, `Read(src/**)`, `Write(…)`,
                                  `WebFetch(docs.example.com)`, `Mcp(server:tool)`
                 permissions.json `terminalAllowlist`, `mcpAllowlist`
    Codex        .rules           `prefix_rule(pattern = ["git", ["status", "log"]], decision = "allow")`

In all of them denying comes before asking, and that before allowing. Files of Codex are Starlark, a part of
Python's syntax; they are read and never run.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.imports.expressions import (
    ANY_TEXT,
    ANY_WORDS,
    ReadExpressions,
    command_expressions,
    command_places,
    host_expressions,
    path_expressions,
)
from moot.trust.rules.rule import RuleDecision

# Of a file of Codex.
MAX_FILE_CHARS: Final = 1 << 20


class ToolUse(NamedTuple):
    """What is done (shell, read, write, fetch), and with which commands, paths or addresses."""

    kind: str
    expressions: ReadExpressions


class ServerTools(NamedTuple):
    """Tools of an MCP server; `*` in either is any text."""

    server: str
    tool: str


class Permission(NamedTuple):
    """One entry of a file. Without a subject, `note` says why it cannot be imported."""

    text: str
    decision: RuleDecision
    subject: ToolUse | ServerTools | None = None
    note: str = ""


class PermissionFile(NamedTuple):
    """The permissions of a file, and what else in it people should know."""

    client: str
    permissions: tuple[Permission, ...]
    notes: tuple[str, ...] = ()


class _Client(NamedTuple):
    """How the entries of a client are written."""

    lists: Mapping[str, RuleDecision]
    # By the name of a tool what it does.
    kinds: Mapping[str, str]
    # What stands for everything of a kind; None: an entry without parentheses.
    everything: Mapping[str, tuple[str | None, ...]]
    # What a path begins with, and what it starts from.
    bases: Mapping[str, str]
    # Members of the file that are not imported, and what is told of each.
    not_imported: Mapping[str, str]


CLIENTS: Final = {
    "claude-code": _Client(
        {"deny": "reject", "ask": "ask", "allow": "approve"},
        {"Bash": "shell", "Read": "read", "Edit": "write", "Write": "write", "WebFetch": "fetch"},
        dict.fromkeys(("shell", "read", "write", "fetch"), (None, "", "*", ":*")),
        {"//": "absolute", "~/": "home", "/": "project", "./": "project"},
        {
            "defaultMode": "what no rule covers is left to people",
            "additionalDirectories": "what a tool can reach is up to its server",
        },
    ),
    "cursor": _Client(
        {"deny": "reject", "allow": "approve"},
        {"Shell": "shell", "Read": "read", "Write": "write", "WebFetch": "fetch", "Mcp": "server"},
        {"shell": ("*", "**"), "fetch": ("*",)},
        {"~/": "home", "/": "absolute", "./": "project"},
        {"autoRun": "it is advice for a model"},
    ),
}
_CURSOR_LISTS: Final = ("terminalAllowlist", "mcpAllowlist")
_ENTRY: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*|mcp__[^()]+)(?:\((.*)\))?", re.DOTALL)
_HOST: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
# Claude Code takes this for the value of a parameter.
_NAMED_PARAMETER: Final = re.compile(r"[a-z_]+:(?!\*$)[^*]*\*.*(?<!:\*)", re.DOTALL)
_CODEX_DECISIONS: Final[dict[str, RuleDecision]] = {
    "allow": "approve",
    "prompt": "ask",
    "forbidden": "reject",
}
# They say where a program is, and about hosts; neither allows a command.
_OTHER_CODEX_RULES: Final = frozenset({"host_executable", "network_rule"})


def is_cursor(document: Mapping[str, Json]) -> bool:
    """Whether a file is Cursor's, by what it says: `Shell(…)` and `Mcp(…)` are words of no other client."""
    permissions = document.get("permissions")
    listed = permissions.values() if isinstance(permissions, dict) else ()
    texts = [entry for each in listed if isinstance(each, list) for entry in each if isinstance(entry, str)]
    return not document.keys().isdisjoint(_CURSOR_LISTS) or any(
        text.startswith(("Shell(", "Mcp(")) for text in texts
    )


def read_permissions(document: Mapping[str, Json], client: str) -> PermissionFile:
    """Read a file of Claude Code or of Cursor; raises UsageError."""
    found, written = document.get("permissions", {}), CLIENTS[client]
    lists = _CURSOR_LISTS if client == "cursor" else ()
    if not isinstance(found, dict) or document.keys().isdisjoint(("permissions", *lists)):
        raise UsageError("has no `permissions`")
    permissions = [
        _permission(client, entry, decision)
        for key, decision in written.lists.items()
        for entry in _texts(found.get(key, []), f"permissions.{key}")
    ]
    for key in lists:
        for entry in _texts(document.get(key, []), key):
            is_server = key == "mcpAllowlist"
            subject = _server_tools(entry) if is_server else _subject(client, "Shell", entry, "approve")
            permissions.append(Permission(entry, "approve", subject))
    said = {**document, **found}
    notes = [
        f"{key} is not imported: {why}"
        for key, why in written.not_imported.items()
        if said.get(key) not in (None, False, [], "default")
    ]
    return PermissionFile(client, tuple(permissions), tuple(notes))


def _texts(value: Json, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise UsageError(f"{where} must be a list of texts")
    return value


def _permission(client: str, entry: str, decision: RuleDecision) -> Permission:
    found = _ENTRY.fullmatch(entry)
    try:
        if found is None or (client == "cursor" and found[2] is None):
            raise UsageError("it is no Tool(pattern)")
        return Permission(entry, decision, _subject(client, found[1], found[2], decision))
    except UsageError as fault:
        return Permission(entry, decision, note=str(fault))


def _subject(client: str, tool: str, specifier: str | None, decision: RuleDecision) -> ToolUse | ServerTools:
    written = CLIENTS[client]
    kind = written.kinds.get(tool, "")
    is_all = specifier in written.everything.get(kind, ())
    if client == "claude-code":
        if tool.startswith("mcp__"):
            return _claude_server_tools(tool, specifier, decision)
        if (tool == "Write" and not is_all) or tool in ("MultiEdit", "NotebookEdit", "Glob", "Grep"):
            raise UsageError("Claude Code reads it, but never consults it; write Read(…) or Edit(…)")
        if not kind:
            raise UsageError(f"{tool} is a tool of Claude Code itself, which no space has")
        if kind == "shell" and not is_all and _NAMED_PARAMETER.fullmatch(specifier or ""):
            raise UsageError("Claude Code ignores entries with the name of a parameter for Bash")
    text = specifier or ""
    match kind:
        case "server":
            return _server_tools(text.replace(",", ":", 1))
        case "shell":
            places = ((ANY_TEXT,),) if is_all else _command(client, text)
            return ToolUse(kind, partial(command_expressions, places))
        case "fetch":
            host = text.removeprefix("domain:") if client == "claude-code" else text
            is_named = client == "cursor" or host != text
            if not is_all and not (is_named and _HOST.fullmatch(host)):
                raise UsageError("it names no domain, as in WebFetch(domain:example.com)")
            return ToolUse(kind, partial(host_expressions, None if is_all else host.lower()))
        case "read" | "write":
            glob, base = ("**", "anywhere") if is_all else _path(client, text)
            return ToolUse(kind, partial(path_expressions, glob, base))
    raise UsageError(f"{tool} is not known")


def _command(client: str, text: str) -> tuple[tuple[str, ...], ...]:
    """To Cursor, `git` is git with whatever follows; `npm:run test*` has a pattern for what follows."""
    if client == "claude-code":
        return command_places(text)
    base, sign, arguments = text.partition(":")
    if not sign or arguments in ("*", "**"):
        return (*command_places(base), (ANY_WORDS,))
    return command_places(f"{base} {arguments}")


def _path(client: str, text: str) -> tuple[str, str]:
    for start, base in CLIENTS[client].bases.items():
        if text.startswith(start):
            return text.removeprefix(start), base
    is_name = client == "claude-code" and "/" not in text.rstrip("/")
    return text, "any folder" if is_name else "project"


def _server_tools(text: str) -> ServerTools:
    server, _, tool = text.partition(":")
    return ServerTools(server.strip(), tool.strip() or "*")


def _claude_server_tools(name: str, specifier: str | None, decision: RuleDecision) -> ServerTools:
    if specifier is not None:
        raise UsageError("Claude Code ignores entries for MCP tools with parentheses")
    server, _, tool = name.removeprefix("mcp__").partition("__")
    if decision == "approve" and "*" in server:
        raise UsageError("Claude Code ignores entries that allow tools of any server")
    return ServerTools(server, tool or "*")


def read_codex_rules(text: str) -> PermissionFile:
    """Read a .rules file; raises UsageError with the line of the mistake."""
    if len(text) > MAX_FILE_CHARS:
        raise UsageError(f"is longer than {MAX_FILE_CHARS:,} characters")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        raise UsageError(f"is no file of Codex rules: {fault}") from None
    permissions: list[Permission] = []
    notes: list[str] = []
    for statement in tree.body:
        match statement:
            case ast.Expr(ast.Constant()):
                pass
            case ast.Expr(ast.Call(ast.Name("prefix_rule")) as call):
                permissions.append(_prefix_rule(call))
            case ast.Expr(ast.Call(ast.Name(name))) if name in _OTHER_CODEX_RULES:
                notes.append(f"line {statement.lineno}: {name}(…) is not imported")
            case _:
                # It may hold a rule that forbids something.
                raise UsageError(
                    f"line {statement.lineno}: only prefix_rule(…) with literal values can be imported; move"
                    " what stands there to another file"
                )
    return PermissionFile("codex", tuple(permissions), tuple(notes))


def _prefix_rule(call: ast.Call) -> Permission:
    where = f"line {call.lineno}"
    try:
        fields: dict[str, Json] = {word.arg or "**": ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise UsageError(f"{where}: prefix_rule must have literal values only") from None
    pattern, named = fields.get("pattern"), fields.get("decision", "allow")
    if call.args or not isinstance(pattern, list) or not pattern:
        raise UsageError(f"{where}: prefix_rule must have pattern = [...] with a word at least")
    if not isinstance(named, str) or named not in _CODEX_DECISIONS:
        raise UsageError(f"{where}: decision must be allow, prompt or forbidden")
    places: list[tuple[str, ...]] = []
    for word in pattern:
        options = [word] if isinstance(word, str) else word
        if not isinstance(options, list) or not options or not all(isinstance(w, str) for w in options):
            raise UsageError(f"{where}: pattern must have words, or lists of words")
        # A word with a space is one argument: quoted as a shell needs it, and so never approved.
        places += [(" ",), tuple(map(shlex.quote, options))]
    shown = " ".join(word if isinstance(word, str) else f"[{'|'.join(word)}]" for word in pattern)
    use = ToolUse("shell", partial(command_expressions, (*places[1:], (ANY_WORDS,))))
    return Permission(shown, _CODEX_DECISIONS[named], use)
