"""What an agent may spend, and that it says so when that is used up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.agents.model.agent_settings import AgentLimits, AgentSettings, ModelSettings
from moot.agents.model.model_reply import ModelReply
from moot.agents.model.spending import Spending
from moot.agents.model.spending_file import SpendingFile
from moot.errors import UsageError
from tests.agents.model.endpoint import call, deltas, events
from tests.agents.model.test_agent import CAUTIOUS, agent_scene
from tests.agents.model.test_model import asked

MODEL = ModelSettings(base_url="http://x", model="m", prices_per_million=(2.0, 10.0))
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


def test_a_restart_begins_no_new_day(tmp_path: Path) -> None:
    """Of the process or of the machine, whatever the wall clock says; and not without the file either."""
    path = tmp_path / "state" / "spent.json"
    limits = AgentLimits(tokens_per_day=1_000_000)

    def start(steady: float, wall: float, boot: str = "one") -> Spending:
        file = SpendingFile(path, steady=lambda: steady, wall=lambda: wall, boot=boot)
        return Spending(MODEL, limits, now=lambda: steady, file=file)

    start(1_000.0, 5_000.0).add(REPLY)
    assert path.stat().st_mode & 0o777 == 0o600
    again = start(4_600.0, 8_600.0)
    assert again.tokens == 600_000
    again.add(REPLY)
    assert "1200000 of 1000000 tokens" in str(again.exhausted())
    # Another process of the same member spends from the same day.
    both = start(5_000.0, 9_000.0), start(5_000.0, 9_000.0)
    for each in both:
        each.add(REPLY)
    assert "2400000 of" in str(both[0].exhausted())
    # The wall clock was set a week ahead, and counts for nothing while the machine runs.
    assert start(6_000.0, 600_000.0).tokens == 2_400_000
    # Restarted: the wall clock tells, and one that was set back gives nothing.
    assert start(10.0, 5_000.0 + 86_400.0, boot="two").tokens == 1_800_000
    assert start(10.0, 0.0, boot="two").tokens == 2_400_000
    # The file is lost while an agent runs.
    path.unlink()
    assert "2400000 of" in str(both[0].exhausted())
    assert start(5_000.0, 9_000.0).tokens == 2_400_000
    assert start(1_000.0 + 2 * 86_400.0, 0.0).tokens == 0


def test_a_day_that_cannot_be_kept_is_no_free_day(tmp_path: Path) -> None:
    path = tmp_path / "spent.json"
    limits = AgentLimits(tokens_per_day=1_000_000)
    for damaged in ("", "{}", '{"version": 1, "entries": [["one", 0, 0, -5, 0]]}'):
        path.write_text(damaged)
        with pytest.raises(UsageError, match="damaged: delete it"):
            Spending(MODEL, limits, file=SpendingFile(path))
    path.unlink()
    spending = Spending(MODEL, limits, file=SpendingFile(path))
    path.unlink()
    path.mkdir()
    spending.add(REPLY)
    assert "what I spend for one day cannot be kept" in str(spending.exhausted())
    with pytest.raises(UsageError, match="--spending-file"):
        Spending(MODEL, limits, file=SpendingFile(path))


async def test_an_agent_that_has_spent_its_day_says_so_and_asks_no_model(tmp_path: Path) -> None:
    settings = AgentSettings(limits=AgentLimits(tokens_per_day=20))
    async with agent_scene(tmp_path, call("add", a=1, b=1), "Two.", settings=settings) as scene:
        # Each answer counts 18 tokens.
        assert await scene.answer("1 + 1?") == "Two."
        answer = await scene.answer("and 2 + 2?")
        assert answer.startswith(
            "I cannot answer: 36 of 20 tokens for one day are used: ask again in 24.0 hours"
        )
        assert len(scene.model.asked) == 2
        assert (await scene.alice.admin.request_status("agent"))["tokens_of_last_day"] == 36


async def test_what_an_endpoint_does_not_count_is_estimated() -> None:
    reply, served = await asked(events(*deltas({"content": "word " * 40})))
    assert reply.completion_tokens == 50
    assert reply.prompt_tokens >= 20
    assert len(served.asked) == 1
    # Nonsense neither gives a budget back nor breaks what is kept of it.
    for count, least, most in ((-1_000, 20, 1_000), (10**30, 10**9, 10**9)):
        usage = {"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": count}}
        reply, _ = await asked(events(*deltas({"content": "word " * 40}), usage))
        assert least <= reply.prompt_tokens <= most
        assert least <= reply.completion_tokens <= most


async def test_a_paused_agent_asks_no_model(tmp_path: Path) -> None:
    """Also when what it waited for comes while it is paused."""
    was_paused: list[bool] = []

    def second(_: dict[str, Any]) -> str:
        was_paused.append(scene.agent._space is not None and scene.agent._space.paused is not None)
        return "Two."

    async with agent_scene(tmp_path, call("add", a=1, b=1), second, rights=CAUTIOUS) as scene:
        asking = asyncio.create_task(scene.answer("1 + 1?"))
        proposal = await scene.received.wait("mcp/proposal")
        pause = await scene.alice.admin.pause("agent", reason="lunch")
        await scene.alice.approve(proposal.id)
        for _ in range(10):
            await scene.alice.admin.request_status("agent")
        await scene.alice.admin.resume("agent", about=pause.id)
        assert await asking == "Two."
        assert was_paused == [False]
