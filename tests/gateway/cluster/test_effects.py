"""One effect, once, whichever of three gateways is asked, and after one of them is gone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.effect_kills import run_effect_key_kills
from tests.gateway.effect_recount import find_doubled


def pay(invoice: str) -> Json:
    arguments = {"invoice": invoice, "payee": "ACME"}
    return {"method": "tools/call", "params": {"name": "pay", "arguments": arguments}}


def test_killed_in_the_middle_three_gateways_let_one_payment_through() -> None:
    """A real cluster, kill -9, one round; `make soak` plays sixty."""
    run_effect_key_kills(1, seed=4)


async def test_three_gateways_let_one_of_each_through_and_their_journals_agree(
    start: StartGateway, tmp_path: Path
) -> None:
    rules: Json = {"effects": {"pay": {"tool": "pay", "key": "{invoice}/{payee}"}}}
    async with AsyncExitStack() as stack:
        gone = AsyncExitStack()
        gateways = [await gone.enter_async_context(start("a", rules=rules))]
        gateways += [await stack.enter_async_context(start(name, rules=rules)) for name in "bc"]
        alice, bob, carol = [
            await gateway.join(name)
            for gateway, name in zip(gateways, ("alice", "bob", "carol"), strict=True)
        ]
        # All at once, in three spellings.
        for number in range(4):
            words = (f"INV-{number}", f"inv-{number} ", f"INV\u2013{number}")
            tries = [
                each.refused("mcp/request", pay(word), to=["carol"])
                for each, word in zip((alice, bob, carol), words, strict=True)
            ]
            answers = await asyncio.gather(*tries)
            assert (answers.count(None), answers.count("approval_required")) == (1, 2)
        # The others know it without the first, and so does one that comes later.
        await gone.aclose()
        assert await bob.refused("mcp/request", pay("inv-0"), to=["carol"]) == "approval_required"
        late = await stack.enter_async_context(start("d", rules=rules))
        zoe = await late.join("alice")
        assert await zoe.refused("mcp/request", pay("inv-3"), to=["carol"]) == "approval_required"
    for name in "abc":
        folder = tmp_path / name / "data" / "spaces" / "lab" / "journal"
        assert find_doubled(folder, "pay", "invoice", "payee") == (4, []), name
