"""Gateways that start at the same moment on NATS servers that have nothing yet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from moot.cluster.nats_connection import connect, use_snapshots, use_stream
from moot.cluster.shared_values import SharedValues
from moot.config.cluster_config import ClusterConfig
from moot.protocol.operation import Json
from tests.cluster.conftest import PATIENT, PEOPLE
from tests.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import running_gateway
from tests.waiting import HANG_SECONDS, bounded

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def three_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    servers = NatsServers(tmp_path_factory.mktemp("nats"), 3)
    yield servers
    servers.close()


async def test_what_several_make_at_once_is_one_and_the_same(three_servers: NatsServers) -> None:
    """A stream that another gateway is making can neither be found nor made for a moment."""
    for number in range(8):
        config = ClusterConfig(
            servers=three_servers.addresses, name=f"race{number}", replicas=3, connect_seconds=HANG_SECONDS
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
            await bob.hear(lambda each, id=f"hello{number}": each["id"] == id)
