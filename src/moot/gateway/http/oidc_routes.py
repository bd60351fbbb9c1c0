"""Signing in over HTTP: what a client has to know, and how a session ends.

GET  /oidc                       the providers, for the console and for `moot login`
POST /oidc/sign-out              ends everything that the bearer of a token has signed in for
POST /oidc/backchannel-logout    the provider tells that a session has ended
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from moot.gateway.access import AccessDenied
from moot.gateway.http.http_replies import body_of, denied, json_response
from moot.gateway.http.request_identity import token_of
from moot.gateway.sign_in.provider_keys import ProviderKeys, check_same_security
from moot.gateway.sign_in.sign_in_service import SignInService
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# A logout token in a form: some KiB.
_MAX_BODY_BYTES: Final = 16_384
# What a client that signs in needs of the discovery document.
_ENDPOINTS: Final = (
    "authorization_endpoint",
    "token_endpoint",
    "device_authorization_endpoint",
    "revocation_endpoint",
)
# Those that the console's page asks itself.
_ASKED_BY_PAGE: Final = ("token_endpoint", "revocation_endpoint")
# An origin as it may stand in a policy: nothing that would end it.
_ORIGIN: Final = re.compile(
    r"https?://[A-Za-z0-9.\-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?"
)

RefuseToken = Callable[[AccessDenied, Request], AccessDenied]


class OidcRoutes:
    """The requests about signing in; without a provider there is nothing."""

    def __init__(self, service: SignInService | None, refuse_token: RefuseToken) -> None:
        self._service = service
        self._refuse_token = refuse_token

    def origins(self) -> list[str]:
        """The origins that the console's page asks for tokens."""
        found: dict[str, None] = {}
        for keys in self._service.keys if self._service is not None else ():
            if keys.config.client_id is not None:
                endpoints = _endpoints(keys)
                for address in (endpoints[name] for name in _ASKED_BY_PAGE if name in endpoints):
                    found[_origin(address)] = None
        return list(found)

    async def providers(self, _request: Request) -> Response:
        """Where people sign in; an empty list where they do so with a token alone."""
        found: list[Json] = []
        for keys in self._service.keys if self._service is not None else ():
            config = keys.config
            if config.client_id is None:
                continue
            entry: dict[str, Json] = {
                "issuer": config.issuer,
                "client_id": config.client_id,
                "scopes": list(config.scopes),
            }
            if config.resource is not None:
                entry["resource"] = config.resource
            if config.prompt is not None:
                entry["prompt"] = config.prompt
            entry |= _endpoints(keys)
            if keys.discovered.get("authorization_response_iss_parameter_supported") is True:
                entry["names_issuer"] = True
            modes = keys.discovered.get("response_modes_supported")
            if isinstance(modes, list):
                entry["response_modes"] = [mode for mode in modes if isinstance(mode, str)]
            if config.accept_id_tokens:
                entry["id_tokens"] = True
            found.append(entry)
        return json_response(200, {"providers": found})

    async def sign_out(self, request: Request) -> Response:
        token = token_of(request)
        if self._service is None or not self._service.takes(token):
            return denied(self._refuse_token(AccessDenied(400, "only who signed in can sign out"), request))
        fault = await self._service.sign_out(token)
        if fault is not None:
            return denied(self._refuse_token(fault, request))
        return json_response(200, {"status": "signed out"})

    async def backchannel_logout(self, request: Request) -> Response:
        """OpenID Connect Back-Channel Logout 2.5: a form with a logout token; 200 when it is done."""
        if self._service is None:
            return denied(AccessDenied(404, "nobody signs in at a provider here"))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return denied(AccessDenied(415, "send a form with logout_token"))
        body = await body_of(request, _MAX_BODY_BYTES)
        if body is None:
            return denied(AccessDenied(413, f"a body has at most {_MAX_BODY_BYTES} bytes"))
        given = parse_qs(body.decode("ascii", "replace")).get("logout_token", [])
        if len(given) != 1:
            return denied(AccessDenied(400, "send one logout_token"))
        fault = await self._service.take_logout(given[0])
        if fault is not None:
            return denied(self._refuse_token(fault, request))
        return json_response(200, {"status": "signed out"})


def _endpoints(keys: ProviderKeys) -> dict[str, str]:
    """Addresses of the discovery document; those that are less secure than the issuer's are left out."""
    found: dict[str, str] = {}
    for name in _ENDPOINTS:
        address = keys.discovered.get(name)
        try:
            if not isinstance(address, str) or _ORIGIN.fullmatch(_origin(address)) is None:
                continue
            check_same_security(keys.config.issuer, address)
        except ValueError:
            continue
        found[name] = address
    return found


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
