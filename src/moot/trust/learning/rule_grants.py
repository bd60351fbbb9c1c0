"""From a rule to a capability for the agent itself (MEW 9.2).

A capability has patterns and hosts, nothing else, so a rule with ranges, hours, times or exact lists cannot
become one. Restrictions of a rule that the capability would lose are listed in `loses`, so that nobody grants
more than they know: a grant does not expire, has no limit, and allows further arguments.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Final, Literal

from moot.errors import InvalidPattern
from moot.protocol.operation import CONTEXT_PATHS, Json
from moot.protocol.patterns import read_capability
from moot.protocol.patterns.globs import is_wild
from moot.trust.history.proposal_case import WITH_ARGUMENTS
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_words import join_names
from moot.values.quoting import anchored

Step = Literal["arguments", "tool"]


@dataclass(frozen=True, slots=True)
class RuleGrant:
    """A capability that a member could be granted, and what it would allow beyond the rule."""

    participant: str
    step: Step
    capability: dict[str, Json]
    loses: tuple[str, ...]
    words: str

    def as_json(self) -> dict[str, Json]:
        return {
            "participant": self.participant,
            "step": self.step,
            "capability": self.capability,
            "loses": list(self.loses),
            "words": self.words,
        }


def why_no_grant(rule: Rule) -> str | None:
    """Why a rule cannot become a capability; None if it can."""
    if rule.decision != "approve":
        return "only rules that approve can become a permission"
    if not isinstance(rule.proposer, str) or is_wild(rule.proposer) or rule.proposer[:1] in ("/", "!"):
        return "it does not name a single proposer"
    if not rule.to:
        return "it does not name a host"
    if not isinstance(rule.method, str) or rule.method not in CONTEXT_PATHS or rule.tool is None:
        return "it does not name a tool"
    if len(CONTEXT_PATHS[rule.method]) != 1:
        return "its method has no single field for a name"
    conditions = [
        (rule.range, "ranges"),
        (rule.equals, "exact lists"),
        (grant_patterns(rule) is None, "the meaning of values"),
        (rule.hours or rule.seen_hours, "hours"),
        (rule.after, "a start time"),
        (rule.before, "an end time"),
    ]
    found = [name for condition, name in conditions if condition]
    return f"a capability cannot express {join_names(found)}" if found else None


# Kinds whose texts are compared as they stand, and slots that are plain expressions.
_PLAIN_KINDS: Final = frozenset({"path", "url", "id", "time"})
_PLAIN_SLOTS: Final = frozenset({"name", "file", "path", "digits", "hex", "uuid", "date"})


def grant_patterns(rule: Rule) -> dict[str, Json] | None:
    """The arguments as capability patterns, templates as expressions; None if a template cannot be one."""
    arguments: dict[str, Json] = copy.deepcopy(dict(rule.arguments))
    for path, values in rule.values.items():
        expressions = []
        for template in values.templates:
            plain = all(slot.kind in _PLAIN_SLOTS for slot in template.slots)
            pattern = anchored(template.expression()) if plain and values.kind in _PLAIN_KINDS else None
            if pattern is None:
                return None
            expressions.append(pattern)
        inner = arguments
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = expressions if len(expressions) > 1 else expressions[0]
    return arguments


def grant_of(rule: Rule, step: Step = "arguments") -> RuleGrant | None:
    """The capability that this rule could become; None if it cannot."""
    if why_no_grant(rule) is not None or not rule.to:
        return None
    ((_, field),) = CONTEXT_PATHS[rule.method]
    params: dict[str, Json] = {field: rule.tool}
    arguments = grant_patterns(rule) or {}
    if step == "arguments" and arguments:
        if rule.method in WITH_ARGUMENTS:
            params["arguments"] = arguments
        else:
            params |= arguments
    capability: dict[str, Json] = {
        "kind": "mcp/request",
        "to": list(rule.to),
        "payload": {"method": rule.method, "params": params},
    }
    try:
        read_capability(capability)
    except InvalidPattern:
        return None
    loses = ["other arguments are allowed too"] if not rule.extra_arguments and step == "arguments" else []
    if step == "tool":
        loses.append("any arguments are allowed")
    slots = [slot.kind for values in rule.values.values() for each in values.templates for slot in each.slots]
    if step == "arguments" and not {"name", "file", "path"}.isdisjoint(slots):
        loses.append("names that rules leave to people (such as secrets or main) are allowed too")
    if rule.limits.max_decisions is not None:
        loses.append("the number of calls is not limited")
    if rule.limits.expires_at is not None:
        loses.append("it does not expire")
    if rule.limits.while_present:
        loses.append(f"it also applies while {join_names(rule.limits.while_present)} is away")
    which = "with these arguments" if step == "arguments" and arguments else "with any arguments"
    words = f"{rule.proposer} can call {rule.tool} on {join_names(rule.to)} {which} without asking"
    return RuleGrant(rule.proposer, step, capability, tuple(loses), words)
