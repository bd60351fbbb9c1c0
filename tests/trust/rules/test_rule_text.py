"""Rules as YAML: what is written is what is read, and what is not understood is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.errors import UsageError
from moot.trust.rules.conditions import Hours, Range, RangeByText
from moot.trust.rules.rule import Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_json import LIMIT_KEYS, rule_as_json, rule_of_json
from moot.trust.rules.rule_yaml import read_rules, write_rules
from tests.examples import examples
from tests.rows import for_each_row

FULL = """
rules:
  - name: reports
    decision: approve
    words: Reports are fine.
    proposer: [agent, "bot-*"]
    to: files
    tool: write_file
    arguments:
      path: "/^/srv/reports/[a-z0-9-]{1,24}[.]txt$/"
      mode: create
    range: {size: [1, 4096], order: {amount: [0.5, 2.5]}, tax: [mode, {create: [1, 3], append: [0, 2]}]}
    equals: {tags: [a, b]}
    hours: 09:00-17:00 Europe/Berlin
    after: 2026-01-01T00:00:00Z
    before: 2027-01-01T00:00:00Z
    limits: {count: 20, per: 1h, expires_at: 2026-12-31T00:00:00Z, while_present: alice, check_share: 0.05}
    origin: {suggestion: s-1, accepted_by: alice, accepted: 2026-11-15T09:00:00Z}
  - name: never
    decision: reject
    tool: delete_*
  - name: nobody
    decision: ask
    to: []
"""


def test_everything_a_rule_can_say_is_read() -> None:
    full, never, nobody = read_rules(FULL)
    assert (full.to, full.method) == (("files",), "tools/call")
    assert full.range == {
        ("size",): Range(1, 4096),
        ("order", "amount"): Range(0.5, 2.5),
        ("tax",): RangeByText(0, 3, "mode", {"create": Range(1, 3), "append": Range(0, 2)}),
    }
    assert full.hours == Hours(540, 1020, "Europe/Berlin")
    assert full.limits == RuleLimits(20, 3600.0, 1798675200.0, ("alice",), 0.05)
    assert full.origin == RuleOrigin("s-1", "alice", 1794733200.0)
    assert (never.decision, nobody.to) == ("reject", ())


def test_what_is_written_is_what_was_read() -> None:
    rules = read_rules(FULL)
    assert read_rules(write_rules(rules)) == rules
    assert [rule_of_json(rule_as_json(rule)) for rule in rules] == list(rules)


def test_a_rule_as_0_1_wrote_it_has_the_same_limits() -> None:
    """A data folder and a journal of 0.1 still open; what is written has the names of today."""
    of_0_1 = FULL.replace("expires_at:", "expires:").replace("check_share: 0.05", "check: 0.05, review: 0.02")
    limits = read_rules(of_0_1)[0].limits
    assert limits == RuleLimits(20, 3600.0, 1798675200.0, ("alice",), 0.05, 0.02)
    written = rule_as_json(read_rules(of_0_1)[0])["limits"]
    assert set(written) == set(LIMIT_KEYS) - {"each", "every", "sums"}


@for_each_row(
    ("text", "place"),
    [
        ("rules: 3", "rules must be a list"),
        ("rule: []", "the file.rule is not a known key"),
        ("rules: [{name: a b, decision: ask}]", "rules[0].name"),
        ("rules: [{name: a, decision: maybe}]", "rules[0].decision"),
        ("rules: [{name: a, decision: ask, tol: x}]", "rules[0].tol is not a known key"),
        ("rules: [{name: a, decision: ask}, {name: a, decision: ask}]", "rules[1].name"),
        ("rules: [{name: a, decision: ask, limits: {count: 0, per: 1h}}]", "rules[0].limits.count"),
        ("rules: [{name: a, decision: ask, limits: {count: 3}}]", "rules[0].limits needs count and per"),
        ("rules: [{name: a, decision: ask, limits: {count: 3, per: soon}}]", "rules[0].limits.per"),
        ("rules: [{name: a, decision: ask, limits: {each: 3}}]", "rules[0].limits.each"),
        ("rules: [{name: a, decision: ask, limits: {each: 3, count: null}}]", "rules[0].limits.each"),
        ("rules: [{name: a, decision: ask, limits: {count: 3, per: 1h, each: 0}}]", "rules[0].limits.each"),
        (
            "rules: [{name: a, decision: ask, limits: {count: 3, per: 1h, each: 1, every: 1m}}]",
            "rules[0].limits.each does not go with every or sums",
        ),
        (
            "rules: [{name: a, decision: ask, limits: {maximum: 3}}]",
            "rules[0].limits.maximum is not a known key",
        ),
        ("rules: [{name: a, decision: ask, limits: {check_share: 2}}]", "rules[0].limits.check_share"),
        ("rules: [{name: a, decision: ask, limits: {check: 1, check_share: 0}}]", "rules[0].limits.check"),
        ("rules: [{name: a, decision: ask, limits: {while_present: 3}}]", "rules[0].limits.while_present"),
        ("rules: [{name: a, decision: ask, range: {x: [3, 1]}}]", "rules[0].range.x"),
        ("rules: [{name: a, decision: ask, range: {x: {y: [true, 1]}}}]", "rules[0].range.x.y"),
        ("rules: [{name: a, decision: ask, range: {x: [of, {a: [3, 1]}]}}]", "rules[0].range.x.a"),
        ("rules: [{name: a, decision: ask, range: {x: [of, {}]}}]", "rules[0].range.x"),
        ("rules: [{name: a, decision: ask, range: {x: [of, {1: [1, 3]}]}}]", "rules[0].range.x"),
        ("rules: [{name: a, decision: ask, hours: 9-17}]", "rules[0].hours"),
        ("rules: [{name: a, decision: ask, hours: 09:00-17:00 Mars/Base}]", "rules[0].hours"),
        ("rules: [{name: a, decision: ask, after: soon}]", "rules[0].after"),
        ("rules: [{name: a, decision: ask, to: 3}]", "rules[0].to"),
        ("rules: [{name: a, decision: ask, tool: 3}]", "rules[0].tool"),
        ("rules: [{name: a, decision: ask, tool: '/[/'}]", "rules[0].tool"),
        ("rules: [{name: a, decision: ask, arguments: {path: []}}]", "rules[0].arguments.path"),
        ("rules: [{name: a, decision: ask, arguments: {3: x}}]", "rules[0].arguments"),
        ("rules: [{name: a, decision: ask, arguments: {x: y}, equals: {x: y}}]", "rules[0].equals.x"),
        ("rules: [{name: a, decision: ask, origin: {by: me}}]", "rules[0].origin.by is not a known key"),
        ("rules: [{name: a, decision: ask, extra_arguments: 1}]", "rules[0].extra_arguments"),
        ("rules: [{name: a, name: b, decision: ask}]", "stands twice"),
        ("rules: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, place: str) -> None:
    with pytest.raises(UsageError) as fault:
        read_rules(text)
    assert place in str(fault.value)


def test_no_rules_are_rules_too() -> None:
    assert read_rules("") == read_rules("rules:") == ()


_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
_patterns = st.text(min_size=1, max_size=20).filter(lambda text: not text.startswith("/"))
_numbers = st.integers(-(10**6), 10**6)
_rules = st.builds(
    Rule,
    name=_names,
    decision=st.sampled_from(["approve", "reject", "ask"]),
    proposer=st.none() | _patterns | st.lists(_patterns, min_size=1, max_size=3),
    method=st.just("tools/call"),
    tool=_patterns,
    to=st.none() | st.lists(st.from_regex("[a-z]{1,8}", fullmatch=True), max_size=2).map(tuple),
    arguments=st.dictionaries(st.from_regex("[a-z]{1,8}", fullmatch=True), _patterns, max_size=3),
    range=st.dictionaries(
        st.tuples(st.from_regex("[A-Z]{1,8}", fullmatch=True)),
        st.tuples(_numbers, st.integers(0, 10**6)).map(lambda pair: Range(pair[0], pair[0] + pair[1])),
        max_size=2,
    ),
    hours=st.none() | st.builds(Hours, st.integers(0, 1439), st.integers(0, 1439)),
    before=st.none() | st.integers(0, 2**32).map(float),
    extra_arguments=st.booleans(),
    limits=st.builds(
        RuleLimits,
        max_decisions=st.integers(1, 1000),
        per_seconds=st.integers(1, 10**5).map(float),
        expires_at=st.none() | st.integers(0, 2**32).map(float),
        check_share=st.floats(0, 1),
        review_share=st.floats(0, 1),
    ),
    origin=st.builds(RuleOrigin, suggestion=st.none() | _names, accepted_by=st.none() | _names),
    words=st.text(max_size=30),
)


@settings(deadline=None, max_examples=examples(15))
@given(st.lists(_rules, max_size=4, unique_by=lambda rule: rule.name))
def test_any_rules_survive_being_written(rules: list[Rule]) -> None:
    assert read_rules(write_rules(rules)) == tuple(rules)
