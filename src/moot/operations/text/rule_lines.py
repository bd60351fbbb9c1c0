"""Suggestions, rules and the share of automatic decisions as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from moot.operations.trust_log import RuleEntry, SuggestionEntry, TrustLog
from moot.protocol.operation import Json

# Bars of the plot, by eighths.
_BAR: Final = " ▏▎▍▌▋▊▉█"
_BAR_CELLS: Final = 20
_MAX_DAYS: Final = 14
_MAX_NEAR_MISSES: Final = 3
_MAX_EXAMPLE_CHARS: Final = 160


def suggestion_head(suggested: SuggestionEntry) -> str:
    state = suggested.answer or "open"
    return f"{suggested.name[:24]}  {suggested.text} (suggested by {suggested.sender}, {state})"


def suggestion_lines(suggested: SuggestionEntry) -> list[str]:
    """What a person should know before they accept it."""
    payload = suggested.payload
    lines: list[str] = []
    by: Json = payload.get("accepted_by")
    if isinstance(by, list) and by:
        count = payload.get("accepting_people")
        lines.append(f"accepted by {', '.join(map(str, by))}; {count} people have to accept it")
        if isinstance(payload.get("accepted_rule"), dict):
            lines.append("accepted narrower than suggested: " + json.dumps(payload["accepted_rule"])[:400])
    if isinstance(payload.get("evidence"), str):
        lines.append(payload["evidence"])
    test: Json = payload.get("back_test")
    if isinstance(test, dict):
        lines += _back_test(test)
    decided = "reject" if suggested.payload.get("rule", {}).get("decision") == "reject" else "approve"
    lines += _examples(f"would also {decided}, though never seen", payload.get("allows"))
    lines += _examples("would leave to people", payload.get("refuses"))
    grant: Json = payload.get("grant")
    if isinstance(grant, dict):
        loses = "; ".join(str(each) for each in grant.get("loses", []))
        lines.append(f"can be granted instead: {grant.get('words')}{f' (note: {loses})' if loses else ''}")
    elif isinstance(payload.get("no_grant"), str):
        lines.append(f"cannot be granted: {payload['no_grant']}")
    return lines


def _examples(head: str, calls: Json) -> list[str]:
    """Arguments of calls, as JSON in one line each."""
    shown = [json.dumps(each)[:_MAX_EXAMPLE_CHARS] for each in calls] if isinstance(calls, list) else []
    return [f"{head}: {each}" for each in shown]


def _back_test(test: Json) -> list[str]:
    conflicts: Json = test.get("conflicts")
    otherwise = len(conflicts) if isinstance(conflicts, list) else 0
    agreements = test["agreements"] if isinstance(test.get("agreements"), int) else 0
    lines = [
        f"agrees with {test.get('agreements')} of {agreements + otherwise} past decisions; "
        f"matches {test.get('covered')} of {test.get('history')} past proposals"
    ]
    near: Json = test.get("near_misses")
    for each in near[:_MAX_NEAR_MISSES] if isinstance(near, list) else ():
        if isinstance(each, dict):
            word = "rejected" if each.get("decision") == "reject" else "approved"
            lines.append(f"near miss: {str(each.get('proposal'))[:8]}, {word}; differs in {each.get('part')}")
    return lines


def rule_head(ruled: RuleEntry) -> str:
    left = "" if ruled.left is None else f", {ruled.left} left"
    decisions = "1 decision" if ruled.hits == 1 else f"{ruled.hits} decisions"
    return f"{ruled.name}  {ruled.state}, {decisions}{left}"


def rule_lines(ruled: RuleEntry) -> list[str]:
    lines = [ruled.words] if ruled.words else []
    if ruled.to_review:
        lines.append(f"{ruled.to_review} decisions should be reviewed: /review {ruled.name}")
    return [*lines, f"suspended: {ruled.why}"] if ruled.why else lines


def status_lines(log: TrustLog) -> list[str]:
    """What keeps all rules from deciding."""
    report = log.report
    lines = [] if log.stopped is None else [f"ALL RULES STOPPED {log.stopped}"]
    if report is not None and report.fault:
        lines.append(f"the rules cannot be read, so none is active: {report.fault}")
    if report is not None and report.observe:
        lines.append("Observe mode: rules only predict; people decide")
    return lines


def share_lines(days: Sequence[Json]) -> list[str]:
    """The share of automatic decisions, one bar a day."""
    lines: list[str] = []
    for day in days[-_MAX_DAYS:]:
        share, people, rules = (day.get(key) for key in ("share", "people", "rules"))
        if isinstance(share, int | float) and isinstance(people, int) and isinstance(rules, int):
            lines.append(f"{day.get('day')!s:10} {bar(share)} {share:4.0%} of {people + rules}")
    return lines


def outcome_lines(days: Sequence[Json]) -> list[str]:
    """What became of each rule: its decisions, those that people contradicted, and its suspensions."""
    sums: dict[str, list[int]] = {}
    for day in days:
        counts = [day.get(key) for key in ("automatic", "wrong", "tripped")]
        known = sums.setdefault(str(day.get("rule")), [0, 0, 0])
        for at, count in enumerate(counts):
            known[at] += count if isinstance(count, int) else 0
    return [
        f"{rule}  {automatic} automatic, {wrong} wrong, suspended {tripped} times"
        for rule, (automatic, wrong, tripped) in sorted(sums.items(), key=lambda each: -each[1][0])
    ]


def bar(share: float, cells: int = _BAR_CELLS) -> str:
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_BAR[rest] if rest else "")).ljust(cells, "·")


def rule_yaml(rule: Json) -> list[str]:
    """A rule as it is written in rules.yaml."""
    from moot.errors import UsageError
    from moot.trust.rules.rule_json import rule_of_json
    from moot.trust.rules.rule_yaml import write_rules

    try:
        return write_rules([rule_of_json(rule)]).splitlines()
    except UsageError as fault:
        return [f"this rule cannot be read: {fault}"]


def indent_lines(lines: Iterable[str]) -> list[str]:
    return [f"    {each}" for each in lines]
