"""D-103: whoever asks for several pairs of eyes gets them, whichever way the call is made."""

from __future__ import annotations

from typing import Any

import pytest

from moot.protocol.operation import Json
from moot.space.effects import Result
from tests.space.space_driver import SpaceDriver

DEPLOY: Json = {"method": "tools/call", "params": {"name": "deploy", "arguments": {"sum": 0.1}}}
RULE: Json = {"payload": {"method": "tools/call", "params": {"name": "deploy"}}, "approvals_needed": 2}


def office(
    *, here: tuple[str, ...] = ("agent", "ana", "bob", "cara", "tool"), **settings: Json
) -> SpaceDriver:
    driver = SpaceDriver(
        participants={
            "agent": ["mcp/proposal", "mcp/withdraw"],
            "ana": ["*"],
            "bob": ["*"],
            "cara": ["moot/approve", "mcp/proposal"],
            "tool": [],
            "other": [],
        },
        **{"quorum": [RULE], **settings},
    )
    driver.enter(*here)
    return driver


def told(driver: SpaceDriver, session: str, kind: str) -> list[Any]:
    return [each for each in driver.received[session] if each.get("kind") == kind]


@pytest.mark.parametrize("dialect", ["mew", "mcpx", "m3p"])
@pytest.mark.parametrize("injected", [False, True])
def test_a_right_to_make_the_call_does_not_lift_the_quorum(dialect: str, injected: bool) -> None:
    driver = office(here=("agent", "tool"))
    driver.enter("ana", dialect=dialect, injected=injected)
    kind = {
        "mew": "mcp/request",
        "mcpx": "mcp/request:tools/call:deploy",
        "m3p": "mcp.request.tools/call:deploy",
    }
    assert (
        driver.says("ana", kind[dialect], {"jsonrpc": "2.0", "id": 1, **DEPLOY}, to=["tool"])
        == "approval_required"
    )
    error = driver.received["ana"][-1]["payload"]
    assert error["approvals_needed"] == 2
    assert error["message"].startswith("propose it: 2 approvals are needed")
    assert driver.received["tool"] == []


def test_a_grant_does_not_lift_the_quorum() -> None:
    driver = office()
    given = [{"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "deploy"}}}]
    grant = {"recipient": "agent", "capabilities": given}
    assert driver.says("ana", "capability/grant", grant, to=["agent"]) is None
    assert driver.says("agent", "mcp/request", DEPLOY, to=["tool"]) == "approval_required"


@pytest.mark.parametrize("to", [["tool"], ["other", "tool"], []])
def test_a_rule_about_one_host_binds_every_call_that_reaches_it(to: list[str]) -> None:
    driver = office(quorum=[{"to": ["tool"], "approvals_needed": 2}])
    assert driver.says("ana", "mcp/request", DEPLOY, to=to) == "approval_required"
    assert driver.says("ana", "mcp/request", DEPLOY, to=["other"]) is None
    driver.says("agent", "mcp/proposal", DEPLOY, to=to, id="p1")
    assert driver.says("ana", "mcp/request", DEPLOY, to=to or ["tool"], about=["p1"]) == "approval_required"


def test_what_is_too_long_to_be_judged_is_bound() -> None:
    """A capability that does not match gives nothing; a quorum that does not match would bind nobody."""
    rule = {"method": "tools/call", "params": {"arguments": {"target": "prod*"}}}
    driver = office(quorum=[{"payload": rule, "approvals_needed": 2}])

    def call(target: str) -> Json:
        return {"method": "tools/call", "params": {"name": "deploy", "arguments": {"target": target}}}

    assert driver.says("ana", "mcp/request", call("test"), to=["tool"]) is None
    assert driver.says("ana", "mcp/request", call("prod" + " " * 70_000), to=["tool"]) == "approval_required"


@pytest.mark.parametrize("hidden", ["name", "arguments", "target", "deep"])
def test_a_value_that_the_gateway_keeps_is_bound_wherever_it_stands(hidden: str) -> None:
    """The host puts it back before it acts, so the rule may be about it."""
    rule = {
        "method": "tools/call",
        "params": {"name": "deploy", "arguments": {"target": "prod*", "$..x": "y"}},
    }
    driver = office(quorum=[{"payload": rule, "approvals_needed": 2}])
    kept: Json = {"moot/content": {"sha256": "0" * 64, "bytes": 20_000, "begins_with": "test"}}
    plain: Json = {"target": "prod1", "deep": {"x": "z"}}
    assert driver.says("ana", "mcp/request", call_of("deploy", plain), to=["tool"]) is None
    arguments: Json = {"target": kept, "deep": {"x": "y"}} if hidden == "target" else plain
    if hidden == "deep":
        arguments = {"target": "prod1", "deep": [kept]}
    elif hidden == "arguments":
        arguments = kept
    elif hidden == "name":
        arguments = {"target": "prod1", "deep": {"x": "y"}}
    body = call_of(kept if hidden == "name" else "deploy", arguments)
    assert driver.says("ana", "mcp/request", body, to=["tool"]) == "approval_required"
    # What is certainly another tool is not bound.
    assert driver.says("ana", "mcp/request", call_of("read", kept), to=["tool"]) is None


def call_of(name: Json, arguments: Json) -> Json:
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}


def test_a_quorum_for_everything_leaves_lists_questions_and_cancelling_free() -> None:
    driver = office(quorum=[{"approvals_needed": 1}])
    assert driver.says("ana", "mcp/request", {"method": "tools/list"}, to=["tool"]) is None
    driver.says("agent", "mcp/proposal", DEPLOY, to=["tool"], id="p1")
    assert driver.says("ana", "moot/approve", {}, about=["p1"]) is None
    made = told(driver, "tool", "mcp/request")[0]["id"]
    question = {"method": "elicitation/create", "params": {"message": "sure?"}}
    assert driver.says("tool", "mcp/request", question, to=["ana"], about=[made]) is None
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": made}}
    assert driver.says("ana", "mcp/request", cancelled, to=["tool"], about=[made]) is None


def test_the_last_vote_makes_the_call_under_the_voters_name_exactly_as_proposed_and_once() -> None:
    driver = office()
    raw = '{"id":"p1","kind":"mcp/proposal","to":["tool"],"payload":{"method":"tools/call","params":'
    raw += '{"name":"deploy","arguments":{"sum":0.1000000000000000055511151231257827}}}}'
    assert driver.says_raw("agent", raw) is None
    assert driver.says("ana", "moot/approve", {}, about=["p1"]) is None
    assert told(driver, "tool", "mcp/request") == []
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    (request,) = told(driver, "tool", "mcp/request")
    assert (request["from"], request["to"], request["correlation_id"]) == ("bob", ["tool"], ["p1"])
    record = driver.space.state.ledger.get("p1")
    assert record is not None
    assert (record.state, record.fulfilled_by, record.settled_by) == ("fulfilled", "bob", request["id"])
    assert b"0.1000000000000000055511151231257827" in driver.effects[-1].message.raw  # type: ignore[union-attr]
    # A vote that comes a moment later makes no second one.
    assert driver.says("cara", "moot/approve", {}, about=["p1"]) == "proposal_settled"
    answer = {"jsonrpc": "2.0", "id": request["payload"]["id"], "result": {}}
    assert driver.says("tool", "mcp/response", answer, to=["bob"], about=[request["id"]]) is None
    assert record.outcome == "done"


def test_a_vote_that_is_posted_is_told_what_it_made() -> None:
    driver = office(quorum=[RULE | {"approvals_needed": 1}])
    driver.says("agent", "mcp/proposal", DEPLOY, to=["tool"], id="p1")
    driver.enter("ana/http", **{"as": "ana", "injected": True})
    assert driver.says("ana/http", "moot/approve", {}, about=["p1"]) is None
    (result,) = [each for each in driver.effects if isinstance(each, Result)]
    assert result.fields["request_id"] == told(driver, "tool", "mcp/request")[0]["id"]
    assert result.fields["approvals_missing"] == 0


def test_a_last_voter_without_the_right_leaves_it_complete_for_somebody_who_has_it() -> None:
    driver = office()
    driver.says("agent", "mcp/proposal", DEPLOY, to=["tool"], id="p1")
    driver.says("ana", "moot/approve", {}, about=["p1"])
    assert driver.says("cara", "moot/approve", {}, about=["p1"]) is None
    (votes,) = told(driver, "ana", "moot/votes")
    assert votes["payload"]["approvals_missing"] == 0
    assert votes["payload"]["not_carried_out"]["error"] == "capability_violation"
    assert told(driver, "tool", "mcp/request") == []
    # Approving again is a vote again, of somebody who may make the call.
    assert driver.says("ana", "moot/approve", {}, about=["p1"]) is None
    assert len(told(driver, "tool", "mcp/request")) == 1


def test_votes_stay_when_the_host_is_not_there() -> None:
    driver = office(here=("agent", "ana", "bob"))
    driver.says("agent", "mcp/proposal", DEPLOY, to=["tool"], id="p1")
    driver.says("ana", "moot/approve", {}, about=["p1"])
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    (votes,) = told(driver, "bob", "moot/votes")
    assert votes["payload"]["not_carried_out"]["error"] == "target_absent"
    driver.enter("tool")
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    assert len(told(driver, "tool", "mcp/request")) == 1


def test_a_space_can_leave_the_call_to_whoever_approves_it_then() -> None:
    driver = office(last_vote_carries_out=False)
    driver.says("agent", "mcp/proposal", DEPLOY, to=["tool"], id="p1")
    for name in ("ana", "bob"):
        assert driver.says(name, "moot/approve", {}, about=["p1"]) is None
        assert told(driver, "tool", "mcp/request") == []
    assert driver.says("cara", "mcp/request", DEPLOY, to=["tool"], about=["p1"]) == "capability_violation"
    assert driver.says("ana", "mcp/request", DEPLOY, to=["tool"], about=["p1"]) is None


def test_who_is_exempt_makes_the_call_and_their_vote_is_enough() -> None:
    driver = office(quorum=[RULE | {"exempt": ["bob"]}])
    assert driver.says("ana", "mcp/request", DEPLOY, to=["tool"]) == "approval_required"
    assert driver.says("bob", "mcp/request", DEPLOY, to=["tool"]) is None
    driver.says("agent", "mcp/proposal", DEPLOY, to=["tool"], id="p1")
    (votes,) = told(driver, "ana", "moot/votes")
    assert votes["payload"]["exempt"] == ["bob"]
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    assert len(told(driver, "tool", "mcp/request")) == 1


def test_who_is_exempt_of_one_rule_only_is_bound_by_the_other() -> None:
    driver = office(quorum=[RULE | {"exempt": ["bob"]}, {"approvals_needed": 1}])
    assert driver.says("bob", "mcp/request", DEPLOY, to=["tool"]) == "approval_required"


def test_everybody_is_told_the_gateways_count_when_it_changes() -> None:
    driver = office()
    driver.says("agent", "mcp/proposal", DEPLOY, to=["tool"], id="p1")

    def count() -> tuple[int, list[str], int]:
        (votes,) = told(driver, "tool", "moot/votes")
        assert (votes["from"], votes["correlation_id"]) == ("system:gateway", ["p1"])
        payload = votes["payload"]
        return payload["approvals_needed"], payload["approved_by"], payload["approvals_missing"]

    assert count() == (2, [], 2)
    driver.says("cara", "moot/approve", {}, about=["p1"])
    assert count() == (2, ["cara"], 1)
    driver.says("ana", "space/kick", {"participant_id": "cara"})
    assert count() == (2, [], 2)
    # Nothing is said where nobody counts.
    driver.says("agent", "mcp/proposal", {"method": "tools/call", "params": {"name": "read"}}, to=["tool"])
    assert told(driver, "tool", "moot/votes") == []


def test_under_separation_nobody_goes_round_their_own_proposal() -> None:
    driver = office(quorum=[], separation_of_duties=True)
    driver.says("ana", "mcp/proposal", DEPLOY, to=["tool"], id="p1")
    assert driver.says("ana", "mcp/request", DEPLOY, to=["tool"]) == "unauthorized"
    assert driver.says("ana", "mcp/request", DEPLOY, to=["tool", "other"]) == "unauthorized"
    assert driver.says("bob", "mcp/request", DEPLOY, to=["tool"], about=["p1"]) is None


def test_one_vote_for_two_proposals_makes_both_calls() -> None:
    driver = office(quorum=[RULE | {"approvals_needed": 1}])
    driver.says("agent", "mcp/proposal", DEPLOY, to=["tool"], id="p1")
    driver.says("agent", "mcp/proposal", DEPLOY, to=["other"], id="p2")
    driver.enter("other")
    assert driver.says("ana", "moot/approve", {}, about=["p1", "p2"]) is None
    made = told(driver, "cara", "mcp/request")
    assert [(each["to"], each["correlation_id"]) for each in made] == [
        (["tool"], ["p1"]),
        (["other"], ["p2"]),
    ]


@pytest.mark.parametrize("dialect", ["mew", "mcpx", "m3p"])
def test_a_quorum_that_comes_by_a_reload_binds_what_was_proposed_before(dialect: str) -> None:
    driver = office(quorum=[], here=("ana", "bob", "cara", "tool"))
    driver.enter("agent", dialect=dialect)
    kind = {"mew": "mcp/proposal", "mcpx": "mcp/proposal:tools/call:deploy", "m3p": "mcp.proposal"}[dialect]
    driver.says("agent", kind, {"jsonrpc": "2.0", "id": 1, **DEPLOY}, to=["tool"], id="p1")
    asking = office(quorum=[RULE | {"exempt": ["bob"]}], here=()).space.state.config
    driver.space.reload(asking, driver.now, driver.mint)
    record = driver.space.state.ledger.get("p1")
    assert record is not None
    assert (record.approvals_needed, record.exempt) == (2, ("bob",))
    body = {"jsonrpc": "2.0", "id": 1, **DEPLOY}
    assert driver.says("ana", "mcp/request", body, to=["tool"], about=["p1"]) == "approval_required"
    # Nobody asks for less, and nobody is exempt who was not: people have seen what it needs.
    for rules in ([RULE | {"approvals_needed": 1}], []):
        driver.space.reload(office(quorum=rules, here=()).space.state.config, driver.now, driver.mint)
        assert (record.approvals_needed, record.exempt) == (2, ())
    assert driver.says("bob", "mcp/request", body, to=["tool"], about=["p1"]) == "approval_required"
    driver.says("cara", "moot/approve", {}, about=["p1"])
    driver.says("ana", "moot/approve", {}, about=["p1"])
    assert len(told(driver, "tool", "mcp/request")) == 1
