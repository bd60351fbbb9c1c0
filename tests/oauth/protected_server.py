"""An MCP server behind OAuth, built with the official SDK, in this process."""

from __future__ import annotations

import socket
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from moot.net.http_listener import bind_socket, serve_http

# Who a token belongs to, for this server; None: it is refused.
Verify = Callable[[str, str], AccessToken | None]


@dataclass
class ProtectedServer:
    """Its address, and the tokens that it saw."""

    url: str
    seen: list[str] = field(default_factory=list)
    # The people whose calls it ran.
    callers: list[str] = field(default_factory=list)


@dataclass
class _Verifier:
    served: ProtectedServer
    verify: Verify

    async def verify_token(self, token: str) -> AccessToken | None:
        self.served.seen.append(token)
        return self.verify(token, self.served.url)


@asynccontextmanager
async def protected_server(
    issuer: str, verify: Verify, *, scope: str = "tools", on: socket.socket | None = None
) -> AsyncIterator[ProtectedServer]:
    """A server with one tool, `whoami`, that says whose token came with the call."""
    listening = on or bind_socket("127.0.0.1", 0)
    served = ProtectedServer(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(served.url),
        required_scopes=[scope],
        validate_token_resource=True,
    )
    server = MCPServer("protected", token_verifier=_Verifier(served, verify), auth=auth)

    @server.tool()
    def whoami() -> str:
        """Say who calls."""
        token = get_access_token()
        assert token is not None
        served.callers.append(token.subject or token.client_id)
        return served.callers[-1]

    app = server.streamable_http_app()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        async with app.router.lifespan_context(app), serve_http(app, listening):
            yield served
