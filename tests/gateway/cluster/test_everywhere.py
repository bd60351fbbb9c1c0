"""What concerns all spaces works at a gateway that serves only some: logouts that a provider sends,
administrators who sign in with one, spaces made after others. What cannot reach everybody who has to know is
not called done."""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib

import httpx
import pytest

from moot.gateway.cluster.nats import served_exchange
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway, set_bounds
from tests.gateway.cluster.test_questions import divided
from tests.gateway.cluster.test_shards import LAB, SHARDS, get, node
from tests.gateway.running_gateway import LocalGateway
from tests.gateway.sign_in.oidc_provider import Provider, person, running_provider
from tests.gateway.sign_in.test_sign_in import enter, has_keys, refusal
from tests.waiting import HANG_SECONDS, until

# Whom a provider names otherwise to each client.
BY_OID: dict[str, Json] = {"subject_claim": "oid"}


@pytest.fixture(autouse=True)
def _what_is_told_is_known_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine."""
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", HANG_SECONDS)


async def log_out(gateway: LocalGateway, provider: Provider, **claims: Json) -> httpx.Response:
    form = {"logout_token": provider.logout_token(**claims)}
    return await gateway.http.post("/oidc/backchannel-logout", data=form)


def earlier(provider: Provider, sub: str, **claims: Json) -> str:
    return provider.token(sub, iat=int(time.time()) - 5, preferred_username="ana", **claims)


async def test_a_logout_ends_what_only_other_gateways_know(start: StartGateway) -> None:
    """The account behind a `sub`, and the client that it is named for, too."""
    async with running_provider() as provider:
        rules = provider.rules(person(spaces=["lab", "other"]), **BY_OID)
        async with divided(start, oidc=rules) as (a, b):
            await until(lambda: has_keys(a) and has_keys(b))
            # No gateway serves all spaces.
            await node(b).leave(1)
            in_lab = earlier(provider, "u-at-editor", oid="ana", client_id="editor")
            in_other = earlier(provider, "u-at-console", oid="ana")
            members = [await enter(b, in_lab), await enter(a, in_other, space="other")]
            assert (await log_out(a, provider, sub="u-at-editor", aud="nobody's")).status_code == 400
            assert (await log_out(a, provider, sub="u-at-editor", aud="editor")).status_code == 200
            for each in members:
                assert await each.closed() == (4003, "signed out")
            assert (await refusal(b, in_lab))[0] == 403
            assert (await get(a, "/spaces", in_other)).status_code == 403


async def test_a_logout_of_a_session_that_no_gateway_knows_is_not_called_done(start: StartGateway) -> None:
    async with running_provider() as provider:
        rules = provider.rules(person(spaces=["lab"]))
        async with divided(start, oidc=rules) as (a, b):
            await until(lambda: has_keys(a) and has_keys(b))
            assert (await log_out(a, provider, sid="s1")).status_code == 200, "there is nobody"
            await enter(b, earlier(provider, "u-ana", sid="s2"))
            unnamed = await enter(b, provider.token("u-eve"))
            assert (await log_out(a, provider, sid="s2")).status_code == 200
            assert (await log_out(a, provider, sid="s1")).status_code == 400
            assert await unnamed.refused("chat", {"text": "still here"}) is None


async def test_a_logout_that_does_not_reach_a_gateway_is_not_called_done(start: StartGateway) -> None:
    async with running_provider() as provider:
        rules = provider.rules(person(spaces=["lab", "other"]))
        async with divided(start, oidc=rules) as (a, b):
            await until(lambda: has_keys(a) and has_keys(b))
            ana = await enter(b, earlier(provider, "u-ana"))
            others = b.gateway.directory.others

            async def never(*_: object) -> Json:
                await asyncio.Event().wait()

            answering, others.find = others.find, never  # type: ignore[method-assign,assignment]
            set_bounds(a, unavailable_seconds=0.5)
            assert (await log_out(a, provider, sub="u-ana")).status_code == 503
            others.find = answering  # type: ignore[method-assign]
            set_bounds(a, unavailable_seconds=HANG_SECONDS)
            assert await ana.refused("chat", {"text": "still here"}) is None
            assert (await log_out(a, provider, sub="u-ana")).status_code == 200
            assert (await ana.closed())[0] == 4003


async def test_who_administers_by_signing_in_does_so_at_every_gateway_until_removed_at_one(
    start: StartGateway,
) -> None:
    async with running_provider() as provider:
        root = person(match={"sub": "u-root"}, spaces=["lab"], administrator=True)
        async with divided(start, oidc=provider.rules(root, person())) as (a, b):
            await until(lambda: has_keys(a) and has_keys(b))
            token = provider.token("u-root")
            admin = await enter(b, token)

            async def statuses(who: str) -> set[int]:
                where = ("spaces", "connections", "cluster")
                return {(await get(a, f"/admin/{each}", who)).status_code for each in where}

            assert await statuses(token) == {200}
            assert await statuses(provider.token("u-eve")) == {403}
            others = b.gateway.directory.others

            async def never(*_: object) -> Json:
                await asyncio.Event().wait()

            answering, others.find = others.find, never  # type: ignore[method-assign,assignment]
            set_bounds(a, unavailable_seconds=0.5)
            assert await statuses(token) == {503}
            others.find = answering  # type: ignore[method-assign]
            set_bounds(a, unavailable_seconds=HANG_SECONDS)
            alice = await b.join("alice")
            await alice.ask("space/kick", {"participant_id": "root"}, id="kick")
            await admin.closed()
            assert await statuses(token) == {403}


def name_in(shard: int) -> str:
    """Of a space that is in that shard."""
    names = (f"garden{number}" for number in itertools.count())
    return next(each for each in names if zlib.crc32(each.encode()) % int(str(SHARDS["shards"])) == shard)


@pytest.mark.parametrize("shard", [1, LAB])
async def test_a_space_is_made_and_ended_wherever_it_and_its_model_are_served(
    start: StartGateway, shard: int
) -> None:
    async with divided(start) as (a, b):
        # No gateway serves all spaces.
        await node(b).leave(1)
        await until(lambda: bool(node(a).relay_addresses(LAB) and node(b).relay_addresses(1)))
        alice = await b.join("alice")
        await alice.ask("space/kick", {"participant_id": "zoe"}, id="kick")
        garden = name_in(shard)
        for asked in (a, b):
            made = await asked.admin("POST", "spaces", {"name": garden, "like": "lab"})
            assert made.status_code == (201 if asked is a else 400), made.text
            assert await asked.status(f"/ws?space={garden}", token="t-alice") == 101
            assert await asked.status(f"/ws?space={garden}", token="t-zoe") in (401, 403)
        bob = await b.join("bob", space=garden)
        assert (await a.admin("DELETE", f"spaces/{garden}")).status_code == 200
        await bob.closed()
        for asked in (a, b):
            assert (await asked.admin("POST", "spaces", {"name": garden, "like": "lab"})).status_code == 400
            assert await asked.status(f"/ws?space={garden}", token="t-alice") == 404
