"""`moot login` with a browser on this machine: a code with PKCE, which comes back to 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from moot.cli import main
from moot.cli.client.browser_sign_in import sign_in_with_browser
from moot.config.secrets.sign_in_store import StoredSignIn, open_sign_ins
from moot.oauth.oauth_settings import SignInFailed
from tests.gateway.running_gateway import running_gateway
from tests.oauth.oauth_provider import OAuthProvider, oauth_provider
from tests.waiting import HANG_SECONDS, bounded, until

RULE: dict[str, Any] = {"match": {"sub": "*"}, "participant": "{sub}", "capabilities": ["chat"]}


class Login:
    """A sign-in that waits for a browser."""

    def __init__(self, provider: OAuthProvider, **more: Any) -> None:
        self.provider = provider
        self.links: list[str] = []
        about = {"issuer": provider.issuer, "client_id": "cli", "scopes": ["openid", "offline_access"]}
        asked = sign_in_with_browser(about | {"resource": "https://moot.example"}, self.links.append, **more)
        self.result: asyncio.Task[StoredSignIn] = asyncio.create_task(asked)

    async def come_back(self, answer: Mapping[str, str], **headers: str) -> httpx.Response:
        await until(lambda: self.links or self.result.done())
        where = dict(parse_qsl(urlsplit(self.links[0]).query))["redirect_uri"]
        async with httpx.AsyncClient(timeout=HANG_SECONDS, trust_env=False) as browser:
            return await browser.get(where, params=dict(answer), headers=headers)


@asynccontextmanager
async def logging_in(**metadata: Any) -> AsyncIterator[Login]:
    async with oauth_provider(metadata=metadata) as provider:
        login = Login(provider)
        try:
            await until(lambda: bool(login.links) or login.result.done())
            yield login
        finally:
            login.result.cancel()
            await asyncio.wait([login.result])


async def test_the_command_signs_in_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also without --browser, since this provider gives no codes for other devices."""
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "MOOT_SIGN_INS": "file"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    shown: list[str] = []
    monkeypatch.setattr("moot.cli.client.browser.has_display", lambda: True)
    monkeypatch.setattr("moot.cli.client.browser.open_browser", shown.append)
    async with oauth_provider() as provider:
        oidc = {"issuer": provider.issuer, "audience": "moot", "people": [RULE | {"spaces": ["lab"]}]}
        oidc |= {"client_id": "cli", "scopes": ["openid", "offline_access"]}
        async with running_gateway(tmp_path, oidc=oidc) as gateway:
            for more in (["--browser"], []):
                shown.clear()
                signing_in = asyncio.create_task(asyncio.to_thread(main, ["login", gateway.url, *more]))
                await until(lambda: shown)
                where = dict(parse_qsl(urlsplit(shown[0]).query))["redirect_uri"]
                assert where.startswith("http://127.0.0.1:")
                async with httpx.AsyncClient(timeout=HANG_SECONDS, trust_env=False) as browser:
                    page = await browser.get(where, params=provider.sign_in(shown[0], "ana"))
                assert page.status_code == 200, page.text
                async with bounded():
                    assert await signing_in == 0
                kept = open_sign_ins(environ).load(gateway.url)
                assert kept is not None
                assert provider.tokens[kept.access_token].subject == "ana"
                assert kept.refresh_token in provider.refresh_tokens
                told = capsys.readouterr()
                assert kept.access_token not in told.out + told.err


async def test_a_code_is_worth_nothing_without_the_verifier_and_is_used_once() -> None:
    async with logging_in() as login:
        answer = login.provider.sign_in(login.links[0], "ana")
        assert (await login.come_back(answer)).status_code == 200
        signed_in = await login.result
        assert signed_in.resource == "https://moot.example"
        form = login.provider.token_requests[0]
        assert len(form["code_verifier"]) >= 43
        assert form["code_verifier"] not in login.links[0]
        # The page is gone with the sign-in, so a replayed code finds nobody.
        with pytest.raises(httpx.TransportError):
            await login.come_back(answer)
        assert len(login.provider.token_requests) == 1


async def test_an_answer_that_belongs_to_no_sign_in_ends_none() -> None:
    """Any web page can send a browser to a port of this machine."""
    async with logging_in() as login:
        good = login.provider.sign_in(login.links[0], "ana")
        for wrong in (good | {"state": "guessed"}, {"code": good["code"]}, {"error": "access_denied"}, {}):
            assert (await login.come_back(wrong)).status_code == 400
        assert (await login.come_back(good, host="evil.example")).status_code == 421
        assert not login.provider.token_requests
        assert (await login.come_back(good)).status_code == 200
        assert (await login.result).access_token in login.provider.tokens


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"iss": "https://else.example"}, "another provider"),
        ({"error": "access_denied"}, "access_denied"),
        ({"code": "of-somebody-else"}, "invalid_grant"),
    ],
)
async def test_a_wrong_answer_signs_nobody_in_and_says_why(change: dict[str, str], why: str) -> None:
    """Mixed-up issuer, a declined sign-in, a code that was made for another."""
    async with logging_in() as login:
        answer = login.provider.sign_in(login.links[0], "ana", **change)
        assert (await login.come_back(answer)).status_code == 400
        with pytest.raises(SignInFailed, match=why):
            await login.result


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"code_challenge_methods_supported": None}, "S256"),
        ({"issuer": "https://else.example"}, "otherwise"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "https://"),
        ({"authorization_endpoint": None}, "no page"),
    ],
)
async def test_a_provider_that_is_not_safe_is_not_opened(metadata: dict[str, Any], why: str) -> None:
    async with logging_in(**metadata) as login:
        with pytest.raises(SignInFailed, match=why):
            await login.result
        assert not login.links


async def test_nobody_is_waited_for_longer_than_sign_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with oauth_provider() as provider:
        monkeypatch.setattr("moot.oauth.oauth_settings.SIGN_IN_SECONDS", 0.01)
        login = Login(provider)
        with pytest.raises(SignInFailed, match="nobody signed in"):
            await login.result
