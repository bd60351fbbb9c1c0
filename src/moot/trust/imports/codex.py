"""Rules of Codex: `prefix_rule(pattern = ["git", ["status", "log"]], decision = "allow")` in a .rules file.

The files are Starlark, a part of Python's syntax. They are read and never run: only calls with literal
values. Of several rules that match, the strictest counts.
"""

from __future__ import annotations

import ast
import shlex
from typing import Final

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.imports.permissions import ANY_WORDS, CommandPattern, Permission, PermissionFile
from moot.trust.rules.rule import RuleDecision

CLIENT: Final = "codex"
_DECISIONS: Final[dict[str, RuleDecision]] = {"allow": "approve", "prompt": "ask", "forbidden": "reject"}
# They say where a program is, and about hosts; neither allows a command.
_OTHER_RULES: Final = frozenset({"host_executable", "network_rule"})
# For one file.
MAX_FILE_CHARS: Final = 1 << 20


def read_permissions(text: str) -> PermissionFile:
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
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        call = statement.value if isinstance(statement, ast.Expr) else None
        name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if isinstance(call, ast.Call) and name == "prefix_rule":
            permissions.append(_prefix_rule(call))
        elif name in _OTHER_RULES:
            notes.append(f"line {statement.lineno}: {name}(…) is not imported")
        else:
            # It may hold a rule that forbids something.
            raise UsageError(
                f"line {statement.lineno}: only prefix_rule(…) with literal values can be imported; move what"
                " stands there to another file"
            )
    return PermissionFile(CLIENT, tuple(permissions), tuple(notes))


def _prefix_rule(call: ast.Call) -> Permission:
    where = f"line {call.lineno}"
    try:
        fields: dict[str, Json] = {word.arg or "**": ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise UsageError(f"{where}: prefix_rule must have literal values only") from None
    pattern, named = fields.get("pattern"), fields.get("decision", "allow")
    if call.args or not isinstance(pattern, list) or not pattern:
        raise UsageError(f"{where}: prefix_rule must have pattern = [...] with a word at least")
    if named not in _DECISIONS:
        raise UsageError(f"{where}: decision must be allow, prompt or forbidden")
    places: list[tuple[str, ...]] = []
    for word in pattern:
        options = [word] if isinstance(word, str) else word
        if not isinstance(options, list) or not options or not all(isinstance(w, str) for w in options):
            raise UsageError(f"{where}: pattern must have words, or lists of words")
        if places:
            places.append((" ",))
        # A word with a space is one argument: quoted as a shell needs it, and so never approved.
        places.append(tuple(map(shlex.quote, options)))
    shown = " ".join(word if isinstance(word, str) else f"[{'|'.join(word)}]" for word in pattern)
    return Permission(shown, _DECISIONS[named], CommandPattern((*places, (ANY_WORDS,))))
