"""Trip-wires: what suspends a rule, and the reason in words.

Each is a pure function of a rule and something that happened. A suspended rule decides nothing and hides
nothing: what it would have decided is asked, until a person lifts the suspension or removes the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from moot.protocol.operation import Json
from moot.protocol.patterns.pattern import Fields, Node, OneOf, Text
from moot.trust.conditions import Range, is_plain
from moot.trust.decision_ledger import Decision
from moot.trust.proposal_case import Case, leaves, shown_path, type_of
from moot.trust.rule_words import counted
from moot.trust.rules import Rule, admits

# A number this many times outside a range, or a text this many times as long as the longest pattern could
# admit, is not a slip.
FAR: float = 10.0
_LONG = 4096


@dataclass(frozen=True, slots=True)
class PersonDecided:
    """A person decided; what rules decided trips nothing."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class MemberKicked:
    """A member was removed from the space."""

    member: str
    by: str
    envelope: str


@dataclass(frozen=True, slots=True)
class Complaint:
    """Somebody objects to a rule, or to something that it did."""

    by: str
    text: str
    envelope: str
    rule: str | None = None
    proposal: str | None = None


@dataclass(frozen=True, slots=True)
class ToolChanged:
    """A tool's definition is no longer the one that people decided by (D-87)."""

    host: str
    tool: str
    what: str = "its definition changed"


@dataclass(frozen=True, slots=True)
class ProposalSeen:
    """A proposal came in; it may try the edges of a rule."""

    case: Case


Event: TypeAlias = PersonDecided | MemberKicked | Complaint | ToolChanged | ProposalSeen


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why a rule is suspended, since when, and which envelope did it."""

    rule: str
    at: float
    why: str
    about: str | None = None

    def as_json(self) -> dict[str, Json]:
        return {"rule": self.rule, "at": self.at, "why": self.why, "about": self.about}


def trip(rule: Rule, event: Event, now: float, *, acts: Mapping[str, str] | None = None) -> Suspension | None:
    """Whether this suspends the rule; `acts` says by which rule a proposal was decided."""
    match event:
        case PersonDecided():
            return _contradicted(rule, event.decision, now)
        case MemberKicked():
            # A rule about anybody goes on without one of them.
            named = rule.proposer not in (None, "*") and rule.is_of(event.member)
            if named or (rule.to and rule.is_at(event.member)):
                why = f"{event.by} removed {event.member}, whom this rule is about, from the space"
                return Suspension(rule.name, now, why, event.envelope)
        case Complaint():
            if rule.name == (event.rule or (acts or {}).get(event.proposal or "")):
                said = event.text.strip()[:200]
                why = f"{event.by} complained{f': {said}' if said else ''}"
                return Suspension(rule.name, now, why, event.envelope)
        case ToolChanged():
            if rule.is_at(event.host) and (rule.tool is None or _names(rule.tool, event.tool)):
                why = f"tool {event.tool} on {event.host}: {event.what}"
                return Suspension(rule.name, now, why)
        case ProposalSeen():
            odd = unusual(rule, event.case)
            if odd is not None:
                why = f"{event.case.proposer} made an unusual proposal: {odd}"
                return Suspension(rule.name, now, why, event.case.id)
        case _:
            assert_never(event)
    return None


def tripped(
    rules: Iterable[Rule],
    event: Event,
    now: float,
    *,
    suspended: Mapping[str, Suspension] | None = None,
    acts: Mapping[str, str] | None = None,
) -> list[Suspension]:
    """The suspensions that an event brings; rules that are suspended already stay as they are."""
    already = suspended or {}
    found = (trip(rule, event, now, acts=acts) for rule in rules if rule.name not in already)
    return [suspension for suspension in found if suspension is not None]


def reasons(suspensions: Mapping[str, Suspension]) -> dict[str, str]:
    """As `evaluate` takes them."""
    return {name: suspension.why for name, suspension in suspensions.items()}


def _contradicted(rule: Rule, decision: Decision, now: float) -> Suspension | None:
    lesson = decision.lesson
    if lesson is None or rule.decision == "ask" or lesson == rule.decision:
        return None
    # Hours are judged when it was proposed: a no at night says nothing about a rule for the day.
    if not rule.matches(decision.case, decision.case.at):
        return None
    if lesson == "reject":
        first = next(r for r in decision.rejections if r.rule is None)
        why = f"{first.by} rejected a proposal that this rule would have approved ({first.reason})"
    else:
        why = f"{decision.by} approved a proposal that this rule would have rejected"
    return Suspension(rule.name, now, why, decision.id)


def _names(pattern: Json, tool: str) -> bool:
    if isinstance(pattern, list):
        return any(_names(one, tool) for one in pattern)
    # What is not literally another tool may be this one: then rather suspend.
    return pattern == tool or any(char in pattern for char in "*?!") or pattern[:1] == "/"


# Unusual arguments


def unusual(rule: Rule, case: Case) -> str | None:
    """What is odd about a proposal for the same tool that an approving rule does not take; None if nothing.

    Another folder or amount is an ordinary miss. Escapes, climbing dots, invisible characters, other types,
    arguments that nobody knows and sizes far beyond are what somebody tries who looks for the edge.
    """
    if rule.decision != "approve" or not _same_kind(rule, case):
        return None
    if case.stray:
        return f"unexpected field {case.stray[0]}"
    unknown = [shown_path(path) for path in rule.unnamed(case.arguments)] if not rule.extra_arguments else []
    if unknown:
        return f"{counted(len(unknown), 'unknown argument')}: {_shown(unknown[0])}"
    for name, value in case.arguments.items():
        odd = _odd_argument(rule, name, value)
        if odd is not None:
            return f"{_shown(name)} {odd}"
    return None


def _same_kind(rule: Rule, case: Case) -> bool:
    fits = set(rule.misfits(case, case.at))
    return fits.isdisjoint({"proposer", "to", "method", "tool"})


def _odd_argument(rule: Rule, name: str, value: Json) -> str | None:
    inner = rule.argument(name)
    spans = {path: span for path, span in rule.range.items() if path[0] == name}
    if (name,) in spans:
        return _odd_number(spans[name,], value)
    if inner is None or _anything(inner):
        return None
    wanted = _types(inner)
    if wanted and type_of(value) not in wanted:
        return f"is a {type_of(value)}, which is a new type"
    for path, text in leaves({name: value}):
        if isinstance(text, str):
            if len(text) > _LONG:
                return f"is {len(text)} characters long"
            if not is_plain(text) and not admits(inner, value):
                return "contains escapes, '..' or invisible characters"
        if path in spans:
            odd = _odd_number(spans[path], text)
            if odd is not None:
                return odd
    return None


def _odd_number(span: Range, value: Json) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is a {type_of(value)}, which is a new type"
    reach = max(abs(span.low), abs(span.high), 1)
    if abs(value) > FAR * reach:
        return f"is {value}, far outside {span.low} to {span.high}"
    return None


def _anything(node: Node) -> bool:
    return isinstance(node, Text) and node.glob.lone


def _types(node: Node) -> set[str]:
    match node:
        case OneOf():
            return set().union(*(_types(inner) for inner in node.alternatives))
        case Fields():
            return {"object"}
    value = getattr(node, "value", "")
    found = type_of(value)
    return {"number", "whole number"} if found in ("number", "whole number") else {found}


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= 60 else repr(name)[:60]


def lifted(suspensions: Sequence[Suspension], rule: str) -> list[Suspension]:
    """Without those of one rule: a person has looked at it."""
    return [suspension for suspension in suspensions if suspension.rule != rule]
