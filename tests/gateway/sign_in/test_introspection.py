"""Tokens that a provider takes back: their sessions end, soon, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.config import hash_token, load
from moot.errors import UsageError
from moot.protocol.operation import Json
from tests.gateway.running_gateway import (
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.sign_in.oidc_provider import Provider, person, running_provider
from tests.gateway.sign_in.test_sign_in import enter, has_keys, refusal
from tests.waiting import until

ASKED: Json = {"client_id": "moot gateway", "client_secret_env": "ASK", "interval_seconds": 0.05}
ENVIRON = {"ASK": "a secret: really"}


@asynccontextmanager
async def asking(
    folder: Path, provider: Provider, *, rules: Sequence[Json] = (), **asked: Json
) -> AsyncIterator[LocalGateway]:
    oidc = provider.rules(*rules, introspection=ASKED | asked)
    async with running_gateway(folder, participants(root=["*"]), environ=ENVIRON, oidc=oidc) as running:
        await until(lambda: has_keys(running))
        yield running


async def test_a_revoked_token_ends_its_session_and_no_other_also_after_a_restart(tmp_path: Path) -> None:
    async with running_provider() as provider:
        stolen, kept = provider.token(jti="1", seconds=3_600), provider.token(jti="2", seconds=3_600)
        async with asking(tmp_path, provider) as gateway:
            thief, owner = await enter(gateway, stolen), await enter(gateway, kept)
            provider.revoked.add(stolen)
            assert await thief.closed() == (4003, "signed out")
            assert await owner.refused("chat", {"text": "still here"}) is None
            assert (await refusal(gateway, stolen))[0] == 403
            assert {pair for _, pair in provider.introspected} == {"moot%20gateway:a%20secret%3A%20really"}
        async with asking(tmp_path, provider) as gateway:
            assert (await refusal(gateway, stolen))[0] == 403
            assert (await refusal(gateway, kept))[0] == 101


async def test_a_token_is_asked_about_when_it_comes_and_not_only_in_the_next_round(tmp_path: Path) -> None:
    async with running_provider() as provider, asking(tmp_path, provider, interval_seconds=60) as gateway:
        late = provider.token(jti="3", seconds=3_600)
        provider.revoked.add(late)
        client = await gateway.open("/ws?space=lab", token=late)
        assert (await client.closed())[0] == 4003
        await enter(gateway, good := provider.token(jti="4", seconds=3_600))
        await until(lambda: any(token == good for token, _ in provider.introspected))


async def test_a_token_that_is_revoked_because_it_was_renewed_ends_no_session(tmp_path: Path) -> None:
    """As at Canaille: the client has the new token, and the gateway asks about the old one first."""
    async with running_provider() as provider, asking(tmp_path, provider, interval_seconds=3) as gateway:
        old, new = (provider.token(jti=jti, seconds=seconds) for jti, seconds in (("1", 300), ("2", 400)))
        client = await enter(gateway, old)
        await until(lambda: any(token == old for token, _ in provider.introspected))
        provider.revoked.add(old)
        asked = len(provider.introspected)
        await until(lambda: len(provider.introspected) > asked)
        await client.send({"type": "join", "token": new})
        await client.fence()
        tokens = gateway.gateway.directory.hosts["lab"].space.state.temporary_tokens
        await until(lambda: hash_token(old) not in tokens.by_hash)
        assert (await refusal(gateway, old))[0] == 403
        assert await client.refused("chat", {"text": "still here"}) is None


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"active": "no"}', b"\xff", b"[" * 100_000])
async def test_an_answer_that_is_none_ends_nothing_and_nothing_of_it_is_logged(
    tmp_path: Path, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_provider() as provider, asking(tmp_path, provider) as gateway:
        token = provider.token(jti="5", seconds=3_600)
        provider.raw_introspection = raw
        client = await enter(gateway, token)
        await until(lambda: len(provider.introspected) > 2)
        assert await client.refused("chat", {"text": "still here"}) is None
        assert token not in caplog.text
        # It goes on asking.
        provider.raw_introspection = json.dumps({"active": False}).encode()
        assert (await client.closed())[0] == 4003


async def test_tokens_that_no_space_knows_any_more_are_forgotten(tmp_path: Path) -> None:
    async with running_provider() as provider, asking(tmp_path, provider) as gateway:
        await enter(gateway, token := provider.token(jti="6", seconds=3_600))
        service = gateway.gateway.sign_in
        assert service is not None
        (introspection,) = service._introspections.values()
        assert introspection._tokens
        assert await service.sign_out(token) is None
        await until(lambda: not introspection._tokens)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"client_secret": "x"}, "never in this file"),
        ({"client_secret_env": "NOT_THERE"}, "NOT_THERE"),
    ],
)
def test_a_wrong_section_says_what_is_wrong(tmp_path: Path, asked: dict[str, Any], why: str) -> None:
    oidc: dict[str, Json] = {"issuer": "https://id.example", "audience": "moot", "people": [person()]}
    oidc["introspection"] = ASKED | asked
    spaces: Json = {"lab": space_settings(participants(root=["*"]))}
    with pytest.raises(UsageError, match=why):
        load(write_config(tmp_path, gateway_settings(spaces, oidc=oidc)), environ=ENVIRON)
