"""One budget for all gateways of a cluster."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path

from moot.protocol.operation import Json
from tests.gateway.budget_recount import recount
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.running_gateway import LocalGateway
from tests.waiting import until

BUDGETS: Json = {"payments": {"tool": "pay", "sum": "arguments.amount", "per": "month", "at_most": 10}}


def pay(amount: Json) -> Json:
    return {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": amount}}}


def used(gateway: LocalGateway) -> Decimal:
    state = gateway.gateway.directory.hosts["lab"].space.state
    return state.budgets.used(
        state.config.budgets[0], "", gateway.gateway.directory.hosts["lab"].journaled.clock()
    )


async def test_three_gateways_share_one_budget_and_their_journals_agree(
    start: StartGateway, tmp_path: Path
) -> None:
    rules: Json = {"budgets": BUDGETS}
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(start(name, rules=rules)) for name in "abc"]
        alice, bob, carol = [
            await gateway.join(name)
            for gateway, name in zip(gateways, ("alice", "bob", "carol"), strict=True)
        ]
        # All at once: together no more than the budget is let through.
        tries = [
            each.refused("mcp/request", pay(1.5), to=["carol"])
            for each in (alice, bob, carol)
            for _ in range(4)
        ]
        answers = await asyncio.gather(*tries)
        assert (answers.count(None), answers.count("budget_exceeded")) == (6, 6)
        assert await bob.refused("mcp/request", pay(1), to=["carol"]) is None
        await until(lambda: [used(each) for each in gateways] == [10, 10, 10])
        # One that joins later, and one that comes back, know it from the log.
        late = await stack.enter_async_context(start("d", rules=rules))
        assert used(late) == 10
        zoe = await late.join("bob")
        assert await zoe.refused("mcp/request", pay(0.5), to=["carol"]) == "budget_exceeded"
    for name in "abc":
        counted = recount(tmp_path / name / "data" / "spaces" / "lab" / "journal", "pay", "amount")
        assert sum(counted.values()) == 10, name
