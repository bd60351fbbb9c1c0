"""Attacks on an MCP endpoint for many people, beyond wrong tokens: whose rights, whose secrets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from mcp.server.auth.provider import AccessToken

from moot.bridges.server.bridge_runner import bridged
from moot.bridges.server.bridge_settings import BridgeSettings
from moot.mcp.upstream import HttpServer
from tests.bridges.people.people_space import LISTS, READ, people_space
from tests.bridges.people.test_people_server import call, tools_of
from tests.bridges.served_space import PROPOSER, offer_files
from tests.gateway.sign_in.oidc_provider import person
from tests.oauth.protected_server import protected_server
from tests.waiting import until, until_told


async def test_no_token_of_a_client_reaches_a_server_behind_the_space_or_a_member(tmp_path: Path) -> None:
    """Token passthrough: the server is called with the credential of its bridge, and nothing else is sent."""
    async with people_space(tmp_path) as people:

        def verify(token: str, url: str) -> AccessToken | None:
            good = AccessToken(token=token, client_id="the bridge", scopes=["tools"], resource=url)
            return good if token == "of-the-bridge" else None

        async with protected_server(people.provider.issuer, verify) as server:
            headers = {"Authorization": "Bearer of-the-bridge"}
            made = BridgeSettings(
                server=HttpServer(url=server.url, headers=headers),
                gateway=people.gateway.url,
                space="lab",
                token="t-files",
            )
            await people.stack.enter_async_context(bridged(made))
            watcher = await people.gateway.join("root")
            boss = people.token("boss")
            await until_told(lambda: tools_of(people, boss))
            assert await call(people, boss, "whoami") == "the bridge"
            assert set(server.seen) == {"of-the-bridge"}
            # Nor what it was exchanged for: that is between the endpoint and the gateway.
            (served,) = people.people.people.values()
            heard = str(await watcher.fence()) + str(watcher.received)
            assert "whoami" in heard
            for secret in (boss, served.grant.access_token):
                assert secret not in heard


async def test_the_rights_of_the_endpoint_itself_are_nobodys(tmp_path: Path) -> None:
    """Confused deputy: it may list everything, and learns it for all; each sees what they may use."""
    rules = [person(match={"sub": "u-guest"}, capabilities=["chat"]), person(capabilities=["*"])]
    async with people_space(tmp_path, *rules) as people:
        offer_files(await people.join("files"))
        await until_told(lambda: tools_of(people, people.token("boss")))
        guest = people.token("guest")
        assert await tools_of(people, guest) == {}
        refused = await people.ask(
            guest, "tools/call", name="write_file", arguments={"path": "a", "text": "x"}
        )
        assert "error" in refused.json() or refused.json()["result"]["isError"]
        assert people.gateway.gateway.directory.hosts["lab"].space.state.ledger.all_open() == []


async def test_one_client_cannot_use_what_its_person_allowed_another(tmp_path: Path) -> None:
    """Confused deputy, the other way round: scopes, sessions and pending calls are of one client."""
    rules = [person(capabilities=[*PROPOSER, *LISTS])]
    async with people_space(tmp_path, *rules) as people:
        offer_files(await people.join("files"))
        editor, other = people.token("ana"), people.token("ana", READ, client_id="other")
        await until_told(lambda: tools_of(people, editor))
        session = (await people.initialize(editor)).headers["mcp-session-id"]
        listing: Any = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await people.post(other, listing, **{"Mcp-Session-Id": session})).status_code == 404
        write: Any = {"path": "a", "text": "x"}
        refused = await people.ask(other, "tools/call", name="write_file", arguments=write)
        assert refused.status_code == 403
        keys = {each.grant.client for each in people.people.people.values()}
        assert keys == {"editor", "other"}
        (narrow,) = [each for each in people.people.people.values() if each.grant.client == "other"]
        await until(lambda: narrow._joined is not None)
        assert narrow._joined is not None
        assert not narrow._joined.may("mcp/proposal", {"method": "tools/call"})


async def test_nothing_that_a_request_says_of_itself_moves_where_people_sign_in(tmp_path: Path) -> None:
    """Open redirect, metadata of another origin: addresses are those of the configuration."""
    async with people_space(tmp_path) as people:
        where = people.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        lies = {
            "X-Forwarded-Host": "evil.example",
            "X-Forwarded-Proto": "https",
            "Forwarded": "host=evil.example",
            "X-Original-URL": "/evil",
            "Referer": "https://evil.example",
        }
        refused = await people.post(None, {}, **lies)
        assert refused.headers["www-authenticate"].startswith(f'Bearer resource_metadata="{where}"')
        document = await people.http.get(f"{where}?resource=https://evil.example/mcp", headers=lies)
        assert (document.json()["resource"], document.json()["authorization_servers"]) == (
            people.url,
            [people.provider.issuer],
        )
        assert "evil" not in refused.text + str(refused.headers) + document.text + str(document.headers)
        for path in ("//evil.example/mcp", "/mcp/../mcp", "/mcp%2f..", "/mcp/https://evil.example"):
            answer = await people.http.get(people.url.removesuffix("/mcp") + path)
            assert answer.status_code in (401, 404)
            assert "location" not in answer.headers


async def test_clocks_may_differ_by_the_skew_and_by_no_more(tmp_path: Path) -> None:
    async with people_space(tmp_path, oidc={"skew_seconds": 300}) as people:
        now = time.time()

        async def status(**claims: Any) -> int:
            return (await people.ask(people.token("ana", **claims), "tools/list")).status_code

        assert await status(seconds=-1) == 200
        assert await status(iat=now + 200, nbf=now + 200) == 200
        assert await status(seconds=-301) == 401
        assert await status(iat=now + 10_000) == 401
        assert await status(nbf=now + 10_000) == 401


async def test_no_secret_is_written_down_or_logged(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("DEBUG")
    async with people_space(tmp_path) as people:
        tokens = [people.token("ana"), people.token("ana", seconds=-90), people.token("ana", aud="else")]
        for token in tokens:
            await people.ask(token, "tools/list")
        tokens += [each.grant.access_token for each in people.people.people.values()]
        await until(lambda: any(each._joined for each in people.people.people.values()))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    logged = "".join(str(each.__dict__) for each in caplog.records if each.name.startswith("moot"))
    for token in tokens:
        for part in token.split("."):
            assert len(part) < 20 or (part.encode() not in written and part not in logged)
