"""A second provider that others wrote (Canaille, from PyPI, built on Authlib), as a process.

It differs from `foreign_provider` in all that providers differ in: tokens of type JWT without client and
`jti`, a list as audience, RS512, no `resource`, no `offline_access`; it revokes and introspects JWTs.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from moot.protocol.operation import Json
from tests.gateway.foreign_provider import provider_process, sign_in_for_code
from tests.ports import held_port
from tests.waiting import HANG_SECONDS

# The client that stands for the gateway: tokens are for it, and it may ask about them.
AUDIENCE: Final = "moot-gateway"
SECRET: Final = "gateway-secret"
SCOPES: Final = ("openid", "profile", "groups")
BACK: Final = "http://127.0.0.1:1/back"
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
    settings |= {"algorithms": ["RS512"], "token_types": ["JWT"]}
    return settings | {"client_id": "console", "scopes": list(SCOPES)}


class PersonAtCanaille:
    """Signs in with a code and PKCE, renews and revokes: as a page, or as a program that has a secret."""

    def __init__(self, issuer: str, client: str = "console", secret: str | None = None) -> None:
        self.issuer = issuer
        self.client = client
        self._secret = secret
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
            "scope": " ".join(SCOPES),
            "state": secrets.token_urlsafe(),
            "nonce": secrets.token_urlsafe(),
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        answer = await sign_in_for_code(f"{self.issuer}/oauth/authorize?{urlencode(asked)}", who)
        assert (answer["state"], answer["iss"]) == (asked["state"], self.issuer)
        form = {"grant_type": "authorization_code", "code": answer["code"], "redirect_uri": BACK}
        return await self._exchange(form | {"code_verifier": verifier})

    async def renew(self) -> int:
        return await self._exchange(
            {"grant_type": "refresh_token", "refresh_token": self.tokens["refresh_token"]}
        )

    async def revoke(self) -> None:
        status, _ = await self._post("revoke", {"token": self.access_token})
        assert status == 200

    async def _exchange(self, form: dict[str, str]) -> int:
        status, body = await self._post("token", form)
        if status == 200:
            self.tokens = body
        return status

    async def _post(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        auth = None if self._secret is None else (self.client, self._secret)
        if auth is None:
            form = form | {"client_id": self.client}
        async with httpx.AsyncClient(timeout=HANG_SECONDS, auth=auth) as http:
            answer = await http.post(f"{self.issuer}/oauth/{path}", data=form)
        return answer.status_code, answer.json()
