"""What ends a sign-in: a revoked token, a session that ended at the provider, a key that was withdrawn."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.config import hash_token, load
from moot.errors import Unavailable
from moot.gateway.sign_in import provider_keys
from moot.gateway.sign_in.short_lived_tokens import mint_token
from moot.space.tokens.temporary_tokens import MAX_TOKENS_PER_MEMBER
from moot.store.journal_reader import read_records
from tests.gateway.running_gateway import (
    ROOT,
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.sign_in.oidc_provider import Key, person, running_provider
from tests.gateway.sign_in.test_introspection import ASKED, ENVIRON, asking
from tests.gateway.sign_in.test_sign_in import enter, has_keys, refusal, signing_in
from tests.waiting import until, until_told


async def _log_out(gateway: LocalGateway, logout_token: str) -> int:
    form = {"logout_token": logout_token}
    return (await gateway.http.post("/oidc/backchannel-logout", data=form)).status_code


async def _administers(gateway: LocalGateway, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return (await gateway.http.get("/admin/connections", headers=headers)).status_code


# Introspection


async def test_a_token_that_joins_after_some_rounds_is_still_asked_about(tmp_path: Path) -> None:
    """It was shown over HTTP long before: no space knew it when the next round came."""
    async with running_provider() as provider, asking(tmp_path, provider) as gateway:
        token = provider.token(jti="1", seconds=3_600)
        headers = {"Authorization": f"Bearer {token}"}
        assert (await gateway.http.get("/spaces", headers=headers)).status_code == 200
        await until(lambda: len(provider.introspected) > 3)
        client = await enter(gateway, token)
        provider.revoked.add(token)
        assert await client.closed() == (4003, "signed out")


async def test_a_revoked_token_administers_nothing(tmp_path: Path) -> None:
    """An administrator need not join any space."""
    rule = person(match={"groups": "admins"}, administrator=True)
    async with running_provider() as provider, asking(tmp_path, provider, rules=[rule]) as gateway:
        token = provider.token(jti="1", groups=["admins"], seconds=3_600)
        assert await _administers(gateway, token) == 200
        await until(lambda: len(provider.introspected) > 3)
        assert await _administers(gateway, token) == 200
        provider.revoked.add(token)

        async def is_closed() -> bool:
            return await _administers(gateway, token) == 403

        await until_told(is_closed)


def _fail_once(gateway: LocalGateway, space: str = "lab") -> list[Any]:
    """The next sign-out in that space cannot be written, as in a cluster that has lost its log."""
    rights = gateway.gateway.directory.hosts[space].rights
    failed: list[Any] = []
    sign_out = rights.sign_out

    async def fail_once(*given: Any, **named: Any) -> None:
        if not failed:
            failed.append(given)
            raise Unavailable("this gateway does not reach the log of its cluster")
        await sign_out(*given, **named)

    rights.sign_out = fail_once  # type: ignore[method-assign]
    return failed


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_sign_out_that_could_not_be_written_is_tried_again(tmp_path: Path, is_known: bool) -> None:
    """Once it ended all asking, for good."""
    async with running_provider() as provider, asking(tmp_path, provider) as gateway:
        failed = _fail_once(gateway)
        token = provider.token(jti="1", seconds=3_600)
        if not is_known:
            provider.revoked.add(token)
        client = await gateway.open("/ws?space=lab", token=token)
        if is_known:
            await until(lambda: any(each == token for each, _ in provider.introspected))
            provider.revoked.add(token)
        assert (await client.closed())[0] == 4003
        assert failed
        later = await enter(gateway, other := provider.token("u-eve", jti="2", seconds=3_600))
        provider.revoked.add(other)
        assert (await later.closed())[0] == 4003


async def test_a_withdrawn_key_ends_what_it_signed_though_that_could_not_be_written_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_keys, "_MAX_RETRY_SECONDS", 0.05)
    spaces: Any = {name: space_settings(participants(root=["*"])) for name in ("lab", "vault")}
    async with running_provider() as provider:
        oidc = provider.rules(person(spaces=["lab", "vault"]), keys_refresh_seconds=1)
        async with running_gateway(tmp_path, spaces=spaces, oidc=oidc) as gateway:
            await until(lambda: has_keys(gateway))
            failed, token = _fail_once(gateway), provider.token(jti="1")
            clients = [await enter(gateway, token, space) for space in spaces]
            provider.keys = [Key()]
            for client in clients:
                assert (await client.closed())[0] == 4003
            assert failed


async def test_who_is_signed_out_of_one_space_is_still_asked_about_for_the_others(tmp_path: Path) -> None:
    spaces: Any = {name: space_settings(participants(root=["*"])) for name in ("lab", "vault")}
    async with running_provider() as provider:
        oidc = provider.rules(person(spaces=["lab", "vault"]), introspection=ASKED)
        async with running_gateway(tmp_path, spaces=spaces, oidc=oidc, environ=ENVIRON) as gateway:
            await until(lambda: has_keys(gateway))
            token = provider.token(jti="1", seconds=3_600)
            lab, vault = [await enter(gateway, token, space) for space in spaces]
            answer = await gateway.admin("POST", "participants/ana/sign-out", space="lab")
            assert answer.status_code == 200
            assert (await lab.closed())[0] == 4003
            asked = len(provider.introspected)
            await until(lambda: len(provider.introspected) > asked + 2)
            provider.revoked.add(token)
            assert (await vault.closed())[0] == 4003


# Back-channel logout


async def test_a_logout_with_a_session_ends_tokens_that_name_none(tmp_path: Path) -> None:
    """As oidc-provider sends it: `sid` in the logout token, and none in its access tokens."""
    async with signing_in(tmp_path) as (gateway, provider):
        nameless, other = provider.token(), provider.token(sid="s2", seconds=61)
        client, device = await enter(gateway, nameless), await enter(gateway, other)
        eve = await enter(gateway, provider.token("u-eve"))
        assert await _log_out(gateway, provider.logout_token(sub="u-ana", sid="s1")) == 200
        assert await client.closed() == (4003, "signed out")
        assert (await refusal(gateway, nameless))[0] == 403
        assert await device.refused("chat", {"text": "another session"}) is None
        assert await eve.refused("chat", {"text": "somebody else"}) is None


async def test_a_logout_that_cannot_say_whom_it_means_is_not_called_done(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (gateway, provider):
        client = await enter(gateway, provider.token())
        assert await _log_out(gateway, provider.logout_token(sid="s1")) == 400
        assert await client.refused("chat", {"text": "still here"}) is None
        # A session that is known is another matter, whatever tokens others have.
        device = await enter(gateway, provider.token("u-eve", sid="s2"))
        assert await _log_out(gateway, provider.logout_token(sid="s2")) == 200
        assert (await device.closed())[0] == 4003


# Keys


async def test_a_key_that_the_provider_withdraws_ends_what_it_signed(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (gateway, provider):
        old, new = provider.keys[0], Key()
        token = provider.token(jti="1")
        client = await enter(gateway, token)
        provider.keys = [new]
        # A token with the new key makes the gateway look for it.
        kept = provider.token("u-eve", key=new, jti="2")

        async def is_known() -> bool:
            return (await refusal(gateway, kept))[0] == 101

        await until_told(is_known)
        assert (await client.closed())[0] == 4003
        for withdrawn in (token, provider.token(key=old, jti="3")):

            async def is_refused(withdrawn: str = withdrawn) -> bool:
                status = (await refusal(gateway, withdrawn))[0]
                assert status != 101
                # Looked for once more, before it is refused for good.
                return status != 503

            await until_told(is_refused)


# Administrators


async def test_who_was_removed_administers_nothing_and_their_tokens_end_with_their_sign_in(
    tmp_path: Path,
) -> None:
    rules = (person(match={"groups": "admins"}, administrator=True), person())
    people = participants(root=["*"], builder=["chat"])
    async with signing_in(tmp_path, *rules, people=people) as (gateway, provider):
        root = await gateway.join("root")

        async def make(maker: str) -> str:
            headers = {"Authorization": f"Bearer {maker}"}
            made = await gateway.http.post(
                "/admin/participants/builder/tokens", json={"seconds": 40}, headers=headers
            )
            assert made.status_code == 201, made.text
            return str(made.json()["token"])

        token = provider.token(groups=["admins"])
        headers = {"Authorization": f"Bearer {token}"}
        builder = await enter(gateway, await make(token))
        assert (await gateway.http.post("/oidc/sign-out", headers=headers)).status_code == 200
        assert (await builder.closed())[0] == 4003
        # Another administrator, who is removed from the space.
        eve = provider.token("u-eve", groups=["admins"])
        await enter(gateway, eve)
        assert await _administers(gateway, eve) == 200
        builder = await enter(gateway, await make(eve))
        assert await root.refused("space/kick", {"participant_id": "eve", "reason": "left"}) is None

        async def is_closed() -> bool:
            return await _administers(gateway, eve) == 403

        await until_told(is_closed)
        assert (await builder.closed())[0] == 4003


async def test_an_administrator_lists_tokens_revokes_one_and_signs_somebody_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with signing_in(tmp_path) as (gateway, provider):
        admin = tmp_path / "admin.token"
        admin.write_text(ROOT)
        admin.chmod(0o600)

        async def member(*command: str) -> tuple[int, str]:
            where = ["--gateway", gateway.url, "--space", "lab", "--admin-token-file", str(admin)]
            code = await asyncio.to_thread(main, ["member", *command, *where])
            shown = capsys.readouterr()
            return code, shown.out + shown.err

        root = await gateway.join("root")
        jwts = {client: provider.token(client_id=client, jti=client) for client in ("console", "agent")}
        clients = {client: await enter(gateway, token) for client, token in jwts.items()}
        code, said = await member("tokens", "--json")
        assert code == 0, said
        found = {each.get("client", each["participant"]): each for each in json.loads(said)["tokens"]}
        assert found.keys() == {"root", "console", "agent"}
        assert (found["agent"]["connections"], found["agent"]["source"]) == (1, "sign_in")
        assert all(secret not in said for secret in (*jwts.values(), "t-root"))
        # One of them, which does not come back; the other stays.
        assert (await member("revoke-token", found["agent"]["id"]))[0] == 0
        assert (await clients["agent"].closed())[0] == 4003
        assert (await refusal(gateway, jwts["agent"]))[0] == 403
        assert await clients["console"].refused("chat", {"text": "still here"}) is None
        # All of them.
        assert (await member("sign-out", "ana"))[0] == 0
        assert (await clients["console"].closed())[0] == 4003
        assert (await refusal(gateway, jwts["console"]))[0] == 403
        assert (await member("sign-out", "root"))[0] != 0
        # A token of the configuration.
        assert (await member("revoke-token", found["root"]["id"]))[0] == 0
        assert (await root.closed())[0] == 4003
        assert (await refusal(gateway, "t-root"))[0] == 401
        assert (await member("revoke-token", "0" * 16))[0] != 0


async def test_signing_somebody_out_ends_the_lasting_token_that_an_administrator_made_for_them(
    tmp_path: Path,
) -> None:
    async with signing_in(tmp_path) as (gateway, provider):
        ana = await enter(gateway, provider.token())
        made = await gateway.admin("POST", "participants/ana/token", {"keep": True})
        lasting = await enter(gateway, made.json()["token"])
        assert (await gateway.admin("POST", "participants/ana/sign-out")).status_code == 200
        assert (await ana.closed())[0] == (await lasting.closed())[0] == 4003
        assert (await refusal(gateway, made.json()["token"]))[0] == 401


async def test_the_next_account_under_a_restored_name_gets_nothing_that_was_added_for_the_last_one(
    tmp_path: Path,
) -> None:
    async with signing_in(tmp_path) as (gateway, provider):
        root, ana = (
            await gateway.join("root"),
            await enter(gateway, provider.token("u-1", preferred_username="ana")),
        )
        request = {"method": "tools/list"}
        assert (await gateway.admin("POST", "participants/ana/capabilities", {"add": ["mcp/*"]})).is_success
        assert await ana.refused("mcp/request", request, to=["root"]) is None
        assert await root.refused("space/kick", {"participant_id": "ana", "reason": "left"}) is None
        assert (await gateway.admin("POST", "participants/ana/restore")).is_success
        other = await enter(gateway, provider.token("u-2", preferred_username="ana"))
        assert await other.refused("mcp/request", request, to=["root"]) == "capability_violation"


async def test_an_administrator_of_one_space_administers_no_other(tmp_path: Path) -> None:
    rule = person(match={"groups": "leads"}, administrator=["lab"])
    async with running_provider() as provider:
        spaces: Any = {name: space_settings(participants(root=["*"])) for name in ("lab", "vault")}
        async with running_gateway(tmp_path, spaces=spaces, oidc=provider.rules(rule)) as gateway:
            await until(lambda: has_keys(gateway))
            headers = {"Authorization": f"Bearer {provider.token(groups=['leads'])}"}

            async def status(path: str) -> int:
                return (await gateway.http.get(f"/admin/{path}", headers=headers)).status_code

            assert await status("tokens?space=lab") == 200
            assert await status("tokens?space=vault") == 403
            assert await status("connections") == 403


async def test_what_happens_in_one_space_takes_nobody_the_administration_of_another(tmp_path: Path) -> None:
    rule = person(match={"groups": "leads"}, administrator=["lab", "vault"], spaces=["lab", "vault"])
    async with running_provider() as provider:
        spaces: Any = {name: space_settings(participants(root=["*"])) for name in ("lab", "vault")}
        async with running_gateway(tmp_path, spaces=spaces, oidc=provider.rules(rule)) as gateway:
            await until(lambda: has_keys(gateway))
            token = provider.token(groups=["leads"])
            await enter(gateway, token, "vault")
            assert (await gateway.admin("POST", "participants/ana/sign-out", space="vault")).is_success
            headers = {"Authorization": f"Bearer {token}"}
            found = {
                space: (await gateway.http.get(f"/admin/tokens?space={space}", headers=headers)).status_code
                for space in spaces
            }
            assert found == {"lab": 200, "vault": 403}


async def test_who_is_signed_out_stays_out_though_the_clock_of_the_provider_is_ahead(tmp_path: Path) -> None:
    async with signing_in(tmp_path, settings={"skew_seconds": 60}) as (gateway, provider):
        token = provider.token(iat=int(time.time()) + 30)
        client = await enter(gateway, token)
        assert (await gateway.admin("POST", "participants/ana/sign-out")).is_success
        assert (await client.closed())[0] == 4003
        assert (await refusal(gateway, token))[0] == 403


async def test_tokens_that_an_administrator_made_end_when_a_reload_takes_the_administration_away(
    tmp_path: Path,
) -> None:
    leads, chiefs = (
        person(match={"groups": name}, administrator=True, capabilities=["chat"])
        for name in ("leads", "chiefs")
    )
    people = participants(root=["*"], builder=["chat"])
    async with signing_in(tmp_path, leads, chiefs, people=people) as (gateway, provider):
        clients = []
        for name, group in (("u-ana", "leads"), ("u-eve", "chiefs")):
            headers = {"Authorization": f"Bearer {provider.token(name, groups=[group])}"}
            made = await gateway.http.post(
                "/admin/participants/builder/tokens", json={"seconds": 40}, headers=headers
            )
            clients.append(await enter(gateway, made.json()["token"]))
        lab = {"lab": space_settings(people)}
        rules = provider.rules(person(match={"groups": "leads"}), chiefs)
        gateway.gateway.reload(load(write_config(tmp_path, gateway_settings(lab, oidc=rules)), environ={}))
        assert (await clients[0].closed())[0] == 4003
        assert await clients[1].refused("chat", {"text": "still here"}) is None


async def test_rules_that_could_not_reach_everybody_reach_the_others_and_say_whom_they_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same file once more signs out who is left."""
    async with signing_in(tmp_path, person(match={"groups": "a"})) as (gateway, provider):
        missed, other = [
            await enter(gateway, provider.token(f"u-{name}", preferred_username=name, groups=["a"]))
            for name in ("ana", "bob")
        ]
        _fail_once(gateway)
        lab = {"lab": space_settings(participants(root=["*"]))}
        changed = gateway_settings(lab, oidc=provider.rules(person(match={"groups": "b"})))
        reloaded = load(write_config(tmp_path, changed), environ={})
        gateway.gateway.reload(reloaded)
        assert (await other.closed())[0] == 4003
        await until(lambda: any("ana in lab" in str(each.__dict__) for each in caplog.records))
        assert not any("bob in lab" in str(each.__dict__) for each in caplog.records)
        gateway.gateway.reload(reloaded)
        assert (await missed.closed())[0] == 4003


# Names and addresses


async def test_a_name_that_cannot_be_written_here_is_nobody_elses(tmp_path: Path) -> None:
    """Of accounts that would be called the same each has a name of its own, or none."""
    rows = {
        "bob": "bob",
        "ana@example.org": "ana-example.org",
        "auth0|12": "auth0-12",
        "ébob.": "bob-",
        "bob.": "bob-",
        "李雷": "user-",
    }
    async with signing_in(tmp_path) as (gateway, provider):
        names = []
        for number, (account, name) in enumerate(rows.items()):
            client = await enter(gateway, provider.token(f"u-{number}", preferred_username=account))
            found = client.received[0]["payload"]["you"]["id"]
            assert found == name or (
                name.endswith("-") and found.startswith(name) and len(found) == len(name) + 8
            ), account
            names.append(found)
        assert len(set(names)) == len(rows)
        # Whoever calls themselves what another one is called here gets nothing of theirs.
        for name in names:
            impostor = provider.token("u-eve", preferred_username=name)
            assert (await refusal(gateway, impostor))[0] == 403, name


@pytest.mark.parametrize(
    "address", ["x@evil.org @corp.example", '"x@evil.org"@corp.example', "a@b@corp.example"]
)
async def test_what_only_ends_like_an_address_of_the_company_is_none(tmp_path: Path, address: str) -> None:
    rule = person(match={"email": "*@corp.example"}, participant="{sub}")
    async with signing_in(tmp_path, rule) as (gateway, provider):
        good: dict[str, Any] = {"email_verified": True, "email": "ana@corp.example"}
        assert (await refusal(gateway, provider.token(**good)))[0] == 101
        assert (await refusal(gateway, provider.token("u-x", **good | {"email": address})))[0] == 403


async def test_an_id_token_of_another_client_lets_nobody_in(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"accept_id_tokens": True, "audience": "console"}
    async with signing_in(tmp_path, settings=settings) as (gateway, provider):
        claims: dict[str, Any] = {"aud": ["console", "other"], "header": {"typ": "JWT"}}
        assert (await refusal(gateway, provider.token(azp="console", **claims)))[0] == 101
        assert (await refusal(gateway, provider.token(azp="other", **claims)))[0] == 401
    # Also where people do not sign in at the console, so that it has no client.
    settings["client_id"] = None
    async with signing_in(_made(tmp_path / "no client"), settings=settings) as (gateway, provider):
        assert (await refusal(gateway, provider.token(azp="console", **claims)))[0] == 101
        assert (await refusal(gateway, provider.token(azp="other", **claims)))[0] == 401


async def test_a_refused_sign_in_is_in_the_journal_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with signing_in(tmp_path, person(match={"groups": "team"})) as (gateway, provider):
        token = provider.token()
        assert (await refusal(gateway, token))[0] == 403
        logged = [each for each in caplog.records if each.getMessage() == "sign-in refused"]
        assert [vars(each)["account"] for each in logged] == ["ana"]
        folder = gateway.journal()
    lines = [record.line.decode() for record in read_records(folder)]
    (kept,) = [each for each in map(json.loads, lines) if each.get("in") == "sign_in_refused"]
    assert kept["sign_in"]["subject"] == "u-ana"
    assert "no rule" in kept["why"]
    assert token not in "".join(lines)


# Accounts


async def test_an_account_is_one_person_with_every_client_though_its_sub_differs(tmp_path: Path) -> None:
    """As of Entra: `sub` is another one for each application, `oid` is not."""
    async with signing_in(tmp_path, settings={"subject_claim": "oid"}) as (gateway, provider):
        console = provider.token("pairwise-1", oid="42", preferred_username="ana")
        agent = provider.token("pairwise-2", oid="42", preferred_username="ana", client_id="agent")
        first, second = await enter(gateway, console), await enter(gateway, agent)
        assert {each.received[0]["payload"]["you"]["id"] for each in (first, second)} == {"ana"}
        other = provider.token("pairwise-1", oid="43", preferred_username="ana")
        assert "belongs to somebody else" in (await refusal(gateway, other))[1]
        without = provider.token("pairwise-1", preferred_username="ana")
        assert "lacks oid" in (await refusal(gateway, without))[1]
        # The provider's logout tokens have the `sub` of a client, and mean the person.
        eve = await enter(gateway, provider.token("pairwise-9", oid="44", preferred_username="eve"))
        assert await _log_out(gateway, provider.logout_token(sub="pairwise-1", sid="s-1")) == 200
        for each in (first, second):
            assert (await each.closed())[0] == 4003
        for void in (console, agent):
            assert (await refusal(gateway, void))[0] == 403
        assert await eve.refused("chat", {"text": "somebody else"}) is None
        # They sign in again, and out here: with every client, too.
        later: dict[str, Any] = {"oid": "42", "preferred_username": "ana", "iat": int(time.time()) + 1}
        again = provider.token("pairwise-1", **later)
        both = [await enter(gateway, each) for each in (again, provider.token("pairwise-2", **later))]
        headers = {"Authorization": f"Bearer {again}"}
        assert (await gateway.http.post("/oidc/sign-out", headers=headers)).status_code == 200
        for each in both:
            assert (await each.closed())[0] == 4003
        assert await eve.refused("chat", {"text": "somebody else"}) is None


async def test_a_logout_by_the_sub_of_one_client_ends_all_of_the_person_also_much_later(
    tmp_path: Path,
) -> None:
    """The token that had this `sub` is long gone: it came before a restart."""
    async with running_provider() as provider:
        oidc = provider.rules(subject_claim="oid")
        agent = provider.token("pairwise-2", oid="42", preferred_username="ana", client_id="agent")
        async with running_gateway(tmp_path, participants(root=["*"]), oidc=oidc) as gateway:
            await until(lambda: has_keys(gateway))
            await enter(gateway, provider.token("pairwise-1", oid="42", preferred_username="ana"))
        async with running_gateway(tmp_path, participants(root=["*"]), oidc=oidc) as gateway:
            await until(lambda: has_keys(gateway))
            client = await enter(gateway, agent)
            assert await _log_out(gateway, provider.logout_token(sub="pairwise-1")) == 200
            assert (await client.closed())[0] == 4003
            assert (await refusal(gateway, agent))[0] == 403


async def test_a_logout_that_is_sent_to_a_client_of_somebody_here_is_taken(tmp_path: Path) -> None:
    """Who uses an MCP client alone never signed in at the console: the provider tells that one."""
    async with signing_in(tmp_path) as (gateway, provider):
        client = await enter(gateway, provider.token(client_id="editor"))
        assert await _log_out(gateway, provider.logout_token(sub="u-ana", aud="nobodys")) == 400
        assert await client.refused("chat", {"text": "still here"}) is None
        assert await _log_out(gateway, provider.logout_token(sub="u-ana", aud="editor")) == 200
        assert (await client.closed())[0] == 4003


async def test_an_account_that_was_made_anew_gets_its_name_back_by_an_administrator(tmp_path: Path) -> None:
    """Its `sub` is another one; an administrator removes the old member and restores it."""
    async with signing_in(tmp_path) as (gateway, provider):
        root = await gateway.join("root")
        await enter(gateway, provider.token("old", preferred_username="ana"))
        anew = provider.token("new", preferred_username="ana")
        assert "belongs to somebody else" in (await refusal(gateway, anew))[1]
        assert await root.refused("space/kick", {"participant_id": "ana", "reason": "left"}) is None
        restored = (await gateway.admin("POST", "participants/ana/restore")).json()["token"]
        bearer = {"Authorization": f"Bearer {restored}"}
        made = await gateway.http.post("/participants/ana/tokens", json={"seconds": 20}, headers=bearer)
        held = [await enter(gateway, token) for token in (restored, made.json()["token"])]
        client = await enter(gateway, anew)
        # The name is theirs alone: what an administrator got with it has none of their rights.
        for each in held:
            assert (await each.closed())[0] == 4003
        assert (await refusal(gateway, restored))[0] == 401
        assert client.received[0]["payload"]["you"]["id"] == "ana"
        assert (await refusal(gateway, provider.token("old", preferred_username="ana")))[0] == 403


async def test_agents_leave_room_for_the_console(tmp_path: Path) -> None:
    """`max_sessions_per_member` is for each program that a person signed in with."""
    async with signing_in(tmp_path) as (gateway, provider):
        for number in range(10):
            await enter(gateway, provider.token(client_id=f"agent-{number}"))
        await enter(gateway, provider.token(client_id="console"))


async def test_tokens_that_an_agent_makes_leave_room_for_the_console(tmp_path: Path) -> None:
    """As many as a member may have: its person still signs in."""
    async with signing_in(tmp_path) as (gateway, provider):
        agent = provider.token(client_id="agent")
        await enter(gateway, agent)
        host = gateway.gateway.directory.hosts["lab"]
        make = partial(mint_token, host, "ana", "ana", seconds=30, only=None, max_seconds=60)
        for _ in range(MAX_TOKENS_PER_MEMBER):
            await make(own_token=hash_token(agent))
        console = await enter(gateway, provider.token(client_id="console"))
        await console.send({"type": "join", "token": provider.token(client_id="console", jti="newer")})
        await console.fence()
        assert await console.refused("chat", {"text": "in, and renewed"}) is None


async def test_tokens_without_a_type_are_taken_where_jwt_is(tmp_path: Path) -> None:
    """As Okta, Cognito and PingFederate send them."""
    async with signing_in(tmp_path, settings={"token_types": ["JWT"]}) as (gateway, provider):
        assert (await refusal(gateway, provider.token(header={"typ": None})))[0] == 101
        assert (await refusal(gateway, provider.token(header={"typ": None}, nonce="n")))[0] == 401
    async with signing_in(_made(tmp_path / "strict")) as (gateway, provider):
        assert (await refusal(gateway, provider.token(header={"typ": None})))[0] == 401


# Trying it


async def test_check_says_whether_a_provider_answers_and_which_rule_means_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_provider() as provider:
        rules = (
            person(match={"groups": "admins"}, administrator=True),
            person(match={"client_id": "console"}),
        )
        spaces: Any = {"lab": space_settings(participants(root=["*"]))}
        file = write_config(tmp_path, gateway_settings(spaces, oidc=provider.rules(*rules)))
        token = tmp_path / "ana.jwt"

        async def check(*, given: str | None = None) -> tuple[int, str]:
            if given is not None:
                token.write_text(given)
                token.chmod(0o600)
            options = [] if given is None else ["--token-file", str(token)]
            command = ["serve", str(file), "--check", "--try-providers", *options]
            code = await asyncio.to_thread(main, command)
            shown = capsys.readouterr()
            return code, shown.out + shown.err

        code, said = await check(given=provider.token(groups=["team"]))
        assert code == 0
        assert f"provider {provider.issuer}\n  keys: {provider.keys[0].kid}" in said
        assert "rule 1 does not match: groups has another value" in said
        assert "rule 2 matches: ana in lab" in said
        code, said = await check(given=provider.token(client_id="other"))
        assert code != 0
        assert "no rule lets this account in" in said
        code, said = await check(given=provider.token(seconds=-90))
        assert (code != 0, "expired" in said) == (True, True)
        provider.is_down = True
        code, said = await check()
        assert (code != 0, "cannot be used" in said) == (True, True)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
