"""Learning: suggestions rest on enough decisions, take no rejection along, and say how sure one may be."""

from __future__ import annotations

import random

import pytest

from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.backtest import back_test
from moot.trust.learning.bounds import percent, upper_bound
from moot.trust.learning.learner import suggest
from moot.trust.learning.learning_settings import LearningSettings
from moot.trust.rules.accepted_calls import RejectedCalls
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from tests.trust.histories import HOUR, START, accept, call, decided, history

NOW = START + 30 * 86_400.0


def _reports(count: int, folder: str = "reports", *, proposer: str = "agent") -> list[HistoryProposal]:
    return history([{"path": f"/srv/{folder}/r-{n}.txt"} for n in range(10, 10 + count)], proposer=proposer)


@pytest.mark.requirement("MCPX-2.1-2")
def test_a_rule_that_approves_by_itself_comes_out_of_decisions() -> None:
    """MCPx 2.1, MEW 9.4 steps 5 and 6: ten approvals, one rule, and the next one is approved by it."""
    (suggestion,) = suggest(_reports(10), now=NOW)
    rules = accept((), suggestion, by="alice", now=NOW)
    verdict = evaluate(rules, call({"path": "/srv/reports/r-77.txt"}), NOW)
    assert (verdict.decision, verdict.rule) == ("approve", rules[0])
    assert (rules[0].origin.suggestion, rules[0].origin.accepted_by) == (suggestion.id, "alice")


def test_fewer_than_k_approvals_suggest_nothing_and_k_can_be_set() -> None:
    assert suggest(_reports(9), now=NOW) == []
    assert len(suggest(_reports(6), now=NOW, settings=LearningSettings(min_approvals=6))) == 1


def test_a_rejection_elsewhere_does_not_stop_it_and_one_inside_does() -> None:
    elsewhere = [decided(call({"path": "/etc/passwd"}), approved=False)]
    (suggestion,) = suggest(_reports(10) + elsewhere, now=NOW)
    assert not suggestion.rule.matches(elsewhere[0].case, START)
    inside = [decided(call({"path": "/srv/reports/r-15.txt"}), approved=False)]
    assert suggest(_reports(10) + inside, now=NOW) == []


def test_what_rules_decided_proves_nothing() -> None:
    automated = _reports(20)
    for decision in automated:
        decision.rules[f"{decision.id}-d"] = "reports"
    assert suggest(automated, now=NOW) == []


def test_only_those_teach_who_are_said_to() -> None:
    """An agent that fulfils another's proposals must not make rules for it."""
    people = LearningSettings(people=frozenset({"bob"}))
    assert suggest(_reports(12), now=NOW, settings=people) == []
    both = LearningSettings(people=frozenset({"alice", "bob"}))
    assert len(suggest(_reports(12), now=NOW, settings=both)) == 1


def test_proposers_are_not_lumped() -> None:
    assert suggest(_reports(6) + _reports(6, proposer="other"), now=NOW) == []
    found = suggest(_reports(10) + _reports(10, proposer="other"), now=NOW)
    assert {suggestion.rule.proposer for suggestion in found} == {"agent", "other"}


def test_amounts_are_split_where_people_draw_the_line() -> None:
    rng = random.Random(4)
    payments = history([{"amount": rng.randint(1, 200)} for _ in range(120)], lambda a: a["amount"] <= 100)
    (suggestion,) = suggest(payments, now=NOW)
    assert 90 < suggestion.rule.range["amount",].high <= 100


def test_large_files_in_one_folder_say_nothing_about_the_other() -> None:
    """A product of what was seen would say too much."""
    rng = random.Random(5)
    files = [
        {"path": f"/srv/{folder}/{rng.randrange(10_000)}.bin", "size": rng.randint(1, most)}
        for _ in range(20)
        for folder, most in (("big", 1000), ("small", 100))
    ]
    rules = [suggestion.rule for suggestion in suggest(history(files), now=NOW)]
    assert len(rules) == 2
    probe = call({"path": "/srv/small/1234.bin", "size": 900})
    assert evaluate(rules, probe, START).decision == "ask"


def test_numbers_that_are_compared_with_each_other_stay_with_people() -> None:
    rng = random.Random(6)
    transfers = [{"amount": rng.randint(1, 999), "balance": rng.randint(1, 999)} for _ in range(200)]
    assert suggest(history(transfers, lambda a: a["amount"] <= a["balance"]), now=NOW) == []


def test_whoever_decides_by_something_unseen_is_asked() -> None:
    rng = random.Random(7)
    coins = history([{"path": f"/srv/reports/r-{n}.txt"} for n in range(300)], lambda _: rng.random() < 0.6)
    assert suggest(coins, now=NOW) == []


def test_mixed_decisions_about_one_tool_say_nothing_about_another() -> None:
    rng = random.Random(8)
    coins = history([{"x": f"/a/n{n}"} for n in range(100)], lambda _: rng.random() < 0.6, tool="other")
    assert [each.rule.tool for each in suggest(_reports(10) + coins, now=NOW)] == ["write_file"]


def test_a_suggestion_says_what_it_rests_on_and_how_sure_one_may_be() -> None:
    near = decided(call({"path": "/srv/keys/r-11.txt"}), approved=False)
    (suggestion,) = suggest([*_reports(12), near], now=NOW)
    assert suggestion.decisions == 12
    assert suggestion.deciders == ("alice",)
    assert suggestion.error_bound == pytest.approx(upper_bound(0, 12))
    assert suggestion.words == (
        "Approve when agent proposes write_file on files with path “/srv/reports/r-<2 digits>.txt” "
        "and no other arguments; at most 12 times in 1 hour"
    )
    assert "12 approvals by alice and no rejection" in suggestion.evidence
    assert "up to 23 %" in suggestion.evidence
    test = suggestion.back_test
    assert (test.history, test.covered, test.agreements, test.conflicts) == (13, 12, 12, ())
    assert [(miss.proposal, miss.decision, miss.part) for miss in test.near_misses] == [
        (near.id, "reject", "arguments.path")
    ]


def test_a_suggestion_comes_again_only_when_it_adds_something() -> None:
    (first,) = suggest(_reports(10), now=NOW)
    rules = accept((), first, by="alice", now=NOW)
    assert suggest(_reports(10), rules, now=NOW) == []
    assert suggest(_reports(10), dismissed=[first.rule], now=NOW) == []
    wider = _reports(10) + _reports(10, "public")
    (second,) = suggest(wider, rules, now=NOW)
    assert second.replaces == (first.rule.name,)
    assert accept(rules, second, by="bob", now=NOW)[0].origin.accepted_by == "bob"
    assert len(accept(rules, second, by="bob", now=NOW)) == 1


def test_what_is_left_of_a_contradicted_rule_is_suggested_in_its_place() -> None:
    """One folder is no longer wanted: the others need not be decided one by one from then on."""
    before = _reports(10) + _reports(10, "public")
    (wide,) = suggest(before, now=NOW)
    rules = accept((), wide, by="alice", now=NOW)
    no = decided(call({"path": "/srv/public/r-31.txt"}), approved=False)
    # Nobody suspended it: a person may have resumed it, knowing better.
    assert suggest([*before, no], rules, now=NOW) == []
    (rest,) = suggest([*before, no], rules, suspended={wide.rule.name}, now=NOW)
    assert rest.replaces == (wide.rule.name,)
    taken = accept(rules, rest, by="alice", now=NOW)
    assert [each.name for each in taken] == [rest.rule.name]
    asked = {
        path: evaluate(taken, call({"path": f"/srv/{path}/r-32.txt"}), NOW) for path in ("reports", "public")
    }
    assert {path: verdict.decision for path, verdict in asked.items()} == {
        "reports": "approve",
        "public": "ask",
    }


def test_a_rule_that_is_suspended_for_another_reason_is_not_replaced() -> None:
    """Its tool has changed, or somebody objects: what people decided before says nothing about that."""
    (first,) = suggest(_reports(10), now=NOW)
    rules = accept((), first, by="alice", now=NOW)
    suspended = {first.rule.name}
    assert suggest(_reports(10), rules, suspended=suspended, now=NOW) == []
    # Nor is one that a person wrote, whatever contradicts it.
    no = decided(call({"path": "/srv/public/r-31.txt"}), approved=False)
    written = Rule("own", "approve", tool="write_file", arguments={"path": "/srv/**"})
    decisions = [*_reports(10), *_reports(10, "public"), no]
    assert suggest(decisions, [written], suspended={"own"}, now=NOW) == []


def test_an_expired_rule_is_suggested_anew() -> None:
    (first,) = suggest(_reports(10), now=NOW)
    rules = accept((), first, by="alice", now=NOW)
    assert [again.id for again in suggest(_reports(10), rules, now=NOW + 91 * 86_400)] == [first.id]


def test_a_rejection_that_is_long_ago_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    old = [decided(call({"path": "/srv/reports/r-15.txt"}), approved=False)]
    monkeypatch.setattr("moot.trust.learning.learner.MAX_DECISIONS", 10)
    few = LearningSettings()
    assert len(suggest(_reports(10), now=NOW, settings=few)) == 1
    assert suggest(old + _reports(10), now=NOW, settings=few) == []


def test_the_same_history_gives_the_same_suggestions() -> None:
    decisions = _reports(12)
    assert suggest(decisions, now=NOW) == suggest(decisions, now=NOW)


def test_a_grant_says_what_a_capability_can_and_what_it_loses() -> None:
    """MEW 9.2: from proposals only to this tool with these arguments."""
    (suggestion,) = suggest(_reports(10), now=NOW)
    grant = suggestion.grant
    assert grant is not None
    assert (grant.participant, grant.step) == ("agent", "arguments")
    right = read_capability(grant.capability)

    def may(path: Json, *, to: str = "files") -> bool:
        params = {"name": "write_file", "arguments": {"path": path}}
        return right.matches("mcp/request", {"method": "tools/call", "params": params}, [to])

    assert may("/srv/reports/r-77.txt")
    assert not may("/srv/reports/r-77.txt", to="other")
    for path in (
        "/srv/reports/../x",
        "/srv/reports/r-77.txt\n",
        "/srv/keys/r-77.txt",
        ["/srv/reports/r-7.txt"],
    ):
        assert not may(path)
    assert "other arguments are allowed too" in grant.loses
    assert "it does not expire" in grant.loses


def test_ranges_and_hours_never_turn_into_grants() -> None:
    (suggestion,) = suggest(history([{"amount": n * 3} for n in range(12)]), now=NOW)
    assert suggestion.grant is None
    assert suggestion.no_grant == "a capability cannot express ranges"


def test_a_back_test_finds_what_people_had_decided_otherwise() -> None:
    wide = Rule(name="wide", decision="approve", tool="write_file", extra_arguments=True)
    no = decided(call({"path": "/etc/x"}), approved=False)
    decisions = [*_reports(3), no]
    assert back_test(wide, decisions).conflicts == (no.id,)


def test_no_rejection_is_not_no_risk() -> None:
    """Clopper and Pearson; near 3/n when nothing bad was seen."""
    assert upper_bound(0, 10) == pytest.approx(0.2589, abs=1e-4)
    assert upper_bound(0, 300) == pytest.approx(3 / 300, rel=0.01)
    assert upper_bound(1, 10) == pytest.approx(0.3942, abs=1e-4)
    assert upper_bound(3, 50) == pytest.approx(0.1478, abs=1e-4)
    assert upper_bound(0, 0) == upper_bound(5, 5) == 1.0
    assert (percent(0.2589), percent(0.001), percent(0.0301)) == ("26 %", "0.1 %", "3.1 %")


def test_a_suggestion_shows_calls_at_its_edges_that_nobody_saw_and_some_just_outside() -> None:
    rows = [{"path": f"/srv/reports/r-{n}.txt", "size": 10 * n} for n in range(10, 30)]
    (suggestion,) = suggest(history(rows), now=NOW)
    assert len(suggestion.allows) == len(suggestion.refuses) == 5
    for arguments in suggestion.allows:
        assert arguments not in rows
        assert suggestion.rule.matches(call(dict(arguments)), START)
    for arguments in suggestion.refuses:
        assert not suggestion.rule.matches(call(dict(arguments)), START)
    paths = [each["path"] for each in suggestion.allows]
    assert "/srv/reports/r-00.txt" in paths
    assert "/srv/reports/r-99.txt" in paths
    assert {"size": 100, "path": "/srv/reports/r-999.txt"} in suggestion.refuses
    assert suggestion.as_json()["allows"] == [dict(each) for each in suggestion.allows]


def test_one_unexplained_rejection_concerns_only_what_it_would_have_matched() -> None:
    rows = [{"command": text} for n in range(12) for text in (f"git log -n {n + 3}", f"git show {n:07x}a")]
    no = decided(call({"command": "git show 00000a0"}), approved=False)
    found = [each.rule for each in suggest([*history(rows), no], now=NOW) if each.rule.decision == "approve"]
    assert evaluate(found, call({"command": "git log -n 7"}), NOW).decision == "approve"
    assert evaluate(found, call({"command": "git show 00000b0"}), NOW).decision == "ask"


def test_a_call_that_was_rejected_word_for_word_is_not_approved() -> None:
    rules = [each.rule for each in suggest(_reports(12), now=NOW)]
    noon = START + 2 * HOUR
    no = decided(call({"path": "/srv/reports/r-77.txt"}), approved=False)
    assert evaluate(rules, no.case, noon).decision == "approve"
    verdict = evaluate(rules, no.case, noon, rejected=RejectedCalls([no]))
    assert (verdict.decision, "people rejected this very call" in verdict.why) == ("ask", True)
    again = decided(no.case, approved=True)
    assert evaluate(rules, no.case, noon, rejected=RejectedCalls([no, again])).decision == "approve"


def test_shapes_that_were_never_seen_together_are_not_approved() -> None:
    rows = [{"command": f"git show {n:07x}a", "cwd": "/srv/one"} for n in range(12)]
    rows += [{"command": f"git log -n {n + 3}", "cwd": "/srv/two"} for n in range(12)]
    rules = [each.rule for each in suggest(history(rows), now=NOW)]
    assert {evaluate(rules, call(row), NOW).decision for row in rows} == {"approve"}
    assert evaluate(rules, call({"command": "git log -n 5", "cwd": "/srv/one"}), NOW).decision == "ask"


def test_what_came_once_a_month_runs_once_a_month() -> None:
    """Ten rents became ten an hour: the same rent was paid thirty times in 131 minutes."""
    rent: dict[str, Json] = {"to": "landlord", "amount": 900}
    rents = history([rent] * 10, tool="pay", every=30.5 * 86_400.0)
    now = START + 310 * 86_400.0
    (suggestion,) = suggest(rents, now=now)
    assert suggestion.words.endswith("; at most 1 time in 30 days")
    rules = accept((), suggestion, by="alice", now=now)
    tally, paid = UseTally(), 0
    for minute in range(131):
        at = now + 60.0 * minute
        if evaluate(rules, call(rent, tool="pay"), at, times=tally.times()).decision == "approve":
            tally.record(rules[0].name, at)
            paid += 1
    assert paid == 1
    assert (
        evaluate(rules, call(rent, tool="pay"), now + 31 * 86_400.0, times=tally.times()).decision
        == "approve"
    )


@pytest.mark.parametrize(
    ("every", "count", "seconds"),
    [(60.0, 12, HOUR), (HOUR, 1, HOUR), (12 * HOUR, 2, 24 * HOUR), (5 * 24 * HOUR, 2, 7 * 24 * HOUR)],
)
def test_a_rule_acts_as_often_as_people_approved(every: float, count: int, seconds: float) -> None:
    decisions = history([{"path": f"/srv/reports/r-{n}.txt"} for n in range(10, 22)], every=every)
    (suggestion,) = suggest(decisions, now=NOW)
    assert (suggestion.rule.limits.max_decisions, suggestion.rule.limits.per_seconds) == (count, seconds)
    (declared,) = suggest(decisions, now=NOW, repeatable={("files", "write_file")})
    assert (declared.rule.limits.max_decisions, declared.rule.limits.per_seconds) == (
        24 if every == 60.0 else 10,
        HOUR,
    )
