"""Calls that a rule would allow though nobody ever saw them, and near misses that it would not."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case, Path
from moot.trust.rules.conditions import canonical
from moot.trust.rules.rule import Rule
from moot.trust.values.examples import edge_texts, outside_texts

# As many as people read.
MAX_EXAMPLES: Final = 5


def unseen_calls(rule: Rule, seen: Sequence[Case]) -> list[dict[str, Json]]:
    """Arguments at the edges of a rule that it matches and that no call ever had."""
    known = {canonical(dict(case.arguments)) for case in seen}
    return _chosen(rule, seen[0], (each for each in _edges(rule, seen[0])), known, matched=True)


def near_misses(rule: Rule, seen: Sequence[Case]) -> list[dict[str, Json]]:
    """Arguments just outside a rule."""
    known = {canonical(dict(case.arguments)) for case in seen}
    return _chosen(rule, seen[0], _outside(rule, seen[0]), known, matched=False)


def _chosen(
    rule: Rule, base: Case, candidates: Iterator[dict[str, Json]], known: set[bytes], *, matched: bool
) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = []
    for arguments in candidates:
        text = canonical(arguments)
        if text not in known and rule.matches(replace(base, arguments=arguments), base.at) == matched:
            known.add(text)
            found.append(arguments)
            if len(found) == MAX_EXAMPLES:
                break
    return found


def _edges(rule: Rule, base: Case) -> Iterator[dict[str, Json]]:
    """Each open part in turn, then all of them together."""
    options: dict[Path, list[Json]] = {
        path: list(dict.fromkeys(edge_texts(pattern))) for path, pattern in rule.values.items()
    }
    for path, span in rule.range.items():
        middle = (span.low + span.high) / 2
        options[path] = [span.low, span.high, int(middle) if span.whole else middle]
    for at in range(max(map(len, options.values()), default=0)):
        for path, values in options.items():
            if at < len(values):
                yield _with(base, {path: values[at]})
    for which in (0, -1):
        yield _with(base, {path: values[which] for path, values in options.items() if values})


def _outside(rule: Rule, base: Case) -> Iterator[dict[str, Json]]:
    outside: list[Iterator[dict[str, Json]]] = [
        (_with(base, {path: text}) for text in outside_texts(pattern))
        for path, pattern in rule.values.items()
    ]
    outside += [
        (_with(base, {path: value}) for value in (span.high + 1, span.low - 1))
        for path, span in rule.range.items()
    ]
    outside += [
        iter([_with(base, {(name,): f"{value}x"})])
        for name, value in base.arguments.items()
        if isinstance(value, str) and (name,) not in rule.values
    ]
    outside.append(iter([{**base.arguments, "anything_else": True}]))
    # One of each in turns, so that every part is shown.
    while outside:
        for each in list(outside):
            arguments = next(each, None)
            if arguments is None:
                outside.remove(each)
            else:
                yield arguments


def _with(base: Case, values: dict[Path, Json]) -> dict[str, Json]:
    arguments = copy.deepcopy(dict(base.arguments))
    for path, value in values.items():
        inner = arguments
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
    return arguments
