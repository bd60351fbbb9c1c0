"""What a server says unasked reaches a space at a pace that nobody minds; what matters is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from moot.bridges.server.server_messages import CALL_BURST, CHANGE_SECONDS, MAX_WAITING, ServerMessages
from moot.mcp.eras import JsonObject
from tests.waiting import until

PROGRESS, MESSAGE = "notifications/progress", "notifications/message"


@dataclass
class Ear:
    """A caller that remembers what it was told."""

    told: list[tuple[str, JsonObject]] = field(default_factory=list)

    async def notify(self, method: str, params: JsonObject) -> bool:
        self.told.append((method, params))
        return True


@dataclass
class Square:
    """A space that remembers what was announced, and when."""

    told: list[tuple[str, JsonObject | None, tuple[str, ...]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    async def announce(self, method: str, params: JsonObject | None, to: tuple[str, ...]) -> bool:
        self.told.append((method, params, to))
        self.times.append(asyncio.get_running_loop().time())
        return True


@asynccontextmanager
async def announcing(square: Square) -> AsyncIterator[ServerMessages]:
    made = ServerMessages(square.announce)
    work = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        work.cancel()
        await asyncio.wait([work])


async def test_a_short_burst_arrives_whole_and_in_order() -> None:
    ear = Ear()
    async with announcing(Square()) as announcements:
        relay = announcements.relay(ear)
        answer: list[tuple[str, JsonObject]] = [
            (PROGRESS, {"progress": 1}),
            (MESSAGE, {"level": "info"}),
            (PROGRESS, {"progress": 2}),
        ]
        for method, params in answer:
            relay.add(method, params)
        await until(lambda: len(ear.told) == 3)
    assert ear.told == answer


async def test_of_a_long_burst_the_beginning_and_the_last_word_arrive() -> None:
    ear = Ear()
    async with announcing(Square()) as announcements:
        relay = announcements.relay(ear)
        for step in range(1, 1_001):
            relay.add(PROGRESS, {"progress": step})
        await relay.finish()
    steps = [params["progress"] for _, params in ear.told]
    assert steps[: int(CALL_BURST)] == list(range(1, int(CALL_BURST) + 1))
    assert steps[-1] == 1_000
    assert len(steps) <= CALL_BURST + 2


async def test_log_messages_beyond_a_number_are_counted_in_words() -> None:
    ear = Ear()
    async with announcing(Square()) as announcements:
        relay = announcements.relay(ear)
        for number in range(500):
            relay.add(MESSAGE, {"level": "info", "data": number})
        await relay.finish()
    *answer, last = ear.told
    assert [params["data"] for _, params in answer] == list(range(MAX_WAITING))
    assert last[1]["data"] == "400 log messages came too quickly and were dropped"


async def test_that_a_list_changed_is_told_at_once_and_then_at_most_once_a_second() -> None:
    square = Square()
    async with announcing(square) as announcements:
        for _ in range(50):
            announcements.add_list_change("tools")
        announcements.add_list_change("prompts")
        await until(lambda: len(square.told) == 2)
        announcements.add_list_change("tools")
        await until(lambda: len(square.told) == 3)
    assert [method for method, _, _ in square.told] == [
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/tools/list_changed",
    ]
    assert square.times[2] - square.times[0] >= CHANGE_SECONDS


async def test_a_resource_that_changes_often_is_told_once_a_tick_to_who_watches_it() -> None:
    square = Square()
    async with announcing(square) as announcements:
        announcements.add_resource_update({"uri": "a://nobody"}, ())
        for number in range(100):
            announcements.add_resource_update({"uri": "a://b", "n": number}, ("alice",))
        await until(lambda: bool(square.told))
    assert square.told == [("notifications/resources/updated", {"uri": "a://b", "n": 99}, ("alice",))]
