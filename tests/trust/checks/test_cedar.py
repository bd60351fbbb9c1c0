"""Rules as Cedar policies: Cedar, by its own implementation, allows what the rules approve, and no more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import cedarpy
import pytest

from moot.cli import main
from moot.trust.checks.cedar_export import cedar_request, export_rules
from moot.trust.checks.rule_check import attempted_calls
from moot.trust.checks.rule_samples import sample_call, sample_calls
from moot.trust.history.proposal_case import Case
from moot.trust.rules.rule import Rule, evaluate
from moot.trust.rules.rule_yaml import read_rules
from tests.rows import for_each_row
from tests.trust.histories import HOUR, START, call

HEAD = "decision: approve, proposer: agent, to: files"
WRITE = f"{HEAD}, tool: write_file"


def rules_of(*listed: str) -> tuple[Rule, ...]:
    return read_rules(
        "rules:\n" + "".join(f"  - {{name: r{at}, {each}}}\n" for at, each in enumerate(listed))
    )


def calls_of(rules: tuple[Rule, ...]) -> Iterator[Case]:
    """Calls on both sides of every rule, and what an attacker would try."""
    for rule in rules:
        yield from sample_calls(rule)
        yield from (case for _, _, case in attempted_calls(rule, sample_call(rule)))
    for arguments in ({}, {"path": "a.md"}, {"path": 1}, {"path": ["a.md"]}, {"size": True}, {"size": 1.0}):
        yield call(dict(arguments))
    yield call({"path": "a.md"}, params={"name": "write_file", "arguments": {"path": "a.md"}, "more": 1})
    yield from (call({"path": path}) for path in ("secrets/x", "secrets/../x", "secrets/..", "secrets/a..b"))
    yield call({"path": "a.md"}, to=())
    yield call({"path": "a.md"}, to=("files", "mail"))


@lru_cache(maxsize=1)
def read_policies(text: str) -> cedarpy.PolicySet:
    return cedarpy.PolicySet.from_str(text)


def compare(
    rules: tuple[Rule, ...], case: Case, now: float, limits: frozenset[str], present: tuple[str, ...]
) -> tuple[str, bool]:
    """What the rules decide, and whether Cedar allows it."""
    # A rule that is over its limit: as many decisions as it may have, just now.
    times = {r.name: [now] * (r.limits.max_decisions or 0) for r in rules if r.name not in limits}
    checks = {r.name for r in rules if r.limits.check_share} - limits
    verdict = evaluate(rules, case, now, present, times, draw=0.0 if checks else 1.0)
    found = cedarpy.is_authorized(
        cedar_request(case, now, present=present, within_limits=limits),
        read_policies(export_rules(rules).text),
        [],
    )
    assert found.diagnostics.errors == []
    return verdict.decision, found.allowed


@for_each_row(
    "listed",
    [
        (f"{WRITE}, arguments: {{path: a.md}}",),
        (
            f"{HEAD}, tool: [read_file, write_file], arguments: {{path: [a.md, b.md]}},"
            " range: {size: [1, 10]}",
        ),
        (f"{WRITE}, arguments: {{path: 'reports/**'}}",),
        (f"{HEAD}, tool: 'read_*', extra_arguments: true",),
        (f"{WRITE}, arguments: {{options: {{deep: x, 'a/b~c': y}}}}, equals: {{tags: [1, 1.0, b]}}",),
        (f"{WRITE}, arguments: {{dry_run: true, count: 3}}",),
        ("decision: approve, tool: list, to: [], proposer: '*'",),
        ("decision: approve, tool: list, to: '*', proposer: [a, 'team-*']",),
        # The order counts.
        ("decision: reject, tool: write_file", f"{WRITE}, extra_arguments: true"),
        (f"{WRITE}, extra_arguments: true", "decision: reject, tool: write_file"),
        (
            f"{WRITE}, arguments: {{path: a.md}}",
            "decision: reject, proposer: agent, to: files, tool: write_file, arguments: {path: a.md}",
        ),
        (
            "decision: ask, arguments: {path: 'secrets/**'}",
            f"{WRITE}, arguments: {{path: '**'}}",
        ),
        (
            "decision: reject, arguments: {path: 'secrets/**'}",
            f"{WRITE}, extra_arguments: true",
        ),
        # A limit that is used up is not undone by a wider rule below.
        (
            f"{WRITE}, arguments: {{path: a.md}}, limits: {{count: 2, per: 1h}}",
            f"{WRITE}, arguments: {{path: '*'}}",
        ),
        (f"{WRITE}, arguments: {{path: a.md}}, limits: {{check_share: 0.5, while_present: ann}}",),
        (f"{WRITE}, extra_arguments: true, hours: '09:30-17:00'",),
        (f"{WRITE}, extra_arguments: true, hours: '22:00-06:15'",),
        (f"{WRITE}, extra_arguments: true, after: '2026-01-05T09:00:00Z'",),
        (f"{WRITE}, extra_arguments: true, limits: {{expires_at: '2026-01-05T12:00:00Z'}}",),
        (f"{HEAD}, tool: 'we\"i\\u00e9\\nrd', arguments: {{'p a\"th': 'x\\\\y'}}",),
    ],
)
def test_cedar_allows_exactly_what_the_rules_approve(listed: tuple[str, ...]) -> None:
    rules = rules_of(*listed)
    assert export_rules(rules).notes == ()
    names = frozenset(rule.name for rule in rules)
    # By night and by day, and in the first and the last minute of the hours below.
    moments = [START, START - 9 * HOUR, START - 0.5 * HOUR, START + 7 * HOUR + 30, START + 7 * HOUR + 60]
    moments += [START + 20.25 * HOUR + 59, START + 20.25 * HOUR + 60, START + 12 * HOUR]
    seen = set()
    timed = any("hours" in each or "2026" in each for each in listed)
    for at, case in enumerate(calls_of(rules) if not timed else [call({"path": "a.md"})] * len(moments)):
        for limits, present in ((names, ("ann",)), (frozenset[str](), ("ann",)), (names, ())):
            decision, allowed = compare(rules, case, moments[at % len(moments)], limits, present)
            assert allowed == (decision == "approve"), (case, decision)
            seen.add(decision)
    assert len(seen) > 1
    assert "approve" in seen or len(listed) > 1


@for_each_row(
    "listed",
    [
        (f"{WRITE}, arguments: {{path: '/^a+$/'}}",),
        (f"{WRITE}, path: {{path: 'reports/<name>.md'}}",),
        (f"{WRITE}, arguments: {{path: 'a*b'}}",),
        (f"{WRITE}, range: {{size: [0.5, 2.5]}}",),
        (f"{WRITE}, extra_arguments: true, hours: '09:00-17:00 Europe/Berlin'",),
        (f"{WRITE}, arguments: {{path: '!secret'}}",),
        (
            "decision: reject, tool: write_file, arguments: {path: '/secret/'}",
            f"{WRITE}, extra_arguments: true",
        ),
        (
            "decision: ask, tool: write_file, arguments: {path: '*secret*.md'}",
            f"{WRITE}, extra_arguments: true",
        ),
    ],
)
def test_what_cedar_cannot_say_is_left_out_with_a_note_and_never_widens(listed: tuple[str, ...]) -> None:
    rules = rules_of(*listed)
    assert len(export_rules(rules).notes) == 1
    names = frozenset(rule.name for rule in rules)
    for case in calls_of(rules):
        decision, allowed = compare(rules, case, START, names, ())
        assert not allowed or decision == "approve"


def test_a_call_that_people_rejected_is_not_allowed() -> None:
    rules = rules_of(f"{WRITE}, arguments: {{path: a.md}}")
    case = call({"path": "a.md"})
    for before in (False, True):
        request = cedar_request(case, START, within_limits=["r0"], rejected_before=before)
        assert cedarpy.is_authorized(request, export_rules(rules).text, []).allowed is not before


def test_random_lists_of_rules_allow_no_more_in_cedar() -> None:
    random_numbers = random.Random(87)
    parts = [
        "arguments: {path: a.md}", "arguments: {path: 'r/**'}", "extra_arguments: true", "tool: write_file",
        "proposer: agent", "to: files", "range: {size: [1, 3]}", "limits: {count: 1, per: 1h}",
        "arguments: {path: '/a/'}", "equals: {path: a.md}", "hours: '09:00-11:00'",
    ]  # fmt: skip
    for _ in range(40):
        listed = []
        for _ in range(random_numbers.randint(1, 4)):
            chosen = {part.split(":")[0]: part for part in random_numbers.sample(parts, 4)}
            if "equals" in chosen:
                chosen.pop("arguments", None)
            decision = random_numbers.choice(["approve", "approve", "reject", "ask"])
            listed.append(", ".join([f"decision: {decision}", *chosen.values()]))
        rules = rules_of(*listed)
        is_exact = not export_rules(rules).notes
        names = frozenset(rule.name for rule in rules)
        for path in ("a.md", "r/x", "r/../x", "b"):
            for more in ({}, {"size": 2}):
                limits = random_numbers.choice([names, frozenset[str]()])
                case = call({"path": path, **more})
                decision, allowed = compare(rules, case, START, limits, ())
                assert not allowed or decision == "approve", (listed, case)
                assert allowed or decision != "approve" or not is_exact, (listed, case)


def test_the_command_writes_policies_and_names_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(
        f"rules:\n  - {{name: a, words: 'Says \"a\"', {HEAD}, tool: list}}\n"
        f"  - {{name: b, {HEAD}, tool: list, arguments: {{q: /x/}}}}\n"
    )
    assert main(["rules", "export", "rules.yaml", "--cedar"]) == 1
    answer = capfd.readouterr()
    assert "note: rule b is left out, since Cedar cannot say its argument q" in answer.err
    case = call({}, tool="list")
    assert cedarpy.is_authorized(cedar_request(case, START), answer.out, []).allowed
    Path("rules.yaml").write_text(f"rules: [{{name: a, {HEAD}, tool: list}}]")
    assert main(["rules", "export", "rules.yaml", "--cedar", "-o", "a.cedar"]) == 0
    assert "permit (principal, action, resource)" in Path("a.cedar").read_text()
