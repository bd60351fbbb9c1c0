"""Tokens of people for an MCP server, exchanged for tokens of the space (RFC 8693).

An MCP client signs its person in for the address of the MCP server, and sends that token there. The server
joins the space as that person, but never with that token: it brings it here, and gets a token of the gateway
that admits one member to one space, ends with the other, and carries what its scopes allow. A token for the
MCP server opens nothing at the gateway itself, and a token for the gateway opens nothing at the MCP server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from moot.config.oidc_config import McpResource
from moot.gateway.access import AccessDenied, SpaceDirectory, TokenIdentity
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.sign_in.sign_in_facts import is_signed_out
from moot.gateway.sign_in.sign_in_service import SignInService
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, covered_by, read_capabilities
from moot.space.config import Name
from moot.space.members.member import capability_pairs, load_capabilities
from moot.space.tokens.temporary_tokens import Pairs

ACCESS_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"
# What a token without `call_scope` may ask of members.
_READING: Final = read_capabilities(
    [
        {"kind": "mcp/request", "payload": {"method": method}}
        for method in (
            "tools/list",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "tasks/get",
        )
    ],
    place="mew",
)


class McpExchange:
    """Exchanges tokens for the MCP servers of one gateway."""

    def __init__(self, service: SignInService, directory: SpaceDirectory) -> None:
        self._service = service
        self._directory = directory

    async def server_of(
        self, space: str | None, token: str | None, address: str
    ) -> McpServerIdentity | AccessDenied:
        """Which MCP server asks, by its own token in its space."""
        if not token:
            return AccessDenied(401, "the MCP server needs its own token: send Authorization: Bearer …")
        identity = await self._directory.identify_current(space, token, address)
        if isinstance(identity, AccessDenied):
            return identity
        found = self._entries(identity)
        # What this member can do at all, not what some token of theirs was given.
        is_whole = (
            identity.token is not None and identity.host.space.state.token_limit(identity.token) is None
        )
        if not found or not is_whole:
            return AccessDenied(
                403, f"{identity.name} is no MCP server for many people here: see gateway.oidc.mcp"
            )
        return McpServerIdentity(identity, found)

    def own_server(self, identity: TokenIdentity) -> McpServerIdentity | None:
        """An MCP server in the gateway's own process, if providers issue tokens for it."""
        found = self._entries(identity)
        return McpServerIdentity(identity, found) if found else None

    def _entries(self, identity: TokenIdentity) -> dict[str, McpResource]:
        return {
            provider.issuer: entry
            for provider in (keys.config for keys in self._service.keys)
            for entry in provider.mcp
            if (entry.space, entry.server) == (identity.host.name, identity.name)
        }

    async def exchange(self, server: McpServerIdentity, token: str) -> dict[str, Json] | AccessDenied:
        """A token of the space for the person of this one, shown once; raises Refused."""
        found = self._service.verify_for(token, lambda provider: server.audiences(provider.issuer))
        if isinstance(found, AccessDenied):
            return found
        entry = server.entries[found.provider.issuer]
        granted = [scope for scope in entry.scopes if scope in scopes_in(found.claims)]
        host, fresh = server.identity.host, FreshMint().token()
        sign_in = self._service.map(host, found, fresh.hash)
        if isinstance(sign_in, AccessDenied):
            # A client signs in again for 401 alone.
            return AccessDenied(401, sign_in.message) if is_signed_out(host, found) else sign_in
        could: Pairs = ()
        if entry.call_scope is not None and entry.call_scope not in granted:
            held = _rights_of(host, sign_in.token.member, sign_in.capabilities)
            could, limit = capability_pairs(held), capability_pairs(_only_reading(held))
            token_limited = msgspec.structs.replace(sign_in.token, limited_to=limit)
            sign_in = msgspec.structs.replace(sign_in, token=token_limited)
        details = sign_in.details | {"by": server.identity.name, "resource": entry.resource}
        sign_in = msgspec.structs.replace(sign_in, details=details)
        await host.rights.sign_in_applied(sign_in)
        self._service.remember(fresh.hash, token, found)
        return {
            "access_token": fresh.secret,
            "issued_token_type": ACCESS_TOKEN_TYPE,
            "token_type": "Bearer",
            "expires_in": max(1, int(self._service.seconds_left(found))),
            "scope": " ".join(granted),
            "participant_id": sign_in.token.member,
            # Whose it is and which client asks, for who keeps people apart.
            "subject": sign_in.subject,
            "client": sign_in.token.client,
            "capabilities": list(could),
        }


class McpServerIdentity(msgspec.Struct, frozen=True):
    """An MCP server that has shown its own token."""

    identity: TokenIdentity
    # Issuer → what that provider issues tokens for.
    entries: Mapping[str, McpResource]

    @property
    def entry(self) -> McpResource:
        return next(iter(self.entries.values()))

    def audiences(self, issuer: str) -> Sequence[str]:
        entry = self.entries.get(issuer)
        return () if entry is None else entry.audiences

    def describe(self) -> dict[str, Json]:
        """What the server tells its clients (RFC 9728)."""
        return {
            "space": self.entry.space,
            "resource": self.entry.resource,
            "authorization_servers": list(self.entries),
            "read_scope": self.entry.read_scope,
            "call_scope": self.entry.call_scope,
        }


def scopes_in(claims: Mapping[str, Any]) -> frozenset[str]:
    """The scopes of a token: `scope` (RFC 9068), or `scp` as Entra and Okta write it."""
    found: set[str] = set()
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            found |= set(value.split(" "))
        elif isinstance(value, list):
            found |= {each for each in value if isinstance(each, str)}
    return frozenset(found - {""})


def _rights_of(host: SpaceHost, name: Name, mapped: Pairs | None) -> list[Capability]:
    member = host.space.state.roster.members.get(name)
    held = [] if member is None else [*member.common, *member.granted]
    return [*held, *(() if mapped is None else load_capabilities(mapped))]


def _only_reading(held: Iterable[Capability]) -> list[Capability]:
    """Reading as a whole, for who may do all of it, and those rights that are nothing but reading."""
    return [*_READING, *(right for right in held if covered_by(right, _READING))]
