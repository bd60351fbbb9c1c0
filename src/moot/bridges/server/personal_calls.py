"""Calls with an account of one's own: a connection to the server for each person, and none for who has none.

Lists, pins and what the server says about itself come over the connection of the bridge; everything else goes
over the connection of one person, which carries nothing but that person's credential. What cannot be told
apart by person (subscriptions, notifications of members) is not there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Literal

from moot.bridges.server.call_identity import CallIdentity, error_with_identity, identity_of, with_identity
from moot.errors import McpError
from moot.mcp.eras import UNREACHABLE, JsonObject
from moot.mcp.upstream import HttpServer, Upstream, UpstreamOptions, open_upstream
from moot.oauth.exchanged_credential import ExchangedCredential
from moot.oauth.server_credential import ServerCredential
from moot.participant import IncomingRequest, JoinedSpace
from moot.protocol.rpc_codes import INVALID_REQUEST

log = logging.getLogger(__name__)

PersonCredential = ServerCredential | ExchangedCredential
CredentialFor = Callable[[str], PersonCredential]


@dataclass(slots=True)
class _Connection:
    """The connection of one person."""

    upstream: Upstream
    credential: PersonCredential
    stack: AsyncExitStack
    running: int = 0


class PersonalCalls:
    """The people who call one server, each with their own account."""

    def __init__(
        self,
        server: HttpServer,
        options: UpstreamOptions,
        credential_for: CredentialFor,
        *,
        whose: Literal["requester", "approver"],
        max_connections: int,
    ) -> None:
        # A token of the bridge itself is for nobody else.
        headers = {name: value for name, value in server.headers.items() if name.lower() != "authorization"}
        self._server = replace(server, headers=headers)
        self._options = options
        self._credential_for = credential_for
        self._whose = whose
        self._max_connections = max_connections
        # Least recently used first.
        self._open: dict[str, _Connection] = {}

    async def run(
        self,
        request: IncomingRequest,
        space: JoinedSpace,
        forward: Callable[[Upstream, IncomingRequest], Awaitable[JsonObject]],
    ) -> JsonObject:
        """The result, which says whose account was used; raises McpError, also when there is none."""
        identity = await identity_of(request, space, self._whose)
        connection = await self._connect(identity, space)
        connection.running += 1
        log.info(
            "called with an account of a member",
            extra={"server": self._server.label, "participant": identity.person, "as": identity.role},
        )
        try:
            return with_identity(await forward(connection.upstream, request), identity)
        except McpError as fault:
            if connection.credential.waits_for is not None:
                raise _missing(identity, space) from None
            raise error_with_identity(fault, identity) from None
        finally:
            connection.running -= 1

    async def disconnect(self, person: str) -> None:
        """Somebody has another account now, or none: nothing goes on with the old one."""
        connection = self._open.pop(person, None)
        if connection is not None:
            await connection.stack.aclose()

    async def close(self) -> None:
        for person in list(self._open):
            await self.disconnect(person)

    async def _connect(self, identity: CallIdentity, space: JoinedSpace) -> _Connection:
        person = identity.person
        connection = self._open.pop(person, None)
        if connection is not None and not _is_usable(connection.credential):
            # Somebody may have signed in since, at another bridge.
            await connection.stack.aclose()
            connection = self._open.pop(person, None)
        if connection is None:
            credential = self._credential_for(person)
            if not credential.is_there:
                raise _missing(identity, space)
            await self._make_room()
            connection = self._open.pop(person, None) or await self._opened(credential)
        # The last one in order is the latest used.
        self._open[person] = connection
        return connection

    async def _opened(self, credential: PersonCredential) -> _Connection:
        stack = AsyncExitStack()
        server = replace(self._server, auth=credential)
        upstream = await stack.enter_async_context(open_upstream(server, self._options))
        return _Connection(upstream, credential, stack)

    async def _make_room(self) -> None:
        if len(self._open) < self._max_connections:
            return
        idle = next((person for person, each in self._open.items() if not each.running), None)
        if idle is None:
            raise McpError(UNREACHABLE, f"{len(self._open)} people use this server already; try again later")
        await self.disconnect(idle)


def _is_usable(credential: PersonCredential) -> bool:
    return credential.is_there and credential.waits_for is None


def _missing(identity: CallIdentity, space: JoinedSpace) -> McpError:
    text = (
        f"this server is called with the account of the {identity.role}, and {identity.person} has not signed"
        f" in there: {identity.person} can do that with `moot sign-in {space.name}`"
    )
    return McpError(INVALID_REQUEST, text)
