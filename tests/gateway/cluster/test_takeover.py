"""A shard that nobody serves any more is served again, without anybody asking for it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from moot.gateway.created_spaces import CLUSTER_FILE
from moot.net.address_order import score
from moot.participant import connect
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_shards import LAB, SHARDS, chats, node, report
from tests.gateway.cluster.test_start_together import die
from tests.gateway.running_gateway import LocalGateway
from tests.waiting import HANG_SECONDS, bounded, until


def serving(*gateways: LocalGateway) -> list[str]:
    return [node(each).name for each in gateways if LAB in {shard.index for shard in node(each).served}]


async def test_two_that_leave_one_shard_at_the_same_moment_do_not_leave_it_to_nobody(
    start: StartGateway, tmp_path: Path
) -> None:
    """Each of them sees in the log that the other one serves."""
    async with (
        bounded(),
        start("a", cluster=SHARDS) as a,
        start("b", cluster=SHARDS) as b,
        connect(f"{a.url},{b.url}", "lab", "t-bob") as bob,
    ):
        await bob.chat("before")
        assert await asyncio.gather(*(node(each).leave(LAB) for each in (a, b))) == [True, True]
        assert serving(a, b) == []
        # As clients do that come back; nobody asks for the shard.
        await until(lambda: serving(a, b))
        await bob.ready(HANG_SECONDS)
        await bob.chat("behind")
        assert (await report(a))["problems"] == []
    heard = {each["id"] for name in "ab" for each in chats(tmp_path / name)}
    assert len(heard) == 2


async def test_one_of_those_that_left_a_shard_serves_it_when_the_last_one_stops(start: StartGateway) -> None:
    async with bounded(), AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(start(name, cluster=SHARDS)) for name in "ab"]
        async with start("c", cluster=SHARDS) as c:
            for each in (a, b):
                await node(each).leave(LAB)
            alice = await c.join("alice")
            await alice.say("chat", {"text": "to be kept"}, id="kept")
            await alice.fence()
        first = max((a, b), key=lambda each: score(LAB, node(each).name))
        await until(lambda: serving(a, b))
        assert serving(a, b) == [node(first).name]
        history = await first.http.get("/spaces/lab/history", headers={"Authorization": "Bearer t-bob"})
        assert history.status_code == 200
        await first.join("alice")


async def test_one_that_was_killed_is_followed_when_the_log_says_that_it_is_gone(start: StartGateway) -> None:
    cluster = SHARDS | {"heartbeat_seconds": 0.1, "gone_seconds": 1}
    async with bounded(), start("a", cluster=cluster) as a, start("b", cluster=cluster) as b:
        await node(a).leave(LAB)
        die(b)
        await until(lambda: serving(a))
        assert "b" not in node(a).common.table.living()
        await a.join("alice")


async def test_as_long_as_one_lives_that_does_not_tell_what_it_serves_nothing_is_taken_over(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded(), start("a", cluster=SHARDS) as a, start("b", cluster=SHARDS) as b:
        await node(a).leave(LAB)
        exchange = node(a)._exchange
        await until(lambda: exchange.served_by("b") is not None)
        monkeypatch.setattr(exchange, "_told", {})
        monkeypatch.setattr(exchange, "_take", None)
        assert exchange.served_by("b") is None
        looks = asyncio.Event()
        monkeypatch.setattr(type(exchange), "served_by", lambda _self, _name: looks.set())
        await looks.wait()
        # The look that was taken has had its say.
        await node(a)._move(LAB, lambda _shard: asyncio.sleep(0, True))
        assert serving(a, b) == ["b"]


async def test_if_the_first_cannot_serve_it_the_next_one_does(start: StartGateway, tmp_path: Path) -> None:
    cluster = SHARDS | {"heartbeat_seconds": 0.1, "gone_seconds": 1}
    async with bounded(), AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(start(name, cluster=cluster)) for name in "ab"]
        async with start("c", cluster=cluster):
            first, second = sorted((a, b), key=lambda each: score(LAB, node(each).name), reverse=True)
            for each in (a, b):
                await node(each).leave(LAB)
            # Somebody put the folder of another space there meanwhile.
            (tmp_path / node(first).name / "data" / "spaces" / "lab" / CLUSTER_FILE).write_text("another")
        await until(lambda: serving(second))
        assert serving(first) == []
        await second.join("alice")
