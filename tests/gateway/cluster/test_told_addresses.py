"""What others are told of where a gateway is, and whether it answers there: 127.0.0.2 stands for a machine's
address in its network."""

from __future__ import annotations

import httpx

from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.running_gateway import LocalGateway
from tests.ports import held_port
from tests.waiting import HANG_SECONDS


async def test_a_gateway_on_every_address_is_reached_where_the_cluster_says_and_tells_invited_people_so(
    start: StartGateway,
) -> None:
    """The example under Start in docs/how-to/run-a-cluster.md, from another machine."""
    with held_port() as port:
        address = f"http://127.0.0.2:{port}"
        everywhere: dict[str, Json] = {"host": "0.0.0.0", "port": port}  # noqa: S104  # what is tested
        async with start("a", **everywhere) as a:
            assert await _status(address) == 421
            assert (await _invite(a, "before")).startswith(f"ws://127.0.0.1:{port}/participants/before/ws")
        async with start("a", cluster={"addresses": [f"{address}/", "http://b.example"]}, **everywhere) as a:
            assert await _status(address) == 401
            assert (await _invite(a, "zoe")).startswith(f"ws://127.0.0.2:{port}/participants/zoe/ws")


async def test_an_address_of_a_cluster_holds_for_invitations_at_any_gateway(start: StartGateway) -> None:
    cluster: Json = {"addresses": ["https://a.example/moot", "https://b.example/moot"]}
    async with start("a", cluster=cluster), start("b", cluster=cluster) as b:
        assert await _invite(b, "zoe") == "wss://a.example/moot/participants/zoe/ws?space=lab"


async def _status(address: str) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as client:
        return (await client.get(f"{address}/spaces")).status_code


async def _invite(gateway: LocalGateway, whom: str) -> str:
    said: Json = {"id": f"invite-{whom}", "kind": "space/invite", "payload": {"participant_id": whom}}
    url = f"{gateway.gateway.addresses.machine_url}/participants/alice/messages?space=lab"
    async with httpx.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as client:
        answer = await client.post(url, json=said, headers={"authorization": "Bearer t-alice"})
    return str(answer.json()["connection_url"])
