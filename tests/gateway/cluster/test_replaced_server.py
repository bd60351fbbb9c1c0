"""A NATS machine is lost for good, and another takes its place, as docs/how-to/run-a-cluster.md says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nats
from nats.js.errors import Error

from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PATIENT, PEOPLE
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import LocalGateway, running_gateway
from tests.waiting import until_told

ACCOUNTS = """accounts {
  SYS { users: [{user: admin, password: admin}] }
  MOOT { jetstream: enabled, users: [{user: moot, password: moot}] }
}
system_account: SYS
no_auth_user: moot"""


async def test_a_nats_machine_is_replaced_while_the_space_goes_on_and_afterwards_another_may_be_lost(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    servers = NatsServers(folder, 3, ACCOUNTS)
    try:
        cluster: Json = {"servers": servers.addresses, "shards": 2, "gateway": "a"} | PATIENT
        async with running_gateway(tmp_path, PEOPLE, cluster=cluster) as a:
            alice = await a.join("alice")
            assert await alice.refused("chat", {"text": "three"}) is None
            servers.kill(2)
            shutil.rmtree(servers.store(2))
            assert await alice.refused("chat", {"text": "two"}) is None
            await until_told(lambda: _copies_on(a, "n2", is_late=True))
            servers.add()
            await until_told(lambda: _remove_peer(servers, "n2"))
            # Copies of all that the cluster keeps are made on the new one.
            await until_told(lambda: _keeps(servers, {"n0", "n1", "n3"}))
            servers.kill(1)
            assert await alice.refused("chat", {"text": "without another one"}) is None
            await alice.fence()
            said = [each["payload"]["text"] for each in alice.received if each["kind"] == "chat"]
            assert said == ["three", "two", "without another one"]
    finally:
        servers.close()


async def _copies_on(gateway: LocalGateway, server: str, *, is_late: bool) -> bool:
    """Whether `moot cluster status` names this server."""
    problems = (await gateway.admin("GET", "cluster")).json()["problems"]
    return any(server in each for each in problems) == is_late


async def _remove_peer(servers: NatsServers, name: str) -> bool:
    """What `nats server cluster peer-remove` asks; nobody answers while a leader is elected."""
    client = await nats.connect(servers.addresses[0], user="admin", password="admin")
    try:
        answer = await client.request("$JS.API.SERVER.REMOVE", json.dumps({"peer": name}).encode(), timeout=5)
        return bool(json.loads(answer.data).get("success"))
    except nats.errors.Error:
        return False
    finally:
        await client.close()


async def _keeps(servers: NatsServers, names: set[str]) -> bool:
    """Whether every stream has current copies on these servers, and on no others."""
    client = await nats.connect(servers.addresses[0])
    try:
        streams: list[Any] = await client.jetstream().streams_info()
        return all(_copies(each) == names for each in streams)
    except (Error, nats.errors.Error):
        return False
    finally:
        await client.close()


def _copies(info: Any) -> set[str]:
    return {info.cluster.leader, *(peer.name for peer in info.cluster.replicas or () if peer.current)}
