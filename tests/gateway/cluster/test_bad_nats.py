"""NATS servers that lack something: another one is taken, or what is wrong is said."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio import client as nats_client

from moot.gateway.cluster.nats import nats_connection
from moot.protocol.operation import Json
from tests.authority import Authority
from tests.gateway.cluster.conftest import PATIENT, PEOPLE, StartGateway, set_bounds
from tests.gateway.cluster.nats_credentials import NatsAccount
from tests.gateway.cluster.nats_proxy import proxied
from tests.gateway.cluster.nats_servers import BINARY, NatsServers
from tests.gateway.cluster.test_start_errors import refusal
from tests.gateway.running_gateway import LocalGateway, running_gateway
from tests.ports import held_port
from tests.waiting import until, until_seen, until_told


@contextmanager
def nats_with(folder: Path, extra: str = "", **more: Any) -> Iterator[NatsServers]:
    (folder / "nats").mkdir()
    servers = NatsServers(folder / "nats", extra=extra, **more)
    try:
        yield servers
    finally:
        servers.close()


async def test_a_server_whose_jetstream_is_off_leads_to_the_next(
    start: StartGateway, settings: dict[str, Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after its disk was full."""
    monkeypatch.setattr(nats_client, "shuffle", lambda _servers: None)
    servers = settings["servers"]
    assert isinstance(servers, list)
    with _server_without_jetstream(tmp_path) as address:
        async with start("a", cluster={"servers": [address, *servers]}) as a:
            alice = await a.join("alice")
            assert await alice.refused("chat", {"text": "here"}) is None


async def test_a_gateway_leaves_a_server_that_answers_pings_and_nothing_else(
    nats: NatsServers, start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off from the other servers, one still calls itself healthy."""
    monkeypatch.setattr(nats_client, "shuffle", lambda _servers: None)
    monkeypatch.setattr(nats_connection, "_PING_SECONDS", 3_600)
    async with proxied(nats) as (bad, first), proxied(nats) as (_, second):
        cluster: dict[str, Json] = {"servers": [first, second], "heartbeat_seconds": 0.1}
        async with start("a", cluster=cluster) as a:
            alice, node = await a.join("alice"), a.gateway.node
            assert node is not None
            bad.part()
            set_bounds(a, unavailable_seconds=0.5)
            await until(lambda: node.age_seconds > 0.5)
            await until(lambda: node.age_seconds < 0.5)

            async def is_taken() -> bool:
                # On a busy machine a heartbeat may be late again.
                return await alice.refused("chat", {"text": "by the other one"}) is None

            await until_told(is_taken)


async def test_nats_without_room_is_named_and_nothing_is_answered_that_was_not_kept(tmp_path: Path) -> None:
    with nats_with(tmp_path, jetstream="max_file_store: 1MB") as servers:
        cluster: dict[str, Json] = {
            "servers": servers.addresses,
            "replicas": 1,
            "shards": 1,
            "gateway": "a",
        } | PATIENT
        limits: Json = {"limits": {"messages_per_second": 0, "bytes_per_second": 0}}
        async with running_gateway(tmp_path, PEOPLE, rules=limits, cluster=cluster) as a:
            kept, bob = list[str](), await a.join("bob")
            assert a.gateway.node is not None
            writer = a.gateway.node.shards[0].log.writer
            for number in range(40):
                said: Json = {"id": f"m{number}", "kind": "chat", "payload": {"text": "x" * 50_000}}
                posting = asyncio.ensure_future(a.post("alice", said, space="lab"))
                await until(lambda posting=posting: posting.done() or writer.refusal)  # type: ignore[misc]
                if writer.refusal:
                    set_bounds(a, unavailable_seconds=1, stale_seconds=2)
                answer = await posting
                if answer.status_code != 200:
                    break
                kept.append(f"m{number}")
            assert answer.status_code == 503
            assert answer.json()["error"] in ("unavailable", "outcome_unknown")
            problem = await until_told(lambda: _problem(a, "NATS does not take its messages"))
            assert "insufficient" in problem
            await bob.closed()
            assert [each["id"] for each in bob.received if each["kind"] == "chat"] == kept
        said_at_start = await refusal(tmp_path, cluster | {"name": "other"})
    assert "NATS does not take messages of other-log-0: insufficient" in said_at_start


async def test_nats_with_tls_is_used_if_its_certificate_is_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("nats")
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
    with nats_with(tmp_path, tls) as servers:
        address = servers.addresses[0].replace("nats://", "tls://")
        cluster: dict[str, Json] = {"servers": [address], "replicas": 1, "shards": 1} | PATIENT
        async with running_gateway(tmp_path, PEOPLE, cluster=cluster | {"tls_ca_file": "authority.pem"}) as a:
            alice = await a.join("alice")
            assert await alice.refused("chat", {"text": "unread"}) is None
        other = Authority(tmp_path, "other")
        for files in ({"tls_ca_file": str(other.file)}, {}):
            said = await refusal(tmp_path, cluster | files)
            assert "is not trusted" in said
            assert "gateway.cluster.tls_ca_file" in said
    (tmp_path / "empty.pem").touch()
    said = await refusal(tmp_path, cluster | {"tls_ca_file": "empty.pem"})
    assert "gateway.cluster.tls_ca_file cannot be used" in said


async def test_nats_that_verifies_clients_lets_in_who_has_a_certificate_also_after_it_was_renewed(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("nats")
    tls = (
        f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{authority.file}", verify: true }}'
    )
    own, own_key = authority.issue("gateway")
    own_key.chmod(0o600)
    with nats_with(tmp_path, tls) as servers:
        address = servers.addresses[0].replace("nats://", "tls://")
        cluster: dict[str, Json] = {"servers": [address], "replicas": 1, "shards": 1} | PATIENT
        cluster |= {"tls_ca_file": "authority.pem"}
        files: dict[str, Json] = {"tls_certificate_file": "gateway.crt", "tls_key_file": "gateway.key"}
        async with running_gateway(tmp_path, PEOPLE, cluster=cluster | files) as a:
            alice = await a.join("alice")
            assert await alice.refused("chat", {"text": "unread"}) is None
            # The other authority is the only one from now on, for both sides.
            renewed = Authority(tmp_path, "authority")
            renewed.issue("gateway")
            renewed.issue("nats")
            servers.kill(0)
            servers.start(0)
            assert await alice.refused("chat", {"text": "with the new one"}) is None
        Authority(tmp_path, "other").issue("gateway")
        for given in ({}, files):
            said = await refusal(tmp_path, cluster | given)
            assert "wants a certificate of this gateway" in said
            assert "gateway.cluster.tls_certificate_file" in said
    own.write_bytes(own_key.read_bytes())
    assert "tls_key_file cannot be used" in await refusal(tmp_path, cluster | files)
    own_key.chmod(0o644)
    assert "gateway.cluster.tls_key_file" in await refusal(tmp_path, cluster | files)
    assert "go together" in await refusal(tmp_path, cluster | {"tls_certificate_file": "gateway.crt"})


async def test_a_server_that_does_without_tls_is_told_no_secret(tmp_path: Path) -> None:
    told = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": "2.15.0", "max_payload": 1 << 20, "headers": True, "proto": 1}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        told.append(await reader.read(10_000))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    said = await refusal(tmp_path, {"servers": [f"tls://moot:secret@127.0.0.1:{port}"]})
    server.close()
    assert "does not speak TLS" in said
    assert set(told) == {b""}


async def test_credentials_of_a_nats_user_let_a_gateway_in(tmp_path: Path) -> None:
    account = NatsAccount()
    with nats_with(tmp_path, account.server_lines) as servers:
        cluster: dict[str, Json] = {"servers": servers.addresses, "replicas": 1, "shards": 1} | PATIENT
        account.write_user(tmp_path / "moot.creds")
        async with running_gateway(
            tmp_path, PEOPLE, cluster=cluster | {"credentials_file": "moot.creds"}
        ) as a:
            alice = await a.join("alice")
            assert await alice.refused("chat", {"text": "here"}) is None
        stranger = NatsAccount().write_user(tmp_path / "stranger.creds")
        for files in ({"credentials_file": str(stranger)}, {}):
            assert "refuses these credentials" in await refusal(tmp_path, cluster | files)
    (tmp_path / "empty.creds").touch(0o600)
    assert "is no .creds file" in await refusal(tmp_path, cluster | {"credentials_file": "empty.creds"})


async def _problem(gateway: LocalGateway, text: str) -> str:
    problems = (await gateway.admin("GET", "cluster")).json()["problems"]
    return next((each for each in problems if text in each), "")


@contextmanager
def _server_without_jetstream(folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        port, log = stack.enter_context(held_port()), folder / "without.log"
        server = subprocess.Popen(  # noqa: S603  # our own
            [BINARY, "-a", "127.0.0.1", "-p", str(port), "-l", str(log)]
        )
        stack.callback(server.wait)
        stack.callback(server.kill)
        until_seen(lambda: log.exists() and "Server is ready" in log.read_text())
        yield f"nats://127.0.0.1:{port}"
