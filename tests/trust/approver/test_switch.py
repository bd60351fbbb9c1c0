"""The switch always works: no clock, absence or lost file lets a rule decide after somebody stopped it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from moot.trust.history.proposal_case import Case, case_of
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.rules.rule_store import STATE_NAME, RuleStore
from moot.trust.rules.rule_yaml import write_rules
from tests.trust.approver.test_approver import ApproverScene, approver_scene
from tests.waiting import until

DAY = 86_400.0


def set_wall_clock(scene: ApproverScene, by_seconds: float) -> None:
    """Somebody sets the wall clock of the approver's machine."""
    scene.approver.wall_clock = scene.approver.commands.clock = lambda: time.time() + by_seconds


def report(day: int = 40) -> Case:
    arguments = {"path": f"reports/day-{day}.md", "text": "x"}
    payload = {"method": "tools/call", "params": {"name": "write_file", "arguments": arguments}}
    return case_of("p-1", "agent", ["files"], payload, at=time.time())


async def resumed(scene: ApproverScene) -> None:
    await scene.alice.send("trust/accept", {"resume": True}, confirm=True)
    await until(lambda: scene.store.stopped is None)
    scene.trust.clear()


async def test_a_stop_holds_though_the_clock_was_set_back_after_a_resume(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        name = await scene.accepted()
        await scene.alice.send("trust/stop", {}, confirm=True)
        await scene.wait_for("trust/rule", "stopped")
        await resumed(scene)
        set_wall_clock(scene, -DAY)
        await scene.alice.send("trust/stop", {"rule": name}, confirm=True)
        assert (await scene.wait_for("trust/rule", "suspended")).payload["rule"]["name"] == name
        await scene.alice.send("trust/stop", {"reason": "again"}, confirm=True)
        assert (await scene.wait_for("trust/rule", "stopped")).payload["why"] == "again"
        assert scene.approver.decider.verdict(report()).decision == "ask"


async def test_a_rejection_suspends_though_the_clock_was_set_back_after_the_review(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        set_wall_clock(scene, DAY)
        name = await scene.accepted()
        # Nobody looked at the rule since; by the clock, the review is yet to come.
        set_wall_clock(scene, 0)
        scene.store.reviewed[name] = time.time() + DAY
        await scene.away()
        scene.mood = "reject"
        assert await scene.write("reports/day-31.md") == "no, alice: unsafe"
        await scene.back()
        await until(lambda: name in scene.store.suspensions)


async def test_a_stop_while_the_approver_is_away_is_obeyed_by_its_place_not_its_time(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        set_wall_clock(scene, DAY)
        await scene.alice.send("trust/stop", {}, confirm=True)
        await scene.wait_for("trust/rule", "stopped")
        await resumed(scene)
        await scene.away()
        # One that cannot be is answered, and keeps none behind it from being obeyed.
        await scene.alice.send("trust/stop", {"rule": "no-such"}, confirm=True)
        await scene.alice.send("trust/stop", {"reason": "while away"}, confirm=True)
        await scene.back()
        await scene.wait_for_chat("not stopped: there is no rule no-such")
        stop = await scene.wait_for("trust/rule", "stopped")
        assert stop.payload["why"] == "while away"
        assert scene.approver.decider.verdict(report()).decision == "ask"


async def test_what_the_history_no_longer_has_may_have_been_a_stop(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        await scene.away()
        scene.store.last_seen = ("long-ago",)
        scene.store.save()
        await scene.back()
        assert "one may have been a stop" in (await scene.wait_for("trust/rule", "stopped")).payload["why"]
        await resumed(scene)
        assert await scene.write("reports/day-41.md") == "by approver"
        # Known from here on: another restart does not stop them again.
        await scene.away()
        await scene.back()
        assert await scene.write("reports/day-42.md") == "by approver"


async def test_a_new_approver_obeys_the_stop_that_another_one_was_told(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        await scene.alice.send("trust/stop", {"reason": "audit"}, confirm=True)
        await scene.wait_for("trust/rule", "stopped")
        await scene.away()
        scene.trust.clear()
        rules = scene.store.rules_file.read_text("utf-8").split("  origin:")[0]
        scene.store = RuleStore.open(tmp_path / "another")
        scene.store.rules_file.write_text(rules)
        await scene.back()
        assert (await scene.wait_for("trust/rule", "stopped")).payload["why"] == "audit"


async def test_accepted_rules_without_their_state_ask(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        await scene.away()
        (scene.store.folder / STATE_NAME).unlink()
        stopped = RuleStore.open(scene.store.folder).stopped
        assert stopped is not None
        assert "state.json is missing" in stopped.why


async def test_a_rule_that_has_matched_does_not_decide_after_the_stop(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        scene.approver.commands.stop_all("alice", "wait")
        params = {"name": "write_file", "arguments": {"path": "reports/day-50.md", "text": "x"}}
        sent = await scene.agent.propose("files", "tools/call", params)
        await until(lambda: scene.approver.ledger.get(sent.id) is not None)
        found = scene.approver.ledger.get(sent.id)
        assert found is not None
        scene.store.stopped = None
        assert scene.approver.decider.verdict(found.case).decision == "approve"
        # Both before the loop turns: the approval is decided, and not yet sent.
        scene.approver.decider.apply(found.case)
        scene.approver.commands.stop_all("alice", "now")
        await scene.alice.send("trust/stop", {"rule": "no-such"}, confirm=True)
        await scene.wait_for_chat("there is no rule no-such")
        assert scene.written == [f"reports/day-{day}.md" for day in range(10, 20)]


async def test_an_expired_rule_does_not_revive_when_the_clock_is_set_back(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()

        async def give_end(days: float) -> None:
            (rule,) = scene.store.rules
            limits = replace(rule.limits, expires_at=float(int(time.time() + days * DAY)))
            scene.store.rules_file.write_text(write_rules([replace(rule, limits=limits)]))
            await until(lambda: scene.store.rules[0].limits == limits)

        await give_end(1)
        await until(lambda: scene.approver.decider.verdict(report()).decision == "approve")
        set_wall_clock(scene, 2 * DAY)
        assert scene.approver.decider.verdict(report()).decision == "ask"
        set_wall_clock(scene, 0)
        assert scene.approver.decider.verdict(report()).decision == "ask"
        assert scene.approver.status.trust_rules()["rules"][0]["state"] == "expired"
        await scene.away()
        await scene.back()
        assert scene.approver.decider.verdict(report()).decision == "ask"
        # A person gives it another end.
        await give_end(3)
        await until(lambda: scene.approver.decider.verdict(report()).decision == "approve")


async def test_what_is_over_by_the_clock_of_the_approver_alone_is_decided(tmp_path: Path) -> None:
    """The journal has the gateway's times, from which its own clock may be days away."""
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        await scene.away()
        call = {"name": "write_file", "arguments": {"path": "reports/day-41.md", "text": "x"}}
        seen = await scene.agent.propose("files", "tools/call", call)
        ledger = ProposalHistory()
        for envelope in await scene.alice.history():
            ledger.observe(envelope, time.time() - 2 * DAY)
        ledger.advance(time.time())
        assert [each.status for each in ledger][-1] == "expired"
        await scene.back(ledger)
        known = scene.alice.proposals.get(seen.id)
        assert known is not None
        await until(lambda: known.status == "fulfilled")
        assert known.fulfilled_by == "approver"


async def test_a_clock_that_was_set_gives_no_rule_other_hours(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.accepted()
        file, hour = scene.store.rules_file, time.gmtime().tm_hour
        begin, end = (hour + 6) % 24, (hour + 9) % 24
        file.write_text(f"{file.read_text('utf-8').rstrip()}\n  hours: '{begin:02}:00-{end:02}:00'\n")
        await until(lambda: scene.store.rules[0].hours is not None)
        assert scene.approver.decider.verdict(report()).decision == "ask"
        set_wall_clock(scene, 7 * 3600.0)
        assert "the clock was set by +25200 s" in scene.approver.decider.verdict(report()).why
