"""A provider of OAuth in this process, which does as a test says, wrong things included.

The certified one of others is in `tests/gateway/sign_in/foreign_provider.py`.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moot.net.http_listener import bind_socket, serve_http


@dataclass
class IssuedToken:
    """An access token, and whether the server still takes it."""

    subject: str
    resource: str
    scopes: list[str]
    is_valid: bool = True


@dataclass
class OAuthProvider:
    """Issues tokens to whoever asks properly."""

    issuer: str
    # Fields of its metadata that differ; None: the field is not there.
    metadata: dict[str, Any] = field(default_factory=dict)
    token_seconds: float = 3600
    rotates: bool = True
    is_down: bool = False
    # Set while the token endpoint may answer.
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    tokens: dict[str, IssuedToken] = field(default_factory=dict)
    refresh_tokens: dict[str, tuple[str, str, list[str]]] = field(default_factory=dict)
    codes: dict[str, tuple[dict[str, str], str]] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    registered: list[dict[str, Any]] = field(default_factory=list)
    token_requests: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        whole = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": ["tools", "admin", "offline_access"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
        }
        return {name: value for name, value in (whole | self.metadata).items() if value is not None}

    def sign_in(self, link: str, who: str, **changed: str) -> dict[str, str]:
        """What a person does with a link in a browser; what the provider sends back with them."""
        asked = dict(parse_qsl(urlsplit(link).query))
        assert link.startswith(f"{self.issuer}/authorize?")
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = uuid.uuid4().hex
        self.codes[code] = (asked, who)
        return {"code": code, "state": asked["state"], "iss": self.issuer} | changed

    def issue(self, who: str, resource: str, scopes: list[str]) -> dict[str, Any]:
        token, refresh = f"access-{uuid.uuid4().hex}", f"refresh-{uuid.uuid4().hex}"
        self.tokens[token] = IssuedToken(who, resource, scopes)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.token_seconds}
        answer["scope"] = " ".join(scopes)
        if "offline_access" in scopes:
            self.refresh_tokens[refresh] = (who, resource, scopes)
            answer["refresh_token"] = refresh
        return answer

    def end_tokens(self) -> None:
        for each in self.tokens.values():
            each.is_valid = False

    # Its endpoints

    async def answer(self, request: Request) -> Response:
        self.paths.append(request.url.path)
        if self.is_down:
            return Response(status_code=503)
        match request.url.path:
            case "/token":
                form = dict(parse_qsl((await request.body()).decode()))
                self.token_requests.append(form)
                await self.may_answer.wait()
                return self._token(form, request.headers.get("authorization"))
            case "/register":
                asked = await request.json()
                self.registered.append(asked)
                return JSONResponse({**asked, "client_id": f"client-{len(self.registered)}"}, 201)
            case path if path.startswith(
                ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
            ):
                return JSONResponse(self.document())
        return Response(status_code=404)

    def _token(self, form: dict[str, str], basic: str | None) -> Response:
        def refused(error: str) -> Response:
            # As some do: they repeat what they were given.
            return JSONResponse(
                {"error": error, "error_description": f"{error} {' '.join(form.values())}"}, 400
            )

        resource = form.get("resource", "")
        match form["grant_type"]:
            case "authorization_code":
                asked, who = self.codes.pop(form["code"], ({}, ""))
                digest = sha256(form["code_verifier"].encode()).digest()
                challenge = urlsafe_b64encode(digest).rstrip(b"=").decode()
                same = all(
                    asked.get(each) == form.get(each) for each in ("client_id", "redirect_uri", "resource")
                )
                if challenge != asked.get("code_challenge") or not same:
                    return refused("invalid_grant")
                return JSONResponse(self.issue(who, resource, asked.get("scope", "").split()))
            case "refresh_token":
                found = self.refresh_tokens.get(form["refresh_token"])
                if found is None or found[1] != resource:
                    return refused("invalid_grant")
                if self.rotates:
                    del self.refresh_tokens[form["refresh_token"]]
                return JSONResponse(self.issue(*found))
            case "client_credentials":
                if basic is None or basic.removeprefix("Basic ") not in self.secrets:
                    return JSONResponse({"error": "invalid_client"}, 401)
                who = self.secrets[basic.removeprefix("Basic ")]
                return JSONResponse(self.issue(who, resource, form.get("scope", "").split()))
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                subject = self.tokens.get(form["subject_token"])
                if subject is None or not subject.is_valid or subject.resource:
                    return refused("invalid_request")
                return JSONResponse(self.issue(subject.subject, resource, form.get("scope", "").split()))
        return refused("unsupported_grant_type")


@asynccontextmanager
async def oauth_provider(**settings: Any) -> AsyncIterator[OAuthProvider]:
    listening = bind_socket("127.0.0.1", 0)
    provider = OAuthProvider(f"http://127.0.0.1:{listening.getsockname()[1]}", **settings)
    provider.may_answer.set()
    routes = [Route("/{path:path}", provider.answer, methods=["GET", "POST"])]
    async with serve_http(Starlette(routes=routes), listening):
        yield provider


def text_of(result: dict[str, Any]) -> str:
    """The text of a tool's result."""
    return str(result["content"][0]["text"]) if "content" in result else json.dumps(result)
