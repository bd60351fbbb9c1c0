"""What a clever member tries against the proposal ledger and against other members' answers.

Every test is one attempt; the docstring names the rule that stops it. Rights and names are attacked in
`test_attacks_rights`, presence and streams in `test_attacks_presence`, memory and time in
`test_attacks_load`.
"""

from __future__ import annotations

import json

import pytest

from tests.rows import for_each_row

from .space_driver import CALL, SpaceDriver


def reviewed(**settings: object) -> SpaceDriver:
    """An agent that may only propose, a human who may do all, a tool to run it."""
    driver = SpaceDriver(
        participants={
            "human": ["*"],
            "agent": ["mcp/proposal", "mcp/withdraw", "chat"],
            "tool": [],
            "other": ["chat", "mcp/response", "moot/approve"],
        },
        **settings,
    )
    driver.enter("human", "agent", "tool", "other")
    return driver


def body(argument: str) -> str:
    """A call whose one argument is this JSON text."""
    return f'{{"method":"tools/call","params":{{"name":"pay","arguments":{{"amount":{argument}}}}}}}'


# The swap


@pytest.mark.requirement("MEW-3-3")
def test_a_reviewed_proposal_cannot_be_swapped_after_flooding_the_window() -> None:
    """D-07: ids of open objects never leave the window."""
    driver = reviewed(limits={"max_recent_ids": 20})
    assert driver.says("agent", "mcp/proposal", CALL, id="p1") is None
    driver.flood("other", 50)
    assert driver.says(
        "agent", "mcp/proposal", {"method": "tools/call", "params": {"name": "rm"}}, id="p1"
    ) == ("duplicate_id")
    assert driver.says("human", "mcp/request", CALL, to=["tool"], about=["p1"]) is None


def test_the_id_of_a_settled_proposal_cannot_be_taken_again_while_the_ledger_knows_it() -> None:
    """D-07, D-28: what the ledger says about an id is about one proposal only."""
    driver = reviewed(limits={"max_recent_ids": 5})
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    driver.says("agent", "mcp/withdraw", {}, about=["p1"])
    driver.flood("other", 20)
    assert driver.says("agent", "mcp/proposal", {"method": "rm"}, id="p1") == "duplicate_id"


def test_flooding_the_ledger_loses_no_open_proposal_and_breaks_nothing() -> None:
    """D-28: the fulfilment of an open proposal is always checked."""
    driver = reviewed(limits={"max_recent_ids": 4, "max_settled_proposals": 2})
    for round in ("a", "b", "c", "a", "b", "c"):
        driver.says("agent", "mcp/proposal", CALL, id=round)
        driver.says("agent", "mcp/withdraw", {}, about=[round])
    driver.says("agent", "mcp/proposal", CALL, id="open")
    for number in range(10):
        driver.says("agent", "mcp/proposal", CALL, id=f"x{number}")
        driver.says("agent", "mcp/withdraw", {}, about=[f"x{number}"])
    assert driver.says("human", "mcp/request", {"method": "rm"}, about=["open"]) == "proposal_mismatch"


# The same call, spelled otherwise


@pytest.mark.parametrize(
    ("proposed", "run"),
    [
        ('{"b":1,"a":2}', '{"a":2,"b":1}'),
        ("1", "1.0"),
        ("100", "1e2"),
        ("0", "-0"),
        ('"é"', r'"\u00e9"'),
        ('"/"', r'"\/"'),
        ("[1, 2]", "[1,2]"),
    ],
)
def test_the_same_value_may_be_spelled_otherwise(proposed: str, run: str) -> None:
    """D-28: RFC 8785 form of method and params."""
    driver = reviewed()
    driver.says_raw("agent", f'{{"kind":"mcp/proposal","id":"p1","payload":{body(proposed)}}}')
    fulfilment = f'{{"kind":"mcp/request","id":"f1","correlation_id":["p1"],"payload":{body(run)}}}'
    assert driver.says_raw("human", fulfilment) is None


@for_each_row(
    ("proposed", "run"),
    [
        ("1", "true"),
        ("0", "false"),
        ("1", '"1"'),
        ("null", "{}"),
        ("9007199254740992", "9007199254740993"),
        ("9007199254740993", "9007199254740992"),
        ("9007199254740992", "9007199254740993.0"),
        ("9007199254740992.0", "9007199254740993e0"),
        ("100000000000000000001", "100000000000000000000"),
        ("0.1", "0.10000000000000000001"),
        ("0", "1e-400"),
        ('"é"', '"e\u0301"'),
        ('"a"', '"\u0430"'),
        ("[1,2]", "[2,1]"),
        ("[]", "{}"),
    ],
)
def test_another_value_is_never_run_in_place_of_the_reviewed_one(proposed: str, run: str) -> None:
    """D-28: numbers outside I-JSON are compared token by token, all else by value."""
    driver = reviewed()
    driver.says_raw("agent", f'{{"kind":"mcp/proposal","id":"p1","payload":{body(proposed)}}}')
    fulfilment = f'{{"kind":"mcp/request","id":"f1","correlation_id":["p1"],"payload":{body(run)}}}'
    assert driver.says_raw("human", fulfilment) == "proposal_mismatch"


def test_a_body_that_two_readers_read_differently_is_not_read_at_all() -> None:
    """D-83: duplicate keys, also deep inside."""
    driver = reviewed()
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    twice = json.dumps(CALL).replace('"path"', '"path": "b.txt", "path"')
    assert driver.says_raw(
        "human", f'{{"kind":"mcp/request","correlation_id":["p1"],"payload":{twice}}}'
    ) == ("invalid_json")
    assert driver.says("human", "mcp/request", CALL, about=["p1"]) is None


# One execution


@pytest.mark.requirement("MEW-1-3")
def test_naming_a_proposal_twice_in_one_request_fulfils_it_once() -> None:
    """D-28: a second fulfilment is refused, whoever sends it."""
    driver = reviewed()
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    assert driver.says("human", "mcp/request", CALL, about=["p1", "p1"]) is None
    assert driver.says("human", "mcp/request", CALL, about=["p1"]) == "proposal_settled"
    assert driver.says("human", "mcp/request", CALL, about=["never-was", "p1"]) == "proposal_settled"


def test_a_request_that_fits_one_of_two_proposals_settles_neither() -> None:
    """D-28: every proposal that is named must fit."""
    driver = reviewed()
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    driver.says("agent", "mcp/proposal", {"method": "tools/list"}, id="p2")
    assert driver.says("human", "mcp/request", CALL, about=["p1", "p2"]) == "proposal_mismatch"
    assert driver.says("human", "mcp/request", CALL, about=["p1"]) is None


@pytest.mark.parametrize("to", [[], ["other"], ["tool", "other"], ["tool", "gateway"], ["agent"]])
def test_a_reviewed_call_cannot_be_sent_to_another_host(to: list[str]) -> None:
    """D-28: `to` must equal the proposal's as resolved."""
    driver = reviewed()
    driver.says("agent", "mcp/proposal", CALL, to=["tool"], id="p1")
    assert driver.says("human", "mcp/request", CALL, to=to, about=["p1"]) == "proposal_mismatch"


def test_the_host_of_a_proposal_stays_the_same_member_under_another_runtime_id() -> None:
    """D-19, D-28: `to` is compared by logical name; whoever takes the runtime id over is not meant."""
    driver = reviewed()
    driver.leave("tool")
    driver.enter("tool", runtime_id="tool-1")
    driver.says("agent", "mcp/proposal", CALL, to=["tool-1"], id="p1")
    driver.leave("tool")
    driver.leave("other")
    driver.enter("tool")
    driver.enter("other", runtime_id="tool-1")
    assert driver.says("human", "mcp/request", CALL, to=["tool-1"], about=["p1"]) == "proposal_mismatch"
    assert driver.says("human", "mcp/request", CALL, to=["tool"], about=["p1"]) is None


def test_a_proposal_has_lapsed_at_its_very_deadline_even_if_nobody_looked() -> None:
    """D-28: expired after `proposal_seconds`."""
    driver = reviewed(limits={"proposal_seconds": 10})
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    driver.now += 10
    assert driver.says("human", "mcp/request", CALL, about=["p1"]) == "proposal_settled"


@pytest.mark.requirement("MEW-3.3.1-2")
def test_a_rival_cannot_withdraw_a_proposal_in_any_dialect() -> None:
    """D-28: only its proposer."""
    driver = SpaceDriver(participants={"agent": ["mcp/proposal"], "rival": ["mcp/*", "proposal/withdraw"]})
    driver.enter("agent")
    driver.enter("rival", dialect="mcpx")
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    assert driver.says("rival", "proposal/withdraw", {}, about="p1") == "unauthorized"


@pytest.mark.parametrize("way", ["human/2", "human/http"])
def test_with_separation_no_second_session_fulfils_ones_own_proposal(way: str) -> None:
    """D-28: a proposer never fulfils its own, whichever way it speaks."""
    driver = reviewed(separation_of_duties=True)
    driver.says("human", "mcp/proposal", CALL, id="p1")
    driver.join(way, {"as": "human", "injected": way.endswith("http")})
    assert driver.says(way, "mcp/request", CALL, about=["p1"]) == "unauthorized"


# The quorum


def test_one_person_on_three_connections_is_one_approval() -> None:
    """D-28: approvals count people."""
    driver = reviewed(quorum=[{"approvals_needed": 2}])
    driver.join("other/2", {"as": "other"})
    driver.join("other/http", {"as": "other", "injected": True})
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    for session in ("other", "other/2", "other/http"):
        assert driver.says(session, "moot/approve", {}, about=["p1", "p1"]) is None
    assert driver.says("human", "mcp/request", CALL, about=["p1"]) == "approval_required"


def test_a_proposer_does_not_approve_and_nobody_approves_what_is_over() -> None:
    """D-28."""
    driver = reviewed(quorum=[{"approvals_needed": 1}])
    driver.says("human", "mcp/proposal", CALL, id="mine")
    assert driver.says("human", "moot/approve", {}, about=["mine"]) == "unauthorized"
    assert driver.says("other", "moot/approve", {}, about=["never-was"]) == "invalid_request"
    driver.says("human", "mcp/withdraw", {}, about=["mine"])
    assert driver.says("other", "moot/approve", {}, about=["mine"]) == "proposal_settled"


def test_approvals_of_one_proposal_do_not_count_for_its_twin() -> None:
    """D-28: an approval is correlated."""
    driver = reviewed(quorum=[{"approvals_needed": 1}])
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    driver.says("agent", "mcp/proposal", CALL, id="p2")
    driver.says("other", "moot/approve", {}, about=["p1"])
    assert driver.says("human", "mcp/request", CALL, about=["p1", "p2"]) == "approval_required"
    assert driver.says("human", "mcp/request", CALL, about=["p2"]) == "approval_required"
    assert driver.says("human", "mcp/request", CALL, about=["p1"]) is None


def test_the_approval_of_somebody_who_was_removed_no_longer_counts() -> None:
    """D-24: all that hung on a removed member goes with it."""
    driver = reviewed(quorum=[{"approvals_needed": 1}])
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    driver.says("other", "moot/approve", {}, about=["p1"])
    driver.says("human", "space/kick", {"participant_id": "other"})
    assert driver.says("human", "mcp/request", CALL, about=["p1"]) == "approval_required"


def test_a_guest_cannot_fill_a_quorum_by_coming_back_under_other_names() -> None:
    """D-17, D-28: what a guest did ends with its connection."""
    driver = reviewed(quorum=[{"approvals_needed": 3}], anonymous=["moot/approve"])
    driver.says("agent", "mcp/proposal", CALL, id="p1")
    for name in ("g1", "g2", "g3"):
        driver.enter(name, anonymous=True)
        assert driver.says(name, "moot/approve", {}, about=["p1"]) is None
        driver.leave(name)
    assert driver.says("human", "mcp/request", CALL, about=["p1"]) == "approval_required"


# Answers


def test_nobody_answers_in_place_of_the_asked_whatever_else_is_correlated() -> None:
    """D-80: for every correlated id."""
    driver = reviewed()
    driver.says("human", "mcp/request", CALL, to=["tool"], id="asked")
    driver.says("human", "mcp/request", CALL, id="to-all")
    assert (
        driver.says("other", "mcp/response", {"result": 1}, to=["human"], about=["asked"]) == "unauthorized"
    )
    assert driver.says("other", "mcp/response", {"result": 1}, about=["to-all", "asked"]) == "unauthorized"
    assert driver.says("other", "mcp/response", {"result": 1}, to=["human"], about=["to-all"]) is None


def test_a_right_to_answer_some_requests_answers_no_others_beside_them() -> None:
    """D-52, D-80: the limit holds for every correlated request."""
    limited = {"kind": "mcp/response", "x-moot-request": {"method": "tools/list"}}
    driver = SpaceDriver(participants={"human": ["*"], "mallory": [limited]})
    driver.enter("human", "mallory")
    driver.says("human", "mcp/request", {"method": "tools/list"}, id="list")
    driver.says("human", "mcp/request", CALL, id="call")
    for about in (["call"], ["list", "call"], ["call", "list"], ["list", "never-was"]):
        assert driver.says("mallory", "mcp/response", {"result": 1}, about=about) == "capability_violation"
    assert driver.says("mallory", "mcp/response", {"result": 1}, about=["list"]) is None


def test_an_owed_answer_goes_once_to_the_asker_and_to_nobody_else() -> None:
    """D-15: correlated to a live request that names you, addressed to its sender."""
    driver = reviewed()
    driver.says("human", "mcp/request", CALL, to=["tool"], id="r1")
    answer = {"result": 1}
    assert driver.says("agent", "mcp/response", answer, to=["human"], about=["r1"]) == "capability_violation"
    assert driver.says("tool", "mcp/response", answer, to=["other"], about=["r1"]) == "capability_violation"
    assert driver.says("tool", "mcp/response", answer, to=["human"]) == "capability_violation"
    assert (
        driver.says("tool", "mcp/response", answer, to=["human"], about=["r1", "x"]) == "capability_violation"
    )
    assert (
        driver.says("tool", "capability/grant-ack", {}, to=["human"], about=["r1"]) == "capability_violation"
    )
    assert driver.says("tool", "mcp/response", answer, to=["human"], about=["r1"]) is None
    assert driver.says("tool", "mcp/response", answer, to=["human"], about=["r1"]) == "capability_violation"


def test_an_answer_that_is_too_late_is_no_longer_owed() -> None:
    """D-15: while the request is live."""
    driver = reviewed(limits={"request_seconds": 5})
    driver.says("human", "mcp/request", CALL, to=["tool"], id="r1")
    driver.wait(5)
    assert driver.says("tool", "mcp/response", {}, to=["human"], about=["r1"]) == "capability_violation"


def test_progress_flows_to_the_asker_only_and_ends_with_the_answer() -> None:
    """D-15: notifications while that request is live."""
    driver = reviewed()
    driver.says("human", "mcp/request", CALL, to=["tool"], id="r1")
    note = {"method": "notifications/progress", "params": {}}
    for _ in range(20):
        assert driver.says("tool", "mcp/request", note, to=["human"], about=["r1"]) is None
    both = ["human", "other"]
    assert driver.says("tool", "mcp/request", note, to=both, about=["r1"]) == "capability_violation"
    assert driver.says("tool", "mcp/request", note, about=["r1"]) == "capability_violation"
    assert driver.says("tool", "mcp/request", CALL, to=["human"], about=["r1"]) == "capability_violation"
    assert driver.says("agent", "mcp/request", note, to=["human"], about=["r1"]) == "capability_violation"
    driver.says("tool", "mcp/response", {"result": 1}, to=["human"], about=["r1"])
    assert driver.says("tool", "mcp/request", note, to=["human"], about=["r1"]) == "capability_violation"


def test_a_namesake_of_a_removed_member_inherits_no_obligation() -> None:
    """D-15, D-24: somebody else was asked."""
    driver = reviewed(invite_baseline=["chat"])
    driver.says("human", "mcp/request", CALL, to=["tool"], id="r1")
    driver.says("human", "space/kick", {"participant_id": "tool"})
    driver.says("human", "space/invite", {"participant_id": "tool"})
    driver.enter("tool")
    assert driver.says("tool", "mcp/response", {}, to=["human"], about=["r1"]) == "capability_violation"
