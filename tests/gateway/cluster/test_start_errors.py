"""Whatever is wrong with NATS at a start is told in a sentence that says what to do."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig, StreamInfo
from nats.js.client import JetStreamContext
from nats.js.errors import BadRequestError

from moot.errors import UsageError
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE
from tests.gateway.cluster.nats_servers import BINARY, NatsServers
from tests.gateway.running_gateway import running_gateway
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, until

UNREACHABLE = "no NATS server can be reached"


async def refusal(tmp_path: Path, cluster: dict[str, Json], max_seconds: float = HANG_SECONDS) -> str:
    """Why a gateway does not start. A busy machine may not get to a server in time: then with more of it."""
    seconds = 1.0
    while True:
        with pytest.raises(UsageError) as refused:
            async with running_gateway(tmp_path, PEOPLE, cluster={"connect_seconds": seconds} | cluster):
                pass
        seconds *= 8
        if UNREACHABLE not in str(refused.value) or seconds > max_seconds:
            return str(refused.value)


async def test_nobody_is_there(tmp_path: Path) -> None:
    with held_port() as port:
        said = await refusal(tmp_path, {"servers": [f"nats://user:secret@127.0.0.1:{port}"]}, max_seconds=1)
    assert UNREACHABLE in said
    assert "gateway.cluster.servers" in said
    assert "secret" not in said


async def test_too_few_servers_for_three_copies(settings: dict[str, Json], tmp_path: Path) -> None:
    said = await refusal(tmp_path, settings | {"replicas": 3})
    assert "cannot keep 3 copies" in said
    assert "gateway.cluster.replicas" in said


async def test_servers_that_do_not_know_each_other_yet_are_asked_again(
    settings: dict[str, Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the first moments of a NATS cluster."""
    add, refused = JetStreamContext.add_stream, list[str]()

    async def refuse_first(self: JetStreamContext, config: StreamConfig, **more: Any) -> StreamInfo:
        assert config.name is not None
        if config.name not in refused:
            refused.append(config.name)
            raise BadRequestError(code=400, err_code=10005, description="no suitable peers for placement")
        return await add(self, config, **more)

    monkeypatch.setattr(JetStreamContext, "add_stream", refuse_first)
    cluster = settings | {"connect_seconds": HANG_SECONDS}
    async with running_gateway(tmp_path, PEOPLE, cluster=cluster) as gateway:
        assert await gateway.status("/ws?space=lab", token="t-alice") == 101
    # The log, snapshots, and what all gateways share.
    assert len(refused) == 3


async def test_a_stream_of_somebody_else(
    nats_address: str, settings: dict[str, Json], tmp_path: Path
) -> None:
    client = await nats.connect(nats_address)
    name = settings["name"]
    await client.jetstream().add_stream(StreamConfig(name=f"{name}-log-0", subjects=[f"{name}.log.0.*"]))
    await client.close()
    said = await refusal(tmp_path, settings)
    assert "not of the Moot cluster" in said
    assert "gateway.cluster.name" in said


async def test_another_number_of_shards(settings: dict[str, Json], tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, cluster=settings):
        pass
    assert "was made with gateway.cluster.shards 1" in await refusal(tmp_path, settings | {"shards": 2})


async def test_credentials_are_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    servers = NatsServers(folder, extra="authorization { user: moot, password: right }")
    try:
        address = servers.addresses[0].replace("//", "//moot:wrong@")
        said = await refusal(tmp_path, {"servers": [address], "replicas": 1})
    finally:
        servers.close()
    assert "refuses these credentials" in said
    assert "wrong@" not in said


async def test_no_jetstream(tmp_path: Path) -> None:
    with held_port() as port:
        server = subprocess.Popen(  # noqa: S603  # our own
            [BINARY, "-a", "127.0.0.1", "-p", str(port), "-l", str(tmp_path / "nats.log")]
        )
        try:
            await until(lambda: "Server is ready" in _text(tmp_path / "nats.log"))
            said = await refusal(tmp_path, {"servers": [f"nats://127.0.0.1:{port}"]})
        finally:
            server.kill()
            server.wait()
    assert "has no JetStream" in said


async def test_a_version_that_loses_data(tmp_path: Path) -> None:
    async with _old_server() as address:
        said = await refusal(tmp_path, {"servers": [address]})
    assert "is version 2.10.0: 2.14.3 or later is needed" in said


@pytest.fixture
def nats_address(nats: NatsServers) -> str:
    return nats.addresses[0]


@asynccontextmanager
async def _old_server() -> AsyncIterator[str]:
    """Somebody who says that it is an old server, and answers pings."""
    info = {"server_id": "x", "version": "2.10.0", "max_payload": 1 << 20, "headers": True, "proto": 1}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
