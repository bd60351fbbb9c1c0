"""A quorum over real connections: the last vote makes the call, once, and a restart knows it (D-103)."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest

from moot.gateway.hosting.rights_reduction import describe_reduction, reduce_rights
from moot.gateway.hosting.space_records import replay
from moot.gateway.hosting.stored_input import read_input
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.space.config import Name, Quorum, SpaceConfig
from moot.space.inputs.passkey_changes import PasskeyInput
from moot.space.space import Space
from moot.space.tokens.passkeys import Passkey
from tests.gateway.hosting.test_outcomes_replay import CONFIG, record
from tests.gateway.running_gateway import (
    CALL,
    GatewayUnderTest,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served, started

PEOPLE = participants(ana=["*"], bob=["*"], agent=["mcp/proposal"], tool=[])
RULES: Json = {"quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 2}]}


async def kinds_of(gateway: GatewayUnderTest) -> list[tuple[str, str]]:
    """Kind and sender of all that the journal has for members, oldest first."""
    headers = {"Authorization": "Bearer t-ana"}
    page = (await gateway.http.get("/spaces/lab/history", headers=headers)).json()
    return [(each["kind"], each["from"]) for each in page["messages"]]


async def test_whoever_may_make_the_call_is_refused_over_socket_and_http(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, rules=RULES) as gateway:
        ana, tool = await gateway.join("ana"), await gateway.join("tool")
        assert await ana.refused("mcp/request", CALL, to=["tool"]) == "approval_required"
        posted = await gateway.post("ana", {"kind": "mcp/request", "to": ["tool"], "payload": CALL})
        assert (posted.status_code, posted.json()["error"]) == (409, "approval_required")
        await tool.fence()
        assert "mcp/request" not in tool.kinds()


async def test_the_vote_of_somebody_who_leaves_at_once_makes_the_call(tmp_path: Path) -> None:
    """A post is a connection that ends with its message."""
    async with running_gateway(tmp_path, PEOPLE, rules=RULES) as gateway:
        agent, tool = await gateway.join("agent"), await gateway.join("tool")
        assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p1") is None
        vote = {"kind": "moot/approve", "correlation_id": ["p1"], "payload": {}}
        first = (await gateway.post("ana", vote)).json()
        assert first["approvals_missing"] == 1
        assert "request_id" not in first
        last = (await gateway.post("bob", vote)).json()
        request = await tool.hear("mcp/request")
        assert (request["from"], request["id"]) == ("bob", last["request_id"])
        answer = {"jsonrpc": "2.0", "id": request["payload"]["id"], "result": {}}
        assert await tool.refused("mcp/response", answer, to=["bob"], about=[request["id"]]) is None
        assert (await agent.hear("mcp/response"))["correlation_id"] == [request["id"]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("journal", ["on", "strict", "off"])
async def test_a_call_that_a_vote_made_is_not_made_again_after_a_restart(
    tmp_path: Path, number: int, journal: str
) -> None:
    settings = gateway_settings({"lab": space_settings(PEOPLE, **RULES)}, journal=journal)
    file = write_config(tmp_path, settings)
    first = await started(file)
    agent, ana, tool = [await first.join(name) for name in ("agent", "ana", "tool")]
    assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p1") is None
    assert await agent.refused("mcp/proposal", CALL, to=["away"], id="p2") is None
    assert await ana.refused("moot/approve", {}, about=["p1", "p2"]) is None
    vote = {"kind": "moot/approve", "correlation_id": ["p1"], "payload": {}}
    assert (await first.post("bob", vote)).status_code == 200
    # Its host is not there: it has its votes, and waits.
    assert (await first.post("bob", vote | {"correlation_id": ["p2"]})).json()["not_carried_out"]
    request = await tool.hear("mcp/request")
    await first.close()
    await first.end(number)
    assert "Traceback" not in first.stderr()
    async with served(file) as again:
        ana, tool = await again.join("ana"), await again.join("tool")
        asked: Json = {"ids": ["p1", "p2"]}
        told = (await ana.ask("moot/list-proposals", asked))["payload"]["proposals"]
        assert [(each["state"], each["approvals_missing"]) for each in told] == [
            ("fulfilled", 0),
            ("open", 0),
        ]
        assert told[0]["settled_by"] == request["id"]
        assert await ana.refused("moot/approve", {}, about=["p1"]) == "proposal_settled"
        await tool.fence()
        assert "mcp/request" not in tool.kinds()
        if journal != "off":
            heard = await kinds_of(again)
            assert heard.count(("mcp/request", "bob")) == 1
            assert heard.index(("mcp/request", "bob")) == heard.index(("moot/approve", "bob")) + 1
            polled = (await again.poll("ana", since="0"))["messages"]
            assert [each["from"] for each in polled if each["kind"] == "mcp/request"] == ["bob"]


def test_a_journal_of_0_2_is_played_again_as_it_was() -> None:
    """Then a quorum bound proposals only, and a vote made no call."""
    rule = Quorum(pattern=read_capability({"kind": "mcp/request"}), approvals_needed=1)
    config = SpaceConfig(name="lab", participants=CONFIG.participants, quorum=(rule,))
    space = Space(config)
    call: Json = {"kind": "mcp/request", "to": ["tool"], "payload": CALL}
    for line in (
        record("join", "alice", 1.0, mint=["m1", "m2"]),
        record("join", "agent", 2.0, mint=["m3", "m4"]),
        record("join", "tool", 3.0, mint=["m5", "m6"]),
        record("receive", "alice", 4.0, call | {"id": "r1"}),
        record(
            "receive", "agent", 5.0, {"id": "p1", "kind": "mcp/proposal", "to": ["tool"], "payload": CALL}
        ),
        record("receive", "alice", 6.0, {"id": "v1", "kind": "moot/approve", "correlation_id": ["p1"]}),
    ):
        replay(space, line, config)
    proposal = space.state.ledger.get("p1")
    assert proposal is not None
    assert (proposal.state, proposal.approvals_missing()) == ("open", 0)
    replay(space, record("receive", "alice", 7.0, call | {"id": "r2", "correlation_id": ["p1"]}), config)
    assert (proposal.state, proposal.settled_by) == ("fulfilled", "r2")


def test_a_vote_that_cannot_be_replayed_does_not_let_its_call_be_made_again() -> None:
    """D-98, D-99: behind a hole of the journal nobody knows more than that it was made."""
    rule = Quorum(pattern=read_capability({"kind": "mcp/request"}), approvals_needed=1)
    space = Space(SpaceConfig(name="lab", participants=CONFIG.participants, quorum=(rule,)))
    proposal = {"id": "p1", "kind": "mcp/proposal", "to": ["tool"], "payload": CALL}
    for line in (
        record("join", "agent", 1.0, mint=["m1", "m2"]),
        record("receive", "agent", 2.0, proposal),
    ):
        replay(space, line, CONFIG)
    about: Json = {"correlation_id": ["p1"]}
    made = {"protocol": "mew/v0.4", "ts": "2026-11-15T12:00:00Z", "from": "alice", "to": ["tool"], **about}
    made |= {"id": "r1", "kind": "mcp/request", "payload": CALL}
    vote = record("receive", "alice", 3.0, {"id": "v1", "kind": "moot/approve", **about}, made=[made])
    assert describe_reduction(read_input(vote)) == "moot/approve by alice on p1"
    reduce_rights(space, read_input(vote))
    known = space.state.ledger.get("p1")
    assert known is not None
    assert (known.state, known.settled_by, known.outcome) == ("fulfilled", "r1", "unknown")


@pytest.mark.parametrize("ended", [{"to": "agent"}, {"from": "alice"}])
def test_a_delegation_that_ended_behind_a_hole_of_the_journal_does_not_come_back(ended: Json) -> None:
    space = Space(CONFIG)
    given = {"id": "d1", "kind": "moot/delegate", "payload": {"to": "agent", "expires_in_seconds": 60}}
    for line in (
        record("join", "alice", 1.0, mint=["m1", "m2"]),
        record("receive", "alice", 2.0, given),
    ):
        replay(space, line, CONFIG)
    assert space.state.delegations
    who = "alice" if "to" in ended else "agent"
    line = record("receive", who, 3.0, {"id": "e1", "kind": "moot/end-delegation", "payload": ended})
    assert describe_reduction(read_input(line)) == f"moot/end-delegation by {who}"
    reduce_rights(space, read_input(line))
    assert not space.state.delegations


def test_whoever_added_a_passkey_behind_a_hole_of_the_journal_needs_a_link_for_the_next() -> None:
    """Its key is lost; otherwise a stolen token would add the thief's."""
    space = Space(CONFIG)
    key = Passkey(id="k", member=Name("alice"), public_key="", rp_id="localhost", origin="http://localhost")
    told = msgspec.to_builtins(PasskeyInput(key=key))
    stored = read_input(record("passkey_add", "alice", 1.0, passkey=told))
    assert describe_reduction(stored) == "a passkey of alice is lost: the next one comes by a link"
    reduce_rights(space, stored)
    assert (space.state.passkeys.by_id, space.state.passkeys.known) == ({}, {"alice"})
