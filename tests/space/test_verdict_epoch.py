"""The fast path keeps the ladder's verdicts for one `State.verdict_epoch`: no change of a verdict is missed.

Every kind is run through the ladder. One that is marked as leaving verdicts alone must leave all of them and
the epoch as they were; one that is marked as changing them must begin a new epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from moot.protocol.kinds import KINDS, Kind
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.config_json import load_config, save_config
from moot.space.effects import Token

from .space_driver import CALL, SpaceDriver
from .verdicts import verdicts

GRANT: Final[Json] = {"recipient": "bob", "capabilities": [{"kind": "x/y"}]}

SentInput = tuple[str, str, Json, dict[str, Any]]


def sent(session: str, kind: str, payload: Json = None, **more: Any) -> SentInput:
    return session, kind, payload or {}, more


REQUESTED = sent("alice", "mcp/request", CALL, to=["bob"], id="r1")
PROPOSED = sent("bob", "mcp/proposal", CALL, id="p1")
CHATTED = sent("bob", "chat", {"text": "hello"}, id="c1")
GRANTED = sent("alice", "capability/grant", GRANT, id="g1")
CANCELLED: Final[Json] = {"method": "notifications/cancelled", "params": {}}
PAUSED = sent("alice", "participant/pause", {}, to=["bob"], id="z1")
OPENED = sent("alice", "stream/request", {"direction": "upload"}, id="s1")
TO_BOB: Final[dict[str, Any]] = {"to": ["bob"]}

# By kind: envelopes that lead up to one of that kind, which comes last and is accepted.
STORIES: Final[dict[str, list[SentInput]]] = {
    "mcp/request": [REQUESTED],
    "mcp/response": [REQUESTED, sent("bob", "mcp/response", {"result": {}}, to=["alice"], about=["r1"])],
    "mcp/proposal": [PROPOSED],
    "mcp/withdraw": [PROPOSED, sent("bob", "mcp/withdraw", about=["p1"])],
    "mcp/reject": [PROPOSED, sent("alice", "mcp/reject", about=["p1"])],
    "moot/settle": [
        PROPOSED,
        sent("alice", "mcp/request", PROPOSED[2], to=["bob"], about=["p1"], id="r1"),
        sent("alice", "mcp/request", CANCELLED, to=["bob"], about=["r1"]),
        sent("alice", "moot/settle", {"outcome": "done"}, about=["p1"]),
    ],
    "moot/origins": [PROPOSED, sent("alice", "moot/origins", {"asks": False}, about=["p1"])],
    "moot/preview": [PROPOSED, sent("alice", "moot/preview", {"why": "it failed"}, about=["p1"])],
    "moot/delegate": [sent("alice", "moot/delegate", {"to": "bob", "expires_in_seconds": 60})],
    "moot/end-delegation": [
        sent("alice", "moot/delegate", {"to": "bob", "expires_in_seconds": 60}),
        sent("alice", "moot/end-delegation", {"to": "bob"}),
    ],
    "moot/assign": [PROPOSED, sent("alice", "moot/assign", {"to": ["bob"]}, about=["p1"])],
    "moot/opinion": [PROPOSED, sent("alice", "moot/opinion", {"opinion": "fine"}, about=["p1"])],
    "moot/plan": [sent("alice", "moot/plan", {"task": "t", "lines": []})],
    "moot/endorse": [sent("alice", "moot/endorse", {"value": "a"})],
    "moot/list-proposals": [sent("bob", "moot/list-proposals")],
    "chat": [CHATTED],
    "chat/acknowledge": [CHATTED, sent("alice", "chat/acknowledge", about=["c1"])],
    "chat/cancel": [CHATTED, sent("bob", "chat/cancel", about=["c1"])],
    "reasoning/start": [sent("alice", "reasoning/start")],
    "reasoning/thought": [sent("alice", "reasoning/thought")],
    "reasoning/conclusion": [sent("alice", "reasoning/conclusion")],
    "reasoning/cancel": [sent("alice", "reasoning/cancel")],
    "capability/grant": [GRANTED],
    "capability/revoke": [
        GRANTED,
        sent("alice", "capability/revoke", {"recipient": "bob", "grant_id": "g1"}),
    ],
    "capability/grant-ack": [GRANTED, sent("bob", "capability/grant-ack", about=["g1"])],
    "space/invite": [
        sent("alice", "space/invite", {"participant_id": "ina", "initial_capabilities": [{"kind": "chat"}]})
    ],
    "space/kick": [sent("alice", "space/kick", {"participant_id": "bob"})],
    "participant/pause": [PAUSED],
    "participant/resume": [PAUSED, sent("alice", "participant/resume", **TO_BOB)],
    "participant/request-status": [sent("alice", "participant/request-status", **TO_BOB)],
    "participant/status": [
        sent("alice", "participant/request-status", id="q1", **TO_BOB),
        sent("bob", "participant/status", about=["q1"]),
    ],
    "participant/forget": [sent("alice", "participant/forget", **TO_BOB)],
    "participant/compact": [sent("alice", "participant/compact", **TO_BOB)],
    "participant/compact-done": [
        sent("alice", "participant/compact", id="q1", **TO_BOB),
        sent("bob", "participant/compact-done", about=["q1"]),
    ],
    "participant/clear": [sent("alice", "participant/clear", **TO_BOB)],
    "participant/restart": [sent("alice", "participant/restart", **TO_BOB)],
    "participant/shutdown": [sent("alice", "participant/shutdown", **TO_BOB)],
    "stream/request": [OPENED],
    "stream/close": [OPENED, sent("alice", "stream/close", about=["s1"])],
    "stream/grant-write": [OPENED, sent("alice", "stream/grant-write", {"participant_id": "bob"})],
    "stream/revoke-write": [
        OPENED,
        sent("alice", "stream/grant-write", {"participant_id": "bob"}),
        sent("alice", "stream/revoke-write", {"participant_id": "bob"}),
    ],
    "stream/transfer-ownership": [OPENED, sent("alice", "stream/transfer-ownership", {"new_owner": "bob"})],
    "moot/roster": [sent("bob", "moot/roster")],
    "moot/list-owners": [sent("bob", "moot/list-owners", {"participants": ["alice"]})],
    "moot/approve": [PROPOSED, sent("alice", "moot/approve", about=["p1"])],
}


def two_members(**settings: Json) -> SpaceDriver:
    rights: Json = ["mcp/proposal", "mcp/withdraw", "chat", "chat/*", "reasoning/*"]
    driver = SpaceDriver(participants={"alice": ["*"], "bob": rights}, **settings)
    driver.enter("alice", "bob")
    return driver


def say(driver: SpaceDriver, envelope: SentInput) -> str | None:
    session, kind, payload, more = envelope
    if kind.startswith("stream/") and kind != "stream/request":
        (stream,) = driver.space.state.streams.open
        payload = {**payload, "stream_id": stream}
    return driver.says(session, kind, payload, **more)


def test_there_is_a_story_for_every_kind_that_members_send() -> None:
    assert set(STORIES) == {kind for kind, row in KINDS.items() if row.sender == "member"}


@pytest.mark.parametrize("kind", STORIES)
def test_a_kind_changes_verdicts_exactly_if_its_row_says_so(kind: str) -> None:
    driver = two_members()
    *before, last = STORIES[kind]
    for envelope in before:
        assert say(driver, envelope) is None
    assert last[1] == kind
    state = driver.space.state
    epoch, known = state.verdict_epoch, verdicts(state, KINDS)
    assert say(driver, last) is None
    if KINDS[kind].changes_verdict:
        assert state.verdict_epoch > epoch
    else:
        assert verdicts(state, KINDS) == known
        assert state.verdict_epoch == epoch


@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row.sender == "gateway"])
def test_what_only_the_gateway_sends_is_refused_and_changes_nothing(kind: str) -> None:
    driver = two_members()
    state = driver.space.state
    epoch, known = state.verdict_epoch, verdicts(state, KINDS)
    assert driver.says("alice", kind, {}) == "capability_violation"
    assert (state.verdict_epoch, verdicts(state, KINDS)) == (epoch, known)
    assert not KINDS[kind].changes_verdict


def test_a_refused_envelope_changes_nothing() -> None:
    driver = two_members()
    state = driver.space.state
    epoch, known = state.verdict_epoch, verdicts(state, KINDS)
    assert driver.says("bob", "space/kick", {"participant_id": "alice"}) == "capability_violation"
    assert (state.verdict_epoch, verdicts(state, KINDS)) == (epoch, known)


def test_a_kind_cannot_be_added_without_saying_whether_it_changes_verdicts() -> None:
    with pytest.raises(TypeError, match="changes_verdict"):
        Kind(name="x/y", section="D-08")  # type: ignore[call-arg]


def _reload(driver: SpaceDriver) -> None:
    saved: Any = save_config(driver.space.state.config)
    saved["limits"]["messages_per_second"] = 7
    driver.space.reload(load_config(saved), driver.now, driver.mint)


def _expire_pause(driver: SpaceDriver) -> None:
    driver.now += 60
    driver.space.expire(driver.now, driver.mint)


INPUTS: Final[dict[str, Callable[[SpaceDriver], object]]] = {
    "join": lambda driver: driver.enter("alice-2", **{"as": "alice"}),
    "leave": lambda driver: driver.leave("bob"),
    "reload": _reload,
    "restart": lambda driver: driver.space.restart(driver.now, driver.mint),
    "expire": _expire_pause,
    "health": lambda driver: driver.space.health(journal_writable=False),
    "change_capabilities": lambda driver: driver.space.change_capabilities(
        "bob", (), read_capabilities([{"kind": "chat"}]), "root", driver.now, driver.mint
    ),
}


@pytest.mark.parametrize("input", INPUTS)
def test_every_other_input_that_changes_verdicts_begins_an_epoch(input: str) -> None:
    driver = two_members()
    assert driver.says("alice", "participant/pause", {"timeout_seconds": 30}, to=["bob"]) is None
    state = driver.space.state
    epoch, known = state.verdict_epoch, verdicts(state, KINDS)
    INPUTS[input](driver)
    assert verdicts(state, KINDS) != known
    assert state.verdict_epoch > epoch


def test_a_rotated_token_leaves_verdicts_alone() -> None:
    driver = two_members()
    state = driver.space.state
    epoch, known = state.verdict_epoch, verdicts(state, KINDS)
    driver.space.rotate_credential("bob", Token("h1"), driver.now, driver.mint, keep=False)
    assert (state.verdict_epoch, verdicts(state, KINDS)) == (epoch, known)
