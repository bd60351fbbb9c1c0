"""Safety: what suspends a rule, observe mode, budgets, and the answer to why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moot.protocol.operation import Json
from moot.trust.approver.rule_history import RuleHistory
from moot.trust.checks.explain import explain
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.backtest import back_test
from moot.trust.learning.suggestion import grant_of, why_no_grant
from moot.trust.rules.accepted_calls import AcceptedCalls
from moot.trust.rules.budgets import MAX_DECISIONS, Budget, UseTally
from moot.trust.rules.conditions import Hours, Range
from moot.trust.rules.rule import Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_words import describe_rule
from moot.trust.rules.tripwires import (
    Complaint,
    Event,
    MemberKicked,
    PersonDecided,
    ProposalSeen,
    Suspension,
    ToolChanged,
    check_tripwires,
    find_anomaly,
    suspension_reasons,
    trip_rules,
)
from tests.trust.histories import START, call, decided

REPORTS = Rule(
    name="reports",
    decision="approve",
    proposer="agent",
    to=("files",),
    method="tools/call",
    tool="write_file",
    arguments={"path": "/srv/reports/*"},
    origin=RuleOrigin("s-1", "alice", START),
    words="Reports are fine",
)


def _case(path: str = "/srv/reports/a.txt", **more: object) -> Case:
    return call({"path": path, **more})


def _why(event: Event, rule: Rule = REPORTS) -> str | None:
    found = check_tripwires(rule, event, START)
    return None if found is None else found.why


def test_a_rejection_inside_the_pattern_suspends_it_and_one_outside_does_not() -> None:
    assert _why(PersonDecided(decided(_case(), approved=False))) == (
        "alice rejected a proposal that this rule would have approved (unsafe)"
    )
    assert _why(PersonDecided(decided(_case("/etc/x"), approved=False))) is None
    assert _why(PersonDecided(decided(_case(), approved=True))) is None


def test_what_another_rule_rejected_suspends_nothing() -> None:
    assert _why(PersonDecided(decided(_case(), approved=False, rule="other"))) is None


def test_an_approval_inside_a_rejecting_rule_suspends_that() -> None:
    rejecting = replace(REPORTS, decision="reject")
    assert _why(PersonDecided(decided(_case(), approved=True)), rejecting) == (
        "alice approved a proposal that this rule would have rejected"
    )


def test_a_no_at_night_does_not_suspend_a_rule_for_the_day() -> None:
    day = replace(REPORTS, hours=Hours(9 * 60, 17 * 60))
    night = decided(replace(_case(), at=START + 12 * 3600), approved=False)
    assert _why(PersonDecided(night), day) is None
    assert _why(PersonDecided(decided(_case(), approved=False)), day) is not None


def test_the_removal_of_whom_it_is_about_suspends_it() -> None:
    assert _why(MemberKicked("agent", "alice", "k1")) == (
        "alice removed agent, whom this rule is about, from the space"
    )
    assert _why(MemberKicked("files", "alice", "k1")) is not None
    assert _why(MemberKicked("bob", "alice", "k1")) is None


def test_a_complaint_about_it_or_about_what_it_did_suspends_it() -> None:
    assert _why(Complaint("bob", "too many", "c1", rule="reports")) == "bob complained: too many"
    assert _why(Complaint("bob", "", "c1", rule="reports")) == "bob complained"
    assert _why(Complaint("bob", "", "c1", rule="other")) is None


def test_a_tool_that_changed_suspends_the_rules_about_it() -> None:
    assert _why(ToolChanged("files", "write_file", "its description changed")) == (
        "tool write_file on files: its description changed"
    )
    assert _why(ToolChanged("files", "read_file")) is None
    assert _why(ToolChanged("other", "write_file")) is None
    assert _why(ToolChanged("files", "write_file"), replace(REPORTS, tool="write_*")) is not None


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (_case("/srv/reports/../x"), "contains escapes"),
        (_case("/srv/reports/a\u202e"), "contains escapes"),
        (_case("/srv/other/" + "a" * 5000), "5011 characters"),
        (_case(mode="x"), "1 unknown argument: mode"),
        (call({"path": 3}), "is a whole number, which is a new type"),
        (call(params={"name": "write_file", "arguments": {}, "task": 1}), "unexpected field params.task"),
    ],
)
def test_an_unusual_argument_suspends_it_in_words(case: Case, said: str) -> None:
    found = find_anomaly(REPORTS, case)
    assert found is not None
    assert said in found
    assert _why(ProposalSeen(case)) is not None


def test_ordinary_misses_and_other_tools_are_not_unusual() -> None:
    assert find_anomaly(REPORTS, _case("/srv/other/a.txt")) is None
    assert find_anomaly(REPORTS, call({"path": "/../x"}, tool="read_file")) is None
    assert find_anomaly(REPORTS, call({"path": "/../x"}, proposer="other")) is None
    pay = Rule(name="pay", decision="approve", range={("amount",): Range(1, 100)})
    assert find_anomaly(pay, call({"amount": 200})) is None
    assert find_anomaly(pay, call({"amount": 2_000})) == "amount is 2000, far outside 1 to 100"


def test_a_suspended_rule_asks() -> None:
    event = PersonDecided(decided(_case(), approved=False))
    suspension = check_tripwires(REPORTS, event, START)
    assert suspension is not None
    held = suspension_reasons({suspension.rule: suspension})
    verdict = evaluate([REPORTS], _case(), START, suspended=held)
    assert verdict.decision == "ask"
    assert "alice rejected" in verdict.why


def test_observe_mode_compares_and_bounds_how_wrong_a_rule_would_have_been() -> None:
    observe = RuleHistory()
    for number in range(10):
        case = _case(f"/srv/reports/{number}.txt")
        observe.predict(case.id, evaluate([REPORTS], case, START))
        observe.compare(decided(case, approved=number != 3))
    asked = _case("/etc/x")
    observe.predict(asked.id, evaluate([REPORTS], asked, START))
    assert observe.compare(decided(asked, approved=True)) is None
    record = observe.observed("reports")
    assert (record.agreements, record.conflicts) == (9, 1)
    assert record.bound == pytest.approx(0.3942, abs=1e-4)


def test_an_open_decision_is_compared_when_it_is_made() -> None:
    observe = RuleHistory()
    case = _case()
    observe.predict(case.id, evaluate([REPORTS], case, START))
    assert observe.compare(HistoryProposal.of(case)) is None
    compared = observe.compare(decided(case, approved=True))
    assert compared is not None
    assert compared.decision == "approve"


def test_one_budget_holds_for_all_rules_and_survives_a_restart() -> None:
    tally = UseTally()
    acts = [decided(_case(), approved=True, by="bot", rule=f"r{n % 2}") for n in range(4)]
    tally.record_past(acts, [])
    at = acts[0].at or 0.0
    assert tally.is_used_up(Budget(4, 60.0), at)
    assert not tally.is_used_up(Budget(5, 60.0), at)
    assert not tally.is_used_up(Budget(4, 60.0), at + 61)
    assert (tally.count("r0"), tally.count("r9")) == (2, 0)
    limited = replace(REPORTS, name="r0", limits=RuleLimits(max_decisions=3, per_seconds=60.0))
    assert (tally.remaining(limited, at), tally.remaining(REPORTS, at)) == (1, None)
    # A clock that was set back gives nobody more decisions.
    assert tally.remaining(limited, at - 3_600) == 1
    assert tally.is_used_up(Budget(4, 60.0), at - 3_600)


def test_why_something_was_done() -> None:
    decision = decided(_case(), approved=True, by="bot", rule="reports")
    decision.note_answer(["files"], failed=False)
    text = "\n".join(explain(decision, [REPORTS], START).lines())
    assert "bot approved it after 30.0 s" in text
    assert "the result was ok" in text
    assert "Decided automatically by rule reports: Reports are fine. alice accepted this rule from" in text
    assert "from suggestion s-1" in text
    gone = "\n".join(explain(decision, [], START).lines())
    assert "by rule reports, which no longer exists" in gone


def test_why_something_was_not_done() -> None:
    case = call({"path": "/etc/x", "mode": "x"})
    expired = replace(REPORTS, name="old", limits=RuleLimits(expires_at=START))
    found = explain(HistoryProposal.of(case), [REPORTS, expired], START)
    assert found.outcome.endswith("the proposal is pending.")
    assert found.verdict.why == "no rule matches"
    assert "reports does not match: path does not match and there is an extra argument mode" in found.others
    assert any(other.startswith("old expired on 2026-01-05") for other in found.others)
    held = {"reports": Suspension("reports", START, "alice rejected one")}
    verdict = evaluate([REPORTS], _case(), START, suspended=suspension_reasons(held))
    suspended = explain(HistoryProposal.of(_case()), [REPORTS], START, verdict=verdict)
    assert suspended.verdict.why == "rule reports is suspended: alice rejected one"
    assert suspended.as_json()["rule"] == "reports"


def test_every_way_to_end_has_its_sentence() -> None:
    no = decided(_case(), approved=False)
    assert "alice rejected it after 30.0 s: unsafe" in explain(no, [], START).outcome
    both = decided(_case(), approved=False)
    both.fulfil("r1", "bob", ["files"], START)
    assert "alice had rejected it before." in explain(both, [], START).outcome
    for how, words in (("withdrawn", "it was withdrawn"), ("expired", "it expired without a decision")):
        over = HistoryProposal.of(_case(), status=how)
        assert words in explain(over, [], START).outcome


def test_a_grant_says_what_it_allows_beyond_the_rule() -> None:
    """MEW 9.2: this tool with these arguments."""
    grant = grant_of(REPORTS)
    assert grant is not None
    assert "arguments" in grant.capability["payload"]["params"]
    assert "other arguments are allowed too" in grant.loses
    for rule in (
        replace(REPORTS, hours=Hours(0, 1)),
        replace(REPORTS, proposer="a*"),
        replace(REPORTS, to=None),
        replace(REPORTS, decision="reject"),
        replace(REPORTS, equals={"x": [1]}),
        replace(REPORTS, before=START),
    ):
        assert grant_of(rule) is None
        assert why_no_grant(rule)


def test_rules_in_plain_words() -> None:
    assert describe_rule(Rule(name="a", decision="ask")) == "Ask people when anyone proposes anything"
    limited = replace(REPORTS, range={("size",): Range(1, 9)}, limits=RuleLimits(3, 60.0))
    limited = replace(limited, hours=Hours(540, 1020))
    assert describe_rule(limited) == (
        "Approve when agent proposes write_file on files with path /srv/reports/* and size a whole number "
        "from 1 to 9 and no other arguments, between 09:00 and 17:00 UTC; at most 3 times in 1 minute"
    )


def test_a_back_test_counts_what_nobody_decided() -> None:
    over = HistoryProposal.of(_case(), status="expired")
    automated = decided(_case(), approved=True, rule="reports")
    found = back_test(
        REPORTS, [over, automated, HistoryProposal.of(_case()), decided(_case(), approved=True)]
    )
    assert (found.history, found.covered, found.undecided, found.automated) == (3, 3, 1, 1)
    assert found.agreements == 1


def test_what_an_approved_call_had_is_not_unusual() -> None:
    """Optional arguments and heavy tails suspend no sibling; what nobody ever approved still does."""
    rule = replace(REPORTS, range={("size",): Range(1, 100)})
    approved = decided(call({"path": "/srv/other/a.txt", "size": 5_000, "mode": "w"}), approved=True)
    accepted = AcceptedCalls([approved, decided(call({"path": "/srv/x", "evil": 1}), approved=False)])

    def why(**arguments: Json) -> str | None:
        case = call({"path": "/srv/reports/a.txt", "size": 50} | arguments)
        found = check_tripwires(rule, ProposalSeen(case, accepted), START)
        return None if found is None else found.why

    assert why(mode="w") is None
    assert why(size=5_000) is None
    assert "unknown argument: evil" in (why(evil=1) or "")
    assert "far outside" in (why(size=10**9) or "")
    assert "new type" in (why(size="5000") or "")
    assert "escapes" in (why(path="/srv/reports/../x") or "")
    case = call({"path": "/srv/reports/a.txt", "size": 5, "mode": "w"})
    assert check_tripwires(rule, ProposalSeen(case), START) is not None


def test_what_was_approved_before_its_tool_changed_is_not_unusual() -> None:
    """Nothing is learned of it any more, but people have seen it: a resumed rule goes on."""
    approved = decided(call({"path": "/srv/reports/a.txt", "mode": "w"}), approved=True)
    approved.outdated = True
    assert approved.lesson is None
    case = call({"path": "/srv/reports/b.txt", "mode": "w"})
    assert check_tripwires(REPORTS, ProposalSeen(case, None), START) is not None
    assert check_tripwires(REPORTS, ProposalSeen(case, AcceptedCalls([approved])), START) is None


def test_what_is_left_of_the_budget_is_told_and_decisions_are_counted_beyond_its_memory() -> None:
    tally = UseTally()
    budget = Budget(3, 60.0)
    assert tally.remaining_of(budget, 0.0) == 3
    for _ in range(2):
        tally.record("a", 0.0)
    tally.record("b", 30.0)
    assert (tally.remaining_of(budget, 30.0), tally.is_used_up(budget, 30.0)) == (0, True)
    assert (tally.remaining_of(budget, 60.0), tally.is_used_up(budget, 60.0)) == (2, False)
    for _ in range(MAX_DECISIONS):
        tally.record("a", 90.0)
    assert tally.count("a") == MAX_DECISIONS + 2


def test_one_odd_call_suspends_one_rule_and_the_same_again_no_other() -> None:
    """All rules of the tool were suspended, and each had to be resumed by itself."""
    rules = [replace(REPORTS, name=name, arguments={"path": f"/srv/{name}/*"}) for name in ("a", "b", "c")]
    rules.append(
        replace(REPORTS, name="sized", arguments={"path": "/srv/b/*"}, range={("size",): Range(1, 9)})
    )
    odd = ProposalSeen(call({"path": "/srv/b/../../etc/passwd"}))
    (tripped,) = trip_rules(rules, odd, START)
    assert tripped.rule in ("a", "b", "c")
    assert trip_rules(rules, odd, START) == [tripped]
    (sized,) = trip_rules(rules, ProposalSeen(call({"path": "/srv/b/x", "size": 10**9})), START)
    assert sized.rule == "sized"
    assert trip_rules(rules, ProposalSeen(_case("/srv/b/x", size=5)), START) == []
    rejected = PersonDecided(decided(_case("/srv/b/x"), approved=False))
    assert [each.rule for each in trip_rules(rules, rejected, START)] == ["b"]
