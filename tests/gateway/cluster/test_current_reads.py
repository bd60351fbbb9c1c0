"""A gateway that does not know what is in the log tells nobody what it does not know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from moot.gateway.cluster.cluster_node import ClusterNode
from tests.gateway.cluster.conftest import StartGateway, set_bounds
from tests.gateway.cluster.nats_proxy import CuttingProxy, proxied
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import LocalGateway
from tests.waiting import HANG_SECONDS, until, until_told

READS = (
    "/spaces",
    "/participants/bob/messages?space=lab",
    "/participants/bob/roster?space=lab",
    "/spaces/lab/proposals",
    "/spaces/lab/history",
    "/push-subscriptions",
)


@asynccontextmanager
async def two_gateways(
    start: StartGateway, nats: NatsServers
) -> AsyncIterator[tuple[LocalGateway, LocalGateway, CuttingProxy]]:
    """Of the second one, the connection to NATS can be cut."""
    async with (
        proxied(nats) as (proxy, address),
        start("a") as a,
        start("b", cluster={"servers": [address]}) as b,
    ):
        try:
            yield a, b, proxy
        finally:
            proxy.heal()


async def test_a_gateway_that_is_cut_off_answers_no_reads_and_is_not_ready(
    start: StartGateway, nats: NatsServers
) -> None:
    async with two_gateways(start, nats) as (a, b, proxy):
        for path in READS:
            assert (await _get(b, path, "t-bob"))[0] == 200
        proxy.part()
        alice = await a.join("alice")
        await alice.ask("space/kick", {"participant_id": "bob"})
        set_bounds(b, unavailable_seconds=0.2)
        await until(lambda: _node(b).is_unavailable)
        for path in READS:
            status, body = await _get(b, path, "t-bob")
            assert (status, body["error"]) == (503, "unavailable"), path
            assert "does not reach the log of its cluster" in body["message"]
        # Nor is it told that a token is wrong, which may be new.
        assert (await _get(b, "/spaces", "t-nobody"))[0] == 503
        for path in ("tokens", "connections"):
            assert (await b.admin("GET", path, space="lab")).status_code == 503
        assert (await b.admin("GET", "cluster")).status_code == 200
        ready = await b.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "cut_off")
        assert "use another one" in ready.json()["message"]
        assert (await a.http.get("/readyz")).status_code == 200
        assert (await b.http.get("/livez")).status_code == 200
        set_bounds(b, unavailable_seconds=HANG_SECONDS)
        proxy.heal()
        await until_told(partial(_answers, b, "t-bob", 401))
        assert (await b.http.get("/readyz")).status_code == 200


async def test_a_token_that_is_not_known_yet_is_judged_when_the_log_is(
    start: StartGateway, nats: NatsServers
) -> None:
    """An invited member was refused at another gateway once in 40 times."""
    async with two_gateways(start, nats) as (a, b, proxy):
        proxy.part()
        alice = await a.join("alice")
        token = (await alice.ask("space/invite", {"participant_id": "zoe"}))["payload"]["token"]
        barrier = _node(b).barrier
        asked = [asyncio.create_task(_get(b, "/spaces", each)) for each in (token, "t-nobody")]
        await until(lambda: barrier._is_running and not barrier.waiting)
        opened = asyncio.create_task(b.status("/ws?space=lab", token=token))
        refused = asyncio.create_task(b.status("/ws?space=lab", token="t-nobody"))
        joining = await b.open("/ws")
        await joining.send({"type": "join", "space": "lab", "token": token})
        # What is sent behind the join belongs to it, as ever.
        await joining.send({"kind": "chat", "id": "early", "payload": {"text": "at once"}})
        await until(lambda: len(barrier.waiting) >= 3)
        proxy.heal()
        known, unknown = [await each for each in asked]
        assert (known[0], unknown[0]) == (200, 401)
        assert [each["participant"] for each in known[1]["spaces"]] == ["zoe"]
        assert (await opened, await refused) == (101, 401)
        assert (await joining.hear("system/welcome"))["payload"]["you"]["id"] == "zoe"
        refusal = await joining.hear("system/error")
        assert (refusal["payload"]["error"], refusal["correlation_id"]) == ("capability_violation", ["early"])
        stranger = await b.open("/ws")
        await stranger.send({"type": "join", "space": "lab", "token": "t-nobody"})
        assert (await stranger.hear("system/error"))["payload"]["error"] == "unauthorized"


async def test_all_who_come_with_wrong_tokens_wait_for_one_message_of_the_log(
    start: StartGateway, nats: NatsServers
) -> None:
    async with two_gateways(start, nats) as (_, b, proxy):
        barrier = _node(b).barrier
        proxy.part()
        strangers = [asyncio.create_task(_get(b, "/spaces", "t-first"))]
        await until(lambda: barrier._is_running and not barrier.waiting)
        # It waits for the barrier that has begun, all others for the next one.
        strangers += [asyncio.create_task(_get(b, "/spaces", f"t-{n}")) for n in range(40)]
        await until(lambda: len(barrier.waiting) == len(strangers) - 1)
        before = barrier.passed
        proxy.heal()
        assert {(await each)[0] for each in strangers} == {401}
        assert barrier.passed - before == 2


async def test_one_who_cannot_go_on_keeps_no_other_waiting(start: StartGateway) -> None:
    async with start("a") as a:
        barrier = _node(a).barrier
        passed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        # The first begins a barrier, both others share the next one.
        barrier.call_when_passed(lambda _: None)
        for call in (_fail, passed.set_result):
            barrier.call_when_passed(call)
        assert await asyncio.wait_for(passed, HANG_SECONDS) is None


def _fail(_: object) -> None:
    raise RuntimeError("as a fault of ours would")


async def test_who_came_with_too_many_wrong_tokens_costs_the_log_nothing(start: StartGateway) -> None:
    async with start("a", wrong_tokens_per_minute=3) as a:
        barrier = _node(a).barrier
        assert [(await _get(a, "/spaces", "t-wrong"))[0] for _ in range(3)] == [401] * 3
        # It fills again while the test runs: on a slow machine some are judged by the log.
        passed, judged = barrier.passed, 0
        assert passed > 0
        for path in READS:
            judged += (await _get(a, path, "t-wrong"))[0] != 429
        judged += await a.status("/ws?space=lab", token="t-wrong") != 429
        stranger = await a.open("/ws")
        await stranger.send({"type": "join", "space": "lab", "token": "t-wrong"})
        judged += (await stranger.hear("system/error"))["payload"]["error"] != "rate_limited"
        assert judged <= 2
        assert barrier.passed - passed == judged
        assert (await _get(a, "/spaces", "t-bob"))[0] == 200


async def _get(gateway: LocalGateway, path: str, token: str) -> tuple[int, dict[str, Any]]:
    answer = await gateway.http.get(path, headers={"Authorization": f"Bearer {token}"})
    return answer.status_code, json.loads(answer.text)


async def _answers(gateway: LocalGateway, token: str, status: int) -> bool:
    return (await _get(gateway, "/spaces", token))[0] == status


def _node(gateway: LocalGateway) -> ClusterNode:
    assert gateway.gateway.node is not None
    return gateway.gateway.node
