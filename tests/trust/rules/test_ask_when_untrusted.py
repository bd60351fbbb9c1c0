"""A rule with `ask: when_untrusted`: read, written, described, tested, checked, and put behind learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.origins.tool_traits import traits_for
from moot.trust.checks.narrowing_proof import find_wider_part
from moot.trust.checks.rule_check import check_rules
from moot.trust.checks.rule_diff import compare_rules
from moot.trust.checks.rule_tests import read_tests, run_tests
from moot.trust.learning.learner import add_rule
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.rule_words import describe_rule
from moot.trust.rules.rule_yaml import read_rules, write_rules

TEXT = """\
rules:
  - {name: by-origin, decision: approve, tool: "*", extra_arguments: true, ask: when_untrusted}
tests:
  - {expect: approve, origins: said, proposer: agent, to: mail, tool: send, arguments: {to: a@b.org}}
  - {expect: ask, origins: untrusted, proposer: agent, to: mail, tool: send, arguments: {to: a@b.org}}
  - {expect: ask, proposer: agent, to: mail, tool: send, arguments: {to: a@b.org}}
"""
(RULE,) = read_rules(TEXT)


def test_it_is_read_written_and_described() -> None:
    assert read_rules(write_rules([RULE])) == (RULE,)
    assert describe_rule(RULE) == (
        "Approve when anyone proposes any tool with any arguments; asks when a value that steers the call"
        " came from nobody trusted"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{name: a, decision: approve, ask: often}", "ask must be when_untrusted"),
        ("{name: a, decision: reject, ask: when_untrusted}", "ask is for rules that approve"),
    ],
)
def test_a_mistake_in_it_is_named(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_rules(f"rules: [{text}]")


def test_it_asks_unless_origins_were_looked_at_and_do_not() -> None:
    case = read_tests(TEXT)[0].case
    assert evaluate([RULE], case, 0.0).decision == "ask"
    assert "is not known here" in evaluate([RULE], case, 0.0).why
    assert evaluate([RULE], case, 0.0, untrusted=None).decision == "approve"
    asked = evaluate([RULE], case, 0.0, untrusted="to: nobody said it")
    assert (asked.decision, asked.why) == ("ask", "rule by-origin asks: to: nobody said it")
    # A person's no stands above it, and it is a limit: a wider rule below does not undo it.
    assert evaluate([RULE], case, 0.0, untrusted=None, rejected=[case]).decision == "ask"
    assert evaluate([RULE, Rule("all", "approve", extra_arguments=True)], case, 0.0).decision == "ask"


def test_tests_of_a_file_say_where_values_came_from() -> None:
    assert [each.problem for each in run_tests(RuleSet([RULE]), read_tests(TEXT), 0.0)] == [None, None, None]
    with pytest.raises(UsageError, match="origins must be said or untrusted"):
        read_tests(TEXT.replace("origins: said", "origins: mine"))


def test_a_check_names_what_it_covers_and_a_diff_sees_it() -> None:
    report = check_rules(RuleSet([RULE]))
    assert (report.warnings, report.unchecked) == ((), ())
    assert report.by_origin == (("by-origin", describe_rule(RULE)),)
    assert compare_rules(RuleSet(), RuleSet([RULE]), 0.0).calls


def test_learned_rules_come_before_it_and_dropping_it_is_wider() -> None:
    learned = Rule("learned", "approve", tool="send")
    assert [rule.name for rule in add_rule([RULE], learned)] == ["learned", "by-origin"]
    assert find_wider_part(replace(RULE, ask=None), RULE) == "ask"
    assert find_wider_part(RULE, replace(RULE, ask=None)) is None


def test_what_people_say_of_a_tool_comes_before_every_line_that_stands_for_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules: []\ntools:\n  mail/*: {returns: trusted}\n  mail/read: {returns: records}\n  crm/find: {}\n"
    )
    store = RuleStore.open(tmp_path)
    store.set_tools({"mail/read": {"returns": "others"}, "mail/s*": {"returns": "records"}, "crm/find": {}})
    assert list(store.tools_json) == ["mail/read", "mail/s*", "mail/*", "crm/find"]
    found = {tool: traits_for(store.tools, "mail", tool, None).returns for tool in ("read", "search", "x")}
    assert found == {"read": "others", "search": "records", "x": "trusted"}
    store.set_tools({"mail/read": None})
    assert list(store.tools_json) == ["mail/s*", "mail/*", "crm/find"]
