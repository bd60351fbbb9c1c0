"""The certified provider of others (`oidc-provider` from npm), as a process."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import httpx

from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded

NODE = Path(__file__).parents[3] / ".node" / "node_modules"
AUDIENCE = "https://moot.example"
BACK: Final = "http://127.0.0.1:1/back"


@asynccontextmanager
async def foreign_provider(
    folder: Path,
    redirect: str = BACK,
    token_seconds: int = 60,
    servers: Sequence[str] = (),
    *,
    pairwise: bool = False,
    logout: str | None = None,
    offline: bool = True,
) -> AsyncIterator[str]:
    """Its issuer, once it answers. `servers` are MCP servers that it issues tokens for; see the script."""
    with held_port() as port:
        # Packages are found beside the script.
        script = folder / "provider.mjs"
        script.write_bytes(Path(__file__).with_suffix(".mjs").read_bytes())
        (folder / "node_modules").symlink_to(NODE)
        given = {"port": port, "audience": AUDIENCE, "redirect": redirect, "seconds": token_seconds}
        given |= {"servers": servers, "pairwise": pairwise, "logout": logout, "offline": offline}
        words = ("node", str(script), json.dumps(given))
        async with provider_process(*words, env=os.environ | {"NODE_ENV": "test"}):
            yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def provider_process(*words: str, env: Mapping[str, str] | None = None) -> AsyncIterator[None]:
    """A process from the line `ready` on, until it is killed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=env
    )
    assert process.stdout is not None
    try:
        async with bounded():
            line = await process.stdout.readline()
        assert line.startswith(b"ready"), line
        yield
    finally:
        process.kill()
        await process.wait()


_FORM: Final = re.compile(r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
_INPUT: Final = re.compile(r"<input([^>]*)>")
_MAX_STEPS: Final = 20


class Browser:
    """What a person has before them at a provider, with cookies: forms, which get their name."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._http = httpx.AsyncClient(timeout=HANG_SECONDS)

    async def close(self) -> None:
        await self._http.aclose()

    async def confirm(self, address: str, back: str) -> dict[str, str]:
        """Form after form, until the provider sends them back; what it sends along."""
        answer = await self._http.get(address)
        for _ in range(_MAX_STEPS):
            where = answer.headers.get("location", "")
            if where.startswith(back):
                return dict(parse_qsl(urlsplit(where).query))
            if answer.is_redirect:
                answer = await self._http.get(urljoin(str(answer.url), where))
                continue
            found = _FORM.search(answer.text)
            assert found is not None, answer.text
            fields = {}
            for attributes in _INPUT.findall(found[2]):
                named = re.search(r'name="([^"]+)"', attributes)
                value = re.search(r'value="([^"]*)"', attributes)
                if named is not None:
                    fields[named[1]] = value[1] if value is not None else ""
            fields |= {name: self._who for name in ("login", "password") if name in fields}
            # The buttons that consent, and that end a session.
            fields |= {"answer": "accept"} if 'name="answer"' in found[2] else {}
            fields |= {"logout": "yes"} if "/session/end" in found[1] else {}
            target = urljoin(str(answer.url), found[1].replace("&amp;", "&"))
            answer = await self._http.post(target, data=fields)
        raise AssertionError("the provider asks and asks")


@asynccontextmanager
async def new_browser(who: str) -> AsyncIterator[Browser]:
    browser = Browser(who)
    try:
        yield browser
    finally:
        await browser.close()


async def sign_in_for_code(address: str, who: str, back: str = BACK) -> dict[str, str]:
    """What a person does at the provider, in a new browser."""
    async with new_browser(who) as browser:
        return await browser.confirm(address, back)


class PersonAtProvider:
    """Signs in with a code and PKCE, renews and signs out there: as a page, or with a secret."""

    AUTHORIZE, TOKEN = "auth", "token"
    SCOPES: tuple[str, ...] = ("openid",)

    def __init__(
        self, issuer: str, client: str = "console", secret: str | None = None, resource: str | None = None
    ) -> None:
        self.issuer = issuer
        self.client = client
        self._secret = secret
        self._resource = {} if resource is None else {"resource": resource}
        self._browser: Browser | None = None
        self.tokens: dict[str, Any] = {}

    @property
    def access_token(self) -> str:
        return str(self.tokens["access_token"])

    async def sign_in(self, who: str) -> int:
        """The status of the exchange."""
        verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client,
            "redirect_uri": BACK,
            "scope": " ".join(self.SCOPES),
            "state": secrets.token_urlsafe(),
            "nonce": secrets.token_urlsafe(),
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        } | self._resource
        self._browser = self._browser or Browser(who)
        answer = await self._browser.confirm(f"{self.issuer}/{self.AUTHORIZE}?{urlencode(asked)}", BACK)
        assert (answer["state"], answer["iss"]) == (asked["state"], self.issuer)
        form = {"grant_type": "authorization_code", "code": answer["code"], "redirect_uri": BACK}
        return await self._exchange(form | {"code_verifier": verifier})

    async def renew(self) -> int:
        return await self._exchange(
            {"grant_type": "refresh_token", "refresh_token": self.tokens["refresh_token"]}
        )

    async def sign_out(self) -> None:
        """End the session at the provider, which tells whom it has to tell before it answers."""
        assert self._browser is not None
        await self._browser.confirm(f"{self.issuer}/session/end", f"{self.issuer}/session/end/success")

    async def close(self) -> None:
        if self._browser is not None:
            await self._browser.close()

    async def _exchange(self, form: dict[str, str]) -> int:
        status, body = await self._post(self.TOKEN, form | self._resource)
        if status == 200:
            self.tokens = body
        return status

    async def _post(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        auth = None if self._secret is None else (self.client, self._secret)
        if auth is None:
            form = form | {"client_id": self.client}
        async with httpx.AsyncClient(timeout=HANG_SECONDS, auth=auth) as http:
            answer = await http.post(f"{self.issuer}/{path}", data=form)
        return answer.status_code, answer.json()
