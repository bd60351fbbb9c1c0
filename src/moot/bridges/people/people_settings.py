"""How an MCP server for many people behaves, and what it is for its clients."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from moot.space.tokens.temporary_tokens import Pairs

PersonKey = tuple[str, str, str]
# Handshake sessions of one person with one client: windows of an editor.
MAX_SESSIONS_PER_PERSON: Final = 16
# The gateway takes no longer ones either.
MAX_TOKEN_CHARS: Final = 8_192


class ResourceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway says that this server is (`gateway.oidc.mcp`, `gateway.mcp`)."""

    space: str
    # RFC 8707: the address that tokens are for.
    resource: str
    # Without any, only tokens of the gateway itself are taken.
    authorization_servers: list[str]
    read_scope: str | None = None
    call_scope: str | None = None
    # Where it is served, if a proxy takes away what stands before that in the address.
    path: str = ""

    @property
    def scopes(self) -> list[str]:
        return [scope for scope in (self.read_scope, self.call_scope) if scope is not None]


class PersonGrant(msgspec.Struct, frozen=True, kw_only=True):
    """Who a token means in the space, and the token with which to join as them."""

    access_token: str
    expires_in: float
    participant_id: str
    # Whose it is at which provider, as a hash; and the client that the person uses.
    subject: str
    client: str = ""
    scope: str = ""
    # Where the scopes allow less: what the person could do with all of them.
    capabilities: Pairs = ()

    @property
    def key(self) -> PersonKey:
        """Whoever shares a connection shares all of this: one person at one client."""
        return self.participant_id, self.subject, self.client

    @property
    def scopes(self) -> frozenset[str]:
        return frozenset(self.scope.split())


class GrantRefused(msgspec.Struct, frozen=True):
    """Why a token means nobody: an HTTP status, and what to do."""

    status: int
    message: str
    retry_after: float | None = None


class TokenExchange(Protocol):
    """Who tells whom a token means: the gateway, asked over HTTP or in the same process."""

    async def exchange(self, token: str) -> PersonGrant | GrantRefused:
        """Who a token means; never raises because of the gateway."""
