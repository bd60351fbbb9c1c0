"""The narrowest rule for some proposals of one kind: constants stay, variable parts reach as far as was seen.

Proposals are compared only within a *kind*: the same proposer, host, method, tool, and the same arguments by
name and type, lists also by value. Within it every argument has its own cover:

    the same value each time       that value
    values that keep coming back   the list of them
    texts that are new             templates of their kind (`text_patterns`), or nothing
    numbers that are new           the range seen
    lists, deep objects            only as the very same JSON

`hours` are added when they are what tells approvals from rejections, `seen_hours` when decisions were spread
over days and keep to some part of the day.

The rule is a product: each value of one part with each of another. `value_products` checks whether the
examples support that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from moot.errors import InvalidPattern
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import is_wild
from moot.trust.history.proposal_case import Case, Path, leaves, path_text, type_of
from moot.trust.learning.text_patterns import (
    MIN_NEW_VALUES,
    MIN_REPEATS,
    TextCover,
    cover_texts,
    literal,
    values_recur,
)
from moot.trust.rules.conditions import DAY_MINUTES, Hours, Range, canonical, minute_of_day
from moot.trust.rules.rule import Rule, RuleDecision
from moot.values.kinds import ValuePattern

# The shortest gap in the day without a decision for which a rule gets hours.
MIN_GAP_MINUTES: Final = 180
# Of how likely a gap by chance no hours are made.
MAX_GAP_CHANCE: Final = 0.01
# Decisions within this time say nothing about hours.
SITTING_SECONDS: Final = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class CaseKind:
    """What proposals must have in common to be compared at all."""

    proposer: str
    to: tuple[str, ...]
    method: str
    tool: str | None
    shape: tuple[tuple[Path, str], ...]
    # What the tool's schema says about texts, such as `uri`; it tells no proposals apart.
    formats: tuple[tuple[Path, str], ...] = field(default=(), compare=False)

    def format_of(self, path: Path) -> str | None:
        return next((format for of, format in self.formats if of == path), None)


@dataclass(frozen=True, slots=True)
class Example:
    """A case with its arguments as leaves."""

    case: Case
    values: Mapping[Path, Json]
    minute: int


# All texts of an argument that were decided in one way, by the path of the argument.
Pools = Mapping[Path, Sequence[str]]
NO_POOLS: Final[Pools] = {}


@dataclass(frozen=True, slots=True)
class Generalisation:
    """A rule for examples, the description of each argument, and the fewest distinct values behind a
    wildcard.
    """

    rule: Rule
    parts: Mapping[str, str]
    first_times: int | None


def kind_of(case: Case) -> tuple[CaseKind, Example] | None:
    """The kind of a proposal; None if no rule can express it (several hosts, unexpected fields)."""
    values = dict(leaves(case.arguments))
    if case.unexpected_fields or len(case.to) > 1 or not case.method:
        return None
    if any(is_wild(key) or key.startswith("$") for path in values for key in path):
        return None
    if _are_ambiguous(values):
        return None
    shape = tuple(sorted((path, _type(case, path, value)) for path, value in values.items()))
    kind = CaseKind(case.proposer, case.to, case.method, case.tool, shape)
    return kind, Example(case, values, minute_of_day(case.at))


def _are_ambiguous(paths: Collection[Path]) -> bool:
    """Whether words cannot tell arguments apart: `{"a.b": …}` from `{"a": {"b": …}}`, or or from a."""
    if not any("." in key for path in paths for key in path):
        return False
    texts = {path_text(path) for path in paths}
    return len(texts) < len(paths) or any(
        text[:at] in texts for text in texts for at, sign in enumerate(text) if sign == "."
    )


def _type(case: Case, path: Path, value: Json) -> str:
    match type_of(value):
        case "whole number":
            # 5 and 5.5 are both amounts; what is whole in all examples stays whole in the rule.
            return "number"
        case "list" | "object" as type:
            # A rule holds only for the very same one, so each is a kind of its own.
            return f"{type} {canonical(case.arguments[path[0]]).decode()}"
        case type:
            return type


def generalise(
    kind: CaseKind,
    examples: Sequence[Example],
    *,
    name: str,
    decision: RuleDecision = "approve",
    hours: bool = False,
    exact: bool = False,
    pools: Pools = NO_POOLS,
) -> Generalisation | None:
    """The narrowest rule for these examples; None if they support none.

    `hours`: whether they are a condition; `exact`: only values as they were seen, no slots and no ranges;
    `pools`: the texts of each argument in all calls of the tool.
    """
    arguments: dict[str, Json] = {}
    spans: dict[Path, Range] = {}
    patterns: dict[Path, ValuePattern] = {}
    equals: dict[str, Json] = {}
    parts: dict[str, str] = {}
    first_times: list[int] = []
    for path, type in kind.shape:
        values = [example.values[path] for example in examples]
        shown = path_text(path)
        match type:
            case "text":
                schema = {"format": kind.format_of(path)}
                cover = cover_texts(
                    values, name=path[-1], tool=kind.tool, schema=schema, exact=exact, pool=pools.get(path)
                )
                if cover is None:
                    return None
                if cover.values is None:
                    _put(arguments, path, _alternatives(cover))
                else:
                    patterns[path] = cover.values
                parts[shown] = cover.description
                if cover.first_times is not None:
                    first_times.append(cover.first_times)
            case "number":
                span = _numbers(values, exact=exact)
                if span is None:
                    return None
                if isinstance(span, Range):
                    spans[path] = span
                    parts[shown] = f"{span.low} to {span.high}"
                    first_times.append(len(set(values)))
                else:
                    _put(arguments, path, span if len(span) > 1 else span[0])
                    parts[shown] = " or ".join(str(value) for value in span)
            case "boolean" | "null":
                seen = Counter(canonical(value) for value in values)
                kept = [
                    v for v in dict.fromkeys(values) if seen[canonical(v)] >= MIN_REPEATS or len(seen) == 1
                ]
                if not kept:
                    return None
                _put(arguments, path, kept if len(kept) > 1 else kept[0])
                parts[shown] = " or ".join(canonical(value).decode() for value in kept)
            case _:
                equals[path[0]] = examples[0].case.arguments[path[0]]
                parts[path[0]] = "exactly the same value as before"
    for top in equals:
        arguments.pop(top, None)
        spans = {path: span for path, span in spans.items() if path[0] != top}
        patterns = {path: pattern for path, pattern in patterns.items() if path[0] != top}
    rule = _rule(kind, name, decision, arguments, spans, patterns, equals)
    if rule is None:
        return None
    if hours:
        rule = replace(rule, hours=_hours(examples))
    elif not are_one_sitting(examples):
        rule = replace(rule, seen_hours=_seen_hours(examples))
    return Generalisation(rule, parts, min(first_times, default=None))


def _rule(
    kind: CaseKind,
    name: str,
    decision: RuleDecision,
    arguments: Mapping[str, Json],
    spans: Mapping[Path, Range],
    patterns: Mapping[Path, ValuePattern],
    equals: Mapping[str, Json],
) -> Rule | None:
    proposer, method = literal(kind.proposer), literal(kind.method)
    tool = None if kind.tool is None else literal(kind.tool)
    if proposer is None or method is None or (kind.tool is not None and tool is None):
        return None
    if any(is_wild(host) or literal(host) != host for host in kind.to):
        return None
    try:
        return Rule(
            name=name,
            decision=decision,
            proposer=proposer,
            to=kind.to,
            method=method,
            tool=tool,
            arguments=arguments,
            range=spans,
            values=patterns,
            equals=equals,
        )
    except InvalidPattern:
        return None  # larger than a capability may be


def _put(arguments: dict[str, Json], path: Path, pattern: Json) -> None:
    inner = arguments
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = pattern


def _alternatives(cover: TextCover) -> Json:
    patterns = [literal(text) for text in cover.texts]
    return patterns[0] if len(patterns) == 1 else patterns


def _numbers(values: Sequence[float], *, exact: bool) -> Range | list[float] | None:
    counts = Counter(values)
    if len(counts) == 1:
        return [values[0]]
    if values_recur(Counter(map(repr, values))):
        return sorted(value for value, n in counts.items() if n >= MIN_REPEATS)
    if exact or len(counts) < MIN_NEW_VALUES:
        return sorted(value for value, n in counts.items() if n >= MIN_REPEATS) or None
    low, high = min(counts), max(counts)
    if not all(isinstance(value, int) for value in values):
        return Range(float(low), float(high))
    return Range(low, high)


def are_one_sitting(examples: Sequence[Example]) -> bool:
    """Whether all examples came so close together that their hours say nothing."""
    moments = [example.case.at for example in examples]
    return max(moments) - min(moments) < SITTING_SECONDS


def _seen_hours(examples: Sequence[Example]) -> Hours | None:
    """The part of the day around the examples, if chance alone would hardly leave such a gap."""
    found = _hours(examples)
    share = (found.start - found.end) % DAY_MINUTES / DAY_MINUTES
    count = len({(int(example.case.at // SITTING_SECONDS), example.minute) for example in examples})
    chance = count * (1 - share) ** (count - 1)
    return found if share * DAY_MINUTES >= MIN_GAP_MINUTES and chance < MAX_GAP_CHANCE else None


def _hours(examples: Sequence[Example]) -> Hours:
    """The part of the day around the examples: all but the longest gap."""
    minutes = sorted({example.minute for example in examples})
    _, start, end = max(
        ((after - before) % DAY_MINUTES or DAY_MINUTES, after, before)
        for before, after in zip(minutes, [*minutes[1:], minutes[0]], strict=True)
    )
    return Hours(start, end)
