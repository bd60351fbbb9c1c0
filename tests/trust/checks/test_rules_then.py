"""Decisions replayed under the rules of then: as the journal tells them, and what is not known is said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from moot.cli import main
from moot.protocol.operation import Json
from moot.store.journal_reader import START as NOWHERE
from moot.store.journal_reader import JournalRecord
from moot.trust.checks.rules_then import RulesThen, replay_then
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.rule import Rule, RuleLimits
from moot.trust.rules.rule_json import rule_as_json
from tests.trust.approver.test_approver import approver_scene
from tests.trust.histories import START, call, decided
from tests.trust.rules.test_tripping import REPORTS, _case


class Told:
    """What a journal has of rules, and of one decision."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []

    def add(self, id: str, kind: str = "trust/rule", who: str = "bot", **payload: Json) -> Told:
        number = len(self.records) + 1
        raw = {"id": id, "kind": kind, "from": who, "payload": payload}
        fields = {"n": number, "t": START + number, "in": "receive", "who": who, "out": "accepted",
                  "kind": kind, "id": id, "raw": raw}  # fmt: skip
        self.records.append(JournalRecord(number, json.dumps(fields).encode() + b"\n", NOWHERE))
        return self

    def rule(self, rule: Rule, state: str = "active", why: str = "accepted by alice") -> Told:
        return self.add(f"t{len(self.records)}", rule=rule_as_json(rule), state=state, why=why)

    def replay(self, decision: HistoryProposal, past: Sequence[HistoryProposal] = ()) -> RulesThen:
        return replay_then(decision, self.records, [*past, decision])


def automatic() -> HistoryProposal:
    return decided(_case(), approved=True, by="bot", rule="reports")


def test_a_decision_is_replayed_under_the_rule_that_made_it_whatever_became_of_that() -> None:
    decision = automatic()
    told = Told().rule(REPORTS).add(str(decision.decided.envelope), "mcp/request")
    told.rule(replace(REPORTS, tool="read_file"), why="written in rules.yaml")
    told.rule(replace(REPORTS, tool="read_file"), "suspended", "a tool changed")
    told.add("t9", rule="reports", state="removed", why="removed by alice")
    found = told.replay(decision)
    assert found.verdict is not None
    assert (found.verdict.decision, found.verdict.rule) == ("approve", REPORTS)
    assert found.notes == ()
    assert found.lines() == ["Rules of then: approve (rule reports matches)."]
    assert found.as_json()["rule"]["tool"] == "write_file"


@pytest.mark.parametrize("state", ["suspended", "removed", "other", "limit", "stopped"])
def test_a_rule_that_should_not_have_decided_is_told(state: str) -> None:
    past: list[HistoryProposal] = []
    decision = decided(replace(_case(), at=START + 60), approved=True, by="bot", rule="reports")
    told = Told().rule(REPORTS)
    if state == "suspended":
        told.rule(REPORTS, "suspended", "somebody objected")
    elif state == "removed":
        told.add("t1", rule="reports", state="removed")
    elif state == "other":
        told.rule(replace(REPORTS, proposer="mallory"))
    elif state == "stopped":
        told.add("t1", state="stopped", by="alice", why="audit")
    else:
        told.rule(replace(REPORTS, limits=RuleLimits(max_decisions=1, per_seconds=3600.0)))
        past = [automatic()]
    told.add(str(decision.decided.envelope), "mcp/request")
    found = told.replay(decision, past)
    if state == "removed":
        assert found.verdict is None
        assert found.notes == ("The journal does not tell what rule reports said then.",)
    else:
        assert found.verdict is not None
        assert found.verdict.decision == "ask"
        assert found.notes[0].startswith("Yet rule reports decided")


def test_why_people_were_asked_is_what_the_rules_said_when_it_was_proposed() -> None:
    case = call({"path": "/etc/x"}, at=START + 60)
    decision = decided(case, approved=True)
    told = Told().rule(REPORTS).add(case.id, "mcp/proposal", "agent")
    told.rule(replace(REPORTS, name="wider", arguments={}), why="accepted by alice")
    found = told.replay(decision)
    assert found.verdict is not None
    assert (found.verdict.decision, found.verdict.why) == ("ask", "no rule matches")
    assert Told().add(case.id, "mcp/proposal").replay(decision).lines() == [
        "Rules of then: not known.",
        "  Until then the journal tells of no rule.",
    ]
    inside = decided(_case(), approved=True)
    asked = Told().rule(REPORTS).add(inside.id, "mcp/proposal", "agent").replay(inside)
    assert asked.notes[0].startswith("Yet no rule decided")


def test_rules_that_were_there_and_never_told_are_named_and_those_that_were_gone_do_not_count() -> None:
    decision = automatic()
    told = Told().rule(replace(REPORTS, name="gone", decision="reject"))
    told.add("t", rule=rule_as_json(REPORTS), state="active", rules=["first", "reports"])
    found = told.add(str(decision.decided.envelope), "mcp/request").replay(decision)
    assert found.verdict is not None
    assert found.verdict.rule == REPORTS
    assert "does not tell what they said: first." in found.notes[-1]


def test_rules_that_another_member_tells_of_are_not_those_that_decided() -> None:
    decision = automatic()
    told = Told().rule(REPORTS)
    told.add("x", who="mallory", rule=rule_as_json(replace(REPORTS, decision="reject")), state="active")
    told.add("y", who="bot", rule={"name": "no rule at all"}, state="active")
    found = told.add(str(decision.decided.envelope), "mcp/request").replay(decision)
    assert found.verdict is not None
    assert found.verdict.decision == "approve"
    assert found.notes == ("mallory told of rules, too, which are left out.",)


async def test_a_rule_is_told_before_it_first_decides_whoever_told_of_it_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have come with the file, or been changed there, while no approver ran."""
    async with approver_scene(tmp_path) as scene:
        name = await scene.accepted()
        await scene.away()
        file = scene.store.rules_file
        file.write_text(file.read_text().replace(f"name: {name}", "name: renamed"))
        scene.trust.clear()
        await scene.back()
        for number in (21, 22):
            assert await scene.write(f"reports/day-{number}.md") == "by approver"
        told = [each.payload["rule"]["name"] for each in scene.trust if each.kind == "trust/rule"]
        assert told == ["renamed"]
        first = list(scene.approver.ledger)[-2]
    data = tmp_path / "data"
    capsys.readouterr()
    assert main(["proposal", "explain", first.id, "--data", str(data), "--state", str(tmp_path / "no")]) == 0
    out = capsys.readouterr().out
    assert "Rules of then: approve (rule renamed matches)." in out
    assert "Current rules: ask (no rule matches)." in out
    assert main(["proposal", "explain", first.id, "--data", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["then"]["rule"]["name"] == "renamed"
