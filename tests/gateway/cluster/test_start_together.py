"""Gateways that start at the same moment on NATS servers that have nothing yet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from moot.config.cluster_config import ClusterConfig
from moot.gateway.cluster import shard_service
from moot.gateway.cluster.nats.nats_connection import connect, use_snapshots, use_stream
from moot.gateway.cluster.nats.shared_values import SharedValues
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PATIENT, PEOPLE, StartGateway
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import LocalGateway, running_gateway
from tests.waiting import HANG_SECONDS, bounded, until_told

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def three_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    servers = NatsServers(tmp_path_factory.mktemp("nats"), 3)
    yield servers
    servers.close()


async def test_what_several_make_at_once_is_one_and_the_same(
    three_servers: NatsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that another gateway is making can neither be found nor made for a moment."""
    monkeypatch.setattr("moot.gateway.cluster.nats.nats_connection.CONNECT_SECONDS", HANG_SECONDS)
    for number in range(8):
        config = ClusterConfig(
            servers=tuple(three_servers.addresses),
            name=f"race{number}",
            replicas=3,
        )

        async def make(name: str, config: ClusterConfig = config) -> tuple[str, bytes]:
            connection = await connect(config, name, lambda: None)
            try:
                await use_snapshots(connection, config)
                stream, subject = f"{config.name}-log-0", f"{config.name}.log.0.*"
                info = await use_stream(connection, config, stream, subject, secrets.token_hex(4))
                value = await SharedValues(config, lambda: connection).create("key", name.encode())
                return (info.config.metadata or {})["moot_stream"], value
            finally:
                await connection.client.close()

        async with bounded():
            found = await asyncio.gather(*(make(name) for name in NAMES))
        assert len(set(found)) == 1


async def test_three_gateways_that_start_together_all_serve(
    three_servers: NatsServers, tmp_path: Path
) -> None:
    for number in range(3):
        cluster: dict[str, Json] = {
            "servers": three_servers.addresses,
            "name": f"together{number}",
            "replicas": 3,
            "shards": 2,
            "connect_seconds": HANG_SECONDS,
        } | PATIENT
        async with AsyncExitStack() as stack, bounded():
            runs = []
            for name in NAMES:
                folder = tmp_path / f"{number}{name}"
                folder.mkdir()
                runs.append(running_gateway(folder, PEOPLE, cluster=cluster | {"gateway": name}))
            gateways = await asyncio.gather(*(stack.enter_async_context(each) for each in runs))
            alice, bob = await gateways[0].join("alice"), await gateways[2].join("bob")
            await alice.say("chat", id=f"hello{number}")
            await bob.hear("chat")


def die(gateway: LocalGateway) -> None:
    """End without a word to the log, as a kill does."""
    assert gateway.gateway.node is not None
    for shard in gateway.gateway.node.served:
        shard.log.writer.epoch = 0


QUICKLY_GONE: dict[str, Json] = {"heartbeat_seconds": 0.2, "gone_seconds": 2.0}


async def test_after_all_ended_without_a_word_the_new_file_is_in_force_everywhere(
    start: StartGateway,
) -> None:
    """Whoever it does not name any more is out, though the log says that the others live."""
    async with AsyncExitStack() as stack:
        for name in NAMES:
            die(await stack.enter_async_context(start(name, cluster=QUICKLY_GONE)))
    people = {name: settings for name, settings in PEOPLE.items() if name != "bob"}
    async with AsyncExitStack() as stack, bounded():
        gateways = await asyncio.gather(
            *(stack.enter_async_context(start(name, people, cluster=QUICKLY_GONE)) for name in NAMES)
        )
        for gateway in gateways:
            await until_told(partial(is_refused, gateway, "t-bob"))
            assert await gateway.status("/ws?space=lab", token="t-alice") == 101


async def is_refused(gateway: LocalGateway, token: str) -> bool:
    return await gateway.status("/ws?space=lab", token=token) == 401


async def test_one_of_another_version_that_ended_without_a_word_keeps_nobody_out(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start("a", cluster=QUICKLY_GONE) as a:
        die(a)
    monkeypatch.setattr(shard_service, "__version__", "99.0.0")
    async with start("b", cluster=QUICKLY_GONE) as b:
        assert await b.status("/ws?space=lab", token="t-alice") == 101


async def test_the_file_of_one_that_starts_while_others_live_overrules_nobody(start: StartGateway) -> None:
    people = {name: settings for name, settings in PEOPLE.items() if name != "bob"}
    async with start("a") as a, start("b", people) as b:
        for gateway in (a, b):
            assert await gateway.status("/ws?space=lab", token="t-bob") == 101
