"""Callers: each is a participant of the space, with a connection of its own.

The bearer token of a request is a participant's token. The gateway says whose it is, and what it may do; so a
caller has exactly the rights of its participant, shows up in the space, and can be paused or removed there.
Tokens are kept in memory only, as long as the connection.

The gateway is always asked about a token: whoever has a right one is served, whatever others sent from the
same address. Only what a wrong token gets is limited, and how many are tried at once: others wait their turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from moot.agents.a2a.a2a_settings import ServeSettings
from moot.errors import MootError, NotAdmitted, Unreachable
from moot.net.counted_address import network_of
from moot.participant import JoinedSpace, connect, member_session
from moot.protocol.close_codes import POLICY, REMOVED
from moot.resilience.rate_limits import sliding_windows
from moot.resilience.task_set import TaskSet

# How long a caller without open tasks stays connected.
IDLE_SECONDS: Final = 600.0
# Of one caller; streams count. More than its open tasks need.
MAX_REQUESTS_AT_ONCE: Final = 32

log = logging.getLogger(__name__)

# Of one address, those that are told why; further ones get 429. As many as a gateway tells.
MAX_WRONG_TOKENS_PER_MINUTE: Final = 60
# Connected at once: each has a connection to the gateway.
MAX_CALLERS: Final = 100
# Addresses and tokens whose rate is remembered.
MAX_ADDRESSES: Final = 10_000
_MAX_TOKEN_CHARS: Final = 4_096
_LOOK_SECONDS: Final = 5.0
# Tokens that the gateway is asked about at once; each question is a connection to it.
_MAX_ATTEMPTS: Final = 16


class CallerDenied(MootError):
    """Why a request is not served, as an HTTP status."""

    def __init__(self, status: int, text: str, *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


@dataclass(slots=True, eq=False)
class Caller:
    """One caller, while it is connected."""

    name: str
    space: JoinedSpace
    # Requests that are served at the moment, and when the last one ended.
    at_once: int = 0
    last_used: float = 0.0
    # Set when it is in the space no more: nothing of it is served any longer.
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _CallerConnection:
    ready: asyncio.Future[Caller]
    leave: asyncio.Event = field(default_factory=asyncio.Event)


class Callers:
    """All callers. `close` them at the end."""

    def __init__(self, settings: ServeSettings, own_name: str) -> None:
        self._settings = settings
        self._refused_names = {own_name, *settings.members}
        self._connections: dict[str, _CallerConnection] = {}
        self._tasks = TaskSet("callers")
        self._wrong_tokens = sliding_windows(MAX_WRONG_TOKENS_PER_MINUTE, 60.0, max_keys=MAX_ADDRESSES)
        self._attempts = asyncio.Semaphore(_MAX_ATTEMPTS)
        self._admitted = 0
        self._requests = sliding_windows(settings.max_requests_per_minute, 60.0, max_keys=MAX_ADDRESSES)
        # Whether a caller has something open; set by whoever knows.
        self.has_open_tasks: Callable[[str], bool] = lambda _: False
        # Told of a caller that was removed from the space, or whose token was.
        self.on_removed: Callable[[str], None] = lambda _: None

    async def close(self) -> None:
        for each in self._connections.values():
            each.leave.set()
        await self._tasks.wait(member_session.LEAVE_SECONDS + 1.0)
        await self._tasks.close()

    async def admit(self, token: str, address: str) -> Caller:
        """Who this is; raises CallerDenied."""
        if not token or len(token) > _MAX_TOKEN_CHARS or not token.isascii() or not token.isprintable():
            raise CallerDenied(401, "give the token of a participant: Authorization: Bearer TOKEN")
        digest = hashlib.sha256(token.encode()).hexdigest()
        connection = self._connections.get(digest)
        if connection is None:
            connection = _CallerConnection(asyncio.get_running_loop().create_future())
            self._connections[digest] = connection
            self._tasks.start(self._hold(digest, connection, token))
        try:
            caller = await asyncio.shield(connection.ready)
        except CallerDenied as fault:
            raise self._count_wrong(fault, address) from None
        if wait := self._requests.take(digest, time.monotonic()):
            raise CallerDenied(429, "too many requests (max_requests_per_minute)", retry_after_seconds=wait)
        if caller.at_once >= MAX_REQUESTS_AT_ONCE:
            raise CallerDenied(429, "too many requests at once", retry_after_seconds=1.0)
        return caller

    def _count_wrong(self, fault: CallerDenied, address: str) -> CallerDenied:
        """What to answer to a refused token."""
        wait = 0.0
        if fault.status in (401, 403):
            wait = self._wrong_tokens.take(network_of(address), time.monotonic())
        if not wait:
            return CallerDenied(fault.status, str(fault), retry_after_seconds=fault.retry_after_seconds)
        text = "too many wrong tokens: try again later"
        return CallerDenied(429, text, retry_after_seconds=wait)

    async def _hold(self, digest: str, connection: _CallerConnection, token: str) -> None:
        """One connection, from its beginning to its end."""
        settings, ready = self._settings, connection.ready
        try:
            async with AsyncExitStack() as stack:
                async with self._attempts:
                    space = await stack.enter_async_context(
                        connect(settings.gateway, settings.space, token, limits=settings.member)
                    )
                if space.name in self._refused_names:
                    raise CallerDenied(403, "this token is of a member that is published, or of this service")
                if self._admitted >= MAX_CALLERS:
                    raise CallerDenied(503, f"{MAX_CALLERS} callers are connected: later")
                caller = Caller(space.name, space, last_used=time.monotonic())
                log.info("a caller joined", extra={"participant": space.name})
                self._admitted += 1
                ready.set_result(caller)
                try:
                    await self._stay(caller, connection)
                finally:
                    self._admitted -= 1
                    caller.ended.set()
        except CallerDenied as fault:
            self._refuse(ready, fault)
        except NotAdmitted as fault:
            status = fault.status if fault.status in (401, 403, 429) else 401
            self._refuse(
                ready, CallerDenied(status, "the token does not admit to the space", retry_after_seconds=1)
            )
        except (Unreachable, MootError) as fault:
            log.warning("a caller cannot join", extra={"why": str(fault)})
            self._refuse(ready, CallerDenied(503, "the space cannot be reached: try again later"))
        finally:
            del self._connections[digest]
            self._refuse(ready, CallerDenied(503, "this service is stopping"))

    async def _stay(self, caller: Caller, connection: _CallerConnection) -> None:
        ended = asyncio.ensure_future(caller.space.stay())
        leave = asyncio.ensure_future(connection.leave.wait())
        try:
            while True:
                await asyncio.wait([ended, leave], timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                idle = time.monotonic() - caller.last_used
                if ended.done() and ended.result().code in (REMOVED, POLICY):
                    self.on_removed(caller.name)
                if ended.done() or leave.done():
                    return
                if idle > IDLE_SECONDS and not caller.at_once and not self.has_open_tasks(caller.name):
                    return
        finally:
            ended.cancel()
            leave.cancel()

    def _refuse(self, ready: asyncio.Future[Caller], fault: CallerDenied) -> None:
        if not ready.done():
            ready.set_exception(fault)
            # Whoever waited has gone, perhaps.
            ready.exception()
