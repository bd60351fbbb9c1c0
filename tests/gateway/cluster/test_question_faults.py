"""Questions between gateways that fail half-way, or come too late: nothing is used up for nothing, nobody who
was revoked meanwhile is let in, and nobody is told more than is known."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from moot.errors import Unavailable
from moot.gateway.cluster.cluster_status import _has_space
from moot.gateway.cluster.nats import served_exchange
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_passkeys import page
from tests.gateway.cluster.test_questions import client_of, divided, spaces_of
from tests.gateway.cluster.test_shards import LAB, get, node
from tests.gateway.running_gateway import LocalGateway, participants, space_settings
from tests.gateway.sign_in.oidc_provider import person, running_provider
from tests.gateway.sign_in.test_passkeys import ADMIN
from tests.gateway.sign_in.test_sign_in import has_keys
from tests.waiting import HANG_SECONDS, until


@pytest.fixture(autouse=True)
def _what_is_told_is_known_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine."""
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", HANG_SECONDS)


class Answers:
    """What a gateway answers to others: held up until `go_on` is set, and refused where `fails` says so."""

    def __init__(self, gateway: LocalGateway) -> None:
        self._others = gateway.gateway.directory.others
        self._find = self._others.find
        self._others.find = self  # type: ignore[method-assign]
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.fails: tuple[str, ...] = ()

    async def __call__(self, about: str, facts: Json, asked: Any) -> Json:
        self.asked.append(about)
        await self.go_on.wait()
        if about in self.fails:
            raise Unavailable("out of order")
        return await self._find(about, facts, asked)


async def test_who_is_revoked_while_others_are_asked_is_let_in_nowhere(start: StartGateway) -> None:
    async with divided(start) as (a, b):
        answers = Answers(b)
        answers.go_on.clear()
        listing = asyncio.create_task(spaces_of(a, "t-alice"))
        connections = asyncio.create_task(a.admin("GET", "connections"))
        await until(lambda: len(answers.asked) == 2)
        for name in ("other", "lab"):
            bob = await b.join("bob" if name == "other" else "zoe", space=name)
            await bob.ask("space/kick", {"participant_id": "alice"}, id=f"kick-{name}")
        alice_at_a = a.gateway.directory.hosts["other"].space.state.roster.members
        await until(lambda: alice_at_a["alice"].kicked)  # type: ignore[index]
        administrators, a.gateway.directory.admin_tokens = a.gateway.directory.admin_tokens, {}
        answers.go_on.set()
        assert await listing == (401, None)
        assert (await connections).status_code == 403
        a.gateway.directory.admin_tokens = administrators
        assert (await a.admin("GET", "connections")).status_code == 200


async def test_a_link_is_used_up_only_when_whose_it_is_is_known(start: StartGateway) -> None:
    async with divided(start) as (a, b):
        headers = {"Authorization": "Bearer t-zoe"}
        code = (await a.http.post("/sign-in-links", json={}, headers=headers)).json()["code"]
        answers = Answers(b)
        for fails, status in ((("holder",), 503), ((), 200), ((), 403)):
            answers.fails = fails
            redeemed = await a.http.post("/sign-in-links/redeem", json={"code": code})
            assert redeemed.status_code == status, redeemed.text


async def test_a_link_to_add_a_passkey_is_used_up_only_when_it_can_be_added(start: StartGateway) -> None:
    async with divided(start) as (a, _b):
        path = "/admin/participants/alice/passkey-link?space=other"
        code = (await a.http.post(path, headers=ADMIN)).json()["code"]
        alice, service = page(a), a.gateway._passkeys
        code_of, service._code_of = service._code_of, _unavailable  # type: ignore[method-assign]
        assert (await alice.post("/passkey-options", {"code": code}))[0] == 503
        service._code_of = code_of  # type: ignore[method-assign]
        tried = await asyncio.gather(*(alice.post("/passkey-options", {"code": code}) for _ in range(4)))
        assert sorted(status for status, _ in tried) == [200, 403, 403, 403]


async def _unavailable(body: str) -> bytes:  # it stands in for another one
    raise Unavailable("out of order")


async def test_a_passkey_is_removed_everywhere_or_it_is_told_that_this_is_not_known(
    start: StartGateway,
) -> None:
    async with divided(start) as (a, b):
        alice = page(a, "t-alice")
        assert (await alice.add())[0] == 201
        answers = Answers(b)

        async def remove(token: str = "t-alice") -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            gone = await a.http.delete(f"/passkeys/{alice.key.id}", headers=headers)
            return gone.status_code, gone.json()

        async def where() -> list[str]:
            return sorted(each["space"] for each in (await get(a, "/passkeys")).json()["passkeys"])

        answers.fails = ("passkey_removable",)
        status, told = await remove()
        assert (status, told["error"], await where()) == (503, "unavailable", ["lab", "other"])
        answers.fails = ("passkey_removal",)
        status, told = await remove()
        assert (status, told["error"]) == (503, "outcome_unknown")
        assert "in some of your spaces and not in others" in told["message"]
        answers.fails = ()
        assert await remove() == (200, {"id": alice.key.id, "removed": True})
        assert await where() == []
        assert (await remove())[0] == 404


async def test_a_gateway_answers_only_for_shards_that_it_is_asked_for(start: StartGateway) -> None:
    async with divided(start) as (a, _):
        question = {"about": "all_spaces", "shards": [LAB], "facts": None}
        where = f"{node(a).config.name}.ask.b"
        answer = await client_of(a).request(where, msgspec.json.encode(question), timeout=5)
        assert [each["name"] for each in msgspec.json.decode(answer.data)["found"]] == ["lab"]


async def test_a_status_tells_of_the_files_what_is_asked_about_one_space(start: StartGateway) -> None:
    async with start("a") as a:
        status = node(a).status.describe_own
        assert [status(name).has_in_file for name in ("", "lab", "none")] == [None, True, False]
        # Who does not say it may have it.
        assert _has_space(status(""), node(a).common, "lab")


async def test_a_token_of_a_provider_gets_the_same_answer_where_its_space_is_not_served(
    start: StartGateway,
) -> None:
    spaces: dict[str, Json] = {"lab": space_settings(participants(alice=["*"]))}
    async with running_provider() as provider:
        rules = provider.rules(person(match={"sub": "u-eve"}))
        async with divided(start, spaces=spaces, oidc=rules) as (a, b):
            await until(lambda: has_keys(a) and has_keys(b))
            eve, stranger = provider.token("u-eve"), provider.token("u-mallory")
            assert [(await spaces_of(each, eve))[0] for each in (a, b)] == [200, 200]
            wrong = f"{eve[:-8]}AAAAAAAA"
            for token, status in ((stranger, 403), (wrong, 401)):
                told = [await get(each, "/spaces", token) for each in (a, b)]
                assert [each.status_code for each in told] == [status, status]
                assert told[0].json()["message"] == told[1].json()["message"]
            # Who guessed from that address before is told nothing of a token that is right.
            a.gateway.directory.has_guessed = lambda _address: True
            assert (await spaces_of(a, eve))[0] == 200
            assert [(await spaces_of(a, token))[0] for token in (wrong, "t-alice")] == [429, 429]
