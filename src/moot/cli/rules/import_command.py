"""`moot rules import`: rules from the permissions of a coding agent."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.process import program
from moot.cli.process.output_file import open_new_file
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable

if TYPE_CHECKING:
    from moot.trust.imports.permission_files import PermissionFile
    from moot.trust.imports.rule_maker import ToolTarget

_ABOUT: Final = """\
Makes rules of the permissions of Claude Code (settings.json), Codex (.rules) or Cursor (permissions.json,
cli-config.json), and prints them as a rules file. No rule approves more than the permission does: of a
command that is allowed with anything behind it, plain words are approved, and quotes, variables, wildcards
and operators are left to people. What cannot be said exactly becomes a rule that asks, with the reason. Look
at the result, compare it with `moot rules diff`, and put it into the rules file yourself.
"""
_EXAMPLES: Final = """\
  moot rules import .claude/settings.json --proposer agent --shell box/run/command > imported.yaml
  moot rules import ~/.codex/rules/default.rules --proposer agent --shell box/run/command -o imported.yaml
  moot rules import ~/.cursor/permissions.json --proposer agent --shell box/run/command
  moot rules import settings.json --proposer agent --read files/read_file/path --root /srv/project

--shell, --read, --write and --fetch name the tool of the space that does this, as MEMBER/TOOL/ARGUMENT.
Without it, what the client allows there is left to people. Tools of MCP servers (mcp__github__get_issue) keep
their names: the server must have the same name in the space.
"""
_CLIENTS: Final = ("claude-code", "codex", "cursor")
_TOOLS: Final = {
    "shell": "runs commands",
    "read": "reads files",
    "write": "writes files",
    "fetch": "fetches web pages",
}


def add_command(group: Any, name: str) -> None:
    parser = program.add_command(
        group,
        name,
        help="make rules of the permissions of Claude Code, Codex or Cursor",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE")
    add("--proposer", required=True, metavar="NAME", help="the member whose proposals the rules are about")
    add("--from", dest="client", choices=_CLIENTS, help="whose file it is (default: told by its content)")
    for kind, does in _TOOLS.items():
        add(f"--{kind}", metavar="MEMBER/TOOL/ARGUMENT", help=f"the tool of the space that {does}")
    add("--root", metavar="DIR", help="the project's folder as those tools name it; . if they start in it")
    add("-o", "--output", default="-", metavar="FILE", help="a new file (default: print)")
    parser.set_defaults(run=_run_import)


def _run_import(options: argparse.Namespace) -> int:
    from moot.trust.imports.rule_maker import ImportTargets, make_rules
    from moot.trust.rules.rule_yaml import write_rules

    tools = {kind: _target(text, kind) for kind in _TOOLS if (text := getattr(options, kind)) is not None}
    try:
        found = make_rules(
            _read(options.file, options.client), ImportTargets(options.proposer, tools, options.root)
        )
    except UsageError as fault:
        raise UsageError(f"{options.file}: {fault}") from None
    with open_new_file(options.output) as file:
        file.write(write_rules(found.rules).encode())
    for note in found.notes:
        print(printable(f"note: {note}"), file=sys.stderr)
    counts = {
        word: sum(rule.decision == word for rule in found.rules) for word in ("approve", "reject", "ask")
    }
    summary = ", ".join(f"{count} {word}" for word, count in counts.items())
    print(f"{len(found.rules)} rules: {summary}", file=sys.stderr)
    return 0


def _target(text: str, kind: str) -> ToolTarget:
    from moot.trust.imports.rule_maker import ToolTarget

    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise UsageError(f"--{kind} {text}: write MEMBER/TOOL/ARGUMENT, as in box/run/command")
    return ToolTarget(*parts)


def _read(file: Path, client: str | None) -> PermissionFile:
    from moot.config.clients.json_comments import decode_text, read_json_with_comments
    from moot.trust.imports.permission_files import is_cursor, read_codex_rules, read_permissions

    try:
        text = decode_text(file.read_bytes())
    except OSError as fault:
        raise UsageError(f"cannot be read: {fault}") from None
    if client == "codex" or (client is None and file.suffix in (".rules", ".codexpolicy")):
        return read_codex_rules(text)
    document, twice = read_json_with_comments(text)
    if not isinstance(document, dict):
        raise UsageError("must be a JSON object")
    if twice:
        # Clients take the last of several; who reads the file may look at the first.
        raise UsageError(f"has {', '.join(twice)} more than once; write it once")
    if client is None:
        client = "cursor" if is_cursor(document) or _is_of_cursor(file) else "claude-code"
    return read_permissions(document, client)


def _is_of_cursor(file: Path) -> bool:
    return file.name in ("cli-config.json", "cli.json") or file.resolve().parent.name == ".cursor"
