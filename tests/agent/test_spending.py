"""What an agent may spend, and that it says so when that is used up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.agent.agent_settings import AgentLimits, AgentSettings, ModelSettings
from moot.agent.model_reply import ModelReply
from moot.agent.spending import Spending
from tests.agent.endpoint import call, deltas, events
from tests.agent.test_agent import CAUTIOUS, scene
from tests.agent.test_model import asked

MODEL = ModelSettings(
    base_url="http://x", model="m", input_price_per_million=2.0, output_price_per_million=10.0
)
REPLY = ModelReply(prompt_tokens=500_000, completion_tokens=100_000)


def test_a_day_is_the_last_24_hours() -> None:
    time = [0.0]
    spending = Spending(MODEL, AgentLimits(tokens_per_day=1_000_000), now=lambda: time[0])
    spending.add(REPLY)
    assert spending.exhausted() is None
    time[0] = 3_600.0
    spending.add(REPLY)
    assert spending.tokens == 1_200_000
    assert spending.cost == pytest.approx(4.0)
    why = spending.exhausted()
    assert why is not None
    assert why == (
        "1200000 of 1000000 tokens for one day are used: ask again in 23.0 hours, or raise --tokens-per-day"
    )
    time[0] = 86_400.0
    assert spending.tokens == 600_000
    assert spending.exhausted() is None


def test_money_is_counted_at_the_prices() -> None:
    spending = Spending(MODEL, AgentLimits(cost_per_day=1.5), now=lambda: 0.0)
    assert spending.exhausted() is None
    spending.add(REPLY)
    assert "2.00 of 1.50 for one day are used" in str(spending.exhausted())
    assert "--cost-per-day" in str(spending.exhausted())


async def test_an_agent_that_has_spent_its_day_says_so_and_asks_no_model(tmp_path: Path) -> None:
    settings = AgentSettings(limits=AgentLimits(tokens_per_day=20))
    async with scene(tmp_path, call("add", a=1, b=1), "Two.", settings=settings) as here:
        # Each answer counts 18 tokens.
        assert await here.answer("1 + 1?") == "Two."
        said = await here.answer("and 2 + 2?")
        assert said.startswith(
            "I cannot answer: 36 of 20 tokens for one day are used: ask again in 24.0 hours"
        )
        assert len(here.model.asked) == 2
        assert (await here.alice.admin.request_status("agent"))["tokens_of_last_day"] == 36


async def test_what_an_endpoint_does_not_count_is_estimated() -> None:
    reply, served = await asked(events(*deltas({"content": "word " * 40})))
    assert reply.completion_tokens == 50
    assert reply.prompt_tokens >= 20
    assert len(served.asked) == 1


async def test_a_paused_agent_asks_no_model(tmp_path: Path) -> None:
    """Also when what it waited for comes while it is paused."""
    was_paused: list[bool] = []

    def second(_: dict[str, Any]) -> str:
        was_paused.append(here.agent._space is not None and here.agent._space.paused is not None)
        return "Two."

    async with scene(tmp_path, call("add", a=1, b=1), second, rights=CAUTIOUS) as here:
        asking = asyncio.create_task(here.answer("1 + 1?"))
        proposal = await here.received.wait("mcp/proposal")
        pause = await here.alice.admin.pause("agent", reason="lunch")
        await here.alice.approve(proposal.id)
        for _ in range(10):
            await here.alice.admin.request_status("agent")
        await here.alice.admin.resume("agent", about=pause.id)
        assert await asking == "Two."
        assert was_paused == [False]
