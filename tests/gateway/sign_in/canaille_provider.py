"""A second provider that others wrote (Canaille, from PyPI, built on Authlib), as a process.

It differs from `foreign_provider` in all that providers differ in: tokens of type JWT without client and
`jti`, a list as audience, RS512, no `resource`, no `offline_access`; it revokes and introspects JWTs.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from moot.protocol.operation import Json
from tests.gateway.sign_in.foreign_provider import BACK, PersonAtProvider, provider_process
from tests.ports import held_port

# The client that stands for the gateway: tokens are for it, and it may ask about them.
AUDIENCE: Final = "moot-gateway"
SECRET: Final = "gateway-secret"
SCOPES: Final = ("openid", "profile", "groups")
TOKEN_SECONDS: Final = 600


@asynccontextmanager
async def canaille_provider(redirect: str = BACK, token_seconds: int = TOKEN_SECONDS) -> AsyncIterator[str]:
    """Its issuer, once it answers."""
    with held_port() as port:
        script = Path(__file__).with_name("canaille_app.py")
        async with provider_process(sys.executable, str(script), str(port), redirect, str(token_seconds)):
            yield f"http://127.0.0.1:{port}"


def oidc_settings(issuer: str) -> dict[str, Json]:
    """The section `gateway.oidc` of a gateway that believes it, as the how-to has it."""
    rule: Json = {"match": {"groups": "staff"}, "participant": "{sub}", "profile": "full", "spaces": ["lab"]}
    settings: dict[str, Json] = {"issuer": issuer, "audience": AUDIENCE, "people": [rule]}
    settings |= {"token_types": ["JWT"]}
    return settings | {"client_id": "console", "scopes": list(SCOPES)}


class PersonAtCanaille(PersonAtProvider):
    """It revokes for programs that have a secret."""

    AUTHORIZE, TOKEN, SCOPES = "oauth/authorize", "oauth/token", SCOPES

    async def revoke(self) -> None:
        status, _ = await self._post("oauth/revoke", {"token": self.access_token})
        assert status == 200
