"""Proves that an edited rule matches no more than the suggested one; unproved counts as wider."""

from __future__ import annotations

from collections.abc import Mapping

from moot.protocol.operation import Json
from moot.protocol.patterns import covers, read_capability
from moot.trust.history.proposal_case import Path
from moot.trust.rules.conditions import DAY_MINUTES, Hours, is_same_json
from moot.trust.rules.rule import Rule
from moot.values.examples import edge_texts
from moot.values.inclusion import is_within
from moot.values.kinds import ValuePattern
from moot.values.quoting import literal


def find_wider_part(edited: Rule, suggested: Rule) -> str | None:
    """The first part in which the edited rule may match more; None if it matches the same or less."""
    if edited.decision != suggested.decision:
        return "decision"
    if not covers(*(read_capability(each.capability_source()) for each in (suggested, edited))):
        return "proposer, to, method, tool or arguments"
    # A rule without a host, which a capability cannot express, covers neither named hosts nor any host.
    if suggested.to is not None and (edited.to is None or bool(edited.to) != bool(suggested.to)):
        return "to"
    if edited.extra_arguments and not suggested.extra_arguments:
        return "extra_arguments"
    # A closed rule admits the arguments it names, so another name admits another argument.
    if not suggested.extra_arguments and _named(edited) - _named(suggested):
        return "arguments"
    for path, span in suggested.range.items():
        other = edited.range.get(path)
        if other is None or not other.is_within(span):
            return f"range of {'.'.join(path)}"
    for path, pattern in suggested.values.items():
        if not _values_within(edited, path, pattern):
            return f"{pattern.kind} of {'.'.join(path)}"
    for name, value in suggested.equals.items():
        if name not in edited.equals or not is_same_json(edited.equals[name], value):
            return f"equals of {name}"
    if suggested.ask is not None and edited.ask != suggested.ask:
        return "ask"
    if suggested.undo is not None and edited.undo != suggested.undo:
        return "undo"
    if suggested.observe and not edited.observe:
        return "observe"
    return _wider_time_or_limit(edited, suggested)


def find_counter_example(edited: Rule, suggested: Rule) -> str | None:
    """A value that the edited rule allows and the suggested one does not, in words; None if none is found."""
    for path, pattern in suggested.values.items():
        name = ".".join(path)
        if path not in edited.values:
            return f"any {name} at all" if (path[0] not in edited.arguments) else None
        for text in edge_texts(edited.values[path]):
            if edited.values[path].admits(text) and not pattern.admits(text):
                return f"{name} {text[:200]!r}"
    for path, span in suggested.range.items():
        other = edited.range.get(path)
        for value in () if other is None else (other.low, other.high):
            if not span.admits(value):
                return f"{'.'.join(path)} {value}"
    return None


def _values_within(edited: Rule, path: Path, pattern: ValuePattern) -> bool:
    """Whether the edited rule has templates within these, or only texts that they match."""
    if path in edited.values:
        return is_within(edited.values[path], pattern)
    exact: Json = edited.equals if path[0] in edited.equals else edited.arguments
    for key in path:
        if not isinstance(exact, Mapping) or key not in exact:
            return False
        exact = exact[key]
    texts = exact if isinstance(exact, list) and path[0] not in edited.equals else [exact]
    return bool(texts) and all(
        isinstance(text, str) and literal(text) == text and pattern.admits(text) for text in texts
    )


def _wider_time_or_limit(edited: Rule, suggested: Rule) -> str | None:
    if suggested.hours is not None and not _within(edited.hours, suggested.hours):
        return "hours"
    if suggested.after is not None and (edited.after is None or edited.after < suggested.after):
        return "after"
    if suggested.before is not None and (edited.before is None or edited.before > suggested.before):
        return "before"
    mine, theirs = edited.limits, suggested.limits
    # Not compared as rates: 240 a day may all come in one hour.
    if theirs.max_decisions is not None and (
        mine.max_decisions is None
        or mine.max_decisions > theirs.max_decisions
        or mine.per_seconds < theirs.per_seconds
    ):
        return "limits.count"
    if theirs.max_each is not None and (
        not 0 < (mine.max_each or 0) <= theirs.max_each
        # With one more list each payee has so many calls for every value of it.
        or not set(edited.listed_paths()) <= set(suggested.listed_paths())
    ):
        return "limits.each"
    if theirs.expires_at is not None and (mine.expires_at is None or mine.expires_at > theirs.expires_at):
        return "limits.expires_at"
    if not set(theirs.while_present) <= set(mine.while_present):
        return "limits.while_present"
    if theirs.review_share and not 0 < mine.review_share <= theirs.review_share:
        return "limits.review_share"
    for path, most in theirs.sums.items():
        if not mine.sums.get(path, float("inf")) <= most:
            return f"limits.sums of {'.'.join(path)}"
    return "limits.check_share" if mine.check_share < theirs.check_share else None


def _named(rule: Rule) -> set[Path]:
    return {*rule.named_paths, *((name,) for name in rule.equals)}


def _within(inner: Hours | None, outer: Hours) -> bool:
    if inner is None or inner.zone != outer.zone:
        return False
    return all(outer.has_minute(minute) for minute in range(DAY_MINUTES) if inner.has_minute(minute))
