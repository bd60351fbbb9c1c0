"""One NATS server for the tests of this folder; each test has a cluster name of its own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from moot.net import relay_connection
from moot.protocol.operation import Json
from tests.config.former_constants import change_constants
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import HANG_SECONDS

_numbers = itertools.count(1)
PEOPLE = participants(alice=["*"], bob=["*"], carol=["*"])

# However slow the machine, no gateway is cut off.
PATIENT: dict[str, Json] = {
    "frame_stale_seconds": HANG_SECONDS,
    "unavailable_seconds": HANG_SECONDS,
    "stale_seconds": 2 * HANG_SECONDS,
}


def set_bounds(gateway: LocalGateway, **seconds: float) -> None:
    """How long it may be without its log from now on; until now, no pause of the machine has cut it off."""
    node = gateway.gateway.node
    assert node is not None
    if (stale := seconds.pop("frame_stale_seconds", None)) is not None:
        change_constants({"gateway.cluster.frame_stale_seconds": stale})
    node.config = msgspec.structs.replace(node.config, **seconds)


StartGateway = Callable[..., AbstractAsyncContextManager[LocalGateway]]


@pytest.fixture(autouse=True)
def _no_traceback_in_the_log() -> None:
    """Gateways lose their servers here in every way: what the client of NATS logs then is its own affair."""


@pytest.fixture(autouse=True)
def _no_relay_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine; a gateway that is gone refuses connections at once."""
    monkeypatch.setattr(relay_connection, "CONNECT_SECONDS", HANG_SECONDS)


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    servers = NatsServers(tmp_path_factory.mktemp("nats"))
    yield servers
    servers.close()


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[NatsServers]:
    """A server that a test may stop."""
    folder = tmp_path / "nats"
    folder.mkdir()
    servers = NatsServers(folder)
    yield servers
    servers.close()


@pytest.fixture
def settings(nats: NatsServers) -> dict[str, Json]:
    """`gateway.cluster` of a cluster that nobody else has."""
    return {
        "servers": nats.addresses,
        "name": f"test{next(_numbers)}",
        "replicas": 1,
        "shards": 1,
    } | PATIENT


@pytest.fixture
def start(settings: dict[str, Json], tmp_path: Path) -> StartGateway:
    """`async with start("a") as room:` runs a gateway of the test's cluster."""

    @asynccontextmanager
    async def run(name: str, people: Json = PEOPLE, **more: Json) -> AsyncIterator[LocalGateway]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        given = more.pop("cluster", {})
        assert isinstance(given, dict)
        cluster = settings | {"gateway": name} | given
        rules = more.pop("rules", None)
        assert rules is None or isinstance(rules, dict)
        async with running_gateway(folder, people, rules=rules, cluster=cluster, **more) as gateway:
            yield gateway

    return run
