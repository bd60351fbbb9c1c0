"""What people say to rules, who teaches them, and what holds while the approver is away (D-92)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moot.participant import SeenProposal
from moot.protocol.operation import Json
from moot.trust.approver import rule_suggester
from moot.trust.approver.acceptance import is_about
from moot.trust.approver.rule_suggester import people_among
from moot.trust.learning.learner import suggest
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.tripwires import MemberKicked, ToolChanged, check_tripwires
from tests.trust.approver.test_approver import ApproverScene, approver_scene
from tests.waiting import HANG_SECONDS, until


@dataclass(frozen=True)
class Shown:
    name: str
    accepts: bool

    def may(self, kind: str, /) -> bool:
        return self.accepts and kind == "trust/accept"


def test_people_are_who_may_accept_rules_and_stay_so_while_they_are_away() -> None:
    here = [Shown("alice", True), Shown("agent", False), Shown("approver", True)]
    assert people_among(here, frozenset(), me="approver") == {"alice"}
    assert people_among([], frozenset({"alice"}), me="approver") == {"alice"}
    assert people_among([Shown("alice", False)], frozenset({"alice"}), me="approver") == frozenset()


async def test_a_person_who_comes_for_a_moment_is_known_as_one(tmp_path: Path) -> None:
    """A command of the shell joins, decides and leaves before anything is learned from it."""
    async with approver_scene(tmp_path, carol=["*"], dave=["chat"]) as scene:
        for name in ("carol", "dave"):
            await (await scene.party.join(name)).close()
        await until(lambda: "carol" in scene.store.people)
        assert scene.approver.suggester.learning_settings().people == frozenset({"alice", "carol"})


async def values_recur(scene: ApproverScene) -> None:
    """Until the approver has learned from all that was decided, and once more."""
    await scene.approver.suggester.suggest_now()


async def test_an_agent_that_fulfils_what_others_propose_teaches_nothing(tmp_path: Path) -> None:
    """It may call the tools itself; whether that should become a rule is not for it to say."""
    rights: Json = ["chat", {"kind": "mcp/request", "to": ["files"]}]
    async with approver_scene(tmp_path, helper=rights) as scene:
        scene.mood = "leave"
        helper = await scene.party.join("helper")

        @helper.on_proposal
        async def fulfil(seen: SeenProposal) -> None:
            await helper.approve(seen)

        for number in range(10, 22):
            assert await scene.write(f"reports/day-{number}.md") == "by helper"
        await values_recur(scene)
        assert scene.store.suggestions == {}
        report = scene.approver.status.trust_report()
        assert report["people"] == ["alice"]
        # The same decisions by a person are enough.
        await helper.close()
        await until(lambda: "helper" not in scene.alice.roster)
        scene.mood = "approve"
        assert (await scene.taught())["deciders"] == ["alice"]


async def test_what_was_granted_instead_is_suggested_again_only_once_taken_back(
    tmp_path: Path,
) -> None:
    """MEW 9.2: the agent is given the right itself, and loses it with one envelope."""
    async with approver_scene(tmp_path) as scene:
        suggestion = await scene.taught()
        id, grant = suggestion["suggestion"], suggestion["grant"]
        given = await scene.alice.admin.grant("agent", [grant["capability"]])
        accept = {"suggestion": id, "granted": True, "grant": given.id}
        await scene.alice.send("trust/accept", accept, confirm=True)
        await until(lambda: id in scene.store.granted)
        assert scene.store.rules == ()
        outcome = await scene.agent.call("files", "write_file", {"path": "reports/day-20.md", "text": "x"})
        assert outcome.how == "direct"
        await values_recur(scene)
        assert scene.store.suggestions == {}
        await scene.alice.admin.revoke("agent", grant_id=given.id)
        await until(lambda: not scene.store.granted)
        await values_recur(scene)
        assert list(scene.store.suggestions) == [id]
        assert RuleStore.open(scene.store.folder).granted == {}


@pytest.mark.parametrize("answer", ["granted", "accepted", "dismissed"])
async def test_what_is_answered_while_the_approver_learns_is_not_suggested_again(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with approver_scene(tmp_path) as scene:
        id = (await scene.taught())["suggestion"]
        kind = "trust/dismiss" if answer == "dismissed" else "trust/accept"
        loop, real = asyncio.get_running_loop(), suggest

        async def decide() -> None:
            await scene.alice.send(
                kind, {"suggestion": id} | ({"granted": True} if answer == "granted" else {})
            )
            await until(lambda: id not in scene.store.suggestions)

        def suggest_slowly(*args: Any, **more: Any) -> Any:
            found = real(*args, **more)
            asyncio.run_coroutine_threadsafe(decide(), loop).result()
            return found

        monkeypatch.setattr(rule_suggester, "suggest", suggest_slowly)
        await scene.approver.suggester.suggest_now()
        monkeypatch.setattr(rule_suggester, "suggest", real)
        assert scene.store.suggestions == {}


async def test_whoever_narrows_a_suggestion_is_not_asked_for_the_rest_of_it(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        suggestion = await scene.taught()
        rule = suggestion["rule"]
        narrow = {**rule, "arguments": {**rule["arguments"], "path": "reports/day-11.md"}}
        await scene.alice.send("trust/accept", {"suggestion": suggestion["suggestion"], "rule": narrow})
        await scene.wait_for("trust/rule", "active")
        await values_recur(scene)
        assert scene.store.suggestions == {}


async def test_a_stop_that_names_no_known_rule_is_answered_and_one_about_nothing_stops_all(
    tmp_path: Path,
) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        await scene.alice.send("trust/stop", {"rule": "reprots"})
        await scene.wait_for_chat("not stopped: there is no rule reprots")
        assert scene.store.stopped is None
        await scene.alice.send("trust/stop", {"reason": "odd"}, about="never-heard-of")
        why = (await scene.wait_for("trust/rule", "stopped")).payload["why"]
        assert why == "odd (no rule is known behind never-heard-of, so all rules are stopped)"
        last = list(scene.approver.ledger)[-1].id
        explained = await scene.alice.call("approver", "trust_explain", {"id": last})
        assert explained.structured is not None
        assert "alice stopped all rules: odd" in explained.structured["why"]
        await scene.alice.send("trust/accept", {"resume": True})
        await scene.wait_for("trust/rule", "resumed")
        await scene.alice.send("trust/accept", {"resume": True})
        await scene.wait_for_chat("rules were not stopped")


async def test_the_switch_holds_though_nobody_was_there_to_hear_it(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        await scene.away()
        await scene.alice.send("trust/stop", {"reason": "now"}, confirm=True)
        await scene.back()
        await until(lambda: scene.store.stopped is not None)
        assert scene.store.stopped is not None
        assert (scene.store.stopped.by, scene.store.stopped.why) == ("alice", "now")
        await scene.alice.send("trust/accept", {"resume": True})
        await until(lambda: scene.store.stopped is None)
        # What was said before it was lifted is over, whoever remembers it.
        await scene.away()
        await scene.back()
        await until(lambda: len(scene.approver.ledger) > 0)
        assert await scene.write("reports/day-41.md") == "by approver"
        assert scene.store.stopped is None


async def test_a_rejection_while_it_was_away_trips_and_one_from_before_a_lift_does_not(
    tmp_path: Path,
) -> None:
    async with approver_scene(tmp_path) as scene:
        name = await scene.accepted()
        assert await scene.write("reports/day-20.md") == "by approver"
        await scene.away()
        scene.mood = "reject"
        assert await scene.write("reports/day-21.md") == "no, alice: unsafe"
        await scene.back()
        await until(lambda: name in scene.store.suspensions)
        await scene.alice.send("trust/accept", {"lift": name})
        await until(lambda: name not in scene.store.suspensions)
        scene.mood = "leave"
        await scene.away()
        await scene.back()
        assert await scene.write("reports/day-22.md") == "by approver"
        # Both that it did are counted, though one was before it left.
        assert scene.approver.decider.tally.count(name) == 2
        assert scene.store.suspensions == {}


async def test_what_people_write_into_the_file_is_told_to_all(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        file = scene.store.rules_file
        file.write_text("rules:\n  - {name: notes, decision: reject, tool: delete_file}\n")
        written = (await scene.wait_for("trust/rule", "active")).payload
        assert (written["rule"]["name"], written["why"]) == ("notes", "written in rules.yaml")
        file.write_text("rules: {\n")
        assert "rules.yaml" in (await scene.wait_for("trust/rule", "stopped")).payload["why"]
        file.write_text("")
        assert "can be read again" in (await scene.wait_for("trust/rule", "resumed")).payload["why"]
        file.write_text("rules:\n  - {name: notes, decision: reject, tool: delete_file}\n")
        await until(lambda: len(scene.store.rules) == 1)
        file.unlink()
        assert (await scene.wait_for("trust/rule", "removed")).payload["rule"] == "notes"


def test_nobody_accepts_or_lifts_a_rule_whose_pattern_takes_their_own_proposals() -> None:
    def for_agent(proposer: Any) -> bool:
        return is_about(Rule(name="x", decision="approve", proposer=proposer), "agent-1")

    assert [for_agent(each) for each in ("agent-1", "agent-*", ["bob", "agent-1"], "/agent-[0-9]/")] == [
        True
    ] * 4
    assert [for_agent(each) for each in ("bob", ["bob", "eve"], None, "*")] == [False] * 4


@pytest.mark.parametrize(
    ("to", "trips"), [(("files",), True), (("fil*",), True), (None, True), ((), True), (("web",), False)]
)
def test_a_changed_tool_or_a_kick_trips_by_pattern_too(to: tuple[str, ...] | None, trips: bool) -> None:
    rule = Rule(name="x", decision="approve", proposer=["agent", "bot-*"], to=to, method="tools/call")
    assert (check_tripwires(rule, ToolChanged("files", "write_file"), 1.0) is not None) is trips
    assert check_tripwires(rule, MemberKicked("bot-7", "alice", "e"), 1.0) is not None
    assert check_tripwires(rule, MemberKicked("carol", "alice", "e"), 1.0) is None
    assert (check_tripwires(rule, MemberKicked("files", "alice", "e"), 1.0) is not None) is (
        trips and bool(to)
    )


async def test_two_in_a_row_are_told_apart(tmp_path: Path) -> None:
    """A proposal that came while the past was read is judged once, and counted once."""
    async with approver_scene(tmp_path) as scene:
        name = await scene.accepted()
        await scene.away()
        open_one = asyncio.create_task(scene.write("reports/day-30.md"))
        await until(lambda: any(seen.status == "pending" for seen in scene.alice.proposals.open()))
        await scene.back()
        assert await open_one == "by approver"
        assert scene.approver.decider.tally.count(name) == 1


async def test_one_odd_call_suspends_one_rule_and_trying_again_no_other(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        scene.mood = "leave"
        rules = [
            Rule(
                name=name, decision="approve", tool="write_file", arguments={"path": f"{name}/*", "text": "*"}
            )
            for name in ("reports", "notes", "plans")
        ]
        scene.store.set_rules(rules)
        for path in ("reports/../secrets.md", "reports/../other.md"):
            await scene.agent.propose(
                "files", "tools/call", {"name": "write_file", "arguments": {"path": path, "text": "x"}}
            )
        await until(lambda: len(list(scene.approver.ledger)) == 2)
        await until(lambda: len(scene.store.suspensions) == 1)


async def test_people_see_three_suggestions_at_once_and_what_only_reads_may_act_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not in between: a suggestion stays as it was first shown.
    monkeypatch.setattr(rule_suggester, "LEARN_SECONDS", 10 * HANG_SECONDS)
    async with approver_scene(tmp_path) as scene:
        for name in ("a", "b", "c", "d"):
            scene.files.tool(lambda page: "done", name=name)
        scene.store.set_tools({"files/a": {"effect": "reads"}})
        for name in ("a", "b", "c", "d"):
            for _ in range(9 if name == "a" else 8):
                await scene.agent.call("files", name, {"page": "one"}, timeout_seconds=HANG_SECONDS)
        await until(lambda: sum(each.lesson == "approve" for each in scene.approver.ledger) == 33)
        await values_recur(scene)
        shown = dict(scene.store.suggestions)
        limits = {each["rule"]["tool"]: each["rule"]["limits"]["count"] for each in shown.values()}
        assert len(limits) == 3
        assert limits.pop("a") > 9
        assert set(limits.values()) == {8}
        await values_recur(scene)
        assert scene.store.suggestions == shown
        for id in shown:
            await scene.alice.send("trust/dismiss", {"suggestion": id}, confirm=True)
        await until(lambda: not scene.store.suggestions)
        await values_recur(scene)
        assert len(scene.store.suggestions) == 1
        assert not scene.store.suggestions.keys() & shown
