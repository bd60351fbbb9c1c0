"""What an older version accepted is played again as it was, though it would be refused now."""

from __future__ import annotations

import json

import pytest

from moot.gateway.hosting.space_records import replay
from moot.protocol.answer_marks import mark_error
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.config import ParticipantConfig, SpaceConfig
from moot.space.space import Space
from tests.gateway.running_gateway import CALL

CONFIG = SpaceConfig(
    name="lab",
    participants={
        name: ParticipantConfig(capabilities=read_capabilities([{"kind": "*"}]))
        for name in ("alice", "agent", "tool")
    },
)


def record(input: str, who: str, at: float, envelope: Json = None, **more: Json) -> bytes:
    fields: dict[str, Json] = {
        "t": at,
        "in": input,
        "session": f"s-{who}",
        "who": who,
        "dialect": "mew",
    } | more
    if envelope is not None:
        given = {"protocol": "mew/v0.4", "ts": "2026-11-15T12:00:00Z", "from": who, "payload": {}} | envelope
        fields = {"out": "accepted"} | fields | {"raw": given}
    return json.dumps(fields).encode()


@pytest.mark.parametrize("answered", [False, True])
def test_a_journal_of_0_1_gives_the_state_that_it_had(answered: bool) -> None:
    """An approval for somebody absent, an answer to nothing, and one that came twice."""
    space = Space(CONFIG)
    answer: Json = {"kind": "mcp/response", "to": ["alice"], "correlation_id": ["r1"]}
    records = [
        record("join", "alice", 1.0, mint=["m1", "m2"]),
        record("join", "agent", 2.0, mint=["m3", "m4"]),
        record(
            "receive", "agent", 3.0, {"id": "p1", "kind": "mcp/proposal", "to": ["tool"], "payload": CALL}
        ),
        record(
            "receive",
            "alice",
            4.0,
            {"id": "r1", "kind": "mcp/request", "to": ["tool"], "correlation_id": ["p1"], "payload": CALL},
        ),
        record("receive", "alice", 5.0, {"id": "a0", "kind": "mcp/response", "correlation_id": ["never"]}),
        record("join", "tool", 6.0, mint=["m5", "m6"]),
    ]
    if answered:
        records += [
            record("receive", "tool", 7.0, answer | {"id": "a1"}),
            record("receive", "tool", 8.0, answer | {"id": "a2"}),
        ]
    # It drew no id but that of the presence: what it did not announce then needs none now.
    records.append(record("leave", "tool", 9.0, mint=["m7"]))
    for line in records:
        replay(space, line, CONFIG)
    proposal = space.state.ledger.get("p1")
    assert proposal is not None
    assert proposal.state == "fulfilled"
    assert proposal.outcome == ("done" if answered else "unknown")
    assert all(id in space.state.window for id in ("p1", "r1", "a0"))
    assert ("a2" in space.state.window) is answered
    assert not space.state.replaying


@pytest.mark.parametrize("older", [False, True])
def test_what_one_connection_does_not_offer_comes_out_as_it_did(older: bool) -> None:
    """An older gateway took the word of the first connection for the member's, this one does not."""
    space = Space(CONFIG)
    told: dict[str, Json] = {} if older else {"options": {"answers": True}}
    error: Json = {"code": -32602, "message": "unknown tool", "data": mark_error(None)}
    answer: Json = {"kind": "mcp/response", "to": ["alice"], "correlation_id": ["r1"]}
    for line in (
        record("join", "alice", 1.0, mint=["m1", "m2"]),
        record("join", "tool", 2.0, mint=["m3", "m4"], **told),
        record("join", "tool", 3.0, mint=["m5"], **told | {"session": "s-second"}),
        record(
            "receive", "alice", 4.0, {"id": "p1", "kind": "mcp/proposal", "to": ["tool"], "payload": CALL}
        ),
        record(
            "receive",
            "alice",
            5.0,
            {"id": "r1", "kind": "mcp/request", "to": ["tool"], "correlation_id": ["p1"], "payload": CALL},
        ),
        record(
            "receive",
            "tool",
            6.0,
            answer | {"id": "a1", "payload": {"error": error}},
            session="s-second",
            out="accepted" if older else "left_to_others",
        ),
    ):
        replay(space, line, CONFIG)
    proposal = space.state.ledger.get("p1")
    assert proposal is not None
    assert proposal.outcome == ("failed" if older else "pending")
    replay(space, record("receive", "tool", 7.0, answer | {"id": "a2", "payload": {"result": {}}}), CONFIG)
    assert proposal.outcome == ("failed" if older else "done")
    if older:
        # 0.1 took a second answer, too, from a host that is newer than the gateway was.
        again = answer | {"id": "a3", "payload": {"error": error}}
        replay(space, record("receive", "tool", 8.0, again, session="s-second"), CONFIG)
        assert "a3" in space.state.window
