"""What concerns several spaces is answered by a gateway that serves only some: it asks those that serve the
others. Nobody who is revoked comes in by that, and nothing is told as whole that is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from moot.config import hash_token
from moot.gateway.cluster.nats import served_exchange
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE, StartGateway, set_bounds
from tests.gateway.cluster.test_passkeys import SHARED, move, page
from tests.gateway.cluster.test_shards import LAB, SHARDS, get, node
from tests.gateway.cluster.test_start_together import die
from tests.gateway.running_gateway import LocalGateway, participants, space_settings
from tests.gateway.sign_in.oidc_provider import person, running_provider
from tests.gateway.sign_in.test_sign_in import has_keys
from tests.waiting import HANG_SECONDS, bounded, until

# Of the three spaces, `lab` and `many` are in shards of their own and `other` in the common one.
SPACES: dict[str, Json] = {
    "lab": space_settings(participants(alice=["*"], bob=["chat"], zoe=["*"])),
    "other": space_settings(PEOPLE),
}
START: dict[str, Any] = SHARED | {"cluster": SHARDS, "spaces": SPACES}


@pytest.fixture(autouse=True)
def _what_is_told_is_known_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine."""
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", HANG_SECONDS)


@asynccontextmanager
async def divided(start: StartGateway, **more: Json) -> AsyncIterator[tuple[LocalGateway, LocalGateway]]:
    """`a` does not serve the space `lab`, and knows that `b` does."""
    settings: dict[str, Any] = START | more
    async with bounded(), start("a", **settings) as a, start("b", **settings) as b:
        await node(a).leave(LAB)
        await until(lambda: node(a).told_to_serve(LAB))
        yield a, b


def client_of(gateway: LocalGateway) -> Any:
    """A connection to NATS, as whoever has the credentials of a gateway has one."""
    connection = node(gateway).connection
    assert connection is not None
    return connection.client


async def spaces_of(gateway: LocalGateway, token: str) -> tuple[int, Any]:
    answer = await get(gateway, "/spaces", token)
    return answer.status_code, answer.json().get("spaces")


async def test_the_list_of_spaces_is_the_same_wherever_it_is_asked_for(start: StartGateway) -> None:
    async with divided(start) as (a, b):
        await b.join("bob")
        for token in ("t-alice", "t-bob", "t-zoe"):
            status, found = await spaces_of(b, token)
            assert status == 200
            asked, listed = await spaces_of(a, token)
            assert (asked, sorted(listed, key=str)) == (200, sorted(found, key=str))
        # Only in a space that is not served here.
        assert [each["name"] for each in (await spaces_of(a, "t-zoe"))[1]] == ["lab"]
        assert (await spaces_of(a, "t-nobody"))[0] == 401
        for what in ("spaces", "connections"):
            told = [(await each.admin("GET", what)).json()[what] for each in (a, b)]
            assert sorted(told[0], key=str) == sorted(told[1], key=str)
            assert "lab" in str(told[0])


async def test_who_is_revoked_is_refused_by_every_gateway_at_once(start: StartGateway) -> None:
    async with divided(start) as (a, b):
        alice = await b.join("alice")
        assert (await spaces_of(a, "t-zoe"))[0] == 200
        await alice.ask("space/kick", {"participant_id": "zoe"}, id="kick")
        assert (await spaces_of(a, "t-zoe"))[0] == 401
        made = (await b.admin("POST", "participants/alice/tokens", {"seconds": 60}, space="lab")).json()[
            "token"
        ]
        assert [each["name"] for each in (await spaces_of(a, made))[1]] == ["lab"]
        token = (await b.admin("GET", "tokens", space="lab", participant="alice")).json()["tokens"]
        (short,) = [each["id"] for each in token if "expires" in each]
        assert (await b.admin("DELETE", f"tokens/{short}", space="lab")).status_code == 200
        assert (await spaces_of(a, made))[0] == 401


async def test_nothing_is_told_as_whole_while_a_part_is_not_known(start: StartGateway) -> None:
    async with divided(start) as (a, b):
        link = await a.http.post("/sign-in-links", json={}, headers={"Authorization": "Bearer t-zoe"})
        code = link.json()["code"]
        # It does not answer any more, and nobody knows why.
        others = b.gateway.directory.others

        async def never(*_: object) -> Json:
            await asyncio.Event().wait()

        answering, others.find = others.find, never  # type: ignore[method-assign,assignment]
        set_bounds(a, unavailable_seconds=0.5)
        for token in ("t-alice", "t-zoe", "t-nobody"):
            assert await spaces_of(a, token) == (503, None)
        assert (await a.http.post("/sign-in-links/redeem", json={"code": code})).status_code == 503
        others.find = answering  # type: ignore[method-assign]
        set_bounds(a, unavailable_seconds=HANG_SECONDS)
        redeemed = a.http.post("/sign-in-links/redeem", json={"code": code})
        assert (await redeemed).json() == {"token": "t-zoe"}, "it was not used up"
        die(b)
        # It is not there at all, until this one has taken its spaces over.
        assert (await spaces_of(a, "t-zoe"))[0] in (200, 503)


async def test_passkeys_are_added_used_and_removed_in_spaces_that_are_served_elsewhere(
    start: StartGateway,
) -> None:
    async with divided(start) as (a, b):
        alice = page(a, "t-alice")
        status, done = await alice.add()
        assert (status, sorted(done["spaces"])) == (201, ["lab", "other"])
        assert (await alice.add())[1]["error"] == "invalid_operation"
        keys = (await get(a, "/passkeys")).json()["passkeys"]
        assert sorted(each["space"] for each in keys) == ["lab", "other"]
        zoe = page(a, "t-zoe", b"zoe's")
        assert await zoe.add() == (201, {"spaces": ["lab"]})
        zoe.token = ""
        ticket = (await zoe.post("/passkey-sign-in/options", {}))[1]["ticket"]
        status, session = await zoe.sign_in(ticket)
        assert (status, session["spaces"]) == (200, [{"space": "lab", "participant": "zoe"}])
        assert "used before" in (await zoe.sign_in(ticket))[1]["message"]
        assert await b.status("/ws?space=lab", token=session["token"]) == 101
        assert "no space here knows" in (await page(a, "", b"nobody's").sign_in())[1]["message"]
        headers = {"Authorization": f"Bearer {session['token']}"}
        gone = await a.http.delete(f"/passkeys/{zoe.key.id}", headers=headers)
        assert gone.json() == {"id": zoe.key.id, "removed": True}
        assert (await a.http.delete(f"/passkeys/{zoe.key.id}", headers=headers)).status_code == 401
        assert (await move(zoe, b).sign_in())[0] == 403


async def test_who_signs_in_with_a_provider_is_known_and_signed_out_in_spaces_that_are_served_elsewhere(
    start: StartGateway,
) -> None:
    async with running_provider() as provider:
        rule = person(spaces=["lab", "other"], administrator=["lab"])
        async with divided(start, oidc=provider.rules(rule)) as (a, b):
            await until(lambda: has_keys(a) and has_keys(b))
            # The very first request of somebody whom no space knows yet.
            eve = provider.token("u-eve")
            for gateway in (a, b):
                status, found = await spaces_of(gateway, eve)
                assert (status, sorted(each["name"] for each in found)) == (200, ["lab", "other"])
                assert [each["name"] for each in found if "administrator" in each] == ["lab"]
            assert await b.status("/ws?space=lab", token=eve) == 101
            headers = {"Authorization": f"Bearer {eve}"}
            assert (await a.http.post("/oidc/sign-out", headers=headers)).status_code == 200
            for gateway in (a, b):
                assert (await spaces_of(gateway, eve))[0] == 403
            assert await b.status("/ws?space=lab", token=eve) == 403


async def test_no_token_and_no_ticket_crosses_nats(start: StartGateway) -> None:
    async with divided(start) as (a, _):
        heard: list[bytes] = []
        client = client_of(a)

        async def take(message: Any) -> None:
            heard.append(message.data)

        await client.subscribe("_INBOX.>", cb=take)
        await client.subscribe(f"{node(a).config.name}.ask.>", cb=take)
        await client.flush()
        alice = page(a, "t-alice")
        ticket = (await alice.post("/passkey-options", {}))[1]["ticket"]
        assert (await alice.finish(ticket))[0] == 201
        alice.token = ""
        ticket = (await alice.post("/passkey-sign-in/options", {}))[1]["ticket"]
        token = (await alice.sign_in(ticket))[1]["token"]
        assert (await spaces_of(a, token))[0] == 200
        await until(lambda: any(hash_token(token).encode() in each for each in heard))
        for secret in ("t-alice", ticket, ticket.partition(".")[2], token):
            assert not any(secret.encode() in each for each in heard)


async def test_what_strangers_say_to_gateways_harms_nobody(start: StartGateway) -> None:
    async with divided(start) as (a, _):
        client = client_of(a)
        where = f"{node(a).config.name}.ask.b"
        for wrong in (b"", b"{", b"[]", b'{"about":"spaces","shards":[4],"facts":7}'):
            await client.publish(where, wrong, reply="nobody")
        question = {"about": "nothing", "shards": [4, 77], "facts": None}
        answer = await client.request(where, msgspec.json.encode(question), timeout=5)
        assert b"does not know that question" in answer.data
        question = {"about": "spaces", "shards": [77], "facts": None}
        answer = await client.request(where, msgspec.json.encode(question), timeout=5)
        assert msgspec.json.decode(answer.data)["shards"] == []
        assert (await spaces_of(a, "t-zoe"))[0] == 200


async def test_who_guesses_links_and_passkeys_makes_nobody_ask_without_end(start: StartGateway) -> None:
    async with divided(start) as (a, b):
        asked = 0
        others = b.gateway.directory.others
        find = others.find

        async def count(*facts: Any) -> Json:
            nonlocal asked
            asked += 1
            return await find(*facts)

        others.find = count  # type: ignore[method-assign, assignment]
        stranger = page(a, "", b"nobody's")
        ticket = (await stranger.post("/passkey-sign-in/options", {}))[1]["ticket"]
        limiter = a.gateway.directory.has_guessed
        a.gateway.directory.has_guessed = lambda _address: True
        assert (await a.http.post("/sign-in-links/redeem", json={"code": "no"})).status_code in (403, 429)
        assert (await stranger.sign_in(ticket))[0] in (403, 429)
        assert asked == 0
        a.gateway.directory.has_guessed = limiter
        assert (await stranger.sign_in(ticket))[0] in (403, 429)
        assert asked == 1
