"""Budgets: how much the calls of a space may come to, whichever way they are made."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from moot.config.space.space_reader import read_space
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.protocol.payloads import GatewayNotice
from moot.space.config_json import load_config, save_config
from moot.space.effects import Deliver
from moot.space.proposals.budgets import period_of
from moot.space.space import Space
from tests.space.space_driver import SpaceDriver

DAY = 86_400.0
PAY: Json = {"tool": "pay", "sum": "arguments.amount", "ask_at": 400, "at_most": 500}
RULES: Json = ["mcp/request", "mcp/reject", "moot/approve", "trust/suggestion", "trust/rule"]


def bank(budgets: Json = None, **settings: Json) -> SpaceDriver:
    driver = SpaceDriver(
        participants={
            "agent": ["mcp/*"],
            "other": ["mcp/*"],
            "ana": ["*"],
            "bob": ["moot/approve", "mcp/proposal"],
            "approver": RULES,
            "tool": [],
            "tool2": [],
        },
        budgets={"payments": PAY} if budgets is None else budgets,
        **settings,
    )
    driver.enter("agent", "other", "ana", "bob", "approver", "tool", "tool2")
    return driver


def pay(amount: Json, name: str = "pay", **more: Json) -> Json:
    return {"method": "tools/call", "params": {"name": name, "arguments": {"amount": amount, **more}}}


def raw_call(id: str, amount: str) -> str:
    """A payment with the digits as they are written."""
    call = f'{{"name":"pay","arguments":{{"amount":{amount}}}}}'
    head = f'"id":"{id}","kind":"mcp/request","to":["tool"]'
    return f'{{{head},"payload":{{"method":"tools/call","params":{call}}}}}'


def call(
    driver: SpaceDriver, amount: Json, who: str = "agent", to: tuple[str, ...] = ("tool",)
) -> str | None:
    return driver.says(who, "mcp/request", pay(amount), to=to)


def used(driver: SpaceDriver, holder: str = "", index: int = 0) -> Decimal:
    state = driver.space.state
    return state.budgets.used(state.config.budgets[index], holder, driver.now)


def error(driver: SpaceDriver, who: str = "agent") -> Any:
    return driver.received[who][-1]["payload"]


def test_a_budget_asks_at_its_threshold_and_refuses_at_its_end() -> None:
    driver = bank()
    assert call(driver, 400) is None
    assert call(driver, 20) == "approval_required"
    assert error(driver)["message"] == (
        "propose it: budget payments: 400 of 500 used today; beyond 400 a person has to approve, "
        "this one 20 too"
    )
    assert call(driver, 101) == "budget_exceeded"
    told = error(driver)
    assert told["message"].startswith(
        "budget payments: 400 of 500 used today; this one 101 would pass the limit"
    )
    assert told["message"].endswith(f"it is free again at {told['resets_at']}")
    assert (told["budget"], told["used"], told["amount"], told["at_most"]) == (
        "payments",
        "400",
        "101",
        "500",
    )
    assert driver.received["tool"] == []


def test_a_person_s_approval_lifts_the_threshold_and_not_the_end() -> None:
    driver = bank()
    assert call(driver, 400) is None
    assert driver.says("agent", "mcp/proposal", pay(90), to=["tool"], id="p1") is None
    assert driver.says("agent", "mcp/proposal", pay(11), to=["tool"], id="p2") is None
    assert driver.says("ana", "mcp/request", pay(90), to=["tool"], about=["p1"]) is None
    assert used(driver) == 490
    assert driver.says("ana", "mcp/request", pay(11), to=["tool"], about=["p2"]) == "budget_exceeded"
    record = driver.space.state.ledger.get("p2")
    assert record is not None
    assert record.state == "open"


@pytest.mark.parametrize("way", ["own", "context", "correlation", "approver", "approver_vote"])
def test_neither_a_rule_nor_its_proposer_is_a_person(way: str) -> None:
    driver = bank()
    assert call(driver, 400) is None
    assert driver.says("agent", "mcp/proposal", pay(20), to=["tool"], id="p1") is None
    who, about, more = {"own": "agent", "approver": "approver"}.get(way, "ana"), ["p1"], {}
    if way == "context":
        more = {"context": "trust/rule/small payments"}
    elif way == "correlation":
        assert driver.says("ana", "trust/accept", {"rule": "r"}, id="a1") is None
        about = ["p1", "a1"]
    elif way == "approver_vote":
        assert driver.says("approver", "moot/approve", {}, about=["p1"]) is None
        who = "approver"
    assert driver.says(who, "mcp/request", pay(20), to=["tool"], about=about, **more) == "approval_required"
    assert used(driver) == 400
    # The vote of somebody who may not make the call is a person's approval all the same.
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    assert driver.says(who, "mcp/request", pay(20), to=["tool"], about=about, **more) is None


def test_a_grant_and_a_complete_quorum_end_at_the_budget() -> None:
    quorum = [{"payload": {"params": {"name": "pay"}}, "approvals_needed": 1}]
    driver = bank({"payments": {"tool": "pay", "sum": "arguments.amount", "at_most": 100}}, quorum=quorum)
    assert driver.says("agent", "mcp/proposal", pay(101), to=["tool"], id="p1") is None
    assert driver.says("ana", "moot/approve", {}, about=["p1"]) is None
    (told,) = [each for each in driver.received["bob"] if each["kind"] == "moot/votes"]
    assert told["payload"]["not_carried_out"]["error"] == "budget_exceeded"
    assert driver.received["tool"] == driver.received["bob"]
    assert driver.says("agent", "mcp/proposal", pay(100), to=["tool"], id="p2") is None
    assert driver.says("ana", "moot/approve", {}, about=["p2"]) is None
    assert used(driver) == 100


@pytest.mark.parametrize(
    "raw",
    [
        '"95"', "-1", "-0", "-0.0", "1e18", "1e300", "true", "null", "[5]", '{"value":5}', '"NaN"',
        "0.0000000000000000001", "9" * 70, "1e-400", '{"moot/content":{"sha256":"00","bytes":5}}',
    ],
)  # fmt: skip
def test_an_amount_that_cannot_be_told_is_refused(raw: str) -> None:
    driver = bank()
    assert driver.says_raw("agent", raw_call("x", raw)) == "budget_exceeded"
    assert "arguments.amount is not a number" in error(driver)["message"]
    assert used(driver) == 0


def test_a_missing_amount_is_refused_also_by_a_person() -> None:
    driver = bank()
    body: Json = {"method": "tools/call", "params": {"name": "pay", "arguments": {"Amount": 5}}}
    assert driver.says("ana", "mcp/request", body, to=["tool"]) == "budget_exceeded"
    assert "arguments.amount is missing" in error(driver, "ana")["message"]
    assert driver.says("agent", "mcp/proposal", body, to=["tool"], id="p1") is None
    assert driver.says("ana", "mcp/request", body, to=["tool"], about=["p1"]) == "budget_exceeded"
    # Another tool is free.
    assert driver.says("ana", "mcp/request", pay(10**6, "look"), to=["tool"]) is None


def test_amounts_are_exact_decimals() -> None:
    driver = bank({"payments": {"tool": "pay", "sum": "arguments.amount", "at_most": "1.00"}})
    for _ in range(10):
        assert call(driver, 0.1) is None
    assert used(driver) == 1
    assert driver.says_raw("agent", raw_call("tiny", "0.000000000000000001")) == "budget_exceeded"
    driver = bank({"payments": {"tool": "pay", "sum": "arguments.amount", "at_most": 10**17}})
    assert driver.says_raw("agent", raw_call("a", "99999999999999999.999999999999999999")) is None
    assert driver.says_raw("agent", raw_call("b", "0.000000000000000001")) is None
    assert driver.says_raw("agent", raw_call("c", "0.000000000000000001")) == "budget_exceeded"


def test_numbers_of_a_list_are_added_up() -> None:
    driver = bank({"payments": {"sum": "arguments.lines.*.amount", "at_most": 10}})
    lines = pay(0, lines=[{"amount": 4}, {"amount": 5}])
    assert driver.says("agent", "mcp/request", lines, to=["tool"]) is None
    assert used(driver) == 9
    lines["params"]["arguments"]["lines"][1] = {}
    assert driver.says("agent", "mcp/request", lines, to=["tool"]) == "budget_exceeded"
    lines["params"]["arguments"]["lines"] = {"amount": 1}
    assert driver.says("agent", "mcp/request", lines, to=["tool"]) == "budget_exceeded"


def test_a_call_to_several_hosts_is_that_many_and_one_to_nobody_is_refused() -> None:
    driver = bank()
    assert call(driver, 100, to=("tool", "tool2", "tool")) is None
    assert used(driver) == 200
    assert call(driver, 1, to=()) == "invalid_request"
    driver = bank({"payments": {"to": ["tool2"], "at_most": 3}})
    assert call(driver, 1, to=("tool",)) is None
    assert call(driver, 1, to=("tool", "tool2")) is None
    assert used(driver) == 1


def test_what_was_proposed_is_its_proposer_s_and_each_may_have_its_own() -> None:
    driver = bank({"calls": {"who": ["agent", "oth*"], "each": True, "at_most": 2}})
    assert driver.says("agent", "mcp/proposal", pay(5), to=["tool"], id="p1") is None
    assert driver.says("ana", "mcp/request", pay(5), to=["tool"], about=["p1"]) is None
    assert call(driver, 1, "other") is None
    assert [used(driver, name) for name in ("agent", "other", "ana")] == [1, 1, 0]
    assert call(driver, 1) is None
    assert call(driver, 1) == "budget_exceeded"
    assert error(driver)["message"].startswith("budget calls (agent): 2 of 2 calls used today")
    assert all(call(driver, 1, "ana") is None for _ in range(3))
    driver.says("ana", "moot/list-proposals", {"ids": []})
    assert [each["text"] for each in driver.received["ana"][0]["payload"]["budgets"]] == [
        "calls (agent): 2 of 2 calls used today",
        "calls (other): 1 of 2 calls used today",
    ]


def test_lists_questions_and_other_arguments_are_free() -> None:
    driver = bank({"euros": {"arguments": {"currency": "EUR"}, "at_most": 0}})
    assert driver.says("agent", "mcp/request", {"method": "tools/list"}, to=["tool"]) is None
    assert driver.says("agent", "mcp/request", pay(1, currency="USD"), to=["tool"]) is None
    assert driver.says("agent", "mcp/request", pay(1, currency="EUR"), to=["tool"]) == "budget_exceeded"


def test_a_failed_call_and_one_whose_outcome_is_unknown_are_used() -> None:
    driver = bank()
    assert driver.says("agent", "mcp/request", pay(100), to=["tool"], id="r1") is None
    failed = {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}
    assert driver.says("tool", "mcp/response", failed, to=["agent"], about=["r1"]) is None
    assert used(driver) == 100


@pytest.mark.parametrize(
    ("per", "seconds"), [("hour", 3_600), ("day", DAY), ("week", 7 * DAY), ("month", 31 * DAY)]
)
def test_a_period_is_one_of_the_calendar_and_frees_the_budget(per: Any, seconds: float) -> None:
    driver = bank({"payments": {**PAY, "ask_at": 499, "per": per}})
    begin, end = period_of(per, driver.now)
    assert begin <= driver.now < end <= begin + seconds
    assert call(driver, 499) is None
    driver.now = end - 0.001
    assert call(driver, 2) == "budget_exceeded"
    driver.now = end
    assert call(driver, 2) is None
    # A clock that was set back frees nothing.
    driver.now = begin
    assert used(driver) == 2


def test_periods_begin_at_midnight_on_monday_and_on_the_first() -> None:
    noon = 1_740_744_000.0  # Friday 2025-02-28 12:00 UTC
    assert period_of("hour", noon + 5) == (noon, noon + 3_600)
    assert period_of("day", noon) == (noon - DAY / 2, noon + DAY / 2)
    assert period_of("week", noon) == (noon - 4.5 * DAY, noon + 2.5 * DAY)
    assert period_of("month", noon) == (noon - 27.5 * DAY, noon + DAY / 2)


def test_what_is_used_is_kept_in_a_snapshot_and_through_a_reload() -> None:
    driver = bank()
    assert call(driver, 300.5) is None
    state = driver.space.state
    again = Space(load_config(save_config(state.config)), saved=driver.space.save())
    assert again.state.budgets.used(state.config.budgets[0], "", driver.now) == Decimal("300.5")
    assert again.save() == driver.space.save()
    settings: Json = {"tool": "pay", "sum": "arguments.amount", "at_most": 301}
    for budgets, expected in (
        ({"payments": settings}, "300.5"),
        ({"payments": settings | {"per": "week"}}, "0"),
    ):
        config = read_space("s", {"budgets": budgets})
        again.state.configure(config)
        assert again.state.budgets.used(config.budgets[0], "", driver.now) == Decimal(expected)
    again.state.configure(read_space("s", {}))
    assert "budgets" not in again.save()


def test_who_decides_is_told_what_a_changed_budget_says_of_open_proposals_and_only_of_these() -> None:
    driver = bank()
    assert driver.says("agent", "mcp/proposal", pay(95), to=["tool"], id="p1") is None
    other = {"method": "tools/call", "params": {"name": "look", "arguments": {}}}
    assert driver.says("agent", "mcp/proposal", other, to=["tool"], id="p2") is None
    config = driver.space.state.config

    def reload(at_most: int | None) -> list[Json]:
        budgets = {"payments": PAY | {"ask_at": 20, "at_most": at_most}} if at_most else {}
        changed = msgspec.structs.replace(config, budgets=read_space("s", {"budgets": budgets}).budgets)
        effects = driver.space.reload(changed, driver.now, driver.mint)
        votes = [each.message for each in effects if isinstance(each, Deliver)]
        return [
            ([*each.correlation_id], [budget["verdict"] for budget in each.payload.get("budgets", [])])
            for each in votes
            if isinstance(each, GatewayNotice) and each.kind == "moot/votes"
        ]

    assert reload(90) == [(["p1"], ["refused"])]
    assert reload(90) == []
    assert reload(200) == [(["p1"], ["asks"])]
    assert reload(None) == [(["p1"], [])]


def test_a_space_without_budgets_saves_as_before() -> None:
    driver = SpaceDriver(participants={"agent": ["*"], "tool": []})
    driver.enter("agent", "tool")
    assert call(driver, 5) is None
    assert "budgets" not in driver.space.save()
    assert "budgets" not in save_config(driver.space.state.config)
    driver.says("agent", "moot/list-proposals", {})
    assert "budgets" not in driver.received["agent"][0]["payload"]


def test_people_are_told_what_a_proposal_would_take_and_again_when_that_changes() -> None:
    driver = bank()
    assert driver.says("agent", "mcp/proposal", pay(95), to=["tool"], id="p1") is None

    def told() -> Json:
        (notice,) = [each for each in driver.received["ana"] if each["kind"] == "moot/votes"]
        (budget,) = notice["payload"]["budgets"]
        return notice["correlation_id"], budget["verdict"], budget["text"]

    assert told() == (["p1"], "free", "payments: 0 of 500 used today; this one 95")
    assert call(driver, 390) is None
    text = "payments: 390 of 500 used today; beyond 400 a person has to approve, this one 95 too"
    assert told() == (["p1"], "asks", text)
    assert driver.says("other", "mcp/proposal", pay(30), to=["tool"], id="p2") is None
    assert driver.says("ana", "mcp/request", pay(30), to=["tool"], about=["p2"]) is None
    assert told() == (["p1"], "refused", "payments: 420 of 500 used today; this one 95 would pass the limit")
    driver.says("ana", "moot/list-proposals", {})
    page = driver.received["ana"][0]["payload"]
    assert page["proposals"][0]["budgets"][0]["verdict"] == "refused"
    (budget,) = page["budgets"]
    assert budget["text"] == "payments: 420 of 500 used today"
    assert budget["about"] == (
        "the sum of arguments.amount in calls of pay, in a day: a person approves beyond 400, at most 500"
    )


def test_the_input_that_an_approved_call_waits_for_is_no_second_call() -> None:
    driver = bank()
    assert driver.says("agent", "mcp/proposal", pay(450), to=["tool"], id="p1") is None
    assert driver.says("ana", "mcp/request", pay(450), to=["tool"], about=["p1"], id="r1") is None
    question = {"q": {"method": "elicitation/create", "params": {"message": "sure?"}}}
    asks = {"resultType": "input_required", "requestState": "s1", "inputRequests": question}
    answer = {"jsonrpc": "2.0", "id": 1, "result": asks}
    assert driver.says("tool", "mcp/response", answer, to=["ana"], about=["r1"]) is None
    body = pay(450)
    body["params"] |= {"requestState": "s1", "inputResponses": {"q": {"action": "accept"}}}
    assert driver.says("agent", "mcp/request", body, to=["tool"], about=["p1"]) is None
    assert used(driver) == 450


def test_all_mistakes_of_a_budget_are_told_at_once() -> None:
    budgets: Json = {
        "a": {"sum": "amount", "at_most": -1, "per": "fortnight", "limit": 5},
        "b": {"who": [], "tool": [5], "each": 1, "arguments": 5},
        "c": {"ask_at": 5, "at_most": 5},
        "d": {"at_most": 1.5},
        "e/": {"at_most": True},
        "f": None,
        "g": {"sum": "arguments.amount", "at_most": "1.50"},
    }
    with pytest.raises(UsageError) as fault:
        read_space("s", {"budgets": budgets})
    places = [line.partition(":")[0].removeprefix("space.budgets.") for line in str(fault.value).split("\n")]
    assert places == [
        "a.limit", "a.at_most", "a.sum", "a.per",
        "b.tool", "b.arguments", "b.who", "b", "b.each",
        "c.ask_at", "d.at_most", "e/", "e/.at_most", "f",
    ]  # fmt: skip
