"""Explanations that are right about limits, presence and stops, and say what is not known."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from moot.trust.checks.explain import MAX_ARGUMENT_CHARS, explain, judge_offline
from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory
from moot.trust.rules.rule import Rule, RuleLimits
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.store_records import RuleStop
from tests.trust.approver.test_approver import approver_scene
from tests.trust.histories import START, call, decided, fulfilment, proposal
from tests.trust.rules.test_tripping import REPORTS, _case


@pytest.fixture
def store(tmp_path: Path) -> RuleStore:
    return RuleStore(tmp_path, rules=(REPORTS,))


def limited(**limits: object) -> Rule:
    return replace(REPORTS, limits=RuleLimits(**limits))  # type: ignore[arg-type]


def test_a_limit_that_is_used_up_is_counted_from_the_journal(store: RuleStore) -> None:
    store.rules = (limited(max_decisions=2, per_seconds=3600.0),)
    past = [decided(_case(), approved=True, by="bot", rule="reports") for _ in range(2)]
    verdict, _ = judge_offline(HistoryProposal.of(_case()), store, past, START + 60)
    assert verdict.decision == "ask"
    assert "it has reached its limit of 2 decisions" in verdict.why
    later, _ = judge_offline(HistoryProposal.of(_case()), store, past, START + 7200)
    assert later.decision == "approve"


def test_who_is_present_and_the_budget_are_not_claimed_to_be_known(store: RuleStore) -> None:
    store.rules = (limited(while_present=("alice",), check_share=0.05),)
    verdict, notes = judge_offline(HistoryProposal.of(_case()), store, [], START + 60)
    assert verdict.decision == "approve"
    assert notes[0] == "Only while alice is present; who is present is not known here."
    assert notes[1].startswith("5% of such proposals")
    assert "budget" in notes[2]
    # Of what asks in any case nothing is unknown.
    assert judge_offline(HistoryProposal.of(call({"path": "/etc/x"})), store, [], START)[1] == ()


def test_what_is_stopped_rejected_word_for_word_or_expired_asks(store: RuleStore) -> None:
    rejected = [decided(_case(), approved=False)]
    found, _ = judge_offline(HistoryProposal.of(_case()), store, rejected, START + 60)
    assert "people rejected this very call" in found.why
    store.rules = (limited(expires_at=START + 600),)
    store.note_expired(START + 700)
    assert judge_offline(HistoryProposal.of(_case()), store, [], START + 60)[0].why == "no rule matches"
    store.stopped = RuleStop("alice", "audit", START)
    found, _ = judge_offline(HistoryProposal.of(_case()), store, [], START + 60)
    assert (found.decision, found.why) == ("ask", "alice stopped all rules: audit")


def test_arguments_are_shown_and_long_ones_cut() -> None:
    lines = explain(HistoryProposal.of(_case()), [], START).lines()
    assert lines[1] == 'Arguments: {"path": "/srv/reports/a.txt"}'
    long = explain(HistoryProposal.of(call({"text": "x" * 5000})), [], START).lines()[1]
    assert len(long) < MAX_ARGUMENT_CHARS + 50
    assert long.endswith("… (5012 characters)")


def test_an_approved_call_without_an_answer_has_an_unknown_outcome() -> None:
    history = ProposalHistory()
    history.observe(proposal("p1"), START)
    history.observe(fulfilment("r1", "p1"), START + 1)
    (made,) = history
    assert (made.state, made.as_json()["outcome"]) == ("fulfilled", "pending")
    history.advance(START + 3_602)
    assert (made.state, made.as_json()["outcome"], made.reason) == ("unknown", "unknown", "timed_out")


async def test_the_approver_says_why_people_were_asked_then_and_what_holds_now(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        scene.approver.commands.stop_all("alice", "audit")
        scene.mood = "approve"
        assert await scene.write("reports/day-61.md") == "by alice"
        asked = list(scene.approver.ledger)[-1]
        scene.store.stopped = None
        (rule,) = scene.store.rules
        away = replace(
            rule, limits=replace(rule.limits, while_present=("carol",), expires_at=time.time() + 9e5)
        )
        scene.store.set_rules([away])
        answer = await scene.alice.call("approver", "trust_explain", {"id": asked.id})
        assert answer.structured is not None
        assert answer.structured["asked_because"] == "alice stopped all rules: audit"
        assert answer.structured["why"].endswith("but carol is not present")
        assert answer.structured["arguments"]["path"] == "reports/day-61.md"
        assert answer.structured["lines"][1].startswith('Arguments: {"path": "reports/day-61.md"')
