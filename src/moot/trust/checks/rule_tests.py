"""Tests in a rules file: calls with the decision that the rules must come to.

    tests:
      - expect: approve
        rule: reports
        proposer: agent
        to: files
        tool: write_file
        arguments: {path: reports/day-11.md}
      - {expect: ask, proposer: agent, to: files, tool: write_file, arguments: {path: reports/../x.md}}
      - {expect: approve, origins: said, proposer: agent, to: mail, tool: send, arguments: {to: ana@x.org}}

They look at the rules alone: nothing is stopped, suspended or used up, and everybody is present. For rules
with `ask: when_untrusted`, `origins` is `said` (people said what steers the call) or `untrusted`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moot.config.strict_yaml import read_yaml
from moot.errors import UsageError
from moot.protocol.operation import CONTEXT_PATHS, Json
from moot.trust.history.proposal_case import WITH_ARGUMENTS, Case, case_of, path_text
from moot.trust.rules.rule import DECISIONS, ORIGINS_UNKNOWN, Rule
from moot.trust.rules.rule_evaluation import RuleVerdict
from moot.trust.rules.rule_json import (
    REQUIRED,
    Field,
    check_dates,
    mapping,
    names_field,
    one_of,
    read_fields,
    text_field,
    time_field,
)
from moot.trust.rules.rule_set import RuleSet

# What the origins of a test's values ask.
_ORIGINS: Final = {
    None: f"{ORIGINS_UNKNOWN}; give the test `origins: said` or `origins: untrusted`",
    "said": None,
    "untrusted": "a value that steers the call came from nobody trusted",
}
_FIELDS: Final = (
    Field("name", text_field),
    Field("expect", one_of(DECISIONS, "approve, reject or ask"), REQUIRED),
    Field("rule", text_field),
    Field("at", time_field),
    Field("proposer", text_field),
    Field("to", names_field("must be a member name, or a list of names"), ()),
    Field("method", text_field),
    Field("tool", text_field),
    Field("arguments", mapping, {}),
    Field("origins", one_of(("said", "untrusted"), "said or untrusted")),
)
_TIME_PARTS: Final = frozenset({"hours", "after", "before"})
# For one file.
MAX_TESTS: Final = 5_000


@dataclass(frozen=True, slots=True)
class RuleTest:
    """One call, what must become of it, and by which rule if that matters; `at` None is now."""

    name: str
    case: Case
    expect: str
    rule: str | None
    at: float | None
    origins: str | None = None


@dataclass(frozen=True, slots=True)
class RuleTestOutcome:
    """What the rules said; `problem` is None if that is what the test expects."""

    test: RuleTest
    verdict: RuleVerdict
    problem: str | None


def read_tests(text: str) -> tuple[RuleTest, ...]:
    """Read the tests of a rules file; raises UsageError with the place of the mistake."""
    top = read_yaml(text)
    listed = top.get("tests") if isinstance(top, dict) else None
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise UsageError("tests must be a list: `tests:` followed by lines of `- expect: …`")
    if len(listed) > MAX_TESTS:
        raise UsageError(f"tests has {len(listed)} entries, more than the limit of {MAX_TESTS}; remove some")
    return tuple(_read_test(value, f"tests[{at}]") for at, value in enumerate(listed))


def _read_test(value: Json, where: str) -> RuleTest:
    fields = mapping(value, where, [each.key for each in _FIELDS])
    if not fields.get("proposer"):
        raise UsageError(f"{where}.proposer is missing: the member who proposes")
    found = read_fields(_FIELDS, {"expect": None, **fields}, where)
    arguments, tool = found.get("arguments", {}), found.get("tool")
    check_dates(arguments, f"{where}.arguments")
    method, at = found.get("method") or "tools/call", found.get("at")
    payload = {"method": method, "params": _params(method, tool, arguments, where)}
    case = case_of(where, found["proposer"], found.get("to", ()), payload, at=at or 0.0)
    return RuleTest(
        found.get("name") or where, case, found["expect"], found.get("rule"), at, found.get("origins")
    )


def _params(method: str, tool: str | None, arguments: dict[str, Json], where: str) -> dict[str, Json]:
    named = [path[1] for path in CONTEXT_PATHS.get(method, ()) if len(path) == 2]
    if named and tool is None:
        raise UsageError(f"{where}.tool is missing: what {method} is about")
    params: dict[str, Json] = {named[0]: tool} if named else {}
    return {**params, "arguments": arguments} if method in WITH_ARGUMENTS else {**arguments, **params}


def run_tests(rules: RuleSet, tests: Sequence[RuleTest], now: float) -> list[RuleTestOutcome]:
    """What the rules and policies of a file say to each test."""
    return [_run_test(rules, test, now) for test in tests]


def _run_test(rules: RuleSet, test: RuleTest, now: float) -> RuleTestOutcome:
    at = now if test.at is None else test.at
    verdict = rules.decide(test.case, at, rules.everybody, found=(), untrusted=_ORIGINS[test.origins])
    return RuleTestOutcome(test, verdict, _problem_of(rules.all_rules, test, verdict, now))


def _problem_of(rules: Sequence[Rule], test: RuleTest, verdict: RuleVerdict, now: float) -> str | None:
    if test.rule is not None and all(rule.name != test.rule for rule in rules):
        return f"there is no rule {test.rule}"
    timed = test.at is None and next((r.name for r in rules if _depends_on_time(r, test.case, now)), None)
    if timed:
        return f"rule {timed} depends on the time; give the test one, as in at: 2026-11-16T10:00:00Z"
    if verdict.decision != test.expect:
        return f"expected {test.expect}, but it is {verdict.decision}: {verdict.why}"
    if test.rule is not None and (verdict.rule is None or verdict.rule.name != test.rule):
        decided = "no rule" if verdict.rule is None else f"rule {verdict.rule.name}"
        return f"expected rule {test.rule} to {test.expect}, but {decided} decides: {verdict.why}"
    return None


def _depends_on_time(rule: Rule, case: Case, now: float) -> bool:
    """Whether the time alone decides if the rule matches; a test must not pass by day and fail by night."""
    days = {f"arguments.{path_text(path)}" for path, each in rule.values.items() if each.kind == "day"}
    timed = days or any(each is not None for each in (rule.hours, rule.after, rule.before))
    return bool(timed) and (_TIME_PARTS | days).issuperset(rule.mismatches(case, now))


def untested_rules(rules: Sequence[Rule], outcomes: Sequence[RuleTestOutcome]) -> list[str]:
    """Rules that no test comes to."""
    used = {each.verdict.rule.name for each in outcomes if each.verdict.rule is not None}
    return [rule.name for rule in rules if rule.name not in used]
