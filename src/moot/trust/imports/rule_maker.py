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
from moot.trust.imports.permission_files import Permission, PermissionFile, ServerTools
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
        maker = _RuleMaker(permission, targets, f"{file.client}-{number}", notes)
        try:
            for place, rule in maker.rules():
                found[place].append(rule)
        except (UsageError, InvalidPattern) as fault:
            notes.append(f"{permission.text}: not imported: {fault}")
            if permission.decision != "approve" and permission.subject is not None:
                # Nothing of its kind may be approved: it could be what is denied here.
                note = "which cannot be said here, so all of its kind is left to people"
                found["ask"].append(maker.rule("ask", note, "^"))
                notes.append(f"{permission.text}: so all of its kind is left to people")
    rules = [rule for each in found.values() for rule in each]
    if len(rules) > MAX_RULES:
        raise UsageError(f"would make {len(rules)} rules, more than the limit of {MAX_RULES}; remove some")
    return ImportedRules(tuple(rules), tuple(notes))


@dataclass(frozen=True, slots=True)
class _RuleMaker:
    """Makes the rules of one permission. What is left to people is told in `notes`."""

    permission: Permission
    targets: ImportTargets
    name: str
    notes: list[str]

    def rules(self) -> Iterator[tuple[str, Rule]]:
        """Each rule with its place in the order; raises UsageError and InvalidPattern."""
        subject, decision = self.permission.subject, self.permission.decision
        if subject is None:
            raise UsageError(self.permission.note)
        if isinstance(subject, ServerTools):
            yield self._server_rule(subject)
            return
        kind, found = subject.kind, subject.expressions(self.targets.root)
        is_known = kind in self.targets.tools
        if decision == "approve" and is_known and found.approved is not None:
            yield "approve", self.rule("approve", _PLAIN[kind], found.approved)
        elif decision == "approve":
            why = found.why if is_known else f"no tool is named for it; say one with --{kind}"
            yield self._left(why, found.named)
        elif decision == "ask":
            yield "ask", self.rule("ask", "", found.nearby)
        else:
            if is_known:
                yield "reject", self.rule("reject", "", found.named)
            note = "what mentions it in another way is left to people"
            yield "ask", self.rule("ask", note, found.nearby, name=f"{self.name}-near")

    def _left(self, why: str, expression: str | None = None, **fields: Json) -> tuple[str, Rule]:
        rule = self.rule("ask", f"left to people, since {why}", expression, **fields)
        self.notes.append(f"{self.permission.text}: left to people, since {why}")
        return "left", rule

    def _server_rule(self, subject: ServerTools) -> tuple[str, Rule]:
        for text in subject:
            if text.startswith("!") or is_regex(text):
                raise UsageError(f"{text} would be an expression here")
        fields: dict[str, Json] = {"method": "tools/call"}
        if subject.tool != "*":
            fields["tool"] = subject.tool
        decision = self.permission.decision
        if decision == "approve" and (is_wild(subject.server) or not subject.server):
            return self._left("a space may have more servers than the client had", **fields)
        if subject.server == "*" and subject.tool == "*":
            note = "all MCP tools; in a space that is every tool, so they are left to people"
            return "ask", self.rule("ask", note, **fields)
        if subject.server != "*":
            fields["to"] = subject.server
        if decision == "approve":
            return "approve", self.rule("approve", "any arguments", **fields, extra_arguments=True)
        return decision, self.rule(decision, "", **fields)

    def rule(
        self, decision: str, note: str, expression: str | None = None, *, name: str = "", **fields: Json
    ) -> Rule:
        """A rule about the tool and the argument that the permission is about, if `expression` says of which
        values.
        """
        verb = {"approve": "allows", "reject": "denies", "ask": "asks for"}[self.permission.decision]
        words = f"Imported: {verb} {self.permission.text}" + (f" ({note})" if note else "")
        subject = self.permission.subject
        if expression is not None and subject is not None and not isinstance(subject, ServerTools):
            target = self.targets.tools.get(subject.kind)
            argument = _ARGUMENTS[subject.kind] if target is None else target.argument
            fields["arguments"] = {argument: f"/{expression}/"}
            if target is not None:
                fields |= {"to": target.host, "tool": target.tool}
        said = {"name": name or self.name, "decision": decision, "proposer": self.targets.proposer}
        return rule_of_json({**said, "words": words, **fields})
