"""Signing in at a second provider that others wrote: who gets in, until when, and who does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest

from moot.cli import main
from moot.protocol.operation import Json
from tests.gateway.running_gateway import (
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.sign_in.canaille_provider import (
    AUDIENCE,
    SECRET,
    PersonAtCanaille,
    canaille_provider,
    oidc_settings,
)
from tests.gateway.sign_in.test_sign_in import enter, has_keys, refusal
from tests.waiting import until

INTROSPECTION: Json = {"client_id": AUDIENCE, "client_secret_env": "ASK", "interval_seconds": 0.05}


def config_for(folder: Path, issuer: str, **more: Json) -> Path:
    spaces: Json = {"lab": space_settings(participants(root=["*"]))}
    return write_config(folder, gateway_settings(spaces, oidc=oidc_settings(issuer) | more))


@asynccontextmanager
async def believing(folder: Path, issuer: str, **more: Json) -> AsyncIterator[LocalGateway]:
    oidc = oidc_settings(issuer) | more
    async with running_gateway(
        folder, participants(root=["*"]), environ={"ASK": SECRET}, oidc=oidc
    ) as running:
        await until(lambda: has_keys(running))
        yield running


def claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


async def renewed(person: PersonAtCanaille) -> str:
    """A newer token. Within one second it would be the same one: it has no `jti`."""
    old = claims_of(person.access_token)
    await until(lambda: time.time() >= old["iat"] + 1)
    assert await person.renew() == 200
    return person.access_token


async def test_a_person_signs_in_by_code_and_only_a_token_for_the_gateway_lets_them_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with canaille_provider() as issuer:
        person = PersonAtCanaille(issuer)
        assert await person.sign_in("ana") == 200
        elsewhere, bob = PersonAtCanaille(issuer, "elsewhere"), PersonAtCanaille(issuer)
        assert (await elsewhere.sign_in("ana"), await bob.sign_in("bob")) == (200, 200)
        async with believing(tmp_path, issuer) as gateway:
            ana = await enter(gateway, person.access_token)
            assert ana.received[0]["payload"]["you"]["id"] == "ana"
            # Its ID token is of the same type and for the same audience.
            assert (await refusal(gateway, person.tokens["id_token"]))[0] == 401
            assert (await refusal(gateway, elsewhere.access_token))[0] == 401
            assert (await refusal(gateway, bob.access_token))[0] == 403
            # A newer token goes over the same connection.
            await ana.send({"type": "join", "token": await renewed(person)})
            await ana.fence()
            assert (await refusal(gateway, person.access_token))[0] == 101

        async def check(token: str) -> tuple[int, str]:
            file = tmp_path / "ana.jwt"
            file.write_text(token)
            file.chmod(0o600)
            command = ["serve", str(tmp_path / "moot.yaml"), "--check", "--try-providers"]
            code = await asyncio.to_thread(main, [*command, "--token-file", str(file)])
            shown = capsys.readouterr()
            return code, shown.out + shown.err

        code, said = await check(person.access_token)
        assert code == 0, said
        assert f"provider {issuer}" in said
        assert "rule 1 matches: ana in lab" in said
        code, said = await check(elsewhere.access_token)
        assert (code != 0, "the token lets nobody in" in said) == (True, True), said
        code, said = await check(bob.access_token)
        assert (code != 0, "no rule lets this account in" in said) == (True, True), said


async def test_a_token_that_is_revoked_or_renewed_there_ends_here_and_no_other(tmp_path: Path) -> None:
    """Whoever renews at Canaille revokes the token before."""
    async with canaille_provider() as issuer:
        program, page = PersonAtCanaille(issuer, "program", "program-secret"), PersonAtCanaille(issuer)
        assert (await program.sign_in("ana"), await page.sign_in("ana")) == (200, 200)
        async with believing(tmp_path, issuer, introspection=INTROSPECTION) as gateway:
            revoked, before = program.access_token, page.access_token
            one, two = await enter(gateway, revoked), await enter(gateway, before)
            await program.revoke()
            assert await one.closed() == (4003, "signed out")
            assert await two.refused("chat", {"text": "still here"}) is None
            assert (await refusal(gateway, revoked))[0] == 403
            assert await program.renew() == 400
            after = await renewed(page)
            assert await two.closed() == (4003, "signed out")
            three = await enter(gateway, after)
            assert await three.refused("chat", {"text": "here again"}) is None
            assert (await refusal(gateway, before))[0] == 403


async def test_its_tokens_of_ten_days_are_refused_and_the_answer_says_why(tmp_path: Path) -> None:
    async with canaille_provider(token_seconds=864_000) as issuer:
        person = PersonAtCanaille(issuer)
        await person.sign_in("ana")
        async with believing(tmp_path, issuer) as gateway:
            status, why = await refusal(gateway, person.access_token)
            assert (status, "max_token_seconds" in why) == (401, True), why
