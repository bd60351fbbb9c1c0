"""A connection that hears only what is its own: for one of very many (decision 0243)."""

from __future__ import annotations

import random

import pytest

from moot.protocol.operation import Json
from moot.space.audiences import Audiences
from moot.space.config import SessionId

from .space_driver import CALL, SpaceDriver

MEMBERS = {
    "host": ["*"],
    "watcher": ["*"],
    "ana": ["*"],
    "bo": ["*"],
    "agent": ["mcp/proposal", "chat"],
}


@pytest.fixture
def driver() -> SpaceDriver:
    """`ana` and `bo` hear only their own; the others hear everything."""
    driver = SpaceDriver(participants=MEMBERS)
    driver.enter("host", "watcher", "agent")
    driver.enter("ana", "bo", hears="mine")
    return driver


def heard_by(driver: SpaceDriver) -> set[str]:
    return {name for name, messages in driver.received.items() if messages}


def test_what_passes_between_others_is_heard_by_those_who_hear_all(driver: SpaceDriver) -> None:
    driver.says("ana", "mcp/request", CALL, to=["host"], id="call")
    assert heard_by(driver) == {"ana", "host", "watcher", "agent"}
    driver.says("host", "mcp/response", {"result": {}}, to=["ana"], about=["call"])
    assert heard_by(driver) == {"ana", "host", "watcher", "agent"}
    driver.says("watcher", "chat", {"text": "hello"})
    assert heard_by(driver) == {"host", "watcher", "agent"}
    driver.says("agent", "reasoning/start", {"message": "hm"})
    assert "bo" not in heard_by(driver)


def test_what_is_addressed_to_it_or_answers_it_is_its_own(driver: SpaceDriver) -> None:
    driver.says("watcher", "chat", {"text": "bo?"}, to=["bo"], id="question")
    assert heard_by(driver) == {"host", "watcher", "agent", "bo"}
    driver.says("bo", "chat", {"text": "yes"}, to=["watcher"], about=["question"], id="answer")
    assert heard_by(driver) == {"host", "watcher", "agent", "bo"}
    driver.says("host", "chat", {"text": "good"}, about=["answer"])
    assert heard_by(driver) == {"host", "watcher", "agent", "bo"}
    driver.says("watcher", "mcp/request", {"method": "tools/list"})
    assert heard_by(driver) == set(MEMBERS)


def test_proposals_and_all_that_comes_of_them_are_everybodys(driver: SpaceDriver) -> None:
    driver.says("agent", "mcp/proposal", CALL, to=["host"], id="wish")
    assert heard_by(driver) == set(MEMBERS)
    driver.says("watcher", "chat", {"text": "why?"}, about=["wish"])
    assert heard_by(driver) == set(MEMBERS)
    driver.says("watcher", "mcp/request", CALL, to=["host"], about=["wish"], id="done")
    assert heard_by(driver) == set(MEMBERS)
    driver.says("host", "mcp/response", {"result": {}}, to=["watcher"], about=["done"])
    assert heard_by(driver) == set(MEMBERS)
    driver.says("agent", "mcp/proposal", CALL, to=["host"], id="another")
    driver.says("watcher", "mcp/reject", {"reason": "other"}, about=["another"])
    assert heard_by(driver) == set(MEMBERS)


def test_those_who_hear_as_little_are_not_told_of_one_another(driver: SpaceDriver) -> None:
    driver.leave("bo")
    driver.received = driver.join("bo", {"hears": "mine"})
    assert heard_by(driver) == {"host", "watcher", "agent", "bo"}
    welcome = next(each for each in driver.received["bo"] if each["kind"] == "system/welcome")
    assert {each["id"] for each in welcome["payload"]["participants"]} == {"host", "watcher", "agent"}
    driver.received = driver.join("watcher/2", {"as": "watcher", "hears": "mine"})
    assert heard_by(driver) == {"watcher/2"}


def test_whoever_comes_with_open_ears_as_well_is_told_of_and_missed(driver: SpaceDriver) -> None:
    driver.received = driver.join("bo/console", {"as": "bo"})
    assert heard_by(driver) == {"ana", "bo/console"}
    (news,) = driver.received["ana"]
    assert (news["payload"]["event"], news["payload"]["participant"]["id"]) == ("join", "bo")
    driver.received = driver.leave("bo/console")
    (news,) = driver.received["ana"]
    assert (news["payload"]["event"], news["payload"]["participant"]["id"]) == ("leave", "bo")
    assert heard_by(driver) == {"ana"}
    driver.received = driver.leave("bo")
    assert heard_by(driver) == {"host", "watcher", "agent"}


def test_who_hears_little_holds_as_much_and_as_little_as_before(driver: SpaceDriver) -> None:
    driver.says("watcher", "participant/pause", {}, to=["ana"])
    assert "bo" in heard_by(driver)
    assert driver.says("ana", "chat", {"text": "hi"}) == "participant_paused"
    driver.says("watcher", "space/kick", {"participant_id": "ana"})
    assert "bo" in heard_by(driver)


def test_a_proposer_hears_how_their_approved_call_goes(driver: SpaceDriver) -> None:
    driver.says("ana", "mcp/proposal", CALL, to=["host"], id="wish")
    driver.says("watcher", "mcp/request", CALL, to=["host"], about=["wish"], id="done")
    progress = {"method": "notifications/progress", "params": {"progressToken": "p1", "progress": 1}}
    driver.says("host", "mcp/request", progress, to=["watcher"], about=["done"])
    assert heard_by(driver) == {"host", "watcher", "agent", "ana"}


def test_whoever_was_told_something_hears_that_it_is_cancelled(driver: SpaceDriver) -> None:
    driver.says("watcher", "chat", {"text": "please look at it"}, to=["bo"], id="question")
    driver.says("watcher", "chat/cancel", {"reason": "found it"}, about=["question"])
    assert "bo" in heard_by(driver)


def test_reasoning_is_heard_by_whose_it_is_and_otherwise_not_in_part(driver: SpaceDriver) -> None:
    driver.says("ana", "chat", {"text": "why?"}, to=["host"], id="question")
    driver.says("host", "reasoning/start", {"message": "hm"}, about=["question"], id="sequence")
    told_begin = "ana" in heard_by(driver)
    driver.says("host", "reasoning/conclusion", {"message": "so"}, context="sequence")
    assert ("ana" in heard_by(driver)) == told_begin
    driver.says("bo", "reasoning/start", {"message": "hm"}, id="own")
    driver.says("watcher", "reasoning/cancel", {"reason": "enough"}, context="own")
    assert "bo" in heard_by(driver)


def known(audiences: Audiences) -> list[object]:
    everyone = audiences.everyone()
    return [everyone, audiences.hearing_all(), audiences.hearing_mine(), audiences.uniform]


def test_who_hears_what_is_the_same_as_if_it_were_found_out_anew() -> None:
    draw, here = random.Random(7), list[str]()
    driver = SpaceDriver(participants={f"m{n}": ["*"] for n in range(12)}, dialects=["mew", "mcpx"])
    for number in range(600):
        if here and draw.random() < 0.45:
            driver.leave(here.pop(draw.randrange(len(here))))
        else:
            options: dict[str, Json] = {"hears": draw.choice(["all", "mine", "mine", "mine"])}
            options |= {"injected": True} if draw.random() < 0.2 else {}
            options |= {"dialect": "mcpx", "routing": "directed"} if draw.random() < 0.1 else {}
            options |= {"runtime_id": f"id-{number}"} if draw.random() < 0.05 else {}
            if driver.comes(f"s{number}", **{"as": f"m{draw.randrange(12)}"}, **options) is None:
                here.append(f"s{number}")
        audiences, anew = driver.space.state.audiences, Audiences(driver.space.state)
        assert known(audiences) == known(anew)
        assert audiences._differs_by_hearing == anew._differs_by_hearing
        some = driver.space.state.roster.sessions.get(SessionId(here[0])) if here else None
        if some is not None:
            assert audiences.all_but(some) == anew.all_but(some)
