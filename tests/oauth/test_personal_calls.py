"""Calls to a bridged server with people's own accounts: whose, for what, and never anybody else's."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.bridges.server.call_identity import IDENTITY_KEY, CredentialsOf, with_identity
from moot.errors import McpError
from moot.mcp.upstream import HttpServer
from moot.participant import JoinedSpace
from tests.bridges.bridged_space import call
from tests.oauth.oauth_provider import text_of
from tests.oauth.protected_space import (
    PATIENT_UPSTREAM,
    ProtectedSpace,
    finish,
    protected_space,
    sign_in,
)
from tests.waiting import until

OWN = "moot/sign-in"
# May propose, and sign in for themselves.
PROPOSER: list[Any] = [
    "mcp/proposal",
    "mcp/withdraw",
    {"kind": "mcp/request", "payload": {"method": OWN}},
]


@asynccontextmanager
async def personal_space(
    folder: Path, credentials: CredentialsOf, **settings: Any
) -> AsyncIterator[tuple[ProtectedSpace, JoinedSpace]]:
    """The bridge is signed in as `service`; alice has everything, and no account there yet."""
    async with protected_space(folder, {"dora": PROPOSER}) as place:
        alice = await place.space.join("alice")
        member = await place.bridge(credentials, **settings)
        await sign_in(place, alice, "service")
        await until(lambda: member.upstream.state == "up")
        yield place, alice


def used(result: dict[str, Any]) -> Any:
    return result["_meta"][IDENTITY_KEY]


async def test_everybody_calls_with_their_own_account_or_not_at_all(tmp_path: Path) -> None:
    async with personal_space(tmp_path, "requester") as (place, alice):
        bob = await place.space.join("bob")
        with pytest.raises(
            McpError, match="alice has not signed in there: alice can do that with `moot sign-in host`"
        ):
            await call(alice, "whoami")
        assert (await sign_in(place, alice, "alice@idp", OWN))["owner"] == "alice"
        result = await call(alice, "whoami")
        assert text_of(result) == "alice@idp"
        assert used(result) == {"person": "alice", "as": "requester"}
        with pytest.raises(McpError, match="bob has not signed in there"):
            await call(bob, "whoami")
        await sign_in(place, bob, "bob@idp", OWN)
        assert [text_of(await call(each, "whoami")) for each in (bob, alice, bob)] == [
            "bob@idp",
            "alice@idp",
            "bob@idp",
        ]
        assert "service" not in place.server.callers
        # Lists are those of the bridge.
        assert (await bob.request("host", "tools/list"))["tools"][0]["name"] == "whoami"


async def test_what_was_proposed_runs_with_the_account_of_who_proposed_it(tmp_path: Path) -> None:
    async with personal_space(tmp_path, "requester") as (place, alice):
        dora = await place.space.join("dora")
        await sign_in(place, alice, "alice@idp", OWN)
        await sign_in(place, dora, "dora@idp", OWN)
        proposed = await dora.propose("host", "tools/call", {"name": "whoami", "arguments": {}})
        await until(lambda: alice.proposals.get(proposed.id) is not None)
        result = (await alice.approve(proposed.id)).result
        assert (text_of(result), used(result)) == ("dora@idp", {"person": "dora", "as": "requester"})
        # Nobody is dora a second time.
        with pytest.raises(McpError, match="not the one that fulfils"):
            await _request_about(alice, place, proposed.id)
        assert place.server.callers == ["dora@idp"]


async def test_a_proposal_that_the_bridge_has_not_seen_uses_nobodys_account(tmp_path: Path) -> None:
    async with personal_space(tmp_path, "requester") as (place, alice):
        dora = await place.space.join("dora")
        for each, account in ((alice, "alice@idp"), (dora, "dora@idp")):
            await sign_in(place, each, account, OWN)
        proposed = await dora.propose("host", "tools/call", {"name": "whoami", "arguments": {}})
        await until(lambda: alice.proposals.get(proposed.id) is not None)
        known = place.space.hosts[0].space.proposals
        await until(lambda: known.get(proposed.id) is not None)
        known.untrack(proposed.id)
        with pytest.raises(McpError, match="has not seen the proposal"):
            await alice.approve(proposed.id)
        assert place.server.callers == []


async def _request_about(member: JoinedSpace, place: ProtectedSpace, proposal: str) -> None:
    """As a gateway would deliver it that checks nothing."""
    from moot.bridges.server.call_identity import identity_of
    from moot.participant import IncomingRequest

    host = next(iter(place.space.hosts))
    sent = await member.chat("about it", about=proposal)
    envelope = next(each for each in await host.space.history() if each.id == sent.id)
    await identity_of(IncomingRequest(envelope, host.space.server), host.space, "requester")


async def test_the_account_of_an_approver_is_used_where_that_is_said(tmp_path: Path) -> None:
    async with personal_space(tmp_path, "approver") as (place, alice):
        dora = await place.space.join("dora")
        await sign_in(place, dora, "dora@idp", OWN)
        proposed = await dora.propose("host", "tools/call", {"name": "whoami", "arguments": {}})
        await until(lambda: alice.proposals.get(proposed.id) is not None)
        with pytest.raises(McpError, match="account of the approver, and alice has not signed in"):
            await alice.approve(proposed.id)
        await sign_in(place, alice, "alice@idp", OWN)
        proposed = await dora.propose("host", "tools/call", {"name": "whoami", "arguments": {}})
        await until(lambda: alice.proposals.get(proposed.id) is not None)
        result = (await alice.approve(proposed.id)).result
        assert (text_of(result), used(result)) == ("alice@idp", {"person": "alice", "as": "approver"})


async def test_another_account_or_none_ends_the_connection_of_the_old_one(tmp_path: Path) -> None:
    async with personal_space(tmp_path, "requester") as (place, alice):
        await sign_in(place, alice, "first", OWN)
        assert text_of(await call(alice, "whoami")) == "first"
        await sign_in(place, alice, "second", OWN)
        assert text_of(await call(alice, "whoami")) == "second"
        assert await alice.request("host", OWN, {"forget": True}) == {"forgotten": True}
        with pytest.raises(McpError, match="has not signed in there"):
            await call(alice, "whoami")
        files = list((tmp_path / "sign-ins").glob("credential-*.json"))
        assert len(files) == 1, "only what the bridge lists with"


async def test_an_account_that_has_ended_is_told_to_its_owner(tmp_path: Path) -> None:
    async with personal_space(tmp_path, "requester") as (place, alice):
        await sign_in(place, alice, "alice@idp", OWN)
        for token in place.provider.tokens.values():
            token.is_valid = token.subject == "service"
        place.provider.refresh_tokens.clear()
        # Not as if it had just been issued.
        with pytest.raises(McpError, match="alice has not signed in there"):
            await call(alice, "whoami")
        assert place.server.callers == []


async def test_connections_of_people_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was idle longest comes back with the next call."""
    monkeypatch.setattr("moot.bridges.server.server_sign_in.MAX_PERSON_CONNECTIONS", 1)
    async with personal_space(tmp_path, "requester") as (place, alice):
        bob = await place.space.join("bob")
        await sign_in(place, alice, "alice@idp", OWN)
        await sign_in(place, bob, "bob@idp", OWN)
        for _ in range(2):
            assert text_of(await call(alice, "whoami")) == "alice@idp"
            assert text_of(await call(bob, "whoami")) == "bob@idp"
        sign_in_of_host = place.space.hosts[0].sign_in
        assert sign_in_of_host is not None
        assert sign_in_of_host.personal is not None
        assert list(sign_in_of_host.personal._open) == ["bob"]


async def test_what_cannot_be_told_apart_by_person_is_not_there(tmp_path: Path) -> None:
    async with personal_space(tmp_path, "requester") as (place, alice):
        await sign_in(place, alice, "alice@idp", OWN)
        with pytest.raises(McpError, match="does not support subscriptions"):
            await alice.request("host", "resources/subscribe", {"uri": "x:y"})


async def test_who_has_one_account_for_everybody_needs_none_of_their_own(tmp_path: Path) -> None:
    async with personal_space(tmp_path, "server") as (_place, alice):
        with pytest.raises(McpError, match="one sign-in for everybody"):
            await alice.request("host", OWN, {})
        assert IDENTITY_KEY not in (await call(alice, "whoami")).get("_meta", {})


def test_a_server_does_not_say_whose_account_was_used() -> None:
    said: dict[str, Any] = {"content": [], "_meta": {IDENTITY_KEY: {"person": "boss"}, "a": 1}}
    assert with_identity(said, None) == {"content": [], "_meta": {"a": 1}}


async def test_what_the_client_itself_is_given_is_no_account_of_a_member(tmp_path: Path) -> None:
    """Client credentials are for the bridge: a member without account gets nothing from them."""
    async with protected_space(tmp_path) as place:
        place.provider.secrets[b64encode(b"robot:robot-secret").decode()] = "robot"
        alice = await place.space.join("alice")
        robot = {"client_id": "robot", "client_secret": "robot-secret"}
        await place.bridge("requester", grant="client_credentials", **robot)
        with pytest.raises(McpError, match="alice has not signed in there"):
            await call(alice, "whoami")
        begun = await alice.request("host", OWN, {})
        await finish(alice, begun, {"token": "one-that-has-ended"}, OWN)
        with pytest.raises(McpError, match="alice has not signed in there"):
            await call(alice, "whoami")
        assert place.server.callers == []


async def test_a_sign_in_at_the_provider_is_exchanged_for_a_token_of_the_server(tmp_path: Path) -> None:
    """RFC 8693: one sign-in for all servers of a provider; no server sees it."""
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        settings = {"grant": "token_exchange", "client_id": "bridge", "issuer": place.provider.issuer}
        member = await place.bridge("requester", **settings)
        await sign_in(place, alice, "service")
        await until(lambda: member._tools is not None)
        await sign_in(place, alice, "alice@idp", OWN)
        (subject,) = [name for name, each in place.provider.tokens.items() if not each.resource]
        result = await call(alice, "whoami")
        assert (text_of(result), used(result)["person"]) == ("alice@idp", "alice")
        assert subject not in place.server.seen
        asked = place.provider.token_requests[-1]
        assert (asked["subject_token"], asked["resource"]) == (subject, place.server.url)
        # Another bridge in front of a server of this provider: nobody signs in again.
        exchanged = [name for name, each in place.provider.tokens.items() if each.subject == "alice@idp"]
        await place.space.bridge(
            HttpServer(url=place.server.url),
            "host2",
            upstream=PATIENT_UPSTREAM,
            oauth=place.settings(**settings),
            credentials="requester",
        )
        assert text_of(await call(alice, "whoami", to="host2")) == "alice@idp"
        # The server refuses what it got, and the provider the subject: that is renewed and exchanged.
        for name in exchanged:
            place.provider.tokens[name].is_valid = False
        assert text_of(await call(alice, "whoami")) == "alice@idp"
        assert place.provider.token_requests[-1]["subject_token"] != subject
        # Nothing can be renewed: alice is told, and her account is no other's.
        for each in place.provider.tokens.values():
            each.is_valid = each.subject == "service"
        place.provider.refresh_tokens.clear()
        with pytest.raises(McpError, match="alice has not signed in there"):
            await call(alice, "whoami")
        # Signed in again at one bridge, the other goes on too.
        await sign_in(place, alice, "alice@idp", OWN)
        assert text_of(await call(alice, "whoami", to="host2")) == "alice@idp"
