"""People look at what rules decided, some at a time; if nobody does, rules leave decisions to them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from moot.errors import InvalidPattern, UsageError
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.approver.rule_reviews import MAX_REVIEWS, MIN_DECISIONS, RuleReviews
from moot.trust.checks.narrowing_proof import find_wider_part
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.learning.learner import suggest
from moot.trust.rules.rule import Rule, RuleLimits
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_yaml import read_rules, write_rules
from tests.trust.approver.test_approver import LEARNING, ApproverScene, approver_scene
from tests.trust.histories import START, call, decided, envelope_of, fulfilment, history, proposal
from tests.waiting import until

RULE = Rule(
    "reports", "approve", tool="write_file", extra_arguments=True, limits=RuleLimits(review_share=0.02)
)


def decide(reviews: RuleReviews, count: int, *, start: int = 0) -> list[str]:
    ids = [f"p{number}" for number in range(start, start + count)]
    assert all(reviews.note(RULE, id, START) for id in ids)
    return ids


def test_a_review_is_due_after_few_decisions_and_after_more_the_more_were_right() -> None:
    reviews = RuleReviews()
    decide(reviews, MIN_DECISIONS - 1)
    assert not reviews.is_due(RULE)
    decide(reviews, 1, start=100)
    assert reviews.is_due(RULE)
    assert reviews.confirm(reviews.unreviewed("reports")) == {"reports": MIN_DECISIONS}
    assert not reviews.is_due(RULE)
    reviews.confirm(decide(reviews, 1000 - MIN_DECISIONS, start=1000))
    decide(reviews, 19, start=5000)
    assert not reviews.is_due(RULE)
    decide(reviews, 1, start=6000)
    assert reviews.is_due(RULE)
    # After a wrong one it is looked at as often as a new rule.
    reviews.object_to("p6000")
    assert (reviews.reviewed("reports"), reviews.is_due(RULE)) == (0, True)


def test_a_rule_that_nobody_reviews_leaves_decisions_to_people() -> None:
    reviews, at = RuleReviews(), START
    for number in range(MAX_REVIEWS * MIN_DECISIONS):
        verdict = evaluate([RULE], call(), at, paused=reviews.pause_reasons([RULE]))
        assert verdict.decision == "approve"
        decide(reviews, 1, start=number)
    verdict = evaluate([RULE], call(), at, paused=reviews.pause_reasons([RULE]))
    assert (verdict.decision, verdict.why) == (
        "ask",
        "rule reports matches, but nobody has reviewed its last 30 decisions",
    )
    reviews.confirm(["p0"])
    assert evaluate([RULE], call(), at, paused=reviews.pause_reasons([RULE])).decision == "approve"
    # A rule without reviews is never paused by them.
    other = replace(RULE, limits=RuleLimits())
    assert reviews.pause_reasons([other]) == {}


def test_an_approval_of_what_such_a_rule_left_to_people_stands_for_one_review() -> None:
    """Whoever never reviews is asked about one in seven, and not about everything from then on."""
    reviews = RuleReviews()
    decide(reviews, MAX_REVIEWS * MIN_DECISIONS)
    asked = 0
    for number in range(70):
        if reviews.pause_reasons([RULE]):
            asked += 1
            reviews.note_decision([RULE], decided(call({"path": "/x"}), approved=True))
        else:
            decide(reviews, 1, start=1000 + number)
    assert asked == 10
    # A rejection confirms nothing.
    decide(reviews, reviews.left(RULE) or 0, start=5000)
    reviews.note_decision([RULE], decided(call({"path": "/x"}), approved=False))
    assert reviews.left(RULE) == 0


def test_what_is_not_reviewed_survives_a_process_that_is_killed(tmp_path: Path) -> None:
    reviews = RuleReviews.open(tmp_path)
    ids = decide(reviews, 8)
    reviews.confirm(ids[:2])
    reviews.forget(ids[2])
    # Nothing is closed or saved: each line is in the file before the decision is sent.
    again = RuleReviews.open(tmp_path)
    assert (again.unreviewed("reports"), again.reviewed("reports")) == (tuple(ids[3:]), 2)
    with (tmp_path / "reviews.jsonl").open("a") as file:
        file.write('{"rule": "reports", "deci')
    torn = RuleReviews.open(tmp_path)
    assert torn.unreviewed("reports") == tuple(ids[3:])
    # What is written next does not end up in the torn line.
    more = decide(torn, 2, start=50)
    assert RuleReviews.open(tmp_path).unreviewed("reports") == (*ids[3:], *more)


def test_a_line_that_the_disk_takes_only_in_part_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk takes what fits, without an error."""
    reviews = RuleReviews.open(tmp_path)
    ids = decide(reviews, 1)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:9]))
    assert not reviews.note(RULE, "p100", START)
    monkeypatch.undo()
    ids += decide(reviews, 1, start=200)
    assert RuleReviews.open(tmp_path).unreviewed("reports") == tuple(ids)


def test_many_lines_are_summed_up_at_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews = RuleReviews.open(tmp_path)
    ids = decide(reviews, 30)
    reviews.confirm(ids[:25])
    monkeypatch.setattr("moot.trust.approver.line_file.MAX_LINES", 20)
    RuleReviews.open(tmp_path)
    assert len((tmp_path / "reviews.jsonl").read_text().splitlines()) == 6
    again = RuleReviews.open(tmp_path)
    assert (again.unreviewed("reports"), again.reviewed("reports")) == (tuple(ids[25:]), 25)


def test_a_rule_decides_nothing_that_cannot_be_noted(tmp_path: Path) -> None:
    reviews = RuleReviews.open(tmp_path)
    (tmp_path / "reviews.jsonl").mkdir()
    assert not reviews.note(RULE, "p0", START)
    assert "cannot be noted for a review" in reviews.pause_reasons([RULE])["reports"]
    assert reviews.unreviewed("reports") == ()
    (tmp_path / "reviews.jsonl").rmdir()
    assert reviews.pause_reasons([RULE]) == {}
    assert reviews.note(RULE, "p0", START)


def test_suggested_rules_are_reviewed_and_no_narrower_one_escapes_it() -> None:
    (suggestion,) = suggest(history([{"path": f"/srv/r-{n}.txt"} for n in range(10, 22)]), now=START + 9e4)
    rule = suggestion.rule
    assert rule.limits.review_share == 0.02
    assert read_rules(write_rules([rule]))[0].limits.review_share == 0.02
    for share, wider in (
        (0.0, "limits.review_share"),
        (0.5, "limits.review_share"),
        (0.01, None),
        (0.02, None),
    ):
        narrowed = replace(rule, limits=replace(rule.limits, review_share=share))
        assert find_wider_part(narrowed, rule) == wider


@pytest.mark.parametrize("share", ["-0.1", "1.5", "true", "often"])
def test_the_share_has_bounds(share: str) -> None:
    with pytest.raises((UsageError, InvalidPattern), match=r"review.*must be a number from 0 to 1"):
        read_rules(f"rules: [{{name: a, decision: approve, limits: {{review_share: {share}}}}}]")


def test_an_objection_to_what_a_rule_approved_counts_as_a_rejection_once() -> None:
    ledger = ProposalHistory()
    for envelope in (
        proposal("p1"),
        fulfilment("f1", "p1", "approver", context="trust/rule/reports"),
        envelope_of("trust/stop", "o1", "alice", about=["f1"]),
        envelope_of("trust/stop", "o1", "alice", about=["f1"]),
    ):
        ledger.observe(envelope, START)
    (decision,) = ledger
    assert (decision.status, decision.lesson) == ("fulfilled", "reject")
    assert [(each.by, each.reason) for each in decision.rejections] == [("alice", "objection")]


def test_an_objection_to_what_a_person_approved_teaches_nothing() -> None:
    ledger = ProposalHistory()
    for envelope in (
        proposal("p1"),
        fulfilment("f1", "p1"),
        envelope_of("trust/stop", "o1", "bob", about=["p1"]),
    ):
        ledger.observe(envelope, START)
    assert next(iter(ledger)).lesson == "approve"


# In a real space


async def _decided(scene: ApproverScene, count: int, *, start: int = 30) -> None:
    for number in range(start, start + count):
        assert await scene.write(f"reports/day-{number}.md") == "by approver"


def _settings() -> ApproverSettings:
    return ApproverSettings(learning=LEARNING)


async def test_people_are_asked_to_review_and_what_they_confirm_is_not_asked_again(tmp_path: Path) -> None:
    async with approver_scene(tmp_path, _settings()) as scene:
        name = await scene.accepted()
        await _decided(scene, MIN_DECISIONS)
        await until(lambda: any("review" in each.payload for each in scene.trust))
        asked = next(each.payload for each in scene.trust if "review" in each.payload)
        assert asked["why"] == f"{MIN_DECISIONS} decisions of it should be reviewed"
        (shown,) = scene.approver.status.trust_reviews()["reviews"]
        assert [each["arguments"]["path"] for each in shown["decisions"]] == [
            f"reports/day-{number}.md" for number in range(30, 30 + MIN_DECISIONS)
        ]
        # Nonsense confirms nothing.
        ids = [each["id"] for each in shown["decisions"]]
        for nonsense in ("all", [], [1], ["nosuch"]):
            await scene.alice.send("trust/accept", {"reviewed": nonsense}, confirm=True)
        await scene.wait_for_chat("not reviewed: no rule has decided these")
        assert scene.approver.reviews.is_due(scene.store.rules[0])
        await scene.away()
        await scene.back()
        assert scene.approver.reviews.unreviewed(name) == tuple(ids)
        await scene.alice.send("trust/accept", {"reviewed": ids}, confirm=True)
        await until(lambda: not scene.approver.reviews.unreviewed(name))
        assert scene.approver.status.trust_reviews() == {"reviews": []}


async def test_an_objection_suspends_the_rule_and_the_call_counts_as_rejected(tmp_path: Path) -> None:
    async with approver_scene(tmp_path, _settings()) as scene:
        name = await scene.accepted()
        await _decided(scene, 2)
        first, second = scene.approver.reviews.unreviewed(name)
        await scene.alice.send("trust/stop", {"reason": "not this one"}, about=second, confirm=True)
        await until(lambda: name in scene.store.suspensions)
        assert scene.store.suspensions[name].why == "alice complained: not this one"
        assert scene.approver.reviews.unreviewed(name) == (first,)
        decision = scene.approver.ledger.get(second)
        assert decision is not None
        assert decision.lesson == "reject"
        # Resumed, it still does not approve that very call again.
        await scene.alice.send("trust/accept", {"lift": name}, confirm=True)
        await until(lambda: name not in scene.store.suspensions)
        scene.mood = "reject"
        assert await scene.write("reports/day-31.md") == "no, alice: unsafe"


async def test_where_the_notes_are_lost_past_decisions_count_as_unreviewed(tmp_path: Path) -> None:
    async with approver_scene(tmp_path, _settings()) as scene:
        name = await scene.accepted()
        await _decided(scene, 3)
        before = scene.approver.reviews.unreviewed(name)
        await scene.away()
        file = scene.store.folder / "reviews.jsonl"
        assert len([json.loads(line) for line in file.read_text().split("\n") if line]) == 3
        file.unlink()
        await scene.back()
        await until(lambda: scene.approver.reviews.unreviewed(name) == before)
