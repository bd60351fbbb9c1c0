"""A provider of others that names each person otherwise to each client: who they are here, and who ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest

from moot.cli import main
from moot.protocol.operation import Json
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.gateway.sign_in.foreign_provider import AUDIENCE, PersonAtProvider, foreign_provider
from tests.gateway.sign_in.oidc_provider import person
from tests.gateway.sign_in.test_sign_in import enter, has_keys, refusal
from tests.ports import held_port
from tests.waiting import until

# The person decides at the console; what is not the console proposes.
_RULES: list[Json] = [
    person(match={"client_id": "console"}, capabilities=["chat", "mcp/*"]),
    person(capabilities=["chat", "mcp/proposal"]),
]
_CALL = {"method": "tools/call", "params": {"name": "delete_everything", "arguments": {}}}


@asynccontextmanager
async def pairwise(folder: Path, **more: Json) -> AsyncIterator[tuple[LocalGateway, str]]:
    (folder / "provider").mkdir()
    with held_port() as port:
        logout = f"http://127.0.0.1:{port}/oidc/backchannel-logout"
        async with foreign_provider(folder / "provider", pairwise=True, logout=logout) as issuer:
            oidc: dict[str, Json] = {"issuer": issuer, "audience": AUDIENCE, "people": _RULES}
            oidc |= {"client_id": "console", "resource": AUDIENCE} | more
            people = participants(root=["*"])
            async with running_gateway(folder, people, oidc=oidc, port=port) as gateway:
                await until(lambda: has_keys(gateway))
                yield gateway, issuer


@asynccontextmanager
async def signed_in(issuer: str, who: str, *clients: str) -> AsyncIterator[list[PersonAtProvider]]:
    """One person with several clients, in one browser each."""
    people = [PersonAtProvider(issuer, client, resource=AUDIENCE) for client in clients]
    try:
        for each in people:
            assert await each.sign_in(who) == 200, each.tokens
        yield people
    finally:
        for each in people:
            await each.close()


def claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


async def test_a_person_is_one_member_with_every_client_and_nobody_else(tmp_path: Path) -> None:
    async with (
        pairwise(tmp_path, subject_claim="oid") as (gateway, issuer),
        signed_in(issuer, "ana", "console", "editor") as (console, editor),
        signed_in(issuer, "bob", "editor") as (other,),
    ):
        tokens = [each.access_token for each in (console, editor, other)]
        assert len({claims_of(token)["sub"] for token in tokens}) == 3
        root = await gateway.join("root")
        at_console, at_editor, bob = [await enter(gateway, token) for token in tokens]
        names = [each.received[0]["payload"]["you"]["id"] for each in (at_console, at_editor, bob)]
        assert names == ["ana", "ana", "bob"]
        # One member, and yet each connection has the rights of its own token.
        assert await at_console.refused("mcp/request", _CALL, to=["root"]) is None
        assert (await root.hear("mcp/request"))["from"] == "ana"
        assert await at_editor.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        # The session of the console's browser ends at the provider: the person is out with every client.
        await console.sign_out()
        for each in (at_console, at_editor):
            assert await each.closed() == (4003, "signed out")
        for token in tokens[:2]:
            assert (await refusal(gateway, token))[0] == 403
        assert await bob.refused("chat", {"text": "somebody else"}) is None
        # The provider tells another client than the console's: that is good as well.
        await other.sign_out()
        assert await bob.closed() == (4003, "signed out")


async def test_without_a_claim_for_all_clients_the_second_one_is_refused_and_gets_no_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        pairwise(tmp_path) as (gateway, issuer),
        signed_in(issuer, "ana", "console", "editor") as (console, editor),
        signed_in(issuer, "bob", "editor", "console") as (first, second),
    ):
        client = await enter(gateway, console.access_token)
        status, why = await refusal(gateway, editor.access_token)
        assert (status, why) == (403, "the name ana belongs to somebody else here")
        # In whichever order: what came first keeps its own rights, and gets none of the second.
        agent = await enter(gateway, first.access_token)
        assert (await refusal(gateway, second.access_token))[0] == 403
        assert await agent.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        assert await client.refused("chat", {"text": "still here"}) is None
        members = gateway.gateway.directory.hosts["lab"].space.state.roster.members
        assert set(members) == {"root", "ana", "bob"}
        # Whoever tries the provider is told before anybody is refused.
        command = ["serve", str(tmp_path / "moot.yaml"), "--check", "--try-providers"]
        assert await asyncio.to_thread(main, command) == 0
        assert "subject_claim" in capsys.readouterr().out
