"""`moot rules test` and `moot rules check`: rules as code, with real processes and their exit codes."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.cli.rules.rules_file import read_rules_file
from moot.errors import UsageError
from moot.trust.checks.rule_check import check_rules
from moot.trust.checks.rule_replay import replay
from moot.trust.checks.rule_tests import read_tests, run_tests
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.remembered_calls import RememberedCalls, rule_for
from moot.trust.rules.rule import RuleLimits, RuleOrigin
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.rule_yaml import read_rules
from tests.rows import for_each_row
from tests.trust.histories import call
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command

RULES = """\
rules:
  - {name: no-secrets, decision: reject, arguments: {path: "secrets/**"}}
  - name: reports
    decision: approve
    proposer: agent
    to: files
    tool: write_file
    path: {path: "reports/day-<2 digits>.md"}
    limits: {count: 1, per: 1h, while_present: alice}
"""
CALL = "proposer: agent, to: files, tool: write_file"
GOOD = f"""\
tests:
  - {{expect: approve, rule: reports, {CALL}, arguments: {{path: reports/day-11.md}}}}
  - {{expect: approve, rule: reports, {CALL}, arguments: {{path: reports/day-12.md}}}}
  - {{expect: ask, {CALL}, arguments: {{path: reports/../day-11.md}}}}
  - {{expect: reject, rule: no-secrets, {CALL}, arguments: {{path: secrets/a}}}}
"""


def moot(*words: str | Path, folder: Path) -> tuple[int, str]:
    done = subprocess.run(  # noqa: S603
        [*warm_command(), *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_else_decides_in_the_space_is_looked_at_or_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    read_rules_file(file).print_unseen()
    assert capsys.readouterr().out == ""
    forbid = 'forbid(principal, action, resource) when { context.arguments.path like "*11*" };'
    (tmp_path / "company.cedar").write_text(f'@id("no-11") {forbid}')
    rejected = GOOD.replace("approve, rule: reports", "reject, rule: cedar.no-11", 1)
    file.write_text(RULES + rejected + "cedar: [company.cedar]\n")
    calls = RememberedCalls(tmp_path / "remembered.json")
    calls.add(rule_for(call({"path": "a"}), RuleLimits(), RuleOrigin()), 0.0)
    calls.save()
    rules_file = read_rules_file(file)
    rules_file.print_unseen()
    assert capsys.readouterr().out == "note: 1 remembered call (`moot rules list`) is not looked at here\n"
    found = run_tests(rules_file.read_all(), read_tests(rules_file.text), 0.0)
    assert [each.problem for each in found[:2]] == [None, None]
    assert [each.verdict.decision for each in found] == ["reject", "approve", "reject", "reject"]

    ledger = [HistoryProposal.of(call({"path": path})) for path in ("a", "b-11", "c")]
    judged = replay(replace(rules_file.read_all(), rules=()), ledger)
    assert [each.verdict.decision for each in judged] == ["approve", "reject", "ask"]
    assert [each.verdict.decision for each in replay(RuleSet(), ledger)] == ["ask", "ask", "ask"]


def test_policies_and_remembered_calls_are_checked_and_compared_with_the_rules(tmp_path: Path) -> None:
    fields = "proposer: agent, to: files, tool: write_file, arguments: {path: '*'}"
    wide = f"rules:\n  - {{name: any-path, decision: approve, {fields}}}\n"
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    for file in (old, new):
        file.write_text(wide)
    code, output = moot("rules", "check", new, folder=tmp_path)
    assert (code, "warning: rule any-path, " in output) == (1, True)
    calls = RememberedCalls(tmp_path / "remembered.json")
    calls.add(rule_for(call({"path": "a"}), RuleLimits(), RuleOrigin()), 0.0)
    calls.save()
    (tmp_path / "company.cedar").write_text('@id("none") forbid(principal, action, resource);')
    new.write_text(f"{wide}cedar: [company.cedar]\n")
    # A policy forbids whatever the rule would let through, and what is remembered is one call alone.
    code, output = moot("rules", "check", new, folder=tmp_path)
    assert (code, "it would approve" in output) == (0, False)
    code, output = moot("rules", "diff", old, new, folder=tmp_path)
    assert code == 1
    assert "+ cedar.none (reject): added" in output
    assert "approve -> reject" in output
    # What a policy permits of what an attacker would try is a warning about the policy.
    (tmp_path / "company.cedar").write_text('@id("all") permit(principal, action, resource);')
    code, output = moot("rules", "check", new, folder=tmp_path)
    assert (code, "warning: rule cedar.all, tool: it may be any tool" in output) == (1, True)


def test_tests_pass_or_fail_by_what_the_rules_decide(tmp_path: Path) -> None:
    file = tmp_path / ".moot" / "trust" / "lab" / "rules.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(RULES + GOOD)
    assert moot("rules", "test", folder=tmp_path) == (0, "4 of 4 tests passed\n")
    file.write_text(RULES + GOOD.replace("reject,", "ask,"))
    code, output = moot("rules", "test", file, "--json", folder=tmp_path)
    listed = json.loads(output)["tests"]
    assert code == 1
    assert [each["passed"] for each in listed] == [True, True, True, False]
    assert "expected ask, but it is reject" in listed[3]["problem"]
    file.write_text(RULES)
    code, output = moot("rules", "test", file, folder=tmp_path)
    assert (code, "has no tests" in output) == (2, True)
    file.unlink()
    code, output = moot("rules", "test", folder=tmp_path)
    assert (code, "name the rules file" in output) == (2, True)


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("{expect: maybe, proposer: a, tool: x}", "tests[0].expect must be"),
        ("{expect: ask, tool: x}", "tests[0].proposer is missing"),
        ("{expect: ask, proposer: a}", "tests[0].tool is missing"),
        ("{expect: ask, proposer: a, tool: x, argumets: {}}", "tests[0].argumets is not a known key"),
        ("{expect: ask, proposer: a, tool: x, at: noon}", "tests[0].at"),
        (
            "{expect: ask, proposer: a, tool: x, arguments: {due: 2026-01-31}}",
            "tests[0].arguments has 2026-01-31 among its arguments: write dates in quotes",
        ),
    ],
)
def test_a_mistake_in_a_test_is_named_with_its_place(tmp_path: Path, test: str, said: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(f"{RULES}tests:\n  - {test}\n")
    code, answer = moot("rules", "test", file, folder=tmp_path)
    assert (code, said in answer) == (2, True), answer


def test_another_rule_than_the_expected_one_and_a_missing_time_fail() -> None:
    text = RULES.replace("    limits", "    hours: 09:00-17:00\n    limits")
    call = f"expect: approve, {CALL}, arguments: {{path: reports/day-11.md}}"
    tests = read_tests(
        f"tests:\n  - {{{call}}}\n  - {{at: '2026-11-16T10:00:00Z', {call}}}\n"
        f"  - {{at: '2026-11-16T20:00:00Z', {call}}}\n  - {{rule: gone, {call}}}\n"
    )
    problems = [each.problem for each in run_tests(RuleSet(read_rules(text)), tests, 0.0)]
    assert "depends on the time" in str(problems[0])
    assert problems[1] is None
    assert "expected approve, but it is ask" in str(problems[2])
    assert problems[3] == "there is no rule gone"


def test_tests_stay_in_the_file_when_the_approver_writes_a_rule(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES + GOOD)
    store = RuleStore.open(tmp_path)
    assert store.fault is None
    store.set_rules(store.rules[1:])
    assert len(read_tests(store.rules_file.read_text("utf-8"))) == 4


def rule(parts: str) -> str:
    return f"rules: [{{name: r, decision: approve, proposer: agent, to: files, {parts}}}]"


@for_each_row(
    ("parts", "part", "danger"),
    [
        ('tool: run, arguments: {command: "git *"}', "command", "injection"),
        ('tool: run, arguments: {command: "/^git .*$/"}', "command", "injection"),
        ('tool: write, arguments: {path: "/^reports/.*[.]md$/"}', "path", "traversal"),
        ('tool: write, arguments: {path: "/^reports/[a-z./]+$/"}', "path", "traversal"),
        ('tool: write, arguments: {path: "/reports/[a-z]+/"}', "path", "prefix"),
        ('tool: read, arguments: {path: "home/*"}', "path", "secrets"),
        ('tool: fetch, arguments: {url: "https://example.com*"}', "url", "another host"),
        ('tool: send, arguments: {to: "*@example.com"}', "to", "another recipient"),
        ('tool: query, arguments: {sql: "SELECT name FROM orders WHERE id = *"}', "sql", "query"),
        ('tool: query, sql: {sql: "SELECT name FROM <name> WHERE id = 5"}', "sql", "statement"),
        ('tool: find, arguments: {q: "*"}', "q", "anything"),
        ('tool: find, arguments: {q: "!secret"}', "q", "anything"),
        ('tool: find, text: {q: "<text>"}', "q", "anything"),
        ("tool: find, extra_arguments: true", "extra_arguments", "any other arguments are allowed"),
        ('tool: "*"', "tool", "it may be any tool"),
        ('tool: run, hours: 09:00-10:00, arguments: {command: "git *"}', "command", "injection"),
    ],
)
def test_what_a_rule_could_be_abused_for_is_shown_with_a_call_that_it_approves(
    parts: str, part: str, danger: str
) -> None:
    rules = read_rules(rule(parts))
    found = {(each.part, each.danger): each.example for each in check_rules(RuleSet(rules)).warnings}
    assert (part, danger) in found
    example: Any = found[part, danger]
    payload = {
        "method": example["method"],
        "params": {"name": example["tool"], "arguments": example["arguments"]},
    }
    test = read_tests(json.dumps({"tests": [{"expect": "approve", **example}]}))[0]
    assert dict(test.case.payload) == payload
    # By day, whatever hours the rule has.
    assert evaluate(rules, test.case, 9.5 * 3600).decision == "approve"


@pytest.mark.parametrize(
    "parts",
    [
        'tool: write, path: {path: "reports/day-<2 digits>.md"}, range: {size: [1, 10]}',
        'tool: run, shell: {command: [git status, "git log -n <1..50>"]}',
        'tool: write, arguments: {path: "/^reports/[a-z0-9-]{1,24}[.]txt$/"}',
        "tool: write, arguments: {path: [a.md, b.md]}, equals: {tags: [daily]}",
        'tool: query, sql: {sql: "SELECT name FROM orders WHERE id = <3 digits>"}',
        "tool: list",
    ],
)
def test_narrow_rules_get_no_warning(parts: str) -> None:
    found = check_rules(RuleSet(read_rules(rule(parts))))
    assert (found.warnings, found.unchecked) == ((), ())


def test_what_an_earlier_rule_rejects_is_no_warning_and_what_cannot_be_tried_is_said() -> None:
    wide = rule('tool: read, arguments: {path: "home/*"}')
    first = '{name: no, decision: ask, arguments: {path: "/[.]env|[.]ssh|secrets/"}}'.replace("no,", "never,")
    assert check_rules(RuleSet(read_rules(wide))).warnings
    assert check_rules(RuleSet(read_rules(wide.replace("[{", f"[{first}, {{", 1)))).warnings == ()
    odd = rule('tool: read, arguments: {path: "/^[[:alpha:]]{3}$/", "$.a.b": x}')
    assert check_rules(RuleSet(read_rules(odd))).unchecked == ("r",)


def test_check_exits_with_an_error_if_it_warns(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(rule('tool: run, arguments: {command: "git *"}'))
    code, output = moot("rules", "check", file, folder=tmp_path)
    assert code == 1
    assert '"command": "git x; rm -rf ~"' in output
    file.write_text(RULES)
    code, output = moot("rules", "check", file, folder=tmp_path)
    assert (code, output) == (0, f"no warnings about 1 approving rules in {file}\n")


def test_dates_in_rules_are_texts_and_days_are_numbers() -> None:
    head = "rules: [{name: book, decision: approve, proposer: agent, to: office, tool: book, "
    for key in ("arguments", "equals"):
        with pytest.raises(UsageError, match=r"rules\[0\] has 2026-01-31 .*quotes"):
            read_rules(f"{head}{key}: {{due: 2026-01-31}}}}]")
    for text in ("2026-01-31", "today", "*", "-0"):
        with pytest.raises(UsageError, match=r"rules\[0\].day.due says how many days after"):
            read_rules(f"{head}day: {{due: '{text}'}}}}]")


def test_a_test_of_days_has_a_time_or_it_would_pass_this_week_only() -> None:
    rules = read_rules(
        "rules: [{name: book, decision: approve, proposer: agent, to: office, tool: book, "
        "day: {due: '<0..14>'}}]"
    )
    call = "expect: approve, proposer: agent, to: office, tool: book, arguments: {due: '2026-11-20'}"
    tests = read_tests(f"tests: [{{{call}}}, {{{call}, at: '2026-11-16T10:00:00Z'}}]")
    for now in (0.0, 1_795_000_000.0):
        problems = [each.problem for each in run_tests(RuleSet(rules), tests, now)]
        assert "depends on the time" in str(problems[0])
        assert problems[1] is None
