"""Calls made up from a rule: one that it matches, and the parts to change in it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from moot.protocol.operation import Json
from moot.protocol.patterns.globs import CROSS, ONE, STAR, glob
from moot.protocol.patterns.pattern import Equal, Exact, Fields, Node, OneOf, Regex, Text
from moot.trust.checks.regex_examples import regex_examples
from moot.trust.history.proposal_case import Case, Path, case_of, put_at
from moot.trust.rules.conditions import RangeByText
from moot.trust.rules.rule import Rule
from moot.values.examples import edge_texts, outside_texts
from moot.values.kinds import ValuePattern
from moot.values.scalars import date_after

STRANGER: Final = "a-stranger"
OTHER_HOST: Final = "any-host"
OTHER_TOOL: Final = "delete_everything"


def sample_call(rule: Rule) -> Case:
    """A call that the rule matches at some time, where one can be made up."""
    proposer = _sample(rule.node("proposer"), STRANGER)
    tool = _sample(rule.node("tool"), OTHER_TOOL)
    method = _sample(rule.node("method"), "tools/call")
    to = [OTHER_HOST] if rule.to is None else [_glob_sample(host) for host in rule.to[:1]]
    arguments: dict[str, Json] = {}
    for path, node in text_nodes(rule):
        arguments = with_argument(arguments, path, _sample(node, "x"))
    for path, span in rule.range.items():
        if isinstance(span, RangeByText) and span.chosen(arguments) is None:
            arguments[span.of] = next(iter(span.by))
        arguments = with_argument(arguments, path, (span.chosen(arguments) or span).low)
    for path, values in rule.values.items():
        arguments = with_argument(
            arguments, path, next((t for t in _edges(values) if values.admits_at(t, 0.0)), "x")
        )
    for name, value in rule.equals.items():
        arguments[name] = copy.deepcopy(value)
    params: dict[str, Json] = {"name": tool, "arguments": arguments}
    case = case_of("check", str(proposer), to, {"method": str(method), "params": params})
    return changed_call(case, tool=str(tool), arguments=arguments, unexpected_fields=())


def _edges(values: ValuePattern) -> Iterator[str]:
    """Of days as dates, for a call at the beginning of time."""
    return (date_after(text, 0.0) if values.kind == "day" else text for text in edge_texts(values))


def sample_calls(rule: Rule) -> Iterator[Case]:
    """Calls at the edges of a rule, inside and outside: each part in turn has each of its values."""
    base = sample_call(rule)
    yield base
    yield changed_call(base, proposer=STRANGER)
    yield changed_call(base, tool=OTHER_TOOL)
    yield changed_call(base, to=(OTHER_HOST,))
    for part in ("proposer", "tool", "method"):
        for value in _samples(rule.node(part)):
            yield changed_call(base, **{part: str(value)})
    for host in rule.to or ():
        yield changed_call(base, to=(_glob_sample(host),))
    for path, values in _values_by_path(rule).items():
        for value in values:
            yield changed_call(base, arguments=with_argument(base.arguments, path, value))
    yield changed_call(base, arguments={**base.arguments, "anything_else": True})


def _values_by_path(rule: Rule) -> dict[Path, list[Json]]:
    found: dict[Path, list[Json]] = {}
    for path, node in text_nodes(rule):
        found.setdefault(path, []).extend([*_samples(node), "something else"])
    for path, pattern in rule.values.items():
        found.setdefault(path, []).extend([*edge_texts(pattern), *outside_texts(pattern)])
    for path, span in rule.range.items():
        found.setdefault(path, []).extend([span.low, span.high, span.low - 1, span.high + 1])
    return found


def _samples(node: Node | None) -> list[Json]:
    match node:
        case OneOf():
            return [value for inner in node.alternatives for value in _samples(inner)]
        case Regex():
            return list(islice(regex_examples(node.source), 8))
        case None:
            return []
    return [_sample(node, "x")]


def text_nodes(rule: Rule) -> Iterator[tuple[Path, Node]]:
    """The patterns of single arguments, with their paths."""
    node = rule.node("arguments")
    if isinstance(node, Fields):
        yield from _leaf_nodes(node, ())


def _leaf_nodes(node: Fields, path: Path) -> Iterator[tuple[Path, Node]]:
    for name, inner in node.literal:
        if isinstance(inner, Fields):
            yield from _leaf_nodes(inner, (*path, name))
        else:
            yield (*path, name), inner


def _sample(node: Node | None, default: Json) -> Json:
    match node:
        case OneOf():
            return _sample(node.alternatives[0], default)
        case Text():
            return node.glob.literal if node.glob.literal is not None else fill_wildcards(node, "x")
        case Regex():
            return next(iter(regex_examples(node.source)), default)
        case Equal() | Exact():
            return node.value
    return default


def _glob_sample(host: str) -> str:
    found = glob(host)
    return OTHER_HOST if found.lone else fill_wildcards(Text(found), "x")


def changed_call(case: Case, **parts: Any) -> Case:
    """The call with other parts."""
    return replace(case, **parts)


def with_argument(arguments: Mapping[str, Json], path: Path, value: Json) -> dict[str, Json]:
    """The arguments with another value at a path."""
    changed: dict[str, Json] = put_at(arguments, path, value)
    return changed


def fill_wildcards(node: Text, filling: str) -> str:
    """A text that a glob matches, with the filling in place of its wildcards."""
    return "".join(
        "x" if token == ONE else filling if token in (STAR, CROSS) else token for token in node.glob.tokens
    )


def call_as_json(case: Case) -> dict[str, Json]:
    """The call as a test in a rules file names it."""
    return {
        "proposer": case.proposer,
        "to": list(case.to),
        "method": case.method,
        "tool": case.tool,
        "arguments": dict(case.arguments),
    }
