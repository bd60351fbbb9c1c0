"""With `keep_log`, a gateway that comes later, or was away, has the whole history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moot.errors import UsageError
from moot.gateway.cluster import shard_service, shard_snapshots
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_faults import lines_of
from tests.gateway.running_gateway import Client, LocalGateway
from tests.waiting import until

KEPT: dict[str, Json] = {"snapshot_inputs": 20, "keep_log": True}


async def test_a_new_gateway_and_one_that_was_away_tell_the_whole_history(start: StartGateway) -> None:
    async with start("a", cluster=KEPT) as a:
        alice = await a.join("alice")
        async with start("b", cluster=KEPT):
            await say(alice, 0, 30)
        # Snapshots are taken meanwhile, and b does not see what came before them.
        await say(alice, 30, 90)
        await until(lambda: _snapshots(a) >= 4)
        for name in ("b", "c"):
            async with start(name, cluster=KEPT) as gateway:
                assert texts_of(gateway) == [str(number) for number in range(90)]
                assert await history(gateway) == await history(a)
                await until(lambda: _snapshots(gateway) >= _snapshots(a))
                node = gateway.gateway.node
                assert node is not None
                await say(alice, 90, 90)
                assert not node.failed.done(), "its state is that of the others"


async def test_without_it_a_new_gateway_begins_at_a_snapshot(start: StartGateway) -> None:
    async with start("a", cluster={"snapshot_inputs": 20}) as a:
        alice = await a.join("alice")
        await say(alice, 0, 90)
        await until(lambda: _snapshots(a) >= 4)
        async with start("b", cluster={"snapshot_inputs": 20}) as b:
            assert len(texts_of(b)) < 90
        with pytest.raises(UsageError, match=r"was made with gateway\.cluster\.keep_log False"):
            async with start("c", cluster=KEPT):
                pass


async def test_what_another_version_wrote_is_not_decided_again(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start("a", cluster=KEPT) as a:
        alice = await a.join("alice")
        await say(alice, 0, 60)
        await until(lambda: _snapshots(a) >= 2)
    for module in (shard_service, shard_snapshots):
        monkeypatch.setattr(module, "__version__", "99.0.0")
    async with start("b", cluster=KEPT) as b:
        assert len(texts_of(b)) < 60
        assert await b.status("/ws?space=lab", token="t-alice") == 101


async def say(client: Client, first: int, end: int) -> None:
    for number in range(first, end):
        await client.ask("chat", {"text": str(number)})


def texts_of(gateway: LocalGateway) -> list[str]:
    records = map(json.loads, lines_of(gateway.journal()))
    return [
        each["raw"]["payload"]["text"] for each in records if each.get("kind") == "chat" and "raw" in each
    ]


async def history(gateway: LocalGateway) -> list[Any]:
    headers = {"Authorization": "Bearer t-alice"}
    answer = await gateway.http.get(
        "/spaces/lab/history", headers=headers, params={"kind": "chat", "limit": "100"}
    )
    assert answer.status_code == 200, answer.text
    return [message["id"] for message in answer.json()["messages"]]


def _snapshots(gateway: LocalGateway) -> int:
    assert gateway.gateway.node is not None
    return gateway.gateway.node.shards[0].snapshots
