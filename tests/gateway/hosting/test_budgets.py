"""Budgets of a running gateway: kept over kill -9, the same in every way that a call is made."""

from __future__ import annotations

import signal
from decimal import Decimal
from pathlib import Path

import pytest

from moot.config.space.space_reader import read_space
from moot.gateway.hosting.rights_reduction import reduce_rights
from moot.gateway.hosting.space_records import replay
from moot.gateway.hosting.stored_input import read_input
from moot.protocol.operation import Json
from moot.space.space import Space
from tests.gateway.budget_recount import recount
from tests.gateway.hosting.test_outcomes_replay import record
from tests.gateway.running_gateway import (
    Client,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served, started

PEOPLE = participants(ana=["*"], agent=["mcp/*"], bot=["mcp/*"], tool=[])
BUDGETS: Json = {
    "payments": {"tool": "pay", "sum": "arguments.amount", "per": "month", "ask_at": 300, "at_most": 500},
    "own": {"tool": "pay", "sum": "arguments.amount", "per": "month", "each": True, "at_most": 450},
}


def pay(amount: Json) -> Json:
    return {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": amount}}}


async def used(member: Client) -> dict[tuple[str, str], Decimal]:
    """What the gateway says is used, by budget and holder."""
    told = (await member.ask("moot/list-proposals", {"ids": []}))["payload"]["budgets"]
    return {(each["budget"], each.get("holder", "")): Decimal(each["used"]) for each in told}


@pytest.mark.parametrize("journal", ["on", "off"])
async def test_what_is_used_is_known_after_kill_9_and_a_recount_agrees(tmp_path: Path, journal: str) -> None:
    rules: Json = {"budgets": BUDGETS, "quorum": [{"to": ["bank"], "approvals_needed": 1}]}
    people = PEOPLE | participants(bank=[])
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(people, **rules)}, journal=journal))
    expected: dict[tuple[str, str], Decimal] = {}
    for round in range(2):
        running = await started(file)
        agent, bot, ana, _, bank = [
            await running.join(name) for name in ("agent", "bot", "ana", "tool", "bank")
        ]
        if round:
            assert await used(ana) == expected
        # Made directly, over HTTP, as a proposal that a person approves, and by the last vote.
        assert await bot.refused("mcp/request", pay(50.25), to=["tool"]) is None
        posted = await running.post("agent", {"kind": "mcp/request", "to": ["tool"], "payload": pay(10)})
        assert posted.status_code == 200, posted.text
        for host, decision in (("tool", "mcp/request"), ("bank", "moot/approve")):
            proposal = await agent.say("mcp/proposal", pay(20.5), to=[host])
            await ana.fence()
            body, to = (pay(20.5), [host]) if decision == "mcp/request" else ({}, [])
            assert await ana.refused(decision, body, to=to, about=[proposal]) is None
        await bank.hear("mcp/request")
        assert await agent.refused("mcp/request", pay(10_000), to=["tool"]) == "budget_exceeded"
        expected = await used(ana)
        assert expected == {
            ("payments", ""): Decimal("101.25") * (round + 1),
            ("own", "bot"): Decimal("50.25") * (round + 1),
            ("own", "agent"): 51 * (round + 1),
        }
        await running.close()
        await running.end(signal.SIGKILL)
    if journal == "on":
        counted = recount(tmp_path / "data" / "spaces" / "lab" / "journal", "pay", "amount")
        by_name = {
            name: sum(amount for (_, who), amount in counted.items() if who == name) for _, name in counted
        }
        assert by_name == {holder: amount for (name, holder), amount in expected.items() if name == "own"}
        assert sum(by_name.values()) == expected["payments", ""]
    async with served(file) as again:
        agent, ana = await again.join("agent"), await again.join("ana")
        assert await used(ana) == expected
        assert await agent.refused("mcp/request", pay(98), to=["tool"]) == "approval_required"
        assert await agent.refused("mcp/request", pay(298), to=["tool"]) == "budget_exceeded"


async def test_http_says_which_budget_is_used_up_and_who_asks_sees_all_of_them(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, rules={"budgets": BUDGETS}) as gateway:
        await gateway.join("tool")
        answer = await gateway.post("agent", {"kind": "mcp/request", "to": ["tool"], "payload": pay(501)})
        assert (answer.status_code, answer.json()["error"]) == (409, "budget_exceeded")
        assert (
            "payments: 0 of 500 used this month; this one 501 would pass the limit"
            in answer.json()["message"]
        )
        page = await gateway.http.get("/spaces/lab/proposals", headers={"Authorization": "Bearer t-ana"})
        assert [each["budget"] for each in page.json()["budgets"]] == ["payments", "own"]


def test_a_journal_from_before_the_budget_replays_and_what_it_took_counts() -> None:
    """Nothing that was accepted is refused again: over the limit, without an amount, to nobody."""
    settings: Json = {"p": {"sum": "arguments.amount", "at_most": 5}}
    config = read_space("lab", {"participants": {"alice": ["*"], "tool": []}, "budgets": settings})
    space = Space(config)
    call: Json = {"kind": "mcp/request", "to": ["tool"]}
    for line in (
        record("join", "alice", 1.0, mint=["m1", "m2"]),
        record("receive", "alice", 2.0, call | {"id": "r1", "payload": pay(7)}),
        record("receive", "alice", 3.0, call | {"id": "r2", "payload": pay("much")}),
        record("receive", "alice", 4.0, {"kind": "mcp/request", "id": "r3", "payload": pay(1)}),
    ):
        replay(space, line, config)
    assert space.state.budgets.used(config.budgets[0], "", 5.0) == 8
    # Behind a hole of the journal, too.
    reduce_rights(space, read_input(record("receive", "alice", 5.0, call | {"id": "r4", "payload": pay(2)})))
    assert space.state.budgets.used(config.budgets[0], "", 6.0) == 10
