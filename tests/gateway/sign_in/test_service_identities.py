"""Programs and administrators with tokens of others: workloads of SPIFFE, and people who administer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.config import load
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.store.journal_reader import read_records
from tests.gateway.running_gateway import (
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.sign_in.oidc_provider import AUDIENCE, Key, Provider, person, running_provider
from tests.gateway.sign_in.test_sign_in import enter, has_keys, refusal, signing_in
from tests.waiting import until

DOMAIN = "spiffe://prod.example"
BUILDER = f"{DOMAIN}/ns/ci/sa/builder"
RULES: list[Json] = [
    {"match": {"sub": f"{DOMAIN}/ns/ci/*"}, "participant": "builder", "spaces": ["lab"]},
    person(match={"sub": f"{DOMAIN}/ns/people/*"}, participant="{sub}"),
]


@asynccontextmanager
async def trust_domain(folder: Path) -> AsyncIterator[tuple[LocalGateway, Provider]]:
    """A gateway that believes a trust domain, whose bundle is on this machine, and a provider beside it."""
    async with running_provider() as provider:
        provider.other_keys = [
            Key("x509").public | {"use": "x509-svid"},
            Key("jwt").public | {"use": "jwt-svid"},
        ]
        spiffe: Json = {"issuer": DOMAIN, "audience": AUDIENCE, "people": RULES}
        spiffe |= {"jwks_url": f"{provider.issuer}/keys", "keys_retry_seconds": 0.05}
        oidc: list[Json] = [provider.rules(), spiffe]
        people = participants(root=["*"], builder=["chat"])
        async with running_gateway(folder, people, oidc=oidc, wrong_tokens_per_minute=0) as gateway:
            await until(lambda: has_keys(gateway))
            service = gateway.gateway.sign_in
            assert service is not None
            await until(lambda: all(keys._fetched_at is not None for keys in service.keys))
            yield gateway, provider


def svid(provider: Provider, sub: str = BUILDER, **more: Any) -> str:
    """A JWT-SVID, as SPIRE makes one: `iss` is not the trust domain, and often not there."""
    header = {"typ": "JWT"} | more.pop("header", {})
    more = {"seconds": 3_600} | more
    return provider.token(sub, header=header, without=("iss", *more.pop("without", ())), **more)


async def test_a_workload_is_the_participant_that_the_rules_name(tmp_path: Path) -> None:
    async with trust_domain(tmp_path) as (gateway, provider):
        for token in (
            svid(provider),
            svid(provider, header={"typ": "JOSE"}),
            # With an issuer, which says nothing about the trust domain.
            provider.token(BUILDER, header={"typ": "JWT"}, iss="https://spire.example"),
            svid(provider, aud=["https://else.example", AUDIENCE]),
        ):
            client = await enter(gateway, token)
            assert await client.refused("chat", {"text": "built"}) is None
        members = gateway.gateway.directory.hosts["lab"].space.state.roster.members
        await enter(gateway, svid(provider, f"{DOMAIN}/ns/people/ana"))
        assert "spiffe-prod.example-ns-people-ana" in {str(name) for name in members}
        # The provider beside it goes on as before.
        await enter(gateway, provider.token())
        journal = gateway.journal()
    written = b"".join(record.line for record in read_records(journal))
    assert BUILDER.encode() in written
    assert f'"issuer":"{DOMAIN}"'.encode() in written


async def test_no_other_token_is_that_of_a_workload(tmp_path: Path) -> None:
    async with trust_domain(tmp_path) as (gateway, provider):
        rows = {
            "another trust domain": (svid(provider, "spiffe://else.example/x"), "does not know"),
            "a longer name of the domain": (svid(provider, f"{DOMAIN}.evil/ns/ci/x"), "does not know"),
            "no path": (svid(provider, DOMAIN), "does not know"),
            "a path out of its folder": (svid(provider, f"{DOMAIN}/ns/ci/../x"), "does not know"),
            "an empty segment": (svid(provider, f"{DOMAIN}//ns/ci/x"), "does not know"),
            "the domain as issuer": (provider.token("u-ana", iss=DOMAIN, header={"typ": "JWT"}), "nobody"),
            "no audience": (svid(provider, without=("aud",)), "lacks the claim aud"),
            "for somebody else": (svid(provider, aud="https://else.example"), "for somebody else"),
            "no expiry": (svid(provider, without=("exp",)), "lacks the claim exp"),
            "expired": (svid(provider, seconds=-60), "has expired"),
            "of another key": (svid(provider, key=Key(provider.keys[0].kid)), "not signed"),
            "an access token": (svid(provider, header={"typ": "at+jwt"}), "typ has to be JWT or JOSE"),
            # Its signature is right; but it says that another provider made it.
            "of the provider": (provider.token(BUILDER, header={"typ": "JWT"}), "no access token"),
        }
        for what, (token, why) in rows.items():
            status, message = await refusal(gateway, token)
            assert (status, why in message) == (401, True), (what, status, message)
        status, message = await refusal(gateway, svid(provider, f"{DOMAIN}/ns/other"))
        assert (status, "no rule" in message) == (403, True)


async def test_keys_of_a_bundle_for_certificates_sign_no_token(tmp_path: Path) -> None:
    async with trust_domain(tmp_path) as (gateway, _):
        service = gateway.gateway.sign_in
        assert service is not None
        plain, spiffe = (set(keys._keys) & {"x509", "jwt"} for keys in service.keys)
        assert (plain, spiffe) == (set(), {"jwt"})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"issuer": "spiffe://Prod.example"}, "lower case"),
        ({"issuer": "spiffe://prod.example/x"}, "lower case"),
        ({"jwks_url": None}, "jwks_url: is missing"),
        ({"jwks_url": "http://bundle.example/keys"}, "https://"),
        ({"client_id": "console"}, "nobody signs in"),
    ],
)
def test_a_trust_domain_says_what_is_wrong_with_it(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    section = {"issuer": DOMAIN, "audience": "moot", "people": [person()]}
    section |= {"jwks_url": "https://bundle.example/keys"} | change
    spaces: Json = {"lab": space_settings(participants(root=["*"]))}
    with pytest.raises(UsageError, match=why):
        load(write_config(tmp_path, gateway_settings(spaces, oidc=section)), environ={})


# Administrators


async def test_a_rule_can_make_administrators_and_the_journal_says_who_it_was(tmp_path: Path) -> None:
    rules = [person(match={"groups": "admins"}, administrator=True), person()]
    async with signing_in(tmp_path, *rules, wrong_tokens_per_minute=0) as (gateway, provider):

        async def status(token: str, **changed: Any) -> int:
            sent = {"Authorization": f"Bearer {token}"}
            body: Json = {"add": [{"kind": "mcp/proposal"}]} | changed
            where = "/admin/participants/root/capabilities?space=lab"
            asked = await gateway.http.post(where, json=body, headers=sent)
            listed = await gateway.http.get("/admin/connections", headers=sent)
            assert listed.status_code == asked.status_code
            return asked.status_code

        admin = provider.token("u-eva", groups=["admins"], seconds=3_600)
        assert await status(admin) == 200
        for other in (
            provider.token("u-bob"),
            provider.token("u-eva", groups=["admins"], aud="https://else.example"),
            provider.token("u-eva", groups=["admins"], seconds=-60),
            provider.token("u-eva", groups=["admins"], key=Key(provider.keys[0].kid)),
        ):
            assert await status(other) == 403
        # Whoever signs out is none any more, with that token.
        headers = {"Authorization": f"Bearer {admin}"}
        assert (await gateway.http.post("/oidc/sign-out", headers=headers)).status_code == 200
        assert await status(admin) == 403
        assert await status("t-root") == 200
        journal = gateway.journal()
    written = b"".join(record.line for record in read_records(journal))
    assert f'"by":"eva (u-eva at {provider.issuer})"'.encode() in written
