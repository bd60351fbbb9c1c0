"""The official SDKs' own OAuth clients, and the person who signs in when they ask for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from mcp import Client
from tests.bridges.people.people_space import CALL, READ
from tests.gateway.sign_in.foreign_provider import BACK, NODE, Browser
from tests.waiting import HANG_SECONDS, bounded

WRITE: dict[str, Any] = {"path": "b", "text": "new"}


class Storage:
    """Tokens in memory; the client is registered already, or registers itself."""

    def __init__(self, client_id: str | None, secret: str | None = None) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        if client_id is not None:
            self.client = OAuthClientInformationFull(
                client_id=client_id,
                client_secret=secret,
                redirect_uris=[AnyUrl(BACK)],
                token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            )

    @property
    def access_token(self) -> str:
        assert self.tokens is not None
        return self.tokens.access_token

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def python_client(
    url: str, mode: Any, storage: Storage, browser: Browser, opened: list[str]
) -> AsyncIterator[Client]:
    async def redirect(address: str) -> None:
        opened.append(address)

    async def callback() -> AuthorizationCodeResult:
        back = await browser.confirm(opened[-1], BACK)
        return AuthorizationCodeResult(code=back["code"], state=back.get("state"), iss=back.get("iss"))

    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(BACK)],
        client_name="test",
        token_endpoint_auth_method="none",
        scope=f"{READ} {CALL}",
    )
    auth = OAuthClientProvider(url, metadata, storage, redirect, callback)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=HANG_SECONDS) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


class TypescriptClient:
    """The TypeScript SDK of one version, as a process; its person signs in whenever it asks."""

    def __init__(self, process: asyncio.subprocess.Process, browser: Browser) -> None:
        self._process = process
        self._browser = browser

    async def result(self) -> dict[str, Any]:
        """What it gets for its call."""
        assert self._process.stdout is not None
        async with bounded():
            while line := (await self._process.stdout.readline()).decode():
                if line.startswith("{"):
                    found: dict[str, Any] = json.loads(line)
                    return found
                assert line.startswith("http"), line
                self._write(json.dumps(await self._browser.confirm(line.strip(), BACK)))
        raise AssertionError("it ended without a result")

    async def again(self) -> dict[str, Any]:
        """The same call, once more."""
        self._write("again")
        return await self.result()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")


@asynccontextmanager
async def typescript_client(
    sdk: str, url: str, browser: Browser, client_id: str = "editor"
) -> AsyncIterator[TypescriptClient]:
    given = {"modules": str(NODE), "sdk": sdk, "url": url, "redirect": BACK, "clientId": client_id}
    process = await asyncio.create_subprocess_exec(
        *("node", str(Path(__file__).with_name("typescript_oauth_client.mjs"))),
        json.dumps(given | {"name": "write_file", "toolArguments": WRITE}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield TypescriptClient(process, browser)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
