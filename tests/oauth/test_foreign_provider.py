"""`moot sign-in` and a bridge, with a certified provider of others and a server of the official SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from mcp.server.auth.provider import AccessToken

from moot.cli import main
from moot.config.configuration import McpSignInConfig
from moot.mcp.upstream import HttpServer
from moot.net.http_listener import bind_socket
from moot.oauth.oauth_settings import OAuthSettings
from tests.bridges.bridged_space import BridgedSpace, bridged_space, call
from tests.gateway.sign_in.foreign_provider import foreign_provider, sign_in_for_code
from tests.oauth.oauth_provider import text_of
from tests.oauth.protected_server import ProtectedServer, Verify, protected_server
from tests.oauth.protected_space import PATIENT_UPSTREAM
from tests.waiting import HANG_SECONDS, bounded, until


async def verifier(issuer: str, revoked: set[str]) -> Verify:
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as http:
        keys = jwt.PyJWKSet.from_dict((await http.get(f"{issuer}/jwks")).json())

    def verify(token: str, url: str) -> AccessToken | None:
        if token in revoked:
            return None
        key = keys[jwt.get_unverified_header(token)["kid"]]
        try:
            said = jwt.decode(token, key, algorithms=["ES256"], audience=url, issuer=issuer)
        except jwt.InvalidTokenError:
            return None
        scopes = said.get("scope", "").split()
        return AccessToken(
            token=token, client_id=said["client_id"], scopes=scopes, resource=url, subject=said["sub"]
        )

    return verify


@asynccontextmanager
async def foreign_place(
    folder: Path, revoked: set[str]
) -> AsyncIterator[tuple[BridgedSpace, ProtectedServer, str]]:
    (folder / "provider").mkdir()
    async with AsyncExitStack() as stack:
        listening = bind_socket("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        issuer = await stack.enter_async_context(foreign_provider(folder / "provider", servers=[url]))
        server = await stack.enter_async_context(
            protected_server(issuer, await verifier(issuer, revoked), scope="moot:call", on=listening)
        )
        space = await stack.enter_async_context(bridged_space(folder))
        yield space, server, issuer


async def test_a_person_signs_a_bridge_in_at_a_provider_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Registration, PKCE, consent, RFC 8707 and 9207, and a rotated refresh token, as others wrote them."""
    revoked: set[str] = set()
    async with foreign_place(tmp_path, revoked) as (space, server, issuer):
        alice = await space.join("alice")
        oauth = OAuthSettings(folder=tmp_path / "sign-ins")
        member = await space.bridge(
            HttpServer(url=server.url), oauth=oauth, must_start=True, upstream=PATIENT_UPSTREAM
        )
        assert member.upstream.down_reason == f"waits for a sign-in at {issuer}"

        (tmp_path / "bob.token").write_text("t-bob")
        (tmp_path / "bob.token").chmod(0o600)
        links: list[str] = []
        monkeypatch.setattr("moot.cli.client.browser.has_display", lambda: True)
        monkeypatch.setattr("moot.cli.client.browser.open_browser", links.append)
        words = ["sign-in", "host", "--server", "--gateway", space.gateway.url, "--space", "lab"]
        signing_in = asyncio.create_task(
            asyncio.to_thread(main, [*words, "--token-file", str(tmp_path / "bob.token")])
        )
        await until(lambda: bool(links) or signing_in.done())
        back = parse_qs(urlsplit(links[0]).query)["redirect_uri"][0]
        answer = await sign_in_for_code(links[0], "service", back)
        async with httpx.AsyncClient(timeout=HANG_SECONDS) as browser:
            assert (await browser.get(back, params=answer)).status_code == 200
        async with bounded():
            assert await signing_in == 0
        assert "Signed in; host keeps it, in a private file, not encrypted." in capsys.readouterr().out

        await until(lambda: member.upstream.state == "up")
        assert text_of(await call(alice, "whoami")) == "service"
        # The server refuses it from now on, and nobody has to sign in again.
        assert member.sign_in is not None
        member.sign_in.credential._obtained_at = None
        revoked.update(server.seen)
        assert text_of(await call(alice, "whoami")) == "service"
        assert server.seen[-1] not in revoked
        # A program with a secret of its own needs nobody.
        grant = McpSignInConfig(grant="client_credentials", client_id="robot", client_secret="robot-secret")
        robot = OAuthSettings(sign_in=grant)
        other = await space.bridge(
            HttpServer(url=server.url), "host2", oauth=robot, must_start=True, upstream=PATIENT_UPSTREAM
        )
        assert other.upstream.state == "up"
        assert text_of(await call(alice, "whoami", to="host2")) == "robot"
