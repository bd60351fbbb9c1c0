"""Tripwires: events that suspend a rule, with the reason in words.

Each is a pure function of a rule and an event. A suspended rule still matches but decides nothing: people are
asked until a person resumes or removes the rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case, Path, leaves, path_text, type_of, values_at
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.accepted_calls import AcceptedCalls
from moot.trust.rules.conditions import is_plain
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_samples import sample_call
from moot.trust.rules.rule_words import count_text
from moot.values.templates import is_visible

# A number this many times beyond a range, or a text of more characters, is not an accident.
_FAR_FACTOR: float = 10.0
_MAX_TEXT_CHARS = 4096


@dataclass(frozen=True, slots=True)
class PersonDecided:
    """A person decided; decisions by rules suspend nothing.

    `origins_ask`: whether the origins of its values asked, which is so where they are not known.
    """

    decision: HistoryProposal
    origins_ask: bool = True


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
    rule: str


@dataclass(frozen=True, slots=True)
class ToolChanged:
    """A tool's definition is no longer the one that people decided by (D-87)."""

    host: str
    tool: str
    what: str = "its definition changed"


@dataclass(frozen=True, slots=True)
class ProposalSeen:
    """A proposal arrived; it may probe the limits of a rule. What an accepted call had is not unusual."""

    case: Case
    accepted: AcceptedCalls | None = None


Event: TypeAlias = PersonDecided | MemberKicked | Complaint | ToolChanged | ProposalSeen


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why a rule is suspended, since when, and by which envelope."""

    rule: str
    at: float
    why: str
    about: str | None = None


def check_tripwires(rule: Rule, event: Event, now: float) -> Suspension | None:
    """The suspension that an event causes, or None."""
    match event:
        case PersonDecided():
            if rule.ask is not None and event.origins_ask:
                # It left this to people.
                return None
            return _check_contradiction(rule, event.decision, now)
        case MemberKicked():
            # A rule about anyone is not affected.
            named = rule.proposer not in (None, "*") and rule.covers_proposer(event.member)
            if named or (rule.to and rule.covers_host(event.member)):
                why = f"{event.by} removed {event.member}, whom this rule is about, from the space"
                return Suspension(rule.name, now, why, event.envelope)
        case Complaint():
            if rule.name == event.rule:
                text = event.text.strip()[:200]
                why = f"{event.by} complained{f': {text}' if text else ''}"
                return Suspension(rule.name, now, why, event.envelope)
        case ToolChanged():
            if rule.ask is not None and rule.tool == "*":
                # It asks about this one tool until a person has looked (`origin_watch`).
                return None
            if rule.covers_host(event.host) and (rule.tool is None or names_tool(rule.tool, event.tool)):
                why = f"tool {event.tool} on {event.host}: {event.what}"
                return Suspension(rule.name, now, why)
        case ProposalSeen():
            odd = find_anomaly(rule, event.case, event.accepted)
            if odd is not None:
                why = f"{event.case.proposer} made an unusual proposal: {odd}"
                return Suspension(rule.name, now, why, event.case.id)
        case _:
            assert_never(event)
    return None


def trip_rules(rules: Sequence[Rule], event: Event, now: float) -> list[Suspension]:
    """The suspensions that an event causes among all rules; an unusual proposal suspends one at most.

    That is the rule which it nearly matched; if it matches one, it is not unusual. `rules` should have the
    suspended ones, too: who tries the edge of one again suspends no other.
    """
    if not isinstance(event, ProposalSeen):
        found = (check_tripwires(rule, event, now) for rule in rules)
        return [suspension for suspension in found if suspension is not None]
    case = event.case
    if any(rule.decision == "approve" and rule.matches(case, case.at) for rule in rules):
        return []
    # Of two that miss as much, the one that knows more of the arguments.
    nearest = sorted(
        rules,
        key=lambda rule: (
            len(rule.mismatches(case, case.at)),
            len([*rule.unnamed_arguments(case.arguments)]),
        ),
    )
    odd = (check_tripwires(rule, event, now) for rule in nearest)
    first = next((suspension for suspension in odd if suspension is not None), None)
    return [] if first is None else [first]


def suspension_reasons(suspensions: Mapping[str, Suspension]) -> dict[str, str]:
    """The reasons by rule, as `evaluate` takes them."""
    return {name: suspension.why for name, suspension in suspensions.items()}


def _check_contradiction(rule: Rule, decision: HistoryProposal, now: float) -> Suspension | None:
    lesson = decision.lesson
    if lesson is None or rule.decision == "ask" or lesson == rule.decision:
        return None
    # A rejection at night says nothing about a rule that people made for the day, but everything about one
    # that was only ever seen at work by day.
    if not rule.covers_call(decision.case, decision.case.at):
        return None
    if lesson == "reject":
        first = next(r for r in decision.rejections if r.id not in decision.rules)
        why = f"{first.by} rejected a proposal that this rule would have approved ({first.reason})"
    else:
        why = f"{decision.by} approved a proposal that this rule would have rejected"
    return Suspension(rule.name, now, why, decision.id)


def names_tool(pattern: Json, tool: str) -> bool:
    """Whether the `tool` of a rule may mean this one."""
    if isinstance(pattern, list):
        return any(names_tool(one, tool) for one in pattern)
    # A pattern may mean this tool: rather suspend the rule.
    return pattern == tool or any(char in pattern for char in "*?!") or pattern[:1] == "/"


# Anomalies


def find_anomaly(rule: Rule, case: Case, accepted: AcceptedCalls | None = None) -> str | None:
    """What is unusual about a proposal for the tool of an approving rule; None if nothing.

    Another folder or amount is an ordinary mismatch. Escapes, `..`, invisible characters, other types,
    unknown arguments and extreme sizes are what somebody tries who probes for the limits of a rule, unless a
    call that people approved had them, too. A rule for any arguments that goes by their origins says nothing
    of what is usual.
    """
    if rule.decision != "approve" or (rule.ask is not None and rule.extra_arguments):
        return None
    mismatches = set(rule.mismatches(case, case.at))
    if not mismatches.isdisjoint({"proposer", "to", "method", "tool"}):
        return None
    if case.unexpected_fields:
        return f"unexpected field {case.unexpected_fields[0]}"
    accepted = accepted or AcceptedCalls()
    if not rule.extra_arguments:
        unnamed = rule.unnamed_arguments(case.arguments)
        if unknown := [path_text(path) for path in unnamed if not accepted.knows(case, path)]:
            return f"{count_text(len(unknown), 'unknown argument')}: {_shown(unknown[0])}"
    sample = sample_call(rule).arguments
    for path, value in leaves(case.arguments):
        wrong = {f"{part}.{name}" for part in ("arguments", "range") for name in (path[0], path_text(path))}
        if wrong.isdisjoint(mismatches) or accepted.knows_value(case, path, value, factor=_FAR_FACTOR):
            continue
        if odd := _oddity(rule, path, value, values_at(sample, path)):
            return f"{_shown(path_text(path))} {odd}"
    return None


def _oddity(rule: Rule, path: Path, value: Json, usual: tuple[Json, ...]) -> str | None:
    """What is odd about a value that does not match, beside one that would."""
    if usual and type_of(value).removeprefix("whole ") != type_of(usual[0]).removeprefix("whole "):
        return f"is a {type_of(value)}, which is a new type"
    pattern, span = rule.values.get(path), rule.range.get(path)
    kind = None if pattern is None else pattern.kind
    if isinstance(value, str):
        if len(value) > _MAX_TEXT_CHARS and kind != "text":
            return f"is {len(value)} characters long"
        # A shell, a database and people have uses for escapes; what hides from people has none.
        if not (is_visible if kind in ("shell", "sql", "text") else is_plain)(value):
            return "contains escapes, '..' or invisible characters"
    elif span is not None and abs(value) > _FAR_FACTOR * max(abs(span.low), abs(span.high), 1):
        return f"is {value}, far outside {span.low} to {span.high}"
    return None


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= 60 else repr(name)[:60]
