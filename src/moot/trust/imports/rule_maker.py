"""Makes rules of imported permissions: never wider than the permission, and what cannot be said exactly asks.

The order is that of the clients: what is denied, then what is asked, then what is allowed. Beside a denied
command or path, whatever mentions it in another way (in a chain, in another folder) is left to people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from moot.errors import InvalidPattern, UsageError
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import is_wild
from moot.protocol.patterns.pattern import is_regex
from moot.trust.imports.expressions import (
    Expressions,
    command_expressions,
    host_expressions,
    path_expressions,
)
from moot.trust.imports.permissions import (
    CommandPattern,
    HostPattern,
    PathPattern,
    Permission,
    PermissionFile,
    ServerToolPattern,
)
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_json import rule_of_json
from moot.trust.rules.rule_yaml import MAX_RULES

# What an argument is called where the tool is not known.
_ARGUMENTS: Final = {"shell": "command", "read": "path", "write": "path", "fetch": "url"}
_PLAIN: Final = {
    "shell": "plain words only: quotes, variables, wildcards, operators are left to people",
    "read": "plain paths only: `..`, spaces, other alphabets are left to people",
    "write": "plain paths only: `..`, spaces, other alphabets are left to people",
    "fetch": "https only, plain addresses: others are left to people",
}


@dataclass(frozen=True, slots=True)
class ToolTarget:
    """The tool of a space that does what a tool of the client does, and the argument that counts."""

    host: str
    tool: str
    argument: str


@dataclass(frozen=True, slots=True)
class ImportTargets:
    """Who the rules are about, and by which tools of the space: shell, read, write, fetch."""

    proposer: str
    tools: dict[str, ToolTarget] = field(default_factory=dict)
    # The folder of the project as the tools call it.
    root: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedRules:
    """The rules in their order, and what was not imported as it stands."""

    rules: tuple[Rule, ...]
    notes: tuple[str, ...]


def make_rules(file: PermissionFile, targets: ImportTargets) -> ImportedRules:
    """Make rules of all permissions; raises UsageError if there are too many."""
    found: dict[str, list[Rule]] = {"reject": [], "ask": [], "approve": [], "left": []}
    notes = list(file.notes)
    for number, permission in enumerate(file.permissions, 1):
        name = f"{file.client}-{number}"
        try:
            for place, rule in _rules_of(permission, targets, name):
                found[place].append(rule)
                if place == "left":
                    notes.append(f"{permission.text}: left to people, since {_reason(rule)}")
        except (UsageError, InvalidPattern) as fault:
            notes.append(f"{permission.text}: not imported: {fault}")
            if permission.decision != "approve" and permission.subject is not None:
                # Nothing of its kind may be approved: it could be what is denied here.
                found["ask"].append(_ask_for_all(permission, targets, name))
                notes.append(f"{permission.text}: so all of its kind is left to people")
    rules = [rule for place in ("reject", "ask", "approve", "left") for rule in found[place]]
    if len(rules) > MAX_RULES:
        raise UsageError(f"would make {len(rules)} rules, more than the limit of {MAX_RULES}; remove some")
    return ImportedRules(tuple(rules), tuple(notes))


def _rules_of(permission: Permission, targets: ImportTargets, name: str) -> Iterator[tuple[str, Rule]]:
    subject = permission.subject
    if subject is None:
        raise UsageError(permission.note)
    if isinstance(subject, ServerToolPattern):
        yield _server_rule(permission, subject, targets, name)
        return
    kind, expressions = _expressions(subject, targets)
    target = targets.tools.get(kind)
    match permission.decision:
        case "approve":
            why = expressions.why if target else f"no tool is named for it; say one with --{kind}"
            if target is None or expressions.approved is None:
                note = f"left to people, since {why}"
                yield "left", _rule(permission, targets, name, "ask", kind, expressions.named, note)
            else:
                yield (
                    "approve",
                    _rule(permission, targets, name, "approve", kind, expressions.approved, _PLAIN[kind]),
                )
        case "ask":
            yield "ask", _rule(permission, targets, name, "ask", kind, expressions.nearby, "")
        case "reject":
            if target is not None:
                yield "reject", _rule(permission, targets, name, "reject", kind, expressions.named, "")
            note = "what mentions it in another way is left to people"
            near = f"{name}-near"
            yield "ask", _rule(permission, targets, near, "ask", kind, expressions.nearby, note)


def _ask_for_all(permission: Permission, targets: ImportTargets, name: str) -> Rule:
    note = "which cannot be said here, so all of its kind is left to people"
    match permission.subject:
        case CommandPattern() | HostPattern() | PathPattern() as subject:
            return _rule(permission, targets, name, "ask", _kind(subject), "^", note)
    fields: dict[str, Json] = {"name": name, "decision": "ask", "proposer": targets.proposer}
    return rule_of_json({**fields, "words": _words(permission, note)})


def _kind(subject: CommandPattern | PathPattern | HostPattern) -> str:
    match subject:
        case CommandPattern():
            return "shell"
        case PathPattern():
            return "write" if subject.writes else "read"
        case HostPattern():
            return "fetch"


def _expressions(
    subject: CommandPattern | PathPattern | HostPattern, targets: ImportTargets
) -> tuple[str, Expressions]:
    match subject:
        case CommandPattern():
            found = command_expressions(subject)
        case PathPattern():
            found = path_expressions(subject, targets.root)
        case HostPattern():
            found = host_expressions(subject)
    return _kind(subject), found


def _rule(
    permission: Permission,
    targets: ImportTargets,
    name: str,
    decision: str,
    kind: str,
    expression: str,
    note: str,
) -> Rule:
    target = targets.tools.get(kind)
    fields: dict[str, Json] = {"name": name, "decision": decision, "words": _words(permission, note)}
    fields["proposer"] = targets.proposer
    if target is not None:
        fields |= {"to": target.host, "tool": target.tool}
    argument = target.argument if target is not None else _ARGUMENTS[kind]
    return rule_of_json({**fields, "arguments": {argument: f"/{expression}/"}})


def _server_rule(
    permission: Permission, subject: ServerToolPattern, targets: ImportTargets, name: str
) -> tuple[str, Rule]:
    for text in (subject.server, subject.tool):
        if text.startswith("!") or is_regex(text):
            raise UsageError(f"{text} would be an expression here")
    fields: dict[str, Json] = {"name": name, "proposer": targets.proposer, "method": "tools/call"}
    if subject.tool != "*":
        fields["tool"] = subject.tool
    approving = permission.decision == "approve"
    if approving and (is_wild(subject.server) or not subject.server):
        note = "left to people, since a space may have more servers than the client had"
        return "left", rule_of_json({**fields, "decision": "ask", "words": _words(permission, note)})
    if subject.server == "*" and subject.tool == "*":
        note = "all MCP tools; in a space that is every tool, so they are left to people"
        return "ask", rule_of_json({**fields, "decision": "ask", "words": _words(permission, note)})
    if subject.server != "*":
        fields["to"] = subject.server
    if approving:
        fields["extra_arguments"] = True
    note = "any arguments" if approving else ""
    return permission.decision, rule_of_json(
        {**fields, "decision": permission.decision, "words": _words(permission, note)}
    )


def _words(permission: Permission, note: str) -> str:
    verb = {"approve": "allows", "reject": "denies", "ask": "asks for"}[permission.decision]
    return f"Imported: {verb} {permission.text}" + (f" ({note})" if note else "")


def _reason(rule: Rule) -> str:
    return rule.words.rpartition("left to people, since ")[2].removesuffix(")")
