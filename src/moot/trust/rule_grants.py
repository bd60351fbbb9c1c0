"""From a rule to a right of the agent's own (MEW 9.2): proposals only, a tool with these arguments, the tool.

A capability knows patterns and hosts, nothing else. A rule that asks for ranges, hours, moments or exact
lists cannot become one. What a capability cannot say either, but a rule does, is listed in `loses`, so that
nobody gives more than they know: a grant does not expire, counts nothing, and minds no further arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from moot.errors import InvalidPattern
from moot.protocol.operation import CONTEXT_PATHS, Json
from moot.protocol.patterns import read_capability
from moot.protocol.patterns.globs import is_wild
from moot.trust.proposal_case import WITH_ARGUMENTS
from moot.trust.rule_words import list_of
from moot.trust.rules import Rule

Step = Literal["arguments", "tool"]
# The chain, each step wider than the one before.
STEPS: Final = ("proposal", "arguments", "tool")


@dataclass(frozen=True, slots=True)
class RuleGrant:
    """A capability that a member could be given, and what it would allow beyond the rule."""

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
    """Why a rule cannot become a capability; None when it can."""
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
        (rule.hours, "hours"),
        (rule.after, "a start time"),
        (rule.before, "an end time"),
    ]
    found = [name for condition, name in conditions if condition]
    return f"a capability cannot express {list_of(found)}" if found else None


def grant_of(rule: Rule, step: Step = "arguments") -> RuleGrant | None:
    """The capability that this rule could become, None when a capability cannot say it."""
    if why_no_grant(rule) is not None or not rule.to:
        return None
    ((_, field),) = CONTEXT_PATHS[rule.method]
    params: dict[str, Json] = {field: rule.tool}
    if step == "arguments" and rule.arguments:
        if rule.method in WITH_ARGUMENTS:
            params["arguments"] = dict(rule.arguments)
        else:
            params |= rule.arguments
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
    if rule.limits.count is not None:
        loses.append("the number of calls is not limited")
    if rule.limits.expires is not None:
        loses.append("it does not expire")
    if rule.limits.while_present:
        loses.append(f"it also applies while {list_of(rule.limits.while_present)} is away")
    which = "with these arguments" if step == "arguments" and rule.arguments else "with any arguments"
    words = f"{rule.proposer} can call {rule.tool} on {list_of(rule.to)} {which} without asking"
    return RuleGrant(rule.proposer, step, capability, tuple(loses), words)
