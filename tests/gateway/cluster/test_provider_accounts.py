"""People of an identity provider in a cluster: whoever signs in or out at one gateway does so at all."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moot.config import hash_token, load
from moot.protocol.operation import Json
from moot.space.state_hash import hash_state
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.nats_proxy import proxied
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import LocalGateway
from tests.gateway.sign_in.oidc_provider import Provider, running_provider
from tests.gateway.sign_in.test_introspection import ASKED, ENVIRON
from tests.gateway.sign_in.test_sign_in import enter, has_keys, refusal, session_tokens
from tests.waiting import until, until_told


@asynccontextmanager
async def two_gateways(
    start: StartGateway, **cluster: Json
) -> AsyncIterator[tuple[LocalGateway, LocalGateway, Provider]]:
    async with running_provider() as provider:
        oidc = provider.rules()
        async with start("a", oidc=oidc) as a, start("b", oidc=oidc, cluster=cluster) as b:
            await until(lambda: has_keys(a) and has_keys(b))
            yield a, b, provider


def is_known(gateway: LocalGateway, token: str) -> bool:
    host = gateway.gateway.directory.hosts["lab"]
    return host.space.state.temporary_tokens.get(hash_token(token)) is not None


async def test_who_signs_in_at_one_gateway_is_the_same_member_at_all(start: StartGateway) -> None:
    async with two_gateways(start) as (a, b, provider):
        token = provider.token()
        said: Json = {"id": "first", "kind": "chat", "payload": {"text": "over HTTP"}}
        bob = await b.join("bob")
        # The very first request of somebody whom no space knows yet.
        answer = await a.post("ana", said, token=token, space="lab")
        assert answer.status_code == 200, answer.text
        assert (await bob.hear("chat"))["from"] == "ana"
        at_b = await enter(b, token)
        assert at_b.received[0]["payload"]["you"]["id"] == "ana"
        other = await enter(b, provider.token("u-eve"))
        await until(lambda: "eve" in a.gateway.directory.hosts["lab"].space.state.roster.members)
        assert await other.refused("mcp/request", {"method": "tools/list"}, to=["bob"]) is not None
        history = await a.http.get("/spaces/lab/history", headers={"Authorization": f"Bearer {token}"})
        assert [each["id"] for each in history.json()["messages"]] == ["first"]
        states = [each.gateway.directory.hosts["lab"].space for each in (a, b)]
        await until(lambda: hash_state(states[0].save()) == hash_state(states[1].save()))


async def test_a_refused_token_of_a_provider_is_refused_once(start: StartGateway) -> None:
    async with two_gateways(start) as (a, _, provider):
        service = a.gateway.sign_in
        assert service is not None
        assert (await refusal(a, provider.token(aud="another")))[0] == 401
        assert service.refused == 1


async def test_who_signs_out_at_one_gateway_is_out_at_all(start: StartGateway) -> None:
    async with two_gateways(start) as (a, b, provider):
        token = provider.token(iat=int(time.time()) - 5, sid="s1")
        ana = await enter(a, token)
        form = {"logout_token": provider.logout_token(sid="s1")}
        assert (await b.http.post("/oidc/backchannel-logout", data=form)).status_code == 200
        assert await ana.closed() == (4003, "signed out")
        for gateway in (a, b):
            assert (await refusal(gateway, token))[0] == 403
        again = provider.token(iat=int(time.time()) - 1, sid="s2")
        ana = await enter(b, again)
        headers = {"Authorization": f"Bearer {again}"}
        assert (await a.http.post("/oidc/sign-out", headers=headers)).status_code == 200
        assert (await ana.closed())[0] == 4003
        for gateway in (a, b):
            assert (await refusal(gateway, again))[0] == 403


async def test_an_administrator_sees_at_each_gateway_who_signed_in_at_another(start: StartGateway) -> None:
    async with two_gateways(start) as (a, b, provider):
        ana = await enter(a, provider.token())
        first = (await a.admin("GET", "tokens", participant="ana")).json()
        assert [(each["rule"], each["connections"]) for each in first["tokens"]] == [(1, 1)]

        async def is_shown() -> bool:
            return bool((await b.admin("GET", "tokens", participant="ana")).json() == first)

        await until_told(is_shown)
        assert (await b.admin("POST", "participants/ana/sign-out")).is_success
        await ana.closed()
        told = [(await each.admin("GET", "sign-ins")).json() for each in (a, b)]
        assert told[0] == told[1]
        assert [each["event"] for each in told[0]["sign_ins"]] == ["signed_out", "signed_in"]
        assert {each["participant"] for each in told[0]["sign_ins"]} == {"ana"}


async def test_a_connection_is_renewed_by_its_own_person_alone(start: StartGateway) -> None:
    async with two_gateways(start) as (a, b, provider):
        ana = await enter(a, provider.token())
        before = session_tokens(b)
        await ana.send({"type": "join", "token": provider.token("u-eve")})
        assert (await ana.hear("system/error"))["payload"]["error"] == "unauthorized"
        newer = provider.token(seconds=61)
        await ana.send({"type": "join", "token": newer})
        await until(lambda: session_tokens(b) != before)
        assert hash_token(newer) in session_tokens(b)
        assert await ana.refused("chat", {"text": "still here"}) is None


async def test_a_reload_with_the_same_rules_signs_nobody_out_whom_only_another_gateway_saw(
    start: StartGateway,
) -> None:
    async with two_gateways(start) as (a, b, provider):
        ana = await enter(b, token := provider.token())
        await until(lambda: is_known(a, token))
        service = a.gateway.sign_in
        assert service is not None
        file = a.gateway.configuration.gateway.data.parent / "moot.yaml"
        await service.reload(load(file, environ={}).gateway.oidc)
        assert await ana.refused("chat", {"text": "still here"}) is None


async def test_a_token_that_another_gateway_let_in_is_asked_about_where_it_comes_next(
    start: StartGateway,
) -> None:
    """As after an upgrade one by one: the gateway that had looked at the token is gone."""
    async with running_provider() as provider:
        oidc = provider.rules(introspection=ASKED)
        async with start("b", oidc=oidc, environ=ENVIRON) as b:
            await until(lambda: has_keys(b))
            token = provider.token(seconds=3_600)
            async with start("a", oidc=oidc, environ=ENVIRON) as a:
                await until(lambda: has_keys(a))
                await enter(a, token)
                await until(lambda: is_known(b, token))
            ana = await enter(b, token)
            provider.revoked.add(token)
            assert await ana.closed() == (4003, "signed out")


async def test_a_gateway_that_is_cut_off_lets_nobody_sign_in(nats: NatsServers, start: StartGateway) -> None:
    async with proxied(nats) as (proxy, address):
        cut: dict[str, Json] = {"servers": [address], "unavailable_seconds": 0.3, "stale_seconds": 600}
        async with two_gateways(start, **cut) as (a, b, provider):
            assert b.gateway.node is not None
            log = b.gateway.node.shards[0].log
            proxy.part()
            await until(lambda: log.age_seconds > 0.3)
            queued = log.writer.queued_bytes
            said: Json = {"kind": "chat", "payload": {"text": "hello"}}
            answer = await b.post("ana", said, token=provider.token(), space="lab")
            assert answer.json()["error"] == "unavailable"
            assert log.writer.queued_bytes == queued, "nothing piles up meanwhile"
            proxy.heal()
            token = provider.token()
            await until_told(lambda: _posts(b, token))
            assert is_known(a, token) or await until(lambda: is_known(a, token))


async def _posts(gateway: LocalGateway, token: str) -> bool:
    said: Json = {"kind": "chat", "payload": {"text": "hello"}}
    return (await gateway.post("ana", said, token=token, space="lab")).status_code == 200
