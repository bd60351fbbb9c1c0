"""Approving with changes: a counter-proposal is carried out, and settles the proposal that it changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moot.config.space.space_reader import read_space
from moot.protocol.operation import Json
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.space import save_state
from tests.space.space_driver import SpaceDriver


def pay(amount: int) -> dict[str, Json]:
    return {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": amount}}}


def request(amount: int) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": 1, **pay(amount)}


def office(**settings: Json) -> SpaceDriver:
    driver = SpaceDriver(
        participants={
            "agent": ["mcp/proposal", "mcp/withdraw"],
            "ana": ["mcp/*", "moot/approve"],
            "bob": ["mcp/*", "moot/approve"],
            "bank": [],
        },
        **settings,
    )
    driver.enter("agent", "ana", "bob", "bank")
    assert driver.says("agent", "mcp/proposal", pay(950), to=["bank"], id="p1") is None
    return driver


def record(driver: SpaceDriver, id: str) -> ProposalRecord:
    found = driver.space.state.ledger.get(id)
    assert found is not None
    return found


def told(driver: SpaceDriver, session: str, kind: str) -> list[Any]:
    return [each for each in driver.received[session] if each.get("kind") == kind]


def counter(driver: SpaceDriver, who: str = "ana", amount: int = 95) -> str | None:
    return driver.says(who, "mcp/proposal", pay(amount), to=["bank"], about=["p1"], id="c1")


def carry_out(driver: SpaceDriver, who: str = "ana", amount: int = 95) -> str | None:
    return driver.says(who, "mcp/request", request(amount), to=["bank"], about=["c1", "p1"], id="f1")


def test_the_changed_call_runs_once_and_is_the_outcome_of_the_original() -> None:
    driver = office()
    assert counter(driver) is None
    assert told(driver, "agent", "moot/votes")[0]["payload"]["counters"] == ["p1"]
    assert carry_out(driver) is None
    assert told(driver, "bank", "mcp/request")[0]["payload"]["params"]["arguments"] == {"amount": 95}
    original = record(driver, "p1")
    assert (original.state, original.fulfilled_by, original.changed_by) == ("fulfilled", "ana", "c1")
    assert record(driver, "c1").changed_by is None
    payload = {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert driver.says("bank", "mcp/response", payload, to=["ana"], about=["f1"]) is None
    assert (record(driver, "p1").outcome, record(driver, "c1").outcome) == ("done", "done")
    assert driver.says("bob", "mcp/request", request(950), to=["bank"], about=["p1"]) == "proposal_settled"


def test_a_request_that_differs_is_refused_without_a_counter_proposal() -> None:
    driver = office()
    wrong = driver.says("ana", "mcp/request", request(95), to=["bank"], about=["p1"])
    assert wrong == "proposal_mismatch"
    assert counter(driver) is None
    # It has to repeat the counter-proposal exactly.
    assert carry_out(driver, amount=96) == "proposal_mismatch"
    assert record(driver, "p1").state == "open"


def test_a_change_that_is_carried_out_without_naming_the_original_does_not_run() -> None:
    """Or the original would stay open, and run as well."""
    driver = office()
    assert counter(driver) is None
    alone = driver.says("ana", "mcp/request", request(95), to=["bank"], about=["c1"])
    assert alone == "proposal_mismatch"
    assert "name both" in told(driver, "ana", "system/error")[-1]["payload"]["message"]
    assert told(driver, "bank", "mcp/request") == []
    assert carry_out(driver) is None
    assert record(driver, "p1").state == "fulfilled"


def test_a_change_of_what_is_over_is_a_proposal_like_any_other() -> None:
    driver = office()
    assert counter(driver) is None
    assert driver.says("agent", "mcp/withdraw", {}, about=["p1"]) is None
    assert driver.says("ana", "mcp/request", request(95), to=["bank"], about=["c1"]) is None


def test_who_may_not_decide_refers_to_a_proposal_and_does_not_counter_it() -> None:
    driver = SpaceDriver(
        participants={"agent": ["mcp/proposal"], "other": ["mcp/proposal"], "ana": ["mcp/*"], "bank": []}
    )
    driver.enter("agent", "other", "ana", "bank")
    assert driver.says("agent", "mcp/proposal", pay(950), to=["bank"], id="p1") is None
    assert counter(driver, "other") is None
    assert record(driver, "c1").counters == ()
    assert carry_out(driver, "ana") == "proposal_mismatch"


def test_nobody_counters_their_own_proposal() -> None:
    driver = office()
    assert driver.says("ana", "mcp/proposal", pay(1), to=["bank"], id="p2") is None
    assert driver.says("ana", "mcp/proposal", pay(2), to=["bank"], about=["p2"], id="c2") is None
    assert record(driver, "c2").counters == ()


def test_with_separation_of_duties_one_may_change_what_others_proposed_and_not_what_one_proposed() -> None:
    driver = office(separation_of_duties=True)
    assert counter(driver) is None
    # Without the original it is a proposal of one's own.
    assert driver.says("ana", "mcp/request", request(95), to=["bank"], about=["c1"]) == "unauthorized"
    assert carry_out(driver) is None
    assert driver.says("ana", "mcp/proposal", pay(7), to=["bank"], id="p2") is None
    assert driver.says("bob", "mcp/proposal", pay(8), to=["bank"], about=["p2"], id="c2") is None
    assert driver.says("ana", "mcp/request", request(8), to=["bank"], about=["c2", "p2"]) == "unauthorized"


def test_a_change_needs_the_votes_of_the_original_and_its_author_counts_once() -> None:
    big: Json = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": 950}}}
    driver = office(quorum=[{"payload": big, "approvals_needed": 2}])
    assert counter(driver) is None
    made = record(driver, "c1")
    assert (made.approvals_needed, made.approved_by) == (2, ["ana"])
    assert carry_out(driver) == "approval_required"
    assert driver.says("ana", "moot/approve", {}, about=["c1"]) == "unauthorized"
    # The last vote carries out the changed call, and settles the original by that.
    assert driver.says("bob", "moot/approve", {}, about=["c1"]) is None
    assert told(driver, "bank", "mcp/request")[0]["correlation_id"] == ["c1", "p1"]
    assert (record(driver, "p1").state, record(driver, "p1").changed_by) == ("fulfilled", "c1")


def test_a_budget_counts_the_changed_call_as_the_agents() -> None:
    limits = {"sum": "arguments.amount", "tool": "pay", "ask_at": 10, "at_most": 100, "each": True}
    driver = office(budgets={"payments": limits})
    assert counter(driver) is None
    assert carry_out(driver) is None
    used = driver.space.state.budgets.save()
    assert "agent" in str(used)
    assert "ana" not in str(used)
    assert "95" in str(used)


def test_if_somebody_was_faster_the_changed_call_does_not_run() -> None:
    driver = office()
    assert counter(driver) is None
    assert driver.says("bob", "mcp/request", request(950), to=["bank"], about=["p1"], id="f0") is None
    assert carry_out(driver) == "proposal_settled"
    assert driver.says("ana", "mcp/request", request(95), to=["bank"], about=["c1"]) == "proposal_settled"
    assert record(driver, "c1").state == "open"


def test_if_the_original_has_run_the_last_vote_on_a_change_does_not_run_it_as_well() -> None:
    driver = office(quorum=[{"payload": pay(950), "approvals_needed": 2}])
    assert counter(driver) is None
    for who in ("ana", "bob"):
        assert driver.says(who, "moot/approve", {}, about=["p1"]) is None
    assert record(driver, "p1").state == "fulfilled"
    assert driver.says("bob", "moot/approve", {}, about=["c1"]) is None
    told_last = told(driver, "agent", "moot/votes")[-1]["payload"]
    assert told_last["not_carried_out"]["error"] == "proposal_settled"
    assert record(driver, "c1").state == "open"


def test_an_assignment_is_shown_and_changes_no_rights() -> None:
    driver = office()
    assert driver.says("bob", "moot/assign", {"to": ["ana"]}, about=["p1"]) is None
    assert (record(driver, "p1").assigned_to, record(driver, "p1").assigned_by) == (("ana",), "bob")
    assert "moot/assign" in driver.kinds("agent")
    assert driver.says("agent", "moot/assign", {"to": []}, about=["p1"]) == "capability_violation"
    assert driver.says("bob", "moot/assign", {"to": ["nobody"]}, about=["p1"]) == "participant_not_found"
    assert driver.says("bob", "moot/assign", {"to": "ana"}, about=["p1"]) == "invalid_request"
    # Anybody who may still decides.
    assert driver.says("bob", "mcp/request", request(950), to=["bank"], about=["p1"]) is None
    assert driver.says("bob", "moot/assign", {"to": []}, about=["p1"]) == "proposal_settled"


def test_a_snapshot_without_these_is_as_it_was_before_there_were_any() -> None:
    driver = office()
    saved = save_state(driver.space.state)["ledger"]["proposals"][0]
    later = {"counters", "author_votes", "changed_by", "assigned_to", "assigned_by", "passkey"}
    assert not (later | {"used_challenges", "delegated_votes", "fulfilled_for"}) & saved.keys()


def tool(name: str) -> dict[str, Json]:
    return {"method": "tools/call", "params": {"name": name, "arguments": {"path": "a.txt"}}}


@pytest.mark.parametrize("original", ["r1", "d1"])
def test_nobody_gets_a_call_of_their_own_past_a_quorum_as_a_change_of_another(original: str) -> None:
    rules: Json = [{"payload": each, "approvals_needed": 1} for each in (pay(95), tool("delete"))]
    driver = office(quorum=rules)
    assert driver.says("agent", "mcp/proposal", tool("read"), to=["bank"], id="r1") is None
    assert driver.says("agent", "mcp/proposal", tool("delete"), to=["bank"], id="d1") is None
    # The agent wants to read or delete something; Ana "changes" that into a payment of her own.
    assert driver.says("ana", "mcp/proposal", pay(95), to=["bank"], about=[original], id="c1") is None
    made = record(driver, "c1")
    assert (made.approvals_needed, made.approved_by) == (1, [])
    for about in (["c1"], ["c1", original]):
        refused = driver.says("ana", "mcp/request", request(95), to=["bank"], about=about)
        assert refused == "approval_required"
    assert driver.says("ana", "moot/approve", {}, about=["c1"]) == "unauthorized"
    assert driver.says("bob", "moot/approve", {}, about=["c1"]) is None
    assert record(driver, "c1").state == "fulfilled"


def test_a_change_to_what_needs_more_than_the_original_is_not_approved_by_its_author() -> None:
    driver = office(quorum=[{"payload": pay(95), "approvals_needed": 1}])
    # 950 needs nobody's vote, 95 needs one.
    assert counter(driver) is None
    made = record(driver, "c1")
    assert (made.counters, made.approvals_needed, made.approved_by) == (("p1",), 1, [])
    assert carry_out(driver) == "approval_required"
    assert driver.says("ana", "moot/approve", {}, about=["c1"]) == "unauthorized"
    assert driver.says("bob", "moot/approve", {}, about=["c1"]) is None
    assert (record(driver, "p1").state, record(driver, "p1").changed_by) == ("fulfilled", "c1")


def test_a_new_rule_takes_back_the_vote_of_an_author_whose_change_needs_more_than_the_original() -> None:
    driver = office(quorum=[{"payload": pay(950), "approvals_needed": 2}])
    assert counter(driver) is None
    assert record(driver, "c1").approved_by == ["ana"]
    rules = read_space("lab", {"quorum": [{"payload": pay(95), "approvals_needed": 3}]}).quorum
    config = msgspec.structs.replace(driver.space.state.config, quorum=rules)
    driver.space.reload(config, driver.now, driver.mint)
    made = record(driver, "c1")
    assert (made.approvals_needed, made.approved_by) == (3, [])
