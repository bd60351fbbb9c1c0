"""Rules described in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from moot.protocol.operation import Json
from moot.resilience.durations import duration_text
from moot.trust.history.proposal_case import path_text
from moot.trust.rules.conditions import Range, RangeByText, canonical
from moot.trust.rules.rule import Rule, RuleLimits
from moot.values.kinds import ValuePattern

_VERBS = {"approve": "Approve", "reject": "Reject", "ask": "Ask people"}


def join_names(names: Iterable[str], *, joint: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    listed = list(names)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} {joint} {listed[-1]}"


def count_text(count: int, one: str) -> str:
    return f"{count} {one if count == 1 else one + 's'}"


ASK_TEXT = "; asks when a value that steers the call came from nobody trusted"


# A sentence that people read before they accept a rule.
MAX_SENTENCE: Final = 200


def describe_shortly(rule: Rule, parts: Mapping[str, str]) -> str:
    """The same in at most `MAX_SENTENCE` characters: with some of its forms, or how many there are."""
    text = describe_rule(rule, parts)
    for forms in (3, 1):
        if len(text) > MAX_SENTENCE:
            text = describe_rule(rule, forms=forms)
    if len(text) > MAX_SENTENCE:
        names = join_names(
            dict.fromkeys((*rule.arguments, *(path[0] for path in (*rule.values, *rule.range))))
        )
        bare = replace(rule, arguments={}, values={}, range={}, equals={}, extra_arguments=True)
        text = describe_rule(bare).replace(" with any arguments", f" with {names} as it lists them", 1)
    return text if len(text) <= MAX_SENTENCE else f"{text[: MAX_SENTENCE - 1]}…"


def describe_rule(rule: Rule, parts: Mapping[str, str] | None = None, *, forms: int | None = None) -> str:
    """What a rule does, in one sentence; `parts` describes some arguments better, `forms` is how many forms
    of an argument are told.
    """
    who = "anyone" if rule.proposer is None else _pattern_text(rule.proposer)
    what = rule.method if rule.tool is None else "any tool" if rule.tool == "*" else _pattern_text(rule.tool)
    text = f"{_VERBS[rule.decision]} when {who} proposes {'anything' if what is None else what}"
    if rule.to is not None:
        text += f" on {join_names(rule.to, joint='or')}" if rule.to else " without a host"
    arguments = list(_argument_texts(rule, parts or {}, forms))
    if arguments:
        text += f" with {join_names(arguments)}"
    if rule.decision == "approve":
        if rule.extra_arguments:
            text += " and any other arguments" if arguments else " with any arguments"
        else:
            text += " and no other arguments" if arguments else " without arguments"
    if rule.hours is not None:
        clock, _, zone = str(rule.hours).partition(" ")
        start, _, end = clock.partition("-")
        text += f", between {start} and {end} {zone or 'UTC'}"
    if rule.undo is not None:
        text += f", if it is {_pattern_text(rule.undo)}"
    if rule.ask is not None:
        text += ASK_TEXT
    limits = limits_text(rule.limits)
    return f"{text}; {limits}" if limits else text


def _argument_texts(rule: Rule, parts: Mapping[str, str], forms: int | None) -> Iterable[str]:
    for path, values in rule.values.items():
        name = path_text(path)
        yield (
            f"{name} {parts[name]}"
            if name in parts and path[0] not in rule.arguments
            else f"{name} {template_text(values, forms)}"
        )
    for name, pattern in rule.arguments.items():
        inner = [(key, words) for key, words in parts.items() if key == name or key.startswith(f"{name}.")]
        if inner:
            yield from (f"{key} {words}" for key, words in inner if (tuple(key.split("."))) not in rule.range)
        else:
            yield f"{name} {_pattern_text(pattern, forms)}"
    for path, span in rule.range.items():
        yield f"{path_text(path)} {range_text(span, forms)}"
    for name in rule.equals:
        yield f"{name} exactly {canonical(rule.equals[name]).decode(errors='replace')[:80]}"


_SLOT_WORDS = {
    "<prose>": "any words of a language",
    "<lines>": "any words of a language, on several lines",
    "<text>": "any text (not checked)",
    "<page>": "any page",
}


_KIND_WORDS: Final = {"sql": ("SQL of the form ", ""), "day": ("", " days after that of the call")}


def range_text(span: Range, forms: int | None = None) -> str:
    """The numbers of a range, or those for each text of another argument, in words."""
    if isinstance(span, RangeByText):
        shown = [f"{text} {each.low} to {each.high}" for text, each in span.by.items()]
        return f"by {span.of} ({join_names(_first(shown, forms))})"
    return f"{'a whole' if span.whole else 'a'} number from {span.low} to {span.high}"


def template_text(values: ValuePattern, forms: int | None = None) -> str:
    """What an argument of one kind may be, in words."""
    shown = _first([_SLOT_WORDS.get(text, f"“{text}”") for text in values.texts()], forms)
    before, behind = _KIND_WORDS.get(values.kind, ("", ""))
    return f"{before}{join_names(shown, joint='or')}{behind}"


def limits_text(limits: RuleLimits, *, days: bool = False) -> str:
    """How often and when, if that is limited. With `days`, for how long: the end is counted from 0."""
    parts = []
    if limits.max_decisions is not None:
        often = f"at most {count_text(limits.max_decisions, 'time')} in {duration_text(limits.per_seconds)}"
        gap = f", not twice within {duration_text(limits.gap_seconds)}" if limits.gap_seconds else ""
        each = "" if limits.max_each is None else f", {count_text(limits.max_each, 'time')} each"
        parts.append(often + each + gap)
    parts += sum_texts(limits)
    if limits.while_present:
        verb = "is" if len(limits.while_present) == 1 else "are"
        parts.append(f"only while {join_names(limits.while_present)} {verb} present")
    if days and limits.expires_at is not None and limits.per_seconds != limits.expires_at:
        parts.append(f"for {duration_text(limits.expires_at)}")
    return "; ".join(parts)


def sum_texts(limits: RuleLimits) -> list[str]:
    return [f"{path_text(path)} at most {most:g} in all" for path, most in limits.sums.items()]


def _first(texts: Sequence[str], forms: int | None) -> list[str]:
    left = 0 if forms is None else len(texts) - forms
    return [*texts[:forms], count_text(left, "other")] if left > 1 else list(texts)


def _pattern_text(pattern: Json, forms: int | None = None) -> str:
    if isinstance(pattern, str):
        return pattern
    if isinstance(pattern, list):
        return join_names(_first([_pattern_text(one) for one in pattern], forms), joint="or")
    return canonical(pattern).decode(errors="replace")[:200]
