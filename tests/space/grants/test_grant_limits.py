"""Grants that end at a time or after a number of uses: the space keeps both, and in doubt they are over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moot.protocol.operation import Json
from moot.space.config import SessionId
from moot.space.effects import Deliver
from moot.space.fast_path_record import fast_path_record
from moot.space.space import Space
from tests.rows import for_each_row
from tests.space.space_driver import CALL, SpaceDriver

READ = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_file"}}}
HOUR = 3_600.0


def lab(**settings: Json) -> SpaceDriver:
    participants: Json = {
        "human": ["*"],
        "agent": ["chat", "mcp/proposal", "capability/grant", "capability/revoke", "space/invite"],
        "other": ["chat"],
        "files": ["mcp/response"],
    }
    driver = SpaceDriver(participants=participants, **settings)
    driver.enter("human", "agent", "other", "files")
    return driver


def grant(
    driver: SpaceDriver, *rights: Json, id: str = "g1", who: str = "agent", **limits: Json
) -> str | None:
    payload: Json = {"recipient": who, "capabilities": list(rights or (READ,)), **limits}
    return driver.says("human", "capability/grant", payload, id=id)


def call(driver: SpaceDriver, **more: Any) -> str | None:
    return driver.says("agent", "mcp/request", CALL, to=["files"], **more)


def revocations(driver: SpaceDriver, name: str = "other") -> list[Json]:
    return [m for m in driver.received[name] if m.get("kind") == "capability/revoke"]


def reopened(driver: SpaceDriver) -> Space:
    """The same space from its snapshot."""
    saved = json.loads(json.dumps(driver.space.save()))
    return Space(driver.space.state.config, saved=saved)


def test_a_grant_for_one_use_allows_one_call_and_everybody_is_told_that_it_is_used_up() -> None:
    driver = lab()
    assert grant(driver, max_uses=1) is None
    assert call(driver) is None
    (answer,) = revocations(driver)
    assert answer["from"] == "system:gateway"
    assert answer["payload"] | {"capabilities": None} == {
        "recipient": "agent",
        "grant_id": "g1",
        "capabilities": None,
        "reason": "used_up",
    }
    assert answer["payload"]["capabilities"] == [READ]
    assert "system/welcome" in driver.kinds("agent")
    assert call(driver) == "capability_violation"
    assert "g1" not in driver.space.state.grants.by_id


def test_a_use_is_delivered_when_it_is_on_disk() -> None:
    """A crash must not give it back."""
    driver = lab()
    grant(driver, max_uses=2)
    assert call(driver) is None
    (delivered,) = [effect for effect in driver.effects if isinstance(effect, Deliver)]
    assert delivered.waits_for_disk


def test_what_is_refused_or_allowed_anyway_is_no_use() -> None:
    driver = lab()
    grant(driver, {"kind": "chat"}, READ, max_uses=1)
    assert driver.says("agent", "chat", {"text": "my own right"}) is None
    assert (
        driver.says("agent", "mcp/request", {"method": "tools/call"}, to=["files"]) == "capability_violation"
    )
    assert call(driver, id="first") is None
    assert call(driver, id="second") == "capability_violation"


def test_messages_of_a_call_that_was_made_need_no_further_use() -> None:
    driver = lab()
    grant(driver, {"kind": "mcp/*"}, max_uses=1)
    assert call(driver, id="r1") is None
    cancel: Json = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    assert driver.says("agent", "mcp/request", cancel, to=["files"], about=["r1"]) is None


def test_the_oldest_of_several_grants_is_used_first() -> None:
    driver = lab()
    grant(driver, id="g1", max_uses=1)
    grant(driver, id="g2", max_uses=2)
    assert [call(driver) for _ in range(4)] == [None, None, None, "capability_violation"]


def test_a_grant_that_is_over_is_not_used_in_place_of_another() -> None:
    driver = lab()
    grant(driver, id="over", max_uses=5, expires_in_seconds=HOUR)
    grant(driver, id="valid", max_uses=1)
    driver.now += HOUR
    assert [call(driver) for _ in range(2)] == [None, "capability_violation"]
    assert "valid" not in driver.space.state.grants.by_id


def test_one_message_does_not_use_two_grants_at_once() -> None:
    """Responses to two requests, each allowed by another grant."""
    driver = lab()
    driver.says("human", "mcp/request", {"method": "a/b"}, id="r1")
    driver.says("human", "mcp/request", {"method": "c/d"}, id="r2")
    for id, method in (("g1", "a/b"), ("g2", "c/d")):
        grant(driver, f"mcp/response:{method}", id=id, max_uses=1)
    answer: Json = {"result": {}}
    assert driver.says("agent", "mcp/response", answer, about=["r1", "r2"]) == "capability_violation"
    assert {"g1", "g2"} <= driver.space.state.grants.by_id.keys()


@pytest.mark.parametrize("timer", ["on time", "late"])
def test_a_grant_for_an_hour_ends_after_an_hour_whether_or_not_the_timer_is_late(timer: str) -> None:
    driver = lab()
    grant(driver, expires_in_seconds=HOUR)
    driver.now += HOUR - 1
    assert call(driver) is None
    assert driver.space.next_deadline() == driver.now + 1
    if timer == "late":
        driver.now += 1
    else:
        driver.received = driver.wait(1)
        (answer,) = revocations(driver)
        assert answer["payload"]["reason"] == "expired"
        assert READ not in driver.rights("agent")
    assert call(driver) == "capability_violation"


def test_the_earlier_of_both_ends_counts() -> None:
    driver = lab()
    grant(driver, expires_in_seconds=HOUR, max_uses=5)
    assert call(driver) is None
    driver.wait(HOUR)
    assert call(driver) == "capability_violation"


def test_a_lasting_grant_stays_when_a_limited_one_of_the_same_right_ends() -> None:
    driver = lab()
    grant(driver, id="g1")
    grant(driver, id="g2", expires_in_seconds=HOUR)
    driver.wait(HOUR)
    assert [call(driver) for _ in range(2)] == [None, None]


@pytest.mark.parametrize("limits", [{"max_uses": 1}, {"expires_in_seconds": HOUR}], ids=["uses", "time"])
def test_what_ends_by_itself_cannot_be_handed_on(limits: dict[str, Json]) -> None:
    """Or one call would become as many as the next one likes."""
    driver = lab()
    grant(driver, **limits)
    payload: Json = {"recipient": "other", "capabilities": [READ]}
    assert driver.says("agent", "capability/grant", payload) == "capability_violation"
    invite: Json = {"participant_id": "new", "initial_capabilities": [READ]}
    driver.says("agent", "space/invite", invite)
    assert "new" not in driver.space.state.roster.members
    # Nor does it keep up what was handed on by a right that is gone.
    grant(driver, id="lasting")
    assert driver.says("agent", "capability/grant", payload, id="handed-on") is None
    assert driver.says("human", "capability/revoke", {"recipient": "agent", "grant_id": "lasting"}) is None
    assert "handed-on" not in driver.space.state.grants.by_id
    assert call(driver) is None


@pytest.mark.parametrize("counted", [True, False], ids=["uses", "time"])
def test_a_snapshot_keeps_what_is_left(counted: bool) -> None:
    driver = lab()
    grant(driver, **({"max_uses": 3} if counted else {"expires_in_seconds": HOUR}))
    assert call(driver) is None
    driver.now += HOUR - 1
    space = reopened(driver)
    assert space.state.grants.by_id == driver.space.state.grants.by_id
    assert space.next_deadline() == driver.space.next_deadline()
    driver.space = space
    expected = [None, None, "capability_violation"] if counted else [None, None, None]
    assert [call(driver) for _ in range(3)] == expected
    driver.wait(1)
    assert call(driver) == "capability_violation"


def test_a_restart_without_a_clock_ends_what_was_granted_for_a_time() -> None:
    driver = lab()
    grant(driver, id="timed", expires_in_seconds=HOUR)
    grant(driver, id="counted", max_uses=1)
    grant(driver, id="lasting")
    driver.space = reopened(driver)
    driver.space.restart(driver.now, driver.mint, clock_lost=True)
    assert list(driver.space.state.grants.by_id) == ["counted", "lasting"]


def test_a_wall_clock_that_is_set_ahead_shows_that_a_time_is_over() -> None:
    driver = lab()
    grant(driver, expires_in_seconds=HOUR)
    driver.space.note_wall_clock(driver.now - HOUR, driver.now, driver.mint)
    assert call(driver) is None
    driver.space.note_wall_clock(driver.now + HOUR, driver.now, driver.mint)
    assert call(driver) == "capability_violation"


def test_the_fast_path_is_not_for_what_ends_by_itself() -> None:
    """It looks at no clock."""
    driver = SpaceDriver(participants={"human": ["*"], "agent": ["mcp/proposal"]}, dialects=["mew"])
    driver.enter("human", "agent")
    state = driver.space.state
    session = state.roster.sessions[SessionId("agent")]
    grant(driver, {"kind": "chat"}, id="timed", expires_in_seconds=HOUR)
    assert driver.says("agent", "chat", {"text": "hi"}) is None
    assert fast_path_record(state, session, "chat") is None
    grant(driver, {"kind": "chat"}, id="lasting")
    assert fast_path_record(state, session, "chat") is not None


def test_nothing_is_used_while_the_journal_cannot_be_written() -> None:
    driver = lab()
    grant(driver, {"kind": "vendor/note"}, max_uses=1)
    driver.journal(False)
    assert driver.says("agent", "vendor/note", {}) == "unavailable"
    driver.journal(True)
    assert driver.says("agent", "vendor/note", {}) is None


def test_a_use_that_revokes_its_own_grant_does_not_bring_it_back() -> None:
    driver = lab()
    driver.says("human", "capability/revoke", {"recipient": "agent", "capabilities": ["capability/revoke"]})
    grant(driver, {"kind": "capability/revoke", "payload": {"recipient": "agent"}}, who="other", max_uses=5)
    grant(driver, id="g2")
    own: Json = {"recipient": "other", "grant_id": "g1"}
    driver.says("other", "capability/revoke", own)
    assert driver.says("human", "capability/revoke", own) in (None, "invalid_request")
    assert "g1" not in driver.space.state.grants.by_id


def test_a_kicked_member_has_no_grant_that_could_end() -> None:
    driver = lab()
    grant(driver, expires_in_seconds=HOUR)
    assert driver.says("human", "space/kick", {"participant_id": "agent"}) is None
    driver.received = driver.wait(HOUR)
    assert revocations(driver) == []


@for_each_row(
    "limits",
    [
        {"expires_in_seconds": 0},
        {"expires_in_seconds": -1},
        {"expires_in_seconds": "3600"},
        {"expires_in_seconds": True},
        {"max_uses": 0},
        {"max_uses": 1.5},
        {"max_uses": "1"},
        {"max_uses": True},
        {"max_uses": [1]},
    ],
    ids=str,
)
def test_a_limit_that_cannot_be_kept_is_refused_and_grants_nothing(limits: dict[str, Json]) -> None:
    driver = lab()
    assert grant(driver, **limits) == "invalid_request"
    assert call(driver) == "capability_violation"


@pytest.mark.parametrize("dialect", ["mcpx", "m3p"])
def test_members_of_other_dialects_are_held_to_it_and_told(dialect: str) -> None:
    driver = lab()
    driver.leave("agent")
    driver.enter("agent", dialect=dialect)
    grant(driver, max_uses=1)
    dotted = dialect == "m3p"
    kind = "mcp.request.tools/call:read_file" if dotted else "mcp/request:tools/call:read_file"
    assert driver.says("agent", kind, CALL, to=["files"]) is None
    assert ("capability.revoke" if dotted else "capability/revoke") in driver.kinds("agent")
    assert driver.says("agent", kind, CALL, to=["files"]) == "capability_violation"


def test_a_late_timer_that_ends_a_guest_and_its_grant_ends_the_rest_too() -> None:
    """The guest is shut down, its grant goes with it, and whatever else is due still comes to its end."""
    driver = lab(anonymous=["chat"])
    driver.enter("gus", anonymous=True)
    assert driver.says("human", "participant/shutdown", {}, to=["gus"]) is None
    assert grant(driver, {"kind": "chat"}, who="gus", expires_in_seconds=60) is None
    assert grant(driver, id="g2", expires_in_seconds=90) is None
    driver.received = driver.wait(HOUR)
    assert [answer["payload"]["grant_id"] for answer in revocations(driver)] == ["g2"]
    assert not driver.space.state.grants.by_id
    assert driver.space.state.roster.resolve("gus") is None
    assert driver.space.next_deadline() is None
