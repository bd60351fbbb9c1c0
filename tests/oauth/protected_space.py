"""A space with a bridged MCP server behind OAuth: the SDK's server, a provider in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcp.server.auth.provider import AccessToken

from moot.bridges.server.call_identity import CredentialsOf
from moot.bridges.server.server_member import ServerMember
from moot.config.configuration import McpSignInConfig
from moot.mcp.upstream import HttpServer, UpstreamOptions
from moot.oauth.oauth_settings import OAuthSettings
from moot.oauth.one_time_key import seal
from moot.participant import JoinedSpace
from tests.bridges.bridged_space import BridgedSpace, bridged_space
from tests.mcp.upstreams import QUICK
from tests.oauth.oauth_provider import OAuthProvider, oauth_provider
from tests.oauth.protected_server import ProtectedServer, protected_server
from tests.waiting import HANG_SECONDS

# A busy machine answers late; what these tests show does not depend on it.
PATIENT_UPSTREAM = UpstreamOptions(limits=replace(QUICK, reconnect_wait_seconds=HANG_SECONDS))
BACK = "http://127.0.0.1:7/callback"


@dataclass
class ProtectedSpace:
    """A space, and a server behind OAuth that is bridged as `host`."""

    space: BridgedSpace
    provider: OAuthProvider
    server: ProtectedServer
    folder: Path

    def settings(self, **more: Any) -> OAuthSettings:
        return OAuthSettings(sign_in=McpSignInConfig(**more), folder=self.folder / "sign-ins")

    async def bridge(self, credentials: CredentialsOf = "server", **more: Any) -> ServerMember:
        return await self.space.bridge(
            HttpServer(url=self.server.url),
            oauth=self.settings(**more),
            credentials=credentials,
            must_start=True,
            upstream=PATIENT_UPSTREAM,
        )


def verifier(provider: OAuthProvider) -> Any:
    def verify(token: str, _url: str) -> AccessToken | None:
        found = provider.tokens.get(token)
        if found is None or not found.is_valid:
            return None
        return AccessToken(
            token=token, client_id="c", scopes=found.scopes, resource=found.resource, subject=found.subject
        )

    return verify


@asynccontextmanager
async def protected_space(
    folder: Path, people: dict[str, Any] | None = None, **provider_settings: Any
) -> AsyncIterator[ProtectedSpace]:
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(oauth_provider(**provider_settings))
        server = await stack.enter_async_context(protected_server(provider.issuer, verifier(provider)))
        space = await stack.enter_async_context(bridged_space(folder, people))
        yield ProtectedSpace(space, provider, server, folder)


async def sign_in(
    place: ProtectedSpace,
    member: JoinedSpace,
    who: str,
    method: str = "moot/sign-in-server",
    **changed: str,
) -> dict[str, Any]:
    """What `moot sign-in` does, with a person `who` at the provider."""
    begun = await member.request("host", method, {"redirect_uri": BACK})
    answer = place.provider.sign_in(begun["link"], who, **changed)
    return await finish(member, begun, answer, method)


async def finish(
    member: JoinedSpace, begun: dict[str, Any], answer: dict[str, str], method: str = "moot/sign-in-server"
) -> dict[str, Any]:
    sealed = seal(begun["key"], json.dumps(answer).encode(), f"{begun['id']} {member.name}")
    return await member.request("host", method, {"id": begun["id"], "sealed": sealed})
