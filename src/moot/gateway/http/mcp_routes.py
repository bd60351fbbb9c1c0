"""What an MCP server for many people asks the gateway, with its own token.

GET  /oidc/mcp      what it tells its clients: its address, the providers, the scopes
POST /oidc/token    a token of the space for that of a person (RFC 8693, token exchange)
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

from moot.errors import Refused, ResourceLimit, Unavailable
from moot.gateway.access import AccessDenied, bearer
from moot.gateway.http.http_replies import body_of, denied, json_response
from moot.gateway.http.oidc_routes import RefuseToken
from moot.gateway.http.request_identity import address_of
from moot.gateway.sign_in.mcp_exchange import ACCESS_TOKEN_TYPE, McpExchange, McpServerIdentity

_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
# A token of 8 KiB in a form.
_MAX_BODY_BYTES: Final = 16_384
# RFC 6749, 5.2 and 4.1.2.1: how a status of ours is called there, and the status that goes with it.
_ERRORS: Final = {401: (400, "invalid_grant"), 403: (403, "access_denied")}
_TRY_AGAIN: Final = (503, "temporarily_unavailable")


class McpRoutes:
    """The requests of MCP servers; without a provider there is nothing."""

    def __init__(self, exchange: McpExchange | None, refuse_token: RefuseToken) -> None:
        self._exchange = exchange
        self._refuse_token = refuse_token

    async def describe(self, request: Request) -> Response:
        server = await self._server(request)
        if isinstance(server, AccessDenied):
            return denied(self._refuse_token(server, request))
        return json_response(200, server.describe())

    async def token(self, request: Request) -> Response:
        server = await self._server(request)
        if isinstance(server, AccessDenied):
            return denied(self._refuse_token(server, request))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return _error(400, "invalid_request", "send a form")
        body = await body_of(request, _MAX_BODY_BYTES)
        if body is None:
            return _error(400, "invalid_request", f"a body has at most {_MAX_BODY_BYTES} bytes")
        form = parse_qs(body.decode("ascii", "replace"), max_num_fields=16)
        if form.get("grant_type") != [_GRANT]:
            return _error(400, "unsupported_grant_type", f"grant_type has to be {_GRANT}")
        given = form.get("subject_token", [])
        if len(given) != 1 or form.get("subject_token_type") != [ACCESS_TOKEN_TYPE]:
            return _error(400, "invalid_request", f"send one subject_token of the type {ACCESS_TOKEN_TYPE}")
        # Again: it may be void by the time that the whole body is here.
        server = await self._server(request)
        if isinstance(server, AccessDenied) and server.status >= 500:
            # It is not served here any more: the token may be as good as before.
            return denied(server)
        if isinstance(server, AccessDenied) or self._exchange is None:
            return denied(AccessDenied(401, "the MCP server's own token is void"))
        try:
            made = await self._exchange.exchange(server, given[0])
        except (ResourceLimit, Unavailable) as refusal:
            return _error(*_TRY_AGAIN, refusal.message)
        except Refused as refusal:
            return _error(403, "access_denied", refusal.message)
        if isinstance(made, AccessDenied):
            # Not counted as a wrong token of this address: it is the server's, and the guess a stranger's.
            response = _error(*_ERRORS.get(made.status, _TRY_AGAIN), made.message)
            response.headers.update(made.headers if made.retry_after is not None else {})
            return response
        return json_response(200, made)

    async def _server(self, request: Request) -> McpServerIdentity | AccessDenied:
        if self._exchange is None:
            return AccessDenied(404, "nobody signs in at a provider here")
        space = request.query_params.get("space")
        token = bearer(request.headers.get("authorization"))
        return await self._exchange.server_of(space, token, address_of(request))


def _error(status: int, error: str, description: str) -> Response:
    return json_response(status, {"error": error, "error_description": description})
