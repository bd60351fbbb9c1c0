"""A rule that only observes: it decides nothing, and what it would do is compared with people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.trust.checks.explain import explain
from moot.trust.checks.narrowing_proof import find_wider_part
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_json import rule_as_json
from moot.trust.rules.rule_yaml import read_rules, write_rules
from tests.trust.approver.test_approver import approver_scene
from tests.trust.histories import START, call
from tests.waiting import until

TEXT = "rules: [{name: r, decision: approve, tool: write_file, to: files, arguments: {path: a/*, text: x}}]"


def test_a_rule_that_only_observes_leaves_the_decision_to_the_next() -> None:
    (rule,) = read_rules(TEXT)
    observing, case = replace(rule, observe=True), call({"path": "a/x.md", "text": "x"})
    refusing = replace(rule, name="no", decision="reject")
    assert evaluate([observing], case, START).why == "no rule matches"
    assert evaluate([observing, refusing], case, START).rule is refusing
    # Nor does one that observes reject what another approves.
    assert evaluate([rule, replace(refusing, observe=True)], case, START).rule is rule
    assert evaluate([observing], case, START, observing=True).decision == "approve"
    assert (
        "r only observes: it would approve this"
        in explain(HistoryProposal.of(case), [observing], START).others
    )


def test_observing_is_in_the_file_and_cannot_be_lost_on_the_way() -> None:
    (rule,) = read_rules(TEXT.replace("name: r,", "name: r, observe: true,"))
    assert rule.observe
    assert read_rules(write_rules([rule])) == (rule,)
    assert rule_as_json(rule)["observe"] is True
    assert find_wider_part(replace(rule, observe=False), rule) == "observe"
    assert find_wider_part(rule, replace(rule, observe=False)) is None
    with pytest.raises(UsageError, match=r"rules\[0\]\.observe must be true or false"):
        read_rules(TEXT.replace("name: r,", "name: r, observe: 1,"))


async def test_a_person_lets_one_rule_observe_and_decide_again(tmp_path: Path) -> None:
    folder = tmp_path / "trust"
    folder.mkdir(mode=0o700)
    (folder / "rules.yaml").write_text(TEXT)
    async with approver_scene(tmp_path) as scene:
        scene.mood = "leave"
        await until(lambda: bool(scene.store.definitions))
        assert await scene.write("a/one.md") == "by approver"
        await scene.alice.send("trust/accept", {"observe": "r", "on": True}, confirm=True)
        await until(lambda: scene.store.rules[0].observe)
        assert "observe: true" in (folder / "rules.yaml").read_text()
        scene.mood = "reject"
        assert await scene.write("a/two.md") == "no, alice: unsafe"
        # It goes on after a disagreement, and people are told of it in the report alone.
        await until(lambda: scene.approver.history.observed("r").conflicts == 1)
        assert scene.store.suspensions == {}
        scene.mood = "approve"
        assert await scene.write("a/three.md") == "by alice"
        await until(lambda: scene.approver.history.observed("r").agreements == 1)
        assert scene.approver.status.trust_rules()["rules"][0]["state"] == "observing"
        scene.mood = "leave"
        await scene.alice.send("trust/accept", {"observe": "r", "on": False}, confirm=True)
        await until(lambda: not scene.store.rules[0].observe)
        assert await scene.write("a/four.md") == "by approver"
        await scene.alice.send("trust/accept", {"observe": "none", "on": True}, confirm=True)
        await scene.wait_for_chat("not changed: there is no rule none")


async def test_a_stop_of_a_rule_that_observes_is_confirmed_and_two_people_let_it_decide(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "trust"
    folder.mkdir(mode=0o700)
    (folder / "rules.yaml").write_text("accepting_people: 2\n" + TEXT.replace("r,", "r, observe: true,", 1))
    async with approver_scene(tmp_path, bob=["*"]) as scene:
        bob = await scene.party.join("bob")
        scene.mood = "leave"
        await scene.alice.send("trust/accept", {"observe": "r", "on": False}, confirm=True)
        await until(lambda: scene.store.resuming == {"r": ("alice",)})
        assert scene.store.rules[0].observe
        await bob.send("trust/accept", {"observe": "r", "on": False}, confirm=True)
        await until(lambda: not scene.store.rules[0].observe)
        await bob.send("trust/accept", {"observe": "r", "on": True}, confirm=True)
        await until(lambda: scene.store.rules[0].observe)
        await scene.alice.send("trust/stop", {"rule": "r"}, confirm=True)
        await scene.wait_for("trust/rule", "suspended")
