"""Notifications out of a cluster: one gateway tells, and the one that follows it does not repeat them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from moot.config.cluster_config import ClusterConfig
from moot.errors import Unavailable
from moot.gateway.cluster.nats.shared_values import SharedValues
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_shards import LAB, SHARDS, node
from tests.gateway.disk import everything_under
from tests.gateway.notifications.receivers import notifications, receiver, webhook
from tests.gateway.notifications.test_notifications import PEOPLE, propose, told_by
from tests.gateway.running_gateway import LocalGateway
from tests.waiting import until


async def test_the_gateway_that_takes_over_sends_only_what_was_not_sent(
    start: StartGateway, tmp_path: Path
) -> None:
    async with receiver() as phone, AsyncExitStack() as stack:
        settings = notifications(phone=webhook(tmp_path, phone.url))
        first = AsyncExitStack()
        a = await first.enter_async_context(start("a", PEOPLE, notifications=settings))
        b = await stack.enter_async_context(start("b", PEOPLE, notifications=settings))
        agent, _ = await b.join("agent"), await b.join("files")
        await propose(agent, "before", "write_file")
        await phone.has(1)
        (sender,) = a.gateway.notifier.senders
        scans = sender.scans
        # What it was told of is written down before it looks again.
        await until(lambda: sender.scans > scans + 1)
        await first.aclose()
        await propose(agent, "after", "write_file")
        await phone.has(2)
        (sender,) = b.gateway.notifier.senders
        scans = sender.scans
        await until(lambda: sender.scans > scans + 1)
        assert told_by(phone) == ["before", "after"]


async def test_all_gateways_have_one_key_for_web_push(start: StartGateway, tmp_path: Path) -> None:
    """Also one that had its own before; and it is in no journal."""
    async with start("a") as a, start("b") as b:
        keys = [await each.gateway.notifier.devices.open_key() for each in (a, b)]
        assert keys[0].public == keys[1].public
        await (await a.join("alice")).ask("chat", {"text": "hello"})
    for name in ("a", "b"):
        assert b"PRIVATE KEY" not in everything_under(tmp_path / name / "data" / "spaces")
    async with start("c") as c:
        assert (await c.gateway.notifier.devices.open_key()).public == keys[0].public


async def test_shared_values_that_cannot_be_reached_are_told() -> None:
    values = SharedValues(ClusterConfig(servers=("nats://127.0.0.1:1",)), lambda: None)
    with pytest.raises(Unavailable, match="not connected"):
        await values.create("vapid", b"x")


async def test_a_shard_that_moves_and_comes_back_repeats_nothing(start: StartGateway, tmp_path: Path) -> None:
    """Who is first in a shard tells of its spaces; others go on telling of theirs."""
    async with receiver() as phone:
        more: dict[str, Json] = {
            "notifications": notifications(phone=webhook(tmp_path, phone.url)),
            "cluster": SHARDS,
        }
        async with start("a", PEOPLE, **more) as a, start("b", PEOPLE, **more) as b:
            agent, _ = await b.join("agent"), await b.join("files")

            async def told_through(gateway: LocalGateway, proposal: str, count: int) -> None:
                await propose(agent, proposal, "write_file")
                await phone.has(count)
                (sender,) = gateway.gateway.notifier.senders
                scans = sender.scans
                await until(lambda: sender.scans > scans + 1)

            await told_through(a, "first", 1)
            await node(a).leave(LAB)
            await told_through(b, "second", 2)
            await node(a).serve(LAB)
            await told_through(a, "third", 3)
        assert told_by(phone) == ["first", "second", "third"]
