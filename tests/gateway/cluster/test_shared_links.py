"""One-time links behind a load balancer: made at one gateway, redeemed at any, once."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.disk import everything_under
from tests.gateway.running_gateway import LocalGateway
from tests.waiting import until


async def test_a_link_of_one_gateway_is_redeemed_at_another_and_once(
    start: StartGateway, nats: NatsServers
) -> None:
    async with start("a") as a, start("b") as b:
        code = (await _make(a, "t-alice"))["code"]
        assert await _redeem(b, code) == (200, "t-alice")
        for gateway in (a, b):
            assert await _redeem(gateway, code) == (403, None)
        page, _, printed = (await b.gateway.make_sign_in_link("t-bob")).partition("/#sign-in=")
        assert page
        assert await _redeem(a, printed) == (200, "t-bob")
        # Of many that come at once, one gets it.
        code = (await _make(b, "t-alice"))["code"]
        tried = await asyncio.gather(*(_redeem(each, code) for each in (a, b) * 5))
        assert sorted(status for status, _ in tried) == [200] + [403] * 9
        kept = everything_under(nats.store(0)) + everything_under(a.folder) + everything_under(b.folder)
        assert code.encode() not in kept


async def test_a_link_for_who_was_just_invited_works_at_another_gateway(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice = await a.join("alice")
        token = (await alice.ask("space/invite", {"participant_id": "zoe"}))["payload"]["token"]
        assert await _redeem(b, (await _make(b, token))["code"]) == (200, token)


async def test_a_link_that_is_too_old_is_refused_at_every_gateway(start: StartGateway) -> None:
    async with start("a", sign_in_link_seconds=0.2) as a, start("b", sign_in_link_seconds=0.2) as b:
        for gateway in (a, b):
            code = (await _make(a, "t-alice"))["code"]
            made = _time(a)
            await until(lambda made=made: min(_time(a), _time(b)) > made + 0.2)  # type: ignore[misc]
            assert await _redeem(gateway, code) == (403, None)


async def _make(gateway: LocalGateway, token: str) -> dict[str, Any]:
    answer = await gateway.http.post("/sign-in-links", json={}, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def _redeem(gateway: LocalGateway, code: str) -> tuple[int, str | None]:
    answer = await gateway.http.post("/sign-in-links/redeem", json={"code": code})
    return answer.status_code, answer.json().get("token")


def _time(gateway: LocalGateway) -> float:
    assert gateway.gateway.node is not None
    return gateway.gateway.node.shards[0].clock.latest
