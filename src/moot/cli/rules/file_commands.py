"""The commands of `moot rules` that only read a rules file: test and check."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

from moot.cli.options.shared_options import add_json
from moot.cli.process import program
from moot.cli.rules.rules_file import FILE_HELP, read_rules_file
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable

_TEST_ABOUT: Final = """\
Compares what the rules decide with the `tests` in the same file: calls that a rule must approve or reject,
and calls that must be left to people. Nothing is asked of a gateway. Exits with 1 if a test fails, with 2 if
the file cannot be read or has no tests.
"""
_TEST_EXAMPLES: Final = """\
  moot rules test                       the rules of the space in this folder
  moot rules test rules.yaml --json

A test in the file, beside `rules`:
  tests:
    - {expect: approve, rule: reports, proposer: agent, to: files, tool: write_file, arguments: {path: a.md}}
    - {expect: ask, proposer: agent, to: files, tool: write_file, arguments: {path: ../a.md}}
"""
_CHECK_ABOUT: Final = """\
Tries calls that an attacker would make on every approving rule: paths that leave their folder, commands put
behind or inside others, any tool, any host. Each warning has a call that the rule really approves. Exits with
1 if there are warnings, or a rule could not be checked. No warning does not prove that a rule is safe.
"""
_CHECK_EXAMPLES: Final = """\
  moot rules check                      the rules of the space in this folder
  moot rules check rules.yaml --json
"""


def add_actions(group: Any) -> None:
    """Add the commands that read a file."""
    rows = (
        ("test", _test, "run the tests in a rules file", _TEST_ABOUT, _TEST_EXAMPLES),
        (
            "check",
            _check,
            "warn of what rules allow and nobody may have meant",
            _CHECK_ABOUT,
            _CHECK_EXAMPLES,
        ),
    )
    for name, run, help, about, examples in rows:
        parser = program.add_command(group, name, help=help, about=about, examples=examples)
        parser.add_argument(
            "file",
            nargs="?",
            type=Path,
            metavar="FILE",
            help=FILE_HELP,
        )
        add_json(parser)
        parser.set_defaults(run=run)


def _test(options: argparse.Namespace) -> int:
    from moot.trust.checks.rule_tests import read_tests, run_tests, untested_rules

    rules_file = read_rules_file(options.file)
    file = rules_file.path
    try:
        tests = read_tests(rules_file.text)
    except UsageError as fault:
        raise UsageError(f"{file}: {fault}") from None
    if not tests:
        raise UsageError(f"{file} has no tests; `moot rules test --help` shows how to write one")
    rules = rules_file.read_all()
    outcomes = run_tests(rules, tests, time.time())
    failed = [each for each in outcomes if each.problem is not None]
    untested = untested_rules(rules.all_rules, outcomes)
    if options.json:
        listed = [
            {
                "name": each.test.name,
                "passed": each.problem is None,
                "decision": each.verdict.decision,
                "rule": None if each.verdict.rule is None else each.verdict.rule.name,
                "problem": each.problem,
            }
            for each in outcomes
        ]
        print(json.dumps({"tests": listed, "untested_rules": untested}, ensure_ascii=False))
    else:
        for each in failed:
            print(printable(f"failed: {each.test.name}: {each.problem}"))
        for name in untested:
            print(printable(f"note: no test comes to rule {name}"))
        rules_file.print_unseen()
        print(f"{len(outcomes) - len(failed)} of {len(outcomes)} tests passed")
    return 1 if failed else 0


def _check(options: argparse.Namespace) -> int:
    from moot.trust.checks.rule_check import check_rules

    rules_file = read_rules_file(options.file)
    file, rules = rules_file.path, rules_file.rules
    report = check_rules(rules_file.read_all())
    found, unchecked = report.warnings, report.unchecked
    if options.json:
        listed = [
            {"rule": w.rule, "part": w.part, "danger": w.danger, "description": w.text, "example": w.example}
            for w in found
        ]
        by_origin = [{"rule": name, "covers": words} for name, words in report.by_origin]
        checked = {"warnings": listed, "unchecked_rules": unchecked, "by_origin": by_origin}
        print(json.dumps(checked, ensure_ascii=False))
    else:
        for warning in found:
            example = json.dumps(warning.example, ensure_ascii=False)
            print(printable(f"warning: rule {warning.rule}, {warning.part}: {warning.text}"))
            print(printable(f"    it would approve: {example}"))
        for name in unchecked:
            print(printable(f"not checked: no call was found that rule {name} matches; look at it yourself"))
        for name, words in report.by_origin:
            print(
                printable(f"by origin: rule {name} decides by where values came from, which a file does not")
            )
            print(printable(f"    say: {words}"))
        if not found and not unchecked:
            count = sum(rule.decision == "approve" for rule in rules)
            print(printable(f"no warnings about {count} approving rules in {file}"))
    return 1 if found or unchecked else 0
