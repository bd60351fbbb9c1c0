"""A remembered call is a rule for one exact call, found by its key, limited, and forgotten in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.approver.call_memory import is_usual_work
from moot.trust.history.proposal_case import Case, case_of
from moot.trust.rules import remembered_calls
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.remembered_calls import (
    USUAL_GAP_SECONDS,
    RememberedCalls,
    chosen_limits,
    counted_name,
    destroying_limits,
    rule_for,
    usual_limits,
)
from moot.trust.rules.rule import Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.rule_words import describe_rule
from tests.counted_work import lines_run

NOW = 1_800_000_000.0
DAY = 86_400.0
MANY = RuleLimits(100, 3600.0, NOW + DAY)


def call(tool: str = "pay", *, by: str = "agent", id: str = "p1", **arguments: Json) -> Case:
    payload: Json = {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return case_of(id, by, ("bank",), payload, at=NOW)


def remember(calls: RememberedCalls, case: Case, limits: RuleLimits = MANY, at: float = NOW) -> Rule:
    rule = rule_for(case, limits, RuleOrigin(None, "alice", at))
    calls.add(rule, at)
    return rule


def decide(
    calls: RememberedCalls, case: Case, *rules: Rule, at: float = NOW + 1, tally: UseTally | None = None
) -> str:
    times = {} if tally is None else tally.times()
    return RuleSet(rules, None, calls).decide(case, at, (), times, untrusted=None).decision


def test_exactly_this_call_is_approved_again_and_no_other() -> None:
    calls = RememberedCalls()
    remember(calls, call(to="acme", amount=5, tags=["a", {"b": None}]))
    assert decide(calls, call(id="p2", tags=["a", {"b": None}], amount=5, to="acme")) == "approve"
    for other in (
        call(to="acme", amount=5),
        call(to="acme", amount=5.0, tags=["a", {"b": None}]),
        call(to="acme", amount=5, tags=["a", {"b": None}], memo="x"),
        call(to="Acme", amount=5, tags=["a", {"b": None}]),
        call(by="other", to="acme", amount=5, tags=["a", {"b": None}]),
        call("pay2", to="acme", amount=5, tags=["a", {"b": None}]),
        replace(call(to="acme", amount=5, tags=["a", {"b": None}]), to=("shop",)),
        replace(call(to="acme", amount=5, tags=["a", {"b": None}]), unexpected_fields=("params.x",)),
    ):
        assert decide(calls, other) == "ask"


def test_a_name_that_looks_like_a_pattern_is_only_itself() -> None:
    calls = RememberedCalls()
    remember(calls, call("read*", by="a*", path="*"))
    assert decide(calls, call("read_all", by="a*", path="*")) == "ask"
    assert decide(calls, call("read*", by="alien", path="*")) == "ask"
    assert decide(calls, call("read*", by="a*", path="x")) == "ask"


def test_a_rule_of_the_file_that_rejects_or_asks_comes_before_memory() -> None:
    calls = RememberedCalls()
    remember(calls, call(to="acme"))
    assert decide(calls, call(to="acme"), Rule("no", "reject", tool="pay")) == "reject"
    assert decide(calls, call(to="acme"), Rule("careful", "ask", tool="pay")) == "ask"
    # One that would approve, and has done so as often as it may, says nothing against this very call.
    used, tally = Rule("some", "approve", tool="pay", extra_arguments=True, limits=RuleLimits(1)), UseTally()
    tally.record("some", NOW)
    assert decide(calls, call(to="acme"), used, tally=tally) == "approve"
    assert decide(calls, call(to="other"), used, tally=tally) == "ask"


def test_an_effect_comes_again_no_faster_and_no_oftener_than_was_said() -> None:
    calls, tally = RememberedCalls(), UseTally()
    limits = usual_limits(NOW, reads=False, repeatable=False, approved_at=[NOW])
    rule = remember(calls, call(to="acme"), limits)
    assert "at most 5 times in 30 days, not twice within 10 minutes" in describe_rule(rule)
    approved: list[float] = []
    at = NOW
    while at < NOW + 29 * DAY:
        if decide(calls, call(to="acme"), at=at, tally=tally) == "approve":
            tally.record(rule.name, at)
            approved.append(at - NOW)
        at += 60.0 if at < NOW + DAY else 3600.0
    assert approved == [USUAL_GAP_SECONDS * (number + 1) for number in range(5)]


def test_a_call_that_people_approved_each_month_comes_again_as_rarely() -> None:
    months = [NOW - 93 * DAY, NOW - 62 * DAY, NOW - 31 * DAY, NOW]
    limits = usual_limits(NOW, reads=False, repeatable=False, approved_at=months)
    assert (limits.max_decisions, limits.gap_seconds) == (2, 15.5 * DAY)
    assert limits.expires_at == NOW + 90 * DAY
    assert usual_limits(NOW, reads=False, repeatable=False, approved_at=months[2:]).max_decisions == 2


def test_what_people_approve_more_often_may_come_more_often() -> None:
    often = [NOW - 300, NOW - 200, NOW]
    limits = usual_limits(NOW, reads=False, repeatable=False, approved_at=often)
    assert (limits.max_decisions, limits.gap_seconds) == (80, 100.0)
    most = usual_limits(NOW, reads=False, repeatable=False, approved_at=[NOW + at for at in range(100)])
    assert (most.max_decisions, most.gap_seconds) == (160, 60.0)
    assert usual_limits(NOW, reads=True, repeatable=True).max_decisions is None
    assert usual_limits(NOW, reads=False, repeatable=True).max_decisions == 10


@pytest.mark.parametrize(
    ("tool", "argument", "is_usual"),
    [
        ("run", "command", True),
        ("execute_sql", "query", True),
        ("write_file", "content", True),
        ("edit_file", "new_text", True),
        # Decision 0203: people decide each deletion, whatever word stands beside it.
        ("delete_node", "name", False),
        ("delete_script", "id", False),
        ("removeQuery", "id", False),
        ("cancel_run", "run_id", False),
        ("drop-terminal", "id", False),
        ("delete_and_write", "content", False),
        ("send_mail", "content", False),
    ],
)
def test_commands_and_written_texts_can_be_remembered_and_no_deletion(
    tool: str, argument: str, is_usual: bool
) -> None:
    assert is_usual_work(call(tool, path="a", **{argument: "x"})) is is_usual


def test_what_destroys_something_comes_again_less_often_and_for_a_week() -> None:
    first = destroying_limits(NOW, [NOW])
    assert (first.max_decisions, first.per_seconds, first.expires_at) == (5, 7 * DAY, NOW + 7 * DAY)
    assert destroying_limits(NOW, [NOW - DAY, NOW]).max_decisions == 20
    assert destroying_limits(NOW, [NOW - 8 * DAY, NOW]).max_decisions == 5
    assert first.gap_seconds == 0


def test_a_person_can_choose_how_often_and_how_long() -> None:
    usual = usual_limits(NOW, reads=False, repeatable=False)
    chosen = chosen_limits(usual, NOW, 2, NOW + DAY)
    assert (chosen.max_decisions, chosen.expires_at) == (2, NOW + DAY)
    assert chosen.per_seconds >= DAY
    for count, until in ((0, None), (10**6, None), (None, NOW - 1), (None, NOW + 1000 * DAY)):
        with pytest.raises(UsageError):
            chosen_limits(usual, NOW, count, until)


def test_what_has_ended_and_what_was_used_longest_ago_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered_calls, "MAX_REMEMBERED", 3)
    calls = RememberedCalls()
    first, second, third = [remember(calls, call(n=number), at=NOW + number) for number in range(3)]
    calls.note_used(first.name, NOW + 10)
    remember(calls, call(n=3), at=NOW + 11)
    assert calls.get(second.name) is None
    assert calls.get(first.name) is not None
    # What is over makes room before anything else.
    remember(calls, call(n=4), replace(MANY, expires_at=NOW + 12), at=NOW + 11)
    remember(calls, call(n=5), at=NOW + 13)
    assert decide(calls, call(n=4)) == "ask"
    assert (len(calls), calls.get(third.name)) == (3, None)


def test_thousands_are_found_as_quickly_as_one(tmp_path: Path) -> None:
    calls = RememberedCalls.open(tmp_path)
    for number in range(1_999):
        remember(calls, call(n=number, id=f"p{number}"))
    remember(calls, call(n="last"))
    calls.save()
    again = RememberedCalls.open(tmp_path)
    assert len(again) == 2_000
    assert decide(again, call(n="last")) == "approve"
    other = call(n="nothing")
    by_looking = lines_run(lambda: [rule.matches(other, NOW) for rule in again])
    assert 0 < lines_run(lambda: again.find(other)) * 20 < by_looking


def test_a_rejection_forgets_it_for_everybody_who_proposes_it() -> None:
    calls = RememberedCalls()
    mine, theirs = remember(calls, call(to="acme")), remember(calls, call(by="other", to="acme"))
    names = calls.contradicted_by(call(by="third", to="acme", note=None), origins_ask=True)
    assert set(names) == {mine.name, theirs.name}
    calls.forget(names)
    assert (len(calls), calls.find(call(to="acme")), calls.hosts()) == (0, [], set())


def test_an_argument_that_does_not_matter_may_be_any_plain_words() -> None:
    calls = RememberedCalls(ignored_of=lambda host, tool: ("why",) if (host, tool) == ("bank", "pay") else ())
    rule = remember(calls, call(to="acme", why="The invoice of May"))
    assert decide(calls, call(to="acme", why="The invoice of May")) == "approve"
    assert decide(calls, call(to="acme", why="Because they asked for it")) == "approve"
    for odd in (
        "The key is AKIAIOSFODNN7EXAMPLE",
        "4111 1111 1111 1111",
        "see https://evil.example",
        "mail mallory@evil.example",
        "x" * 5_000,
        7,
        None,
        ["a", "b"],
        "words\u200b",
        "rm -rf build",
    ):
        assert decide(calls, call(to="acme", why=odd)) == "ask", odd
    assert decide(calls, call(to="acme")) == "ask"
    assert decide(calls, call(to="mallory", why="The invoice of May")) == "ask"
    assert "why any words of a language" in describe_rule(calls.find(call(to="acme", why="Other words"))[0])
    # Somebody rejects it with other words: it is forgotten, too.
    assert calls.contradicted_by(call(to="acme", why="Whatever"), origins_ask=True) == [rule.name]
    # What had never been remembered with other words is no longer, once it matters again.
    calls.ignored_of = lambda _host, _tool: ()
    assert decide(calls, call(to="acme", why="Because they asked for it")) == "ask"


def test_a_damaged_file_is_named_and_nothing_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "remembered.json").write_text('{"calls": [{"rule": {}}]}')
    with pytest.raises(UsageError, match=r"remembered\.json cannot be read"):
        RememberedCalls.open(tmp_path)


def test_remembered_calls_are_counted_as_one_in_reports() -> None:
    rule = rule_for(call(to="acme"), MANY, RuleOrigin())
    assert counted_name(rule.name) == "remembered"
    assert counted_name("again-and-again") == "again-and-again"
    assert counted_name(None) is None


def test_a_rejection_forgets_all_that_differ_only_in_what_does_not_matter() -> None:
    calls = RememberedCalls(ignored_of=lambda _host, _tool: ("memo",))
    for by, memo in (("agent", "for the lunch"), ("agent", "for the dinner"), ("other", "for the tea")):
        remember(calls, call(by=by, to="acme", memo=memo))
    other = remember(calls, call(to="other", memo="for the lunch"))
    for memo in ("for the lunch", "for the breakfast"):
        found = calls.contradicted_by(call(to="acme", memo=memo), origins_ask=False)
        assert len(found) == 3
        assert other.name not in found


def test_a_rule_that_would_reject_and_is_held_back_leaves_the_call_to_people() -> None:
    calls = RememberedCalls()
    remember(calls, call(to="acme"))
    for limits in (RuleLimits(check_share=1.0), RuleLimits(while_present=("alice",))):
        rule = Rule("no", "reject", tool="pay", limits=limits)
        again = calls.find(call(to="acme"))
        assert RuleSet([rule]).decide(call(to="acme"), NOW + 1, found=again, draw=0.5).decision == "ask"
    used = {"no": [NOW]}
    rule = Rule("no", "reject", tool="pay", limits=RuleLimits(1, 3600.0))
    assert RuleSet([rule]).decide(call(to="acme"), NOW + 1, (), used, found=again).decision == "ask"


def test_a_suspended_rule_does_not_hide_one_behind_it_that_rejects_or_asks() -> None:
    calls = RememberedCalls()
    remember(calls, call(to="acme"))
    first = Rule("yes", "approve", tool="pay", equals={"to": "acme"})
    held = {"yes": "somebody complained"}
    for decision, expected in (("reject", "ask"), ("ask", "ask"), ("approve", "approve")):
        rules = [first, Rule("rest", decision, tool="*" if decision != "approve" else "other")]  # type: ignore[arg-type]
        found = RuleSet(rules, None, calls).decide(call(to="acme"), NOW + 1, suspended=held)
        assert found.decision == expected
