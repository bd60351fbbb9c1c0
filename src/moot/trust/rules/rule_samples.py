"""Calls made up from a rule: one that it matches, and the parts to change in it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from moot.protocol.operation import Json
from moot.protocol.patterns.globs import CROSS, ONE, STAR, glob
from moot.protocol.patterns.pattern import Equal, Exact, Node, OneOf, Regex, Text
from moot.trust.history.proposal_case import Case, Path, case_of, put_at
from moot.trust.rules.conditions import RangeByText
from moot.trust.rules.regex_examples import regex_examples
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
    for path, node in rule.argument_nodes():
        arguments = put_at(arguments, path, _sample(node, "x"))
    for path, span in rule.range.items():
        if isinstance(span, RangeByText) and span.chosen(arguments) is None:
            arguments[span.of] = next(iter(span.by))
        arguments = put_at(arguments, path, (span.chosen(arguments) or span).low)
    for path, values in rule.values.items():
        edges = _texts_of(values, edge_texts(values), 0.0)
        arguments = put_at(arguments, path, next((t for t in edges if values.admits_at(t, 0.0)), "x"))
    for name, value in rule.equals.items():
        arguments[name] = copy.deepcopy(value)
    params: dict[str, Json] = {"name": tool, "arguments": arguments}
    case = case_of("check", str(proposer), to, {"method": str(method), "params": params})
    return replace(case, tool=str(tool), arguments=arguments, unexpected_fields=())


def _texts_of(pattern: ValuePattern, texts: Iterator[str], moment: float) -> Iterator[str]:
    """The texts as a call of this moment has them."""
    return (date_after(text, moment) for text in texts) if pattern.kind == "day" else texts


def arguments_at_edges(rule: Rule, base: Case) -> Iterator[dict[str, Json]]:
    """Arguments from the edges of a rule: each open part in turn, then all of them together."""
    values: dict[Path, list[Json]] = {
        path: list(dict.fromkeys(_texts_of(pattern, edge_texts(pattern), base.at)))
        for path, pattern in rule.values.items()
    }
    for path, each in rule.range.items():
        span = each.chosen(base.arguments) or each
        middle = (span.low + span.high) / 2
        values[path] = [span.low, span.high, int(middle) if span.whole else middle]
    yield from _in_turns(base, values)
    for which in (0, -1):
        arguments = dict(base.arguments)
        for path, listed in values.items():
            arguments = put_at(arguments, path, listed[which])
        yield arguments


def arguments_outside(rule: Rule, base: Case) -> Iterator[dict[str, Json]]:
    """Arguments just outside a rule, each part in turn."""
    values: dict[Path, list[Json]] = {
        path: list(_texts_of(pattern, outside_texts(pattern), base.at))
        for path, pattern in rule.values.items()
    }
    values |= {path: [span.high + 1, span.low - 1] for path, span in rule.range.items()}
    texts = {(name,): value for name, value in base.arguments.items() if isinstance(value, str)}
    values |= {path: [f"{value}x"] for path, value in texts.items() if path not in rule.values}
    values["anything_else",] = [True]
    yield from _in_turns(base, values)


def _in_turns(base: Case, values: Mapping[Path, list[Json]]) -> Iterator[dict[str, Json]]:
    """One value of each part, then the next: so every part is among the first."""
    for at in range(max(map(len, values.values()), default=0)):
        for path, listed in values.items():
            if at < len(listed):
                yield put_at(base.arguments, path, listed[at])


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
