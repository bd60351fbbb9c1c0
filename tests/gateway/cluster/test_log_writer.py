"""The writer and the reader of the log while connections are cut: nothing lost, doubled or swapped."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Any

import pytest

from moot.config.cluster_config import ClusterConfig
from moot.gateway.cluster.nats import log_writer
from moot.gateway.cluster.nats.batch import LogBatch, LoggedInput
from moot.gateway.cluster.nats.log_writer import PendingInput
from moot.gateway.cluster.nats.nats_connection import connect, use_stream
from moot.gateway.cluster.nats.shared_log import SharedLog
from tests.gateway.cluster.histories import faults_of
from tests.gateway.cluster.nats_proxy import proxied
from tests.gateway.cluster.nats_servers import NatsServers
from tests.waiting import until

_names = itertools.count(1)
CUTS = 6


async def written_under_cuts(nats: NatsServers) -> tuple[list[str], list[str], list[str]]:
    """What a writer appended, what it was told is in, and what somebody else read."""
    name = f"writer{next(_names)}"
    async with proxied(nats) as (proxy, address):
        cut_config = ClusterConfig(servers=(address,), name=name, replicas=1)
        config = ClusterConfig(servers=tuple(nats.addresses), name=name, replicas=1)
        logs: list[SharedLog] = []
        connection = await connect(cut_config, "a", lambda: logs[0].writer.retry_now())
        direct = await connect(config, "b", lambda: None)
        await use_stream(direct, config, name, f"{name}.*", "x")
        read: list[str] = []

        def note(_sequence: int, _at: float, batch: LogBatch, own: Any) -> None:
            read.extend(each.head.decode() for each in batch.inputs)
            assert not own

        def told(_sequence: int, _at: float, _batch: LogBatch, own: Any) -> None:
            for pending in own:
                pending.on_done(None)

        writing = SharedLog(
            connection, config, stream=name, subject=f"{name}.a", gateway="a", position=0, on_batch=told
        )
        reading = SharedLog(
            direct, config, stream=name, subject=f"{name}.b", gateway="b", position=0, on_batch=note
        )
        logs.append(writing)
        await writing.catch_up(0)
        await reading.catch_up(0)
        await writing.begin(1)
        sent, acknowledged = [], list[str]()

        def append(text: str) -> PendingInput:
            sent.append(text)
            return writing.writer.append(
                LoggedInput(text.encode(), b""), lambda _outcome: acknowledged.append(text)
            )

        for round in range(CUTS):
            for number in range(20):
                append(f"{round}-{number}")
                await asyncio.sleep(0.001)
            await until(lambda: len(acknowledged) >= len(sent))
            proxy.holds = True
            append(f"{round}-held")
            # Unless a heartbeat is on its way, whose answer is held back, too.
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    while sent[-1] not in read:
                        await asyncio.sleep(0.005)
            proxy.cut()
        await until(lambda: len(acknowledged) >= len(sent) and sent[-1] in read)
        for each in (writing, reading):
            assert not each.failed.done()
            await each.stop()
        await connection.client.close()
        await direct.client.close()
        return sent, acknowledged, read


async def test_a_cut_before_the_answer_loses_doubles_and_swaps_nothing(nats: NatsServers) -> None:
    sent, acknowledged, read = await written_under_cuts(nats)
    assert acknowledged == sent
    assert faults_of({"log": read, "writer": sent}, acknowledged, whole="log") == []


async def test_the_check_sees_a_writer_that_sends_again_without_its_id(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with a broken build: what would not be seen proves nothing."""
    monkeypatch.setattr(log_writer, "_EXPECTED", "X-Expected")
    monkeypatch.setattr(log_writer, "_MESSAGE_ID", "X-Id")
    sent, acknowledged, read = await written_under_cuts(nats)
    assert any(
        "twice" in each for each in faults_of({"log": read, "writer": sent}, acknowledged, whole="log")
    )


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (["a", "c", "b"], "in another order"),
        (["a", "b", "b"], "twice"),
        (["a", "z"], "in no order"),
    ],
)
def test_the_check_sees_what_one_observer_saw_otherwise(seen: list[str], fault: str) -> None:
    assert any(fault in each for each in faults_of({"log": ["a", "b", "c"], "one": seen}, ["a"], whole="log"))
    assert faults_of({"log": ["a", "b", "c"], "one": ["a", "c"]}, ["d"], whole="log") == ["lost: d"]
