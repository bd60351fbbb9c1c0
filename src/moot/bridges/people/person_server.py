"""One person at one client: a member of the space, and the MCP server that their client talks to.

The connection to the space is opened with a token of the gateway that ends with the person's own. A newer
token of theirs renews it; without one the gateway ends the connection. The client's sessions stay until it is
idle: with another token of the same person and client they go on, since many clients know no way back from
an unknown session. Whoever was signed out or removed begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from moot.bridges.people.challenge import insufficient_scope, resource_path
from moot.bridges.people.people_settings import PersonGrant, ResourceDescription, TokenExchange
from moot.bridges.space.calls_file import CallsFile
from moot.bridges.space.late_backend import LateBackend
from moot.bridges.space.own_tools import FIND_TOOL, PARTICIPANTS_TOOL
from moot.bridges.space.pending_calls import FOREVER_SECONDS
from moot.bridges.space.pending_text import STATUS_TOOL
from moot.bridges.space.shared_offers import SharedOffers
from moot.bridges.space.space_backend import BackendSettings, SpaceBackend
from moot.errors import NotAdmitted, Unreachable
from moot.mcp.downstream.http_server import McpHttpServer
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.response_streams import Scope
from moot.mcp.downstream.rpc import Message, RpcRequest
from moot.net.outbound import OpenSocket
from moot.net.websocket_client import ABNORMAL_CLOSE
from moot.participant import JoinedSpace, ParticipantLimits, connect
from moot.protocol.close_codes import POLICY
from moot.space.members.member import load_capabilities

log = logging.getLogger(__name__)

# Tools of ours that change nothing.
_READING_TOOLS: Final = frozenset({PARTICIPANTS_TOOL, FIND_TOOL, STATUS_TOOL})
_ACTING_METHODS: Final = frozenset({"tools/call", "tasks/update", "tasks/cancel"})
_RETRY_SECONDS: Final = 1.0
_RIGHTS_SECONDS: Final = 5.0
# In the ASGI scope of a request: the scopes of its token.
SCOPES: Final = "moot.scopes"
# A gateway that is away is waited for; whoever calls meanwhile is told so.
_CONNECT_SECONDS: Final = 3.0
_LIMITS: Final = ParticipantLimits(
    connect_seconds=_CONNECT_SECONDS, reconnect_seconds=FOREVER_SECONDS, proposal_seconds=FOREVER_SECONDS
)


class PersonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all people of a server have in common."""

    url: str
    description: ResourceDescription
    backend: BackendSettings
    limits: McpServerLimits
    # A secret of the server: what clients send back after a restart is known by it.
    state_secret: str
    # Participant → where their pending calls are kept; None: nowhere.
    calls_file: Callable[[str], CallsFile | None]
    # How to connect, for a server in the gateway's own process.
    open_socket: OpenSocket | None = None


class KnownToken(NamedTuple):
    """What the gateway has said of a token; times are those of the loop."""

    expires_at: float
    scopes: frozenset[str]
    checked_at: float


class PersonServer:
    """Runs in a task of its own, from `run` until the person's token ends or they are let go."""

    def __init__(
        self,
        settings: PersonSettings,
        shared: SharedOffers,
        exchange: TokenExchange,
        grant: PersonGrant,
        token: str,
    ) -> None:
        self.grant = grant
        # Requests at work, event streams too, and when the last one ended.
        self.open_requests = 0
        self.used_at = asyncio.get_running_loop().time()
        # By the hash of each of the person's tokens.
        self.tokens: dict[str, KnownToken] = {}
        self.is_ended = False
        # The task that runs it.
        self.task: asyncio.Task[None] | None = None
        self._expires_at = self.used_at + grant.expires_in
        self._settings = settings
        self._shared = shared
        self._exchange = exchange
        self._token = token
        self._late = LateBackend(settings.url)
        self._joined: JoinedSpace | None = None
        self._http: McpHttpServer | None = None
        self._started = asyncio.Event()
        self._renewed = asyncio.Event()
        # Not set while the space has not told what a wider token carries.
        self._knows_rights = asyncio.Event()
        self._knows_rights.set()

    async def http(self) -> McpHttpServer | None:
        """What answers the person's requests; None if it has ended."""
        await self._started.wait()
        with suppress(TimeoutError):
            # The first request would else be told that the gateway is not there.
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._late.wait_tried()
        with suppress(TimeoutError):
            async with asyncio.timeout(_RIGHTS_SECONDS):
                await self._knows_rights.wait()
        return None if self.is_ended else self._http

    def renew(self, grant: PersonGrant, token: str) -> None:
        """Go on under another token of the same person, if that has more scopes, or as many for longer."""
        now = asyncio.get_running_loop().time()
        before, expires_at = self.grant.scopes, now + grant.expires_in
        is_wider, is_as_wide = grant.scopes > before, grant.scopes == before
        if now < self._expires_at and not is_wider and not (is_as_wide and expires_at > self._expires_at):
            return
        self.grant, self._token, self._expires_at = grant, token, expires_at
        self._renewed.set()
        if self._joined is not None:
            if not is_as_wide:
                self._knows_rights.clear()
            self._joined.renew()

    def is_under(self, token: str) -> bool:
        """Whether the connection is there by this token, and ends with it."""
        return token == self._token

    def set_ended(self) -> None:
        """Nothing is answered any more; whoever waits for the start is told so."""
        self.is_ended = True
        self._started.set()

    def end(self) -> None:
        """Leave the space; whoever comes back gets another server."""
        self.set_ended()
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Be the person in the space until that ends; never raises because of the gateway."""
        late = self._late
        word = "\0".join(("request states", self._settings.state_secret, *self.grant.key))
        try:
            state_key = sha256(word.encode()).hexdigest()[:16]
            async with McpServer(late, self._settings.limits, state_key=state_key) as server:
                path = resource_path(self._settings.description)
                self._http = McpHttpServer(server, None, path=path, check=self.check_message)
                self._started.set()
                try:
                    await self._stay_joined(late)
                finally:
                    self.set_ended()
                    self._http.close()
        finally:
            self.set_ended()

    async def _stay_joined(self, late: LateBackend) -> None:
        loop = asyncio.get_running_loop()
        while True:
            tried_at = loop.time()
            try:
                self._renewed.clear()
                if not await self._join(late):
                    if not await self._wait_renewed():
                        return
                    continue
            except NotAdmitted:
                # The gateway was restarted, and asks who everybody is; or it does not want them any more.
                log.debug("not admitted", extra={"participant": self.grant.participant_id})
            except Unreachable as fault:
                late.report_problem(str(fault))
            await asyncio.sleep(max(0.0, tried_at + _RETRY_SECONDS - loop.time()))
            found = await self._exchange.exchange(self._token)
            if isinstance(found, PersonGrant):
                if found.key != self.grant.key:
                    return
                self.grant = found
            elif found.status < 500:
                if not await self._wait_renewed():
                    return
            else:
                await asyncio.sleep(found.retry_after or _RETRY_SECONDS)

    async def _wait_renewed(self) -> bool:
        """Wait for another token where this one has only expired; False where it was taken back."""
        if asyncio.get_running_loop().time() < self._expires_at:
            return False
        await self._renewed.wait()
        return True

    async def _join(self, late: LateBackend) -> bool:
        """Join and stay; whether to join again, under another token. Raises NotAdmitted and Unreachable."""
        settings, description = self._settings, self._settings.description
        async with (
            connect(
                settings.url,
                description.space,
                lambda: self.grant.access_token,
                limits=_LIMITS,
                echo="unanswered",
                hears="mine",
                open_socket=settings.open_socket,
            ) as joined,
            SpaceBackend(
                joined,
                settings.backend,
                space_name=description.space,
                calls=settings.calls_file(self.grant.participant_id),
                shared=self._shared,
                more_rights=load_capabilities(self.grant.capabilities),
            ) as backend,
        ):
            joined.on("system/welcome", own=True)(lambda _: self._knows_rights.set())
            self._joined = joined
            late.attach(backend, joined.me)
            try:
                end = await joined.stay()
            finally:
                self._joined = None
                self._knows_rights.set()
                late.detach()
        # After a restart the gateway asks who we are. Whoever was shut down, removed or signed out has to
        # come back by themselves.
        return end.code in (POLICY, ABNORMAL_CLOSE)

    def check_message(self, scope: Scope, message: Message) -> None:
        """Raises HttpAccessDenied for a request that the scopes of its token do not allow.

        The gateway holds the same line: what we joined with carries no more than the widest token of this
        person and client. Here the client is told what to sign in for.
        """
        description = self._settings.description
        if (
            description.call_scope is not None
            and description.call_scope not in scope[SCOPES]
            and isinstance(message, RpcRequest)
            and _is_acting(message)
        ):
            raise insufficient_scope(description, description.scopes)


def _is_acting(request: RpcRequest) -> bool:
    if request.method != "tools/call":
        return request.method in _ACTING_METHODS
    name, arguments = request.params.get("name"), request.params.get("arguments")
    if name == STATUS_TOOL and isinstance(arguments, dict):
        return bool(arguments.get("withdraw"))
    return name not in _READING_TOOLS
