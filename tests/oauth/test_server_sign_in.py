"""A bridge signs in at an MCP server behind OAuth: the SDK's server, a provider in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moot.config.configuration import McpServerConfig, McpSignInConfig, MemberConfig
from moot.config.secrets.secret import Secret
from moot.errors import McpError
from moot.mcp.upstream import HttpServer
from moot.oauth.oauth_settings import OAuthSettings
from moot.resilience.task_set import end_tasks
from moot.up.bridged_server import BridgedServer
from moot.up.template_vars import TemplateVars
from tests.bridges.bridged_space import call
from tests.oauth.oauth_provider import text_of
from tests.oauth.protected_space import BACK, PATIENT_UPSTREAM, finish, protected_space, sign_in
from tests.waiting import HANG_SECONDS, until


async def test_a_bridge_waits_for_a_sign_in_and_then_serves(tmp_path: Path) -> None:
    """Issue 21: the member stays, callers read what is waited for, and whoever may signs in."""
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        told = alice.envelopes()
        member = await place.bridge()
        assert member.upstream.state == "down"
        assert member.upstream.down_reason == f"waits for a sign-in at {place.provider.issuer}"
        with pytest.raises(McpError, match="waits for a sign-in at"):
            await call(alice, "whoami")
        assert (await sign_in(place, alice, "service"))["signed_in"] is True
        await until(lambda: member.upstream.state == "up")
        assert text_of(await call(alice, "whoami")) == "service"
        chat = [each async for each in _until_chat(told)][-1]
        assert chat.sender == "host"
        assert set(chat.to) == {"alice"}
        assert "moot sign-in host --server" in chat.payload["text"]


async def _until_chat(told: Any) -> AsyncIterator[Any]:
    async for each in told:
        yield each
        if each.kind == "chat":
            return


async def test_nothing_that_opens_anything_is_in_the_journal_or_in_a_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        member = await place.bridge()
        begun = await alice.request("host", "moot/sign-in-server", {"redirect_uri": BACK})
        answer = place.provider.sign_in(begun["link"], "service")
        await finish(alice, begun, answer)
        await until(lambda: member.upstream.state == "up")
        await call(alice, "whoami")
        kept = list(place.provider.tokens) + list(place.provider.refresh_tokens) + [answer["code"]]
        verifiers = [each["code_verifier"] for each in place.provider.token_requests]
        await place.space.gateway.close()
    secret = [*kept, *verifiers]
    assert len(secret) == 4
    journal = b"".join(
        each.read_bytes() for each in tmp_path.rglob("*") if "sign-ins" not in str(each) and each.is_file()
    )
    assert b"moot/sign-in-server" in journal
    for each in secret:
        assert each.encode() not in journal
        assert each not in caplog.text


async def test_a_sign_in_is_finished_only_by_whoever_began_it_and_once(tmp_path: Path) -> None:
    async with protected_space(tmp_path) as place:
        alice, bob = await place.space.join("alice"), await place.space.join("bob")
        await place.bridge()
        begun = await alice.request("host", "moot/sign-in-server", {"redirect_uri": BACK})
        answer = place.provider.sign_in(begun["link"], "mallory")
        with pytest.raises(McpError, match="begun no such sign-in"):
            await finish(bob, begun, answer)
        # Bob's own is another one, and what is sealed for one opens in no other.
        other = await bob.request("host", "moot/sign-in-server", {"redirect_uri": BACK})
        with pytest.raises(McpError, match="cannot be opened"):
            await finish(bob, {**other, "key": begun["key"]}, answer)
        assert (await finish(alice, begun, answer))["signed_in"] is True
        with pytest.raises(McpError, match="begun no such sign-in"):
            await finish(alice, begun, answer)


async def test_who_may_only_propose_signs_nobody_in_and_is_not_told(tmp_path: Path) -> None:
    async with protected_space(tmp_path) as place:
        carl = await place.space.join("carl")
        await place.bridge()
        assert not carl.may_request("host", "moot/sign-in-server")
        alice = await place.space.join("alice")
        chat = [each async for each in _until_chat(alice.envelopes())][-1]
        assert "carl" not in chat.to


async def test_a_refused_token_is_renewed_once_for_all_calls(tmp_path: Path) -> None:
    """Neither the SDK's client refreshes on 401, nor do its calls run beside each other."""
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        member = await place.bridge()
        await sign_in(place, alice, "service")
        await until(lambda: member._tools is not None)
        assert member.sign_in is not None
        member.sign_in.credential._obtained_at = None  # as if some minutes had passed
        place.provider.end_tokens()
        asked = len(place.provider.token_requests)
        answers = await asyncio.gather(*(call(alice, "whoami") for _ in range(8)))
        assert [text_of(each) for each in answers] == ["service"] * 8
        assert len(place.provider.token_requests) == asked + 1
        assert place.provider.token_requests[-1]["resource"] == place.server.url


async def test_a_restart_renews_what_was_kept_without_a_person(tmp_path: Path) -> None:
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        member = await place.bridge()
        await sign_in(place, alice, "service")
        await until(lambda: member.upstream.state == "up")
        place.provider.end_tokens()
        again = await place.space.bridge(
            HttpServer(url=place.server.url),
            "host2",
            oauth=place.settings(),
            must_start=True,
            upstream=PATIENT_UPSTREAM,
        )
        assert again.upstream.state == "up"
        assert text_of(await call(alice, "whoami", to="host2")) == "service"
        assert len(place.provider.registered) == 1
    files = list((tmp_path / "sign-ins").iterdir())
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    assert (tmp_path / "sign-ins").stat().st_mode & 0o777 == 0o700


async def test_a_sign_in_that_has_ended_is_waited_for_again(tmp_path: Path) -> None:
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        member = await place.bridge()
        await sign_in(place, alice, "service")
        await until(lambda: member._tools is not None)
        assert member.sign_in is not None
        member.sign_in.credential._obtained_at = None
        place.provider.end_tokens()
        place.provider.refresh_tokens.clear()
        with pytest.raises(McpError):
            await call(alice, "whoami")
        with pytest.raises(McpError, match="waits for a sign-in"):
            await call(alice, "whoami")
        await sign_in(place, alice, "other")
        assert text_of(await call(alice, "whoami")) == "other"


async def test_a_provider_that_is_away_is_no_reason_to_sign_in_again(tmp_path: Path) -> None:
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        member = await place.bridge()
        await sign_in(place, alice, "service")
        await until(lambda: member._tools is not None)
        assert member.sign_in is not None
        credential = member.sign_in.credential
        credential._obtained_at = None
        place.provider.end_tokens()
        place.provider.is_down = True
        with pytest.raises(McpError):
            await call(alice, "whoami")
        assert credential.waits_for is None
        assert credential.problem is not None
        place.provider.is_down = False
        credential._failed_at = None  # as if some seconds had passed
        assert text_of(await call(alice, "whoami")) == "service"


async def test_a_program_signs_in_with_its_own_credentials(tmp_path: Path) -> None:
    """Client credentials: nobody is asked."""
    from base64 import b64encode

    async with protected_space(tmp_path) as place:
        place.provider.secrets[b64encode(b"robot:robot-secret").decode()] = "robot"
        alice = await place.space.join("alice")
        member = await place.bridge(
            grant="client_credentials", client_id="robot", client_secret="robot-secret"
        )
        assert member.upstream.state == "up"
        assert text_of(await call(alice, "whoami")) == "robot"


async def test_clients_are_known_by_hand_before_by_document_before_by_registration(tmp_path: Path) -> None:
    document = "https://moot.example/client.json"
    async with protected_space(tmp_path, metadata={"client_id_metadata_document_supported": True}) as place:
        alice = await place.space.join("alice")
        await place.bridge(client_metadata_url=document)
        begun = await alice.request("host", "moot/sign-in-server", {"redirect_uri": BACK})
        assert place.provider.sign_in(begun["link"], "x")
        assert place.provider.codes.popitem()[1][0]["client_id"] == document
        await place.space.bridge(
            HttpServer(url=place.server.url),
            "host2",
            oauth=OAuthSettings(sign_in=McpSignInConfig(client_id="by-hand", client_metadata_url=document)),
        )
        begun = await alice.request("host2", "moot/sign-in-server", {"redirect_uri": BACK})
        assert "client_id=by-hand" in begun["link"]
        assert place.provider.registered == []


async def test_a_client_that_registers_itself_says_what_it_is(tmp_path: Path) -> None:
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        await place.bridge()
        await sign_in(place, alice, "service")
        (asked,) = place.provider.registered
        assert asked["application_type"] == "native"
        assert asked["token_endpoint_auth_method"] == "none"
        assert asked["scope"].split() == ["tools", "offline_access"]


async def test_a_token_of_ones_own_can_be_brought(tmp_path: Path) -> None:
    """For servers whose provider knows no OAuth: the token is sealed on its way."""
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        member = await place.bridge()
        token = place.provider.issue("by-hand", place.server.url, ["tools"])["access_token"]
        begun = await alice.request("host", "moot/sign-in-server", {})
        assert "link" not in begun
        await finish(alice, begun, {"token": token})
        await until(lambda: member.upstream.state == "up")
        assert text_of(await call(alice, "whoami")) == "by-hand"


async def test_the_page_of_the_bridge_signs_in_who_presses_its_button(tmp_path: Path) -> None:
    import httpx

    async with protected_space(tmp_path) as place, httpx.AsyncClient(timeout=HANG_SECONDS) as browser:
        alice = await place.space.join("alice")
        told = alice.envelopes()
        member = await place.bridge()
        text = [each async for each in _until_chat(told)][-1].payload["text"]
        page = next(
            word for word in text.split() if word.startswith("http://127.0.0.1:") and "/sign-in/" in word
        )
        origin = page.partition("/sign-in/")[0]
        assert "<button>" in (await browser.get(page)).text
        # A web page of somebody else can open the address, and press no button.
        assert (await browser.post(page, headers={"Origin": "https://evil.example"})).status_code == 403
        assert (await browser.get(page, headers={"Host": "evil.example"})).status_code == 421
        assert (await browser.get(f"{origin}/sign-in/guessed")).status_code == 404
        # Nobody has begun: a code of somebody else finds nothing.
        assert (await browser.get(f"{origin}/callback?code=c&state=s")).status_code == 400
        sent = await browser.post(page, headers={"Origin": origin})
        assert sent.status_code == 303
        answer = place.provider.sign_in(sent.headers["location"], "at the bridge")
        assert (await browser.get(f"{origin}/callback", params={**answer, "state": "x"})).status_code == 400
        sent = await browser.post(page, headers={"Origin": origin})
        answer = place.provider.sign_in(sent.headers["location"], "at the bridge")
        done = await browser.get(f"{origin}/callback", params=answer)
        assert done.status_code == 200
        await until(lambda: member.upstream.state == "up")
        assert text_of(await call(alice, "whoami")) == "at the bridge"


async def test_tools_are_listed_after_a_sign_in_that_came_late(tmp_path: Path) -> None:
    """The list was refused while nobody was signed in, and the connection has stayed."""
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        member = await place.bridge()
        await sign_in(place, alice, "service")
        await until(lambda: member._tools is not None)
        assert member.sign_in is not None
        member.sign_in.credential._obtained_at = None
        place.provider.end_tokens()
        place.provider.refresh_tokens.clear()
        member._on_up(await member.upstream.wait_for_info())
        await until(lambda: member._checked.is_set())
        assert member._tools is None
        await sign_in(place, alice, "service")
        assert text_of(await call(alice, "whoami")) == "service"


async def test_moot_up_shows_what_a_server_waits_for(tmp_path: Path) -> None:
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        variables = TemplateVars(
            gateway=place.space.gateway.url,
            port=0,
            space="lab",
            name="host",
            folder=tmp_path,
            token=Secret("t-host"),
            token_file=None,
            environ={},
        )
        config = MemberConfig(mcp_server=McpServerConfig(url=place.server.url))
        part = BridgedServer(
            config, variables, tmp_path / "log", pins=tmp_path / "pins.json", on_change=lambda: None
        )
        running = asyncio.create_task(part.run())
        try:
            await until(lambda: part.status().state == "waiting")
            assert part.status().message == f"the server waits for a sign-in at {place.provider.issuer}"
            await sign_in(place, alice, "service")
            await until(lambda: part.status().state == "running")
            assert text_of(await call(alice, "whoami")) == "service"
            assert list((tmp_path / "sign-ins").glob("credential-*.json"))
        finally:
            await end_tasks([running])


async def test_tools_that_could_not_be_listed_are_listed_for_who_tries_again(tmp_path: Path) -> None:
    """The provider was away when the bridge asked; a call does not find out by itself that it is back."""
    async with protected_space(tmp_path) as place:
        alice = await place.space.join("alice")
        member = await place.bridge()
        await sign_in(place, alice, "service")
        await until(lambda: member._tools is not None)
        member._tools = None
        with pytest.raises(McpError, match="does not list its tools"):
            await call(alice, "whoami")
        await until(lambda: member._tools is not None)
        assert text_of(await call(alice, "whoami")) == "service"
