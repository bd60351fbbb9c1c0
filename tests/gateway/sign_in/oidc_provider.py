"""A provider of OpenID Connect of our own making: whatever token a test asks for, right or wrong.

The certified one of others is in `foreign_provider.py`; it refuses to make wrong tokens.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from moot.protocol.operation import Json

AUDIENCE = "https://moot.example"


class Key:
    """A key pair and its id."""

    def __init__(self, kid: str | None = None) -> None:
        self.kid = kid or uuid.uuid4().hex
        self.private = ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> dict[str, Any]:
        jwk: dict[str, Any] = json.loads(ECAlgorithm.to_jwk(self.private.public_key()))
        return jwk | {"kid": self.kid, "use": "sig", "alg": "ES256"}

    @property
    def public_pem(self) -> bytes:
        return self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )


class Provider:
    """Serves its keys on loopback, counts how often it is asked, and signs what it is told to."""

    def __init__(self) -> None:
        self.keys = [Key()]
        self.is_down = False
        self.fetched = 0
        self.issuer = ""
        self.discovery_issuer: str | None = None
        # Further fields of the discovery document.
        self.discovery: dict[str, Any] = {}
        # Served instead of the keys, or beside them.
        self.raw_keys: bytes | None = None
        self.other_keys: list[Json] = []
        # Tokens that it has taken back, what it was asked about with which credentials, and what it answers.
        self.revoked: set[str] = set()
        self.introspected: list[tuple[str, str]] = []
        self.raw_introspection: bytes | None = None
        self._server: asyncio.Server | None = None

    def rules(self, *rules: Json, **more: Json) -> dict[str, Json]:
        """The section `gateway.oidc` of a gateway that believes this one."""
        people = list(rules) or [person()]
        section = {"issuer": self.issuer, "audience": AUDIENCE, "people": people, "keys_retry_seconds": 0.5}
        return section | {"client_id": "console"} | more

    def token(
        self,
        sub: str = "u-ana",
        *,
        key: Key | None = None,
        header: dict[str, Any] | None = None,
        without: tuple[str, ...] = (),
        seconds: float = 60,
        **claims: Any,
    ) -> str:
        now = time.time()
        answer = {"iss": self.issuer, "sub": sub, "aud": AUDIENCE, "iat": int(now), "exp": now + seconds}
        answer |= {"preferred_username": sub.removeprefix("u-"), "client_id": "console"} | claims
        key = key or self.keys[0]
        head = {"typ": "at+jwt", "kid": key.kid} | (header or {})
        kept = {name: value for name, value in answer.items() if name not in without}
        return jwt.encode(kept, key.private, algorithm="ES256", headers=head)

    def logout_token(self, **claims: Any) -> str:
        event: Json = {"http://schemas.openid.net/event/backchannel-logout": {}}
        now = int(time.time())
        answer = {"iss": self.issuer, "aud": "console", "iat": now, "exp": now + 60, "events": event} | claims
        head = {"typ": "logout+jwt", "kid": self.keys[0].kid}
        return jwt.encode(answer, self.keys[0].private, algorithm="ES256", headers=head)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            if self.is_down:
                return
            if path == "/introspect":
                size = int(head.lower().partition("content-length:")[2].split()[0])
                form = dict(parse_qsl((await reader.readexactly(size)).decode()))
                basic = head.partition("Authorization: Basic ")[2].split()[0]
                self.introspected.append((form["token"], base64.b64decode(basic).decode()))
            if path == "/keys":
                self.fetched += 1
                body: Json = {"keys": [*self.other_keys, *(key.public for key in self.keys)]}
            elif path == "/introspect":
                body = {"active": form["token"] not in self.revoked}
            else:
                issuer = self.discovery_issuer or self.issuer
                body = {"issuer": issuer, "jwks_uri": f"{self.issuer}/keys"}
                body |= {"token_endpoint": f"{self.issuer}/token"}
                body |= {"introspection_endpoint": f"{self.issuer}/introspect"} | self.discovery
            raw = json.dumps(body).encode()
            if path == "/keys" and self.raw_keys is not None:
                raw = self.raw_keys
            if path == "/introspect" and self.raw_introspection is not None:
                raw = self.raw_introspection
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
            writer.write(head.encode() + raw)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def person(**more: Json) -> dict[str, Json]:
    """A rule for everybody whom the provider knows."""
    rule: dict[str, Json] = {"match": {"sub": "*"}, "participant": "{preferred_username}"}
    return rule | {"capabilities": ["chat"], "spaces": ["lab"]} | more


@asynccontextmanager
async def running_provider() -> AsyncIterator[Provider]:
    provider = Provider()
    server = await asyncio.start_server(provider._serve, "127.0.0.1", 0)
    provider.issuer = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield provider
