"""Rules and suggestions in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moot.protocol.operation import Json
from moot.trust.conditions import canonical
from moot.trust.proposal_case import shown_path
from moot.trust.rules import Rule

_VERBS = {"approve": "Approve", "reject": "Reject", "ask": "Ask people"}


def list_of(names: Iterable[str], *, joint: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    listed = list(names)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} {joint} {listed[-1]}"


def counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def rule_in_words(rule: Rule, parts: Mapping[str, str] | None = None) -> str:
    """What a rule does, in one sentence; `parts` are better words for some arguments."""
    who = "anyone" if rule.proposer is None else _shown(rule.proposer)
    what = rule.method if rule.tool is None else _shown(rule.tool)
    said = f"{_VERBS[rule.decision]} when {who} proposes {'anything' if what is None else what}"
    if rule.to is not None:
        said += f" on {list_of(rule.to, joint='or')}" if rule.to else " without a host"
    arguments = list(_arguments(rule, parts or {}))
    if arguments:
        said += f" with {list_of(arguments)}"
    if rule.decision == "approve":
        if rule.extra_arguments:
            said += " and any other arguments" if arguments else " with any arguments"
        else:
            said += " and no other arguments" if arguments else " without arguments"
    if rule.hours is not None:
        clock, _, zone = str(rule.hours).partition(" ")
        start, _, end = clock.partition("-")
        said += f", between {start} and {end} {zone or 'UTC'}"
    return said + _limits(rule)


def _arguments(rule: Rule, parts: Mapping[str, str]) -> Iterable[str]:
    for name, pattern in rule.arguments.items():
        inner = [(key, words) for key, words in parts.items() if key == name or key.startswith(f"{name}.")]
        if inner:
            yield from (f"{key} {words}" for key, words in inner if (tuple(key.split("."))) not in rule.range)
        else:
            yield f"{name} {_shown(pattern)}"
    for path, span in rule.range.items():
        yield f"{shown_path(path)} {'a whole' if span.whole else 'a'} number from {span.low} to {span.high}"
    for name in rule.equals:
        yield f"{name} exactly {canonical(rule.equals[name]).decode(errors='replace')[:80]}"


def _limits(rule: Rule) -> str:
    limits = rule.limits
    said = ""
    if limits.count is not None:
        said += f"; at most {limits.count} times in {limits.seconds / 60:g} minutes"
    if limits.while_present:
        verb = "is" if len(limits.while_present) == 1 else "are"
        said += f"; only while {list_of(limits.while_present)} {verb} present"
    return said


def _shown(pattern: Json) -> str:
    if isinstance(pattern, str):
        return pattern
    if isinstance(pattern, list):
        return list_of((_shown(one) for one in pattern), joint="or")
    return canonical(pattern).decode(errors="replace")[:200]
