"""Where a space asks for it, several people have to accept a rule, over restarts and whatever is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.participant import JoinedSpace
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.rule_yaml import read_rules
from tests.trust.approver.test_approver import ApproverScene, approver_scene
from tests.waiting import until


@asynccontextmanager
async def two_people(tmp_path: Path) -> AsyncIterator[tuple[ApproverScene, JoinedSpace, str]]:
    """An office in which two people have to accept, what it suggests, and the second person."""
    folder = tmp_path / "trust"
    folder.mkdir(mode=0o700)
    (folder / "rules.yaml").write_text("accepting_people: 2\n")
    async with approver_scene(tmp_path, bob=["*"]) as scene:
        bob = await scene.party.join("bob")
        yield scene, bob, (await scene.taught())["suggestion"]


async def accept(person: JoinedSpace, scene: ApproverScene, id: str, **more: object) -> None:
    await person.send("trust/accept", {"suggestion": id, **more}, confirm=True)


async def test_a_rule_decides_only_after_another_person_has_accepted_it_too(tmp_path: Path) -> None:
    async with two_people(tmp_path) as (lab, bob, id):
        await accept(lab.alice, lab, id)
        await until(lambda: id in lab.store.pending)
        assert lab.store.rules == ()
        (shown,) = lab.store.open_suggestions()
        assert (shown["accepted_by"], shown["accepting_people"]) == (["alice"], 2)
        await until(lambda: any(each.payload.get("accepted_by") == ["alice"] for each in lab.trust))
        # The same person once more is not another one.
        await accept(lab.alice, lab, id)
        await lab.wait_for_chat("you have accepted it already")
        assert lab.store.rules == ()
        await accept(bob, lab, id)
        active = (await lab.wait_for("trust/rule", "active")).payload
        assert active["why"] == "accepted by alice and bob"
        (rule,) = read_rules(lab.store.rules_file.read_text())
        assert (rule.origin.accepted_by, rule.origin.seconded_by) == ("alice", ("bob",))
        assert lab.store.rules_file.read_text().startswith("accepting_people: 2\n")
        assert lab.store.pending == {}
        lab.mood = "leave"
        assert await lab.write("reports/day-29.md") == "by approver"


async def test_half_an_acceptance_survives_a_restart_and_the_loss_of_the_rules_file(tmp_path: Path) -> None:
    async with two_people(tmp_path) as (lab, bob, id):
        await accept(lab.alice, lab, id)
        await until(lambda: id in lab.store.pending)
        await lab.away()
        lab.store.rules_file.unlink()
        await lab.back()
        assert lab.store.accepting_people == 2
        await accept(lab.alice, lab, id)
        await lab.wait_for_chat("you have accepted it already")
        await accept(bob, lab, id)
        await until(lambda: len(lab.store.rules) == 1)
        assert RuleStore.open(lab.store.folder).accepting_people == 2


async def test_a_narrower_rule_is_accepted_by_both_or_not_at_all(tmp_path: Path) -> None:
    async with two_people(tmp_path) as (lab, bob, id):
        rule = lab.store.suggestions[id]["rule"]
        narrow = {**rule, "arguments": {**rule.get("arguments", {}), "path": "reports/day-11.md"}}
        narrow.pop("path", None)
        narrow.pop("words", None)
        await accept(lab.alice, lab, id)
        await until(lambda: id in lab.store.pending)
        # Bob accepts less: Alice has not accepted that.
        await accept(bob, lab, id, rule=narrow)
        await until(lambda: lab.store.pending[id].by == ("bob",))
        assert lab.store.open_suggestion(id)["accepted_rule"]["arguments"]["path"] == "reports/day-11.md"
        await accept(lab.alice, lab, id)
        await until(lambda: len(lab.store.rules) == 1)
        assert lab.store.rules[0].arguments["path"] == "reports/day-11.md"
        assert lab.store.rules[0].origin.seconded_by == ("alice",)


async def test_who_may_no_longer_accept_does_not_count_and_a_dismissal_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_people(tmp_path) as (lab, bob, id):
        await accept(bob, lab, id)
        await until(lambda: id in lab.store.pending)
        # As if the roster had shown Bob without the capability: whenever the learner wakes, it looks there.
        monkeypatch.setattr(lab.approver.suggester, "update_people", lambda: None)
        lab.store.people = lab.store.people - {"bob"}
        await accept(lab.alice, lab, id)
        await until(lambda: lab.store.pending[id].by == ("alice",))
        assert lab.store.rules == ()
        await lab.alice.send("trust/dismiss", {"suggestion": id}, confirm=True)
        await until(lambda: not lab.store.pending)


async def test_what_people_reject_meanwhile_ends_half_an_acceptance(tmp_path: Path) -> None:
    async with two_people(tmp_path) as (lab, bob, id):
        await accept(lab.alice, lab, id)
        await until(lambda: id in lab.store.pending)
        # More evidence of the same kind leaves it open.
        assert await lab.write("reports/day-31.md") == "by alice"
        await lab.approver.suggester.suggest_now()
        assert id in lab.store.pending
        lab.mood = "reject"
        assert await lab.write("reports/day-12.md", "x") == "no, alice: unsafe"
        await lab.approver.suggester.suggest_now()
        assert id not in lab.store.pending
        refusals: list[str] = []
        bob.on("chat")(lambda envelope: refusals.append(envelope.payload["text"]))
        await accept(bob, lab, id)
        await until(lambda: any("no longer exists" in text for text in refusals))
        assert lab.store.rules == ()


async def resume(person: JoinedSpace, **what: object) -> None:
    await person.send("trust/accept", what, confirm=True)


async def test_a_suspended_rule_is_resumed_by_as_many_people_as_have_to_accept_one(tmp_path: Path) -> None:
    async with two_people(tmp_path) as (lab, bob, id):
        for person in (lab.alice, bob):
            await accept(person, lab, id)
        await until(lambda: len(lab.store.rules) == 1)
        name = lab.store.rules[0].name
        lab.mood = "leave"
        await lab.alice.send("trust/stop", {"rule": name}, confirm=True)
        await until(lambda: name in lab.store.suspensions)
        # One person, however often, is one.
        for _ in range(2):
            lab.trust.clear()
            await resume(lab.alice, lift=name)
            await until(lambda: any("resumed_by" in each.payload for each in lab.trust))
            half = next(each.payload for each in lab.trust if "resumed_by" in each.payload)
            assert (half["state"], half["resumed_by"], half["accepting_people"]) == (
                "suspended",
                ["alice"],
                2,
            )
        await lab.away()
        await lab.back()
        assert lab.store.resuming == {name: ("alice",)}
        # Who objects meanwhile ends it: the first has not heard that.
        await bob.send("trust/stop", {"rule": name}, confirm=True)
        await until(lambda: not lab.store.resuming)
        await resume(bob, lift=name)
        await until(lambda: lab.store.resuming == {name: ("bob",)})
        assert name in lab.store.suspensions
        assert lab.approver.status.trust_rules()["rules"][0]["resumed_by"] == ["bob"]
        await resume(lab.alice, lift=name)
        assert (await lab.wait_for("trust/rule", "lifted")).payload["why"] == "resumed by bob and alice"
        assert (lab.store.suspensions, lab.store.resuming) == ({}, {})
        assert await lab.write("reports/day-29.md") == "by approver"


async def test_all_rules_are_resumed_by_as_many_people_and_only_by_those_who_still_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_people(tmp_path) as (lab, bob, _):
        await lab.alice.send("trust/stop", {}, confirm=True)
        await until(lambda: lab.store.stopped is not None)
        await resume(bob, resume=True)
        await until(lambda: lab.store.resuming == {"": ("bob",)})
        assert RuleStore.open(lab.store.folder).resuming == {"": ("bob",)}
        # As if the roster had shown Bob without the capability: whenever the learner wakes, it looks there.
        monkeypatch.setattr(lab.approver.suggester, "update_people", lambda: None)
        lab.store.people = lab.store.people - {"bob"}
        await resume(lab.alice, resume=True)
        await until(lambda: lab.store.resuming == {"": ("alice",)})
        assert lab.store.stopped is not None
        lab.store.people = lab.store.people | {"bob"}
        await resume(bob, resume=True)
        await until(lambda: lab.store.stopped is None)
        assert (await lab.wait_for("trust/rule", "resumed")).payload["by"] == "alice and bob"


@pytest.mark.parametrize("count", ["0", "11", "true", "2.0", "two"])
def test_the_number_of_people_has_bounds(count: str) -> None:
    with pytest.raises(UsageError, match="accepting_people must be a whole number from 1 to 10"):
        read_rules(f"accepting_people: {count}\nrules: []")


def test_a_state_of_an_earlier_version_asks_one_person(tmp_path: Path) -> None:
    RuleStore.open(tmp_path).save()
    file = tmp_path / "state.json"
    state = json.loads(file.read_text())
    del state["pending"], state["accepting_people"], state["resuming"]
    file.write_text(json.dumps(state))
    assert RuleStore.open(tmp_path).accepting_people == 1
