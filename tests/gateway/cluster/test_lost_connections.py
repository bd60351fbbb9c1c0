"""A connection to NATS that ends in an unlucky moment: a gateway comes back, or says that it cannot."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlparse

import nats.js.errors
import pytest
from nats.aio.client import Client, Srv

from moot.config.cluster_config import ClusterConfig
from moot.errors import UsageError
from moot.gateway.cluster.nats import nats_connection, snapshot_store
from moot.gateway.cluster.nats.batch import LoggedInput
from moot.gateway.cluster.nats.log_writer import LogWriter
from moot.gateway.cluster.nats.nats_connection import ClusterConnection, connect
from moot.gateway.cluster.nats.secure_client import OnRawMessage
from moot.gateway.cluster.nats.shared_log import SharedLog
from moot.resilience.task_set import TaskSet
from tests.gateway.cluster.nats_proxy import proxied
from tests.gateway.cluster.nats_servers import NatsServers
from tests.waiting import HANG_SECONDS, bounded, until

_names = itertools.count(1)


def _config(*servers: str, **more: Any) -> ClusterConfig:
    return ClusterConfig(servers=servers, name=f"lost{next(_names)}", replicas=1, **more)


async def test_a_server_that_dies_during_the_handshake_is_not_the_last_that_is_tried(
    nats: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop raises RuntimeError for a write into a closed connection, and NATS' client gives up for ever."""
    begin, faults = Client._process_connect_init, list[str]()

    async def closed_twice(self: Client) -> None:
        if len(faults) < 2:
            faults.append("closed")
            raise RuntimeError(
                "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
            )
        await begin(self)

    back = asyncio.Event()
    async with proxied(nats) as (proxy, address):
        connection = await connect(_config(address), "a", back.set)
        monkeypatch.setattr(Client, "_process_connect_init", closed_twice)
        proxy.cut()
        async with bounded():
            await back.wait()
        assert faults == ["closed", "closed"]
        await connection.client.close()


async def test_what_a_stopped_server_was_not_sent_yet_keeps_nobody_from_the_next(nats: NatsServers) -> None:
    async with proxied(nats) as (proxy, address):
        connection = await connect(_config(address), "a", lambda: None)
        client = connection.client
        client._server_pool.append(Srv(urlparse(nats.addresses[0])))
        proxy.part()
        # More than the buffers of both kernels and of the proxy hold.
        for _ in range(64):
            await client.publish("anywhere", bytes(512 << 10))
        await until(lambda: _port_of(connection) == nats.ports[0])
        await client.close()


async def test_a_connection_that_a_server_ends_for_good_is_told(nats: NatsServers) -> None:
    """As when credentials have expired: NATS' client does not come back from that."""
    told: list[UsageError] = []
    connection = await connect(_config(*nats.addresses), "a", lambda: None, told.append)
    await connection.client._process_err("'User Authentication Expired'")
    await until(lambda: bool(told))
    assert "for good: nats: User Authentication Expired" in str(told[0])


async def test_a_connection_that_is_closed_by_its_gateway_is_no_fault(nats: NatsServers) -> None:
    told: list[UsageError] = []
    connection = await connect(_config(*nats.addresses), "a", lambda: None, told.append)
    await connection.client.close()
    assert connection.client.is_closed
    assert told == []


async def test_a_writer_goes_on_after_a_write_into_a_connection_that_was_just_closed() -> None:
    tries: list[bytes] = []

    class JustClosed:
        def new_inbox(self) -> str:
            return "inbox"

        async def subscribe_raw(self, _subject: str, take: OnRawMessage) -> None:
            self.take = take

        async def unsubscribe_raw(self, _subscription: None) -> None:
            raise RuntimeError("the handler is closed")

        async def publish_raw(self, _subject: str, reply: str, _headers: bytes, payload: bytes) -> None:
            tries.append(payload)
            if len(tries) == 1:
                raise RuntimeError("the handler is closed")
            # To the first try, which nobody waits for any more, and to this one.
            self.take(b"inbox.1", b"", b'{"stream":"log","seq":3}', None)
            self.take(reply.encode(), b"", b'{"stream":"log","seq":7}', None)

    writer = LogWriter(
        cast("Any", JustClosed()),
        cast("Any", None),
        stream="log",
        subject="log.a",
        gateway="a",
        max_payload_bytes=1 << 20,
        position=lambda: 0,
    )
    tasks = TaskSet("test")
    tasks.start(writer.run())
    writer.append(LoggedInput(b"{}", b""))
    await until(lambda: writer.last == 7)
    assert tries[0] == tries[1]
    await tasks.close()


async def test_a_log_that_cannot_be_followed_any_more_is_told() -> None:
    """Whatever it was: a reader that has ended would be waited for, for ever."""

    class Broken:
        async def stream_info(self, _name: str) -> None:
            raise KeyError("state")

    log = _log(Broken(), _config("nats://127.0.0.1:1"))
    with pytest.raises(UsageError, match=r"cannot be followed \(KeyError\('state'\)\)"):
        async with bounded():
            await log.catch_up(1)
    await log.stop()


async def test_a_start_does_not_wait_for_ever_for_a_log_that_nobody_reads_to_it() -> None:
    class Silent:
        async def stream_info(self, _name: str) -> None:
            await asyncio.Event().wait()

    log = _log(Silent(), _config("nats://127.0.0.1:1", stale_seconds=0.05))
    with pytest.raises(UsageError, match=r"cannot be read: nothing came in 0\.05 seconds"):
        async with bounded():
            await log.catch_up(1)
    await log.stop()


def _log(context: object, config: ClusterConfig) -> SharedLog:
    connection = cast("Any", SimpleNamespace(client=None, context=context, max_payload_bytes=1 << 20))
    return SharedLog(
        connection, config, stream="log", subject="log.a", gateway="a", position=0, on_batch=lambda *_: None
    )


def _port_of(connection: ClusterConnection) -> int | None:
    url = connection.client.connected_url
    return url.port if connection.client.is_connected and url is not None else None


async def test_the_end_of_the_time_to_connect_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.12 `asyncio.wait_for`, by which NATS' client reads, can lose a cancellation."""

    async def lose(self: Client, _server: Srv) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TimeoutError from None

    monkeypatch.setattr(Client, "_connect_to_server", lose)
    monkeypatch.setattr("moot.gateway.cluster.nats.nats_connection.CONNECT_SECONDS", 0.1)
    async with bounded():
        with pytest.raises(UsageError, match="no NATS server can be reached"):
            await connect(_config("nats://127.0.0.1:9"), "a", lambda: None)


async def test_what_nobody_answered_while_a_leader_was_elected_is_soon_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NATS forgets it, and a gateway that takes shards over would wait for three seconds."""
    monkeypatch.setattr(snapshot_store, "TRY_SECONDS", (0.01, HANG_SECONDS))
    asked = list[str]()

    async def answer(name: str) -> None:
        asked.append(name)
        if len(asked) == 1:
            await asyncio.Event().wait()
        raise nats.js.errors.ObjectNotFoundError

    store: Any = SimpleNamespace(get_info=answer)
    connection: Any = SimpleNamespace(context=None, max_payload_bytes=1 << 20)
    async with bounded():
        assert await snapshot_store.SnapshotStore(store, connection, "bucket").load(3) is None
        assert asked == ["3-0", "3-0", "3-1"]
        asked.clear()
        with pytest.raises(nats.js.errors.ObjectNotFoundError):
            await nats_connection.retry(lambda: answer("stream"), times=(0.01, HANG_SECONDS))
        assert asked == ["stream", "stream"]
    assert nats_connection.TRY_SECONDS[0] < 1
