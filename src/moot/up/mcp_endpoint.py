"""`gateway.mcp`: the gateway's own process serves MCP to the members of a space.

    await gateway.start()
    async with serve_mcp(gateway):
        …

It is what `moot mcp --people` runs, without a port: each member has a connection to the gateway of their own
(within the process), so rights, approvals and the journal are as for everybody else. Tokens that providers
issue for the endpoint are exchanged as there; tokens of the gateway itself are taken as they are.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from moot.bridges.people.people_server import PeopleServer
from moot.bridges.people.people_settings import (
    MAX_SESSIONS_PER_PERSON,
    GrantRefused,
    PersonGrant,
    ResourceDescription,
)
from moot.bridges.people.person_server import PersonSettings
from moot.bridges.space.calls_file import CallsFile
from moot.bridges.space.names_file import NamesFile
from moot.bridges.space.own_tools import RESERVED_NAMES
from moot.bridges.space.pending_calls import FOREVER_SECONDS
from moot.bridges.space.shared_offers import SharedOffers
from moot.bridges.space.space_backend import BackendSettings
from moot.config import hash_token
from moot.config.gateway_config import McpEndpointConfig
from moot.errors import MootError, Refused, ResourceLimit, Unavailable
from moot.gateway.access import AccessDenied, TokenIdentity
from moot.gateway.app import Gateway
from moot.gateway.sign_in.mcp_exchange import McpExchange, McpServerIdentity
from moot.gateway.sign_in.token_verifier import looks_like_jwt
from moot.mcp.downstream.cross_origin import with_cross_origin
from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.limits import McpServerLimits
from moot.offers.offer_table import OfferTable
from moot.participant import ParticipantLimits, connect
from moot.private_files import open_private, read_secret, use_folder
from moot.resilience.task_set import TaskSet

log = logging.getLogger(__name__)

# A token of the gateway is looked up again after this; one that is void ends its connections at once.
_KNOWN_SECONDS: Final = 60.0
# After the server's own member was removed, or lost its rights.
_RETRY_SECONDS: Final = 5.0
_UNAVAILABLE_SECONDS: Final = 2.0


@asynccontextmanager
async def serve_mcp(gateway: Gateway) -> AsyncIterator[None]:
    """Serve all of `gateway.mcp` while the block runs; the gateway runs already."""
    tasks = TaskSet("MCP of the gateway")
    for config in gateway.config.mcp:
        tasks.start(_keep_serving(gateway, config))
    try:
        yield
    finally:
        await tasks.close()


async def _keep_serving(gateway: Gateway, config: McpEndpointConfig) -> None:
    while True:
        try:
            await _serve(gateway, config)
        except (MootError, OSError) as fault:
            log.warning("MCP not served", extra={"space": config.space, "why": str(fault)})
        await asyncio.sleep(_RETRY_SECONDS)


async def _serve(gateway: Gateway, config: McpEndpointConfig) -> None:
    """Serve one endpoint until the space ends the membership of its server; raises NotAdmitted."""
    assert gateway.mounted is not None  # noqa: S101  # the gateway runs
    folder = gateway.config.data / "mcp" / _short_hash(config.space)
    use_folder(folder)
    token = secrets.token_urlsafe(32)
    exchange = LocalExchange(gateway, config)
    table = OfferTable(RESERVED_NAMES)
    names = NamesFile(folder / "names.json", table)
    names.load()
    access = HttpAccessPolicy(
        gateway.addresses.hosts,
        gateway.addresses.origins,
        options=("gateway.allowed_hosts", "gateway.allowed_origins"),
    )
    gateway.directory.own_tokens[hash_token(token)] = (config.space, config.server)
    try:
        async with (
            connect(
                gateway.addresses.own_url,
                config.space,
                token,
                limits=ParticipantLimits(reconnect_seconds=FOREVER_SECONDS),
                open_socket=gateway.open_own,
            ) as own,
            SharedOffers(own, table=table) as shared,
            PeopleServer(
                config.max_people,
                _person_settings(gateway, config, folder, exchange),
                shared,
                exchange,
                access,
            ) as people,
        ):
            shared.asks = lambda each: not people.is_person(each)
            shared.watch(lambda _kinds: names.save())
            gateway.mounted.mount(people.paths, with_cross_origin(people, access.origins))
            try:
                end = await own.stay()
            finally:
                gateway.mounted.mount(people.paths, None)
        log.warning("MCP not served", extra={"space": config.space, "why": end.reason or str(end.code)})
    finally:
        del gateway.directory.own_tokens[hash_token(token)]


def _person_settings(
    gateway: Gateway, config: McpEndpointConfig, folder: Path, exchange: LocalExchange
) -> PersonSettings:
    def calls_file(participant: str) -> CallsFile:
        return CallsFile(folder / f"calls-{_short_hash(participant)}.json")

    return PersonSettings(
        url=gateway.addresses.own_url,
        description=exchange.describe(),
        backend=BackendSettings(console=gateway.addresses.shared_url),
        limits=McpServerLimits(
            decision_seconds=config.decision_seconds, max_sessions=MAX_SESSIONS_PER_PERSON
        ),
        state_secret=_kept_secret(folder / "state.key"),
        calls_file=calls_file,
        open_socket=gateway.open_own,
    )


def _kept_secret(file: Path) -> str:
    """A secret of this endpoint, made at its first start; raises UsageError when others could read it."""
    try:
        return read_secret(file, what="the key of the MCP endpoint").decode()
    except FileNotFoundError:
        made = secrets.token_urlsafe(32)
        with open(file, "x", encoding="ascii", opener=open_private) as written:
            written.write(made)
        return made


def _short_hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


class LocalExchange:
    """Tells whom a token means, in the process of the gateway that knows it."""

    def __init__(self, gateway: Gateway, config: McpEndpointConfig) -> None:
        self._directory = gateway.directory
        self._config = config
        self._resource = f"{gateway.addresses.shared_url}{config.path}"
        self._exchange = None if gateway.sign_in is None else McpExchange(gateway.sign_in, gateway.directory)

    def describe(self) -> ResourceDescription:
        """What the endpoint tells its clients; without a provider, there is only a token to be had."""
        config, server = self._config, self._server()
        if server is None:
            return ResourceDescription(
                space=config.space, resource=self._resource, authorization_servers=[], path=config.path
            )
        return ResourceDescription(**server.describe(), path=config.path)

    async def exchange(self, token: str) -> PersonGrant | GrantRefused:
        """Who a token means; never raises because of the gateway."""
        try:
            if looks_like_jwt(token):
                return await self._exchange_jwt(token)
            return await self._take_own(token)
        except (ResourceLimit, Unavailable) as refusal:
            return GrantRefused(503, refusal.message, _UNAVAILABLE_SECONDS)
        except Refused as refusal:
            return GrantRefused(403, refusal.message)

    async def _take_own(self, token: str) -> PersonGrant | GrantRefused:
        """A token of the gateway itself, static or short-lived: its rights are what it carries."""
        identity = await self._directory.identify_current(self._config.space, token)
        if isinstance(identity, AccessDenied):
            return GrantRefused(identity.status, identity.message, identity.retry_after)
        if identity.token is None:
            return GrantRefused(401, "unknown token")
        return PersonGrant(
            access_token=token,
            expires_in=_KNOWN_SECONDS,
            participant_id=identity.name,
            # Each token has a connection of its own, which ends when the token is void.
            subject=identity.token,
            scope=" ".join(self.describe().scopes),
        )

    async def _exchange_jwt(self, token: str) -> PersonGrant | GrantRefused:
        server = self._server()
        if server is None or self._exchange is None:
            return GrantRefused(401, "no provider issues tokens for this endpoint: see gateway.oidc.mcp")
        made = await self._exchange.exchange(server, token)
        if isinstance(made, AccessDenied):
            return GrantRefused(made.status, made.message, made.retry_after)
        return msgspec.convert(made, PersonGrant)

    def _server(self) -> McpServerIdentity | None:
        """Looked for each time: a reload may have changed what the space is. Raises Unavailable."""
        host = self._directory.space(self._config.space)
        if isinstance(host, AccessDenied):
            raise Unavailable(host.message)
        if self._exchange is None:
            return None
        return self._exchange.own_server(TokenIdentity(host, self._config.server))
