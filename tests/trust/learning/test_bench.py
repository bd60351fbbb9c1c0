"""The simulation, small: what `python -m bench.trust` promises holds for a few people of each kind."""

from __future__ import annotations

import json
import random

import pytest
from bench import automation_report, trust, trust_report
from bench.trust_people import EXPRESSIBLE, INEXPRESSIBLE
from bench.trust_worlds import READABLE, UNKNOWABLE

from moot.trust.rules.rule import Rule
from tests.rows import for_each_row
from tests.trust.histories import history


@pytest.fixture(autouse=True)
def learner_looks_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look is nearly all that a simulation costs; `make bench` looks as often as its page says."""
    monkeypatch.setattr(trust, "LOOK", 25)


@pytest.mark.parametrize("policy", EXPRESSIBLE)
def test_what_rules_can_say_is_taken_over_without_a_wrong_approval(policy: str) -> None:
    run = trust.simulate(policy, 1, 400)
    assert run.wrong_approvals == 0
    assert run.after >= trust.PROMISED


@pytest.mark.parametrize("policy", INEXPRESSIBLE)
def test_what_rules_cannot_say_stays_with_people(policy: str) -> None:
    run = trust.simulate(policy, 1, 340)
    assert run.after == 0
    assert run.wrong_approvals == 0


@for_each_row("world", READABLE)
def test_in_worlds_that_a_person_could_read_nothing_wrong_is_approved(world: str) -> None:
    run = trust.simulate(world, 1, 220)
    assert run.wrong_approvals == 0
    assert run.approvals > 20


@pytest.mark.parametrize("world", UNKNOWABLE)
def test_where_nobody_could_know_a_rule_ends_with_the_first_contradiction(world: str) -> None:
    run = trust.simulate(world, 1, 420)
    assert run.after_contradiction == 0
    assert run.wrong_approvals <= 0.1 * run.approvals


def test_a_rule_that_goes_on_after_a_contradiction_is_found_whatever_is_suspended() -> None:
    rng = random.Random(1)
    simulation = trust.Simulation(trust.POLICIES["drift"](rng), 1)
    fine = [{"path": f"/team/notes/n{number}.md"} for number in range(3)]
    rule = Rule("r", "approve", arguments={"path": "/team/*"})
    simulation.history = history(fine)
    assert not simulation._was_contradicted(rule)
    simulation.history += history([{"path": "/team/plans/x.md"}], lambda _: False)
    assert simulation._was_contradicted(rule)
    assert not simulation._was_contradicted(Rule("r", "approve", arguments={"path": "/team/notes/*"}))


def test_the_simple_way_is_wrong_where_ours_is_not() -> None:
    run = trust.simulate("amount", 2, 600)
    assert run.baselines["tool_after_k"].wrong > 50
    assert run.wrong_approvals == 0


def test_the_page_and_the_picture_have_what_the_results_file_has() -> None:
    results = json.loads(automation_report.RESULTS.read_text("utf-8"))
    page = automation_report.PAGE.read_text("utf-8")
    told = automation_report.lines(results["worlds"], results["seeds"], results["proposals"])
    assert all(line in page for line in told)
    assert automation_report.PICTURE.read_text("utf-8") == automation_report.svg(results["worlds"])
    for ways in results["worlds"].values():
        assert ways["memory+learner"]["share"] >= ways["memory"]["share"]


def test_the_report_has_a_row_for_each_policy() -> None:
    # One simulation, told of each: what the policies do is shown above, and by the bench itself.
    run = trust.simulate("amount", 3, 310)
    runs = {policy: [run] for policy in trust.POLICIES}
    promised = list(trust.promises(runs))
    text = "\n".join(trust_report.lines(runs, promised, [3]))
    assert all(f"\n{policy:24}" in text for policy in runs)
    figures = trust.as_json(runs, [3], 1.0)
    assert figures["policies"]["amount"]["wrong_approvals"] == 0
    assert len(figures["promises"]) == len(promised) == 9
