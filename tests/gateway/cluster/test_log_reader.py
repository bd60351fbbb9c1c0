"""A log that is not the one that was read: no gateway goes on with it."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from nats.js.api import ClusterInfo, ObjectInfo, PeerInfo, StreamConfig, StreamInfo, StreamState
from nats.js.client import JetStreamContext
from nats.js.errors import ServiceUnavailableError
from nats.js.object_store import ObjectStore

from moot.config.cluster_config import ClusterConfig
from moot.errors import UsageError
from moot.gateway.cluster.nats import log_reader
from moot.gateway.cluster.nats.log_reader import LogReader
from moot.gateway.cluster.nats.nats_connection import (
    ClusterConnection,
    connect,
    snapshots_bucket,
    use_snapshots,
)
from moot.gateway.cluster.nats.secure_client import SecureClient
from moot.gateway.cluster.nats.snapshot_store import SnapshotStore
from moot.gateway.cluster.nats.stream_health import is_led
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.nats_servers import NatsServers
from tests.waiting import HANG_SECONDS, bounded, until

_names = itertools.count(1)


@asynccontextmanager
async def connected(nats: NatsServers) -> AsyncIterator[tuple[ClusterConnection, ClusterConfig]]:
    config = ClusterConfig(servers=tuple(nats.addresses), name=f"reader{next(_names)}", replicas=1)
    connection = await connect(config, "a", lambda: None)
    try:
        yield connection, config
    finally:
        await connection.client.close()


async def write_log(connection: ClusterConnection, name: str, *texts: str) -> None:
    await connection.context.add_stream(StreamConfig(name=name, subjects=[f"{name}.*"]))
    for text in texts:
        await connection.context.publish(f"{name}.a", text.encode())


async def fault_after(nats: NatsServers, *texts: str) -> str:
    """A reader has read three messages; then the stream is one that has these."""
    async with connected(nats) as (connection, config):
        name, read = config.name, list[bytes]()
        await write_log(connection, name, "one", "two", "three")
        reader = LogReader(
            connection.client, connection.context, name, 0, lambda _s, _t, data: read.append(data)
        )
        tasks = TaskSet("test")
        running = tasks.start(reader.run())
        await until(lambda: len(read) == 3)
        await connection.context.delete_stream(name)
        await write_log(connection, name, *texts)
        reader._is_broken = True
        with pytest.raises(UsageError) as fault:
            async with bounded():
                await running
        assert len(read) == 3
        return str(fault.value)


async def test_a_log_with_another_message_where_the_latest_was_read_is_not_read_on(nats: NatsServers) -> None:
    said = await fault_after(nats, "one", "two", "other", "more")
    assert "is not the one that this gateway has read" in said


async def test_a_log_that_has_become_shorter_is_given_a_while_and_then_not_believed(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was cut off answers with what it has."""
    monkeypatch.setattr(log_reader, "_SHORT_SECONDS", 0.3)
    said = await fault_after(nats, "one")
    assert "ends at 1, and this gateway has read up to 3" in said


async def test_a_server_that_knows_no_leader_is_not_believed_when_it_has_less(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS 2.15: a server that is cut off for longer than an election answers with its own, older state."""
    monkeypatch.setattr(log_reader, "_SHORT_SECONDS", 0)
    ask, answers = JetStreamContext.stream_info, list[StreamInfo]()

    async def ask_cut_off(self: JetStreamContext, name: str) -> StreamInfo:
        info = await ask(self, name)
        if len(answers) < 3:
            answers.append(info)
            info.state.last_seq = 1
            info.cluster = ClusterInfo(leader="", replicas=[PeerInfo(current=False, active=20 * 10**9)] * 3)
        return info

    async with connected(nats) as (connection, config):
        name, read = config.name, list[bytes]()
        await write_log(connection, name, "one", "two")
        reader = LogReader(
            connection.client, connection.context, name, 0, lambda _s, _t, data: read.append(data)
        )
        tasks = TaskSet("test")
        running = tasks.start(reader.run())
        await until(lambda: len(read) == 2)
        monkeypatch.setattr(JetStreamContext, "stream_info", ask_cut_off)
        reader._is_broken = True
        await until(lambda: len(answers) == 3 or running.done())
        await connection.context.publish(f"{name}.a", b"three")
        await until(lambda: len(read) == 3 or running.done())
        assert not running.done()
        await tasks.close()


@pytest.mark.parametrize(
    ("leader", "seconds", "expected"),
    [("n0", (0.2, 30), True), ("n0", (30, 30), False), ("", (0.2, 0.2, 0.2), False), ("n0", (), True)],
    ids=["one of two is heard", "cut off", "no leader", "one copy"],
)
def test_only_a_leader_that_hears_a_majority_knows_the_end(
    leader: str, seconds: tuple[float, ...], expected: bool
) -> None:
    peers = [PeerInfo(name="n", current=True, active=int(each * 1e9)) for each in seconds]
    info = StreamInfo(
        config=StreamConfig(name="log"),
        state=StreamState(messages=1, bytes=1, first_seq=1, last_seq=1, consumer_count=0),
        cluster=ClusterInfo(leader=leader, replicas=peers),
    )
    assert is_led(info) is expected


async def test_a_gateway_whose_journal_knows_more_than_the_log_does_not_go_on_without_it(
    own_nats: NatsServers, start: StartGateway, tmp_path: Path
) -> None:
    """As when NATS came back with an older copy of its disk."""
    store, older = own_nats.store(0), tmp_path / "older"
    cluster: dict[str, Json] = {"servers": own_nats.addresses}
    async with start("a", cluster=cluster) as a:
        await (await a.join("alice")).ask("chat", {"text": "kept"})
    own_nats.kill(0)
    shutil.copytree(store, older)
    own_nats.start(0)
    own_nats.wait_healthy()
    async with start("a", cluster=cluster) as a:
        await (await a.join("alice")).ask("chat", {"text": "lost"})
    own_nats.kill(0)
    shutil.rmtree(store)
    shutil.copytree(older, store)
    own_nats.start(0)
    own_nats.wait_healthy()
    with pytest.raises(UsageError, match=r"journal of space 'lab' has messages .* \"When NATS has lost mess"):
        async with start("a", cluster=cluster):
            pass
    # One that never heard of it goes on with what there is.
    async with start("b", cluster=cluster) as b:
        await (await b.join("bob")).ask("chat", {"text": "after"})


async def test_others_have_their_turn_while_much_is_read(nats: NatsServers) -> None:
    """NATS' pings among them: a gateway that read a long log at its start lost its connection."""
    async with connected(nats) as (connection, config):
        await write_log(connection, config.name, *("x" * 200))
        read, turns = list[int](), set[int]()

        def read_slowly(sequence: int, _time: int, _data: bytes) -> None:
            time.sleep(0.005)
            read.append(sequence)

        reader = LogReader(connection.client, connection.context, config.name, 0, read_slowly)
        tasks = TaskSet("test")
        tasks.start(reader.run())
        async with bounded():
            while len(read) < 200:
                turns.add(len(read))
                await asyncio.sleep(0)
        await tasks.close()
        # After five messages each, if the machine does nothing else.
        assert len(turns) > 20


async def test_a_message_of_the_log_is_read_without_a_look_at_its_headers(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those are for the server, and cost more than applying what is in it."""
    parse, parsed = SecureClient._process_headers, list[bytes]()

    async def note(self: SecureClient, headers: bytes) -> dict[str, str] | None:
        if b"Nats-Msg-Id" in (headers or b""):
            parsed.append(headers)
        return await parse(self, headers)

    monkeypatch.setattr(SecureClient, "_process_headers", note)
    async with connected(nats) as (connection, config):
        await write_log(connection, config.name)
        for number in range(20):
            await connection.context.publish(f"{config.name}.a", b"x", headers={"Nats-Msg-Id": f"{number}"})
        read = list[bytes]()
        reader = LogReader(
            connection.client, connection.context, config.name, 0, lambda _s, _t, data: read.append(data)
        )
        tasks = TaskSet("test")
        tasks.start(reader.run())
        await until(lambda: len(read) == 20)
        await tasks.close()
        assert parsed == []


async def test_what_does_not_fit_while_it_waits_is_read_again_in_order(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_MAX_WAITING_BYTES", 50)
    async with connected(nats) as (connection, config):
        texts = [f"message {number}" for number in range(60)]
        await write_log(connection, config.name, *texts)
        read = list[bytes]()
        reader = LogReader(
            connection.client, connection.context, config.name, 0, lambda _s, _t, data: read.append(data)
        )
        # They come faster than they are applied.
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(reader, "_ask_for_turn", lambda: loop.call_later(0.01, reader._apply_waiting))
        tasks = TaskSet("test")
        tasks.start(reader.run())
        await until(lambda: len(read) == len(texts))
        await tasks.close()
        assert read == [each.encode() for each in texts]
        assert reader.restarts > 1


async def test_a_server_that_waits_for_a_lost_answer_gets_another_one(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else only heartbeats come from then on, and the reader looks alive for ever."""
    answer, lost = LogReader._answer, list[bytes]()

    async def lose_first(self: LogReader, reply: bytes) -> None:
        if not lost:
            lost.append(reply)
        else:
            await answer(self, reply)

    monkeypatch.setattr(LogReader, "_answer", lose_first)
    async with connected(nats) as (connection, config):
        await write_log(connection, config.name)
        # More than the 2 MiB that a server sends before it hears how far we are.
        for _ in range(24):
            await connection.context.publish(f"{config.name}.a", bytes(256 << 10))
        read = list[int]()
        reader = LogReader(
            connection.client, connection.context, config.name, 0, lambda number, _t, _d: read.append(number)
        )
        tasks = TaskSet("test")
        tasks.start(reader.run())
        await until(lambda: len(read) == 24)
        await tasks.close()
        assert (len(lost), reader.restarts) == (1, 1)


@pytest.mark.parametrize("reply", ["", "$JS.ACK.log.x.1.2", "$JS.ACK.log.x.1.one.1.two.0"])
async def test_what_somebody_else_sends_to_a_reader_is_no_message_of_the_log(
    nats: NatsServers, reply: str
) -> None:
    async with connected(nats) as (connection, config):
        await write_log(connection, config.name, "one")
        read = list[bytes]()
        reader = LogReader(
            connection.client, connection.context, config.name, 0, lambda _s, _t, data: read.append(data)
        )
        tasks = TaskSet("test")
        running = tasks.start(reader.run())
        await until(lambda: len(read) == 1)
        assert reader._subscription is not None
        await connection.client.publish(reader._subscription.subject, b"made up", reply=reply)
        await connection.context.publish(f"{config.name}.a", b"two")
        await until(lambda: len(read) == 2 or running.done())
        await tasks.close()
        assert read == [b"one", b"two"]
        assert reader.restarts == 1


async def test_a_snapshot_that_nobody_can_read_just_now_is_waited_for(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While NATS elects a leader, that there is an answer does not mean that there is no snapshot."""
    get_info, refused = ObjectStore.get_info, list[str]()

    async def refuse_twice(self: ObjectStore, name: str, show_deleted: bool | None = False) -> ObjectInfo:
        if len(refused) < 2:
            refused.append(name)
            raise ServiceUnavailableError
        return await get_info(self, name, show_deleted)

    async with connected(nats) as (connection, config):
        store = SnapshotStore(await use_snapshots(connection, config), connection, snapshots_bucket(config))
        await store.save(0, 1, 42, {"number": 1})
        monkeypatch.setattr(ObjectStore, "get_info", refuse_twice)
        found = await store.load(0)
        assert found is not None
        assert (found.position, len(refused)) == (42, 2)


async def test_a_snapshot_that_is_replaced_while_it_is_read_is_read_anew(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts are removed then, and whoever waits for them waits for ever."""
    get_info = ObjectStore.get_info
    async with connected(nats) as (connection, config):
        store = SnapshotStore(await use_snapshots(connection, config), connection, snapshots_bucket(config))
        large = "x" * (1 << 20)
        await store.save(0, 2, 40, {"text": large})

        async def replaced_next(
            self: ObjectStore, name: str, show_deleted: bool | None = False
        ) -> ObjectInfo:
            info = await get_info(self, name, show_deleted)
            monkeypatch.setattr(ObjectStore, "get_info", get_info)
            await store.save(0, 4, 42, {"text": large})
            return info

        monkeypatch.setattr(ObjectStore, "get_info", replaced_next)
        async with bounded():
            found = await store.load(0)
        assert found is not None
        assert (found.position, found.fields) == (42, {"text": large})


async def test_a_reader_asks_again_when_the_connection_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked on the connection before is never answered."""
    monkeypatch.setattr(log_reader, "_FIRST_TRY_SECONDS", HANG_SECONDS)
    asked = list[str]()

    class NeverAnswers:
        async def stream_info(self, name: str) -> StreamInfo:
            asked.append(name)
            await asyncio.Event().wait()
            raise AssertionError

    reader = LogReader(cast("Any", None), cast("Any", NeverAnswers()), "log", 0, lambda *_: None)
    tasks = TaskSet("test")
    tasks.start(reader.run())
    for count in (1, 2, 3):
        await until(lambda: len(asked) == count)  # noqa: B023  # it is waited for
        reader.retry_now()
    await tasks.close()


async def test_a_reader_gives_a_server_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "_FIRST_TRY_SECONDS", 0.001)
    monkeypatch.setattr(log_reader, "_MAX_TRY_SECONDS", 0.004)

    class NeverAnswers:
        async def stream_info(self, _name: str) -> StreamInfo:
            await asyncio.Event().wait()
            raise AssertionError

    reader = LogReader(cast("Any", None), cast("Any", NeverAnswers()), "log", 0, lambda *_: None)
    given = []
    for _ in range(4):
        given.append(reader._try_seconds)
        with pytest.raises(TimeoutError):
            await reader._try_start()
    assert given == [0.001, 0.002, 0.004, 0.004]
