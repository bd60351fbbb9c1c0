"""Accepts connections that speak TLS, and shakes hands with them before HTTP sees them.

Not by `create_server(ssl=…)`: there the context cannot be replaced, and whoever connects and never shakes
hands is counted by nobody for a minute. Here a connection counts from its first moment, has as long for the
handshake as for its headers, and gets the context that is current.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol, cast

from moot.net.http_protocol import ConnectionLimiter
from moot.net.server_tls import ServerTls
from moot.resilience.task_set import TaskSet

log = logging.getLogger(__name__)

# Of a client that is told goodbye and says nothing; the loop's own is 30 s.
_SHUTDOWN_SECONDS: Final = 3.0
# Without free file handles nobody can be accepted; asyncio's own servers wait as long.
_NO_HANDLES_SECONDS: Final = 1.0


class CountedProtocol(Protocol):
    """What `limited_http_protocol` makes."""

    def take_over_count(self, address: str) -> None: ...

    def release_count(self) -> None: ...


class TlsAcceptor:
    """Accepts on sockets of ours; `start` for each, `close` at the end."""

    def __init__(self, limiter: ConnectionLimiter, tls: ServerTls) -> None:
        self.tls = tls
        self._limiter = limiter
        self._tasks = TaskSet("TLS")

    def start(self, listening: socket.socket, make_protocol: Callable[[], CountedProtocol]) -> None:
        self._tasks.start(self._accept(listening, make_protocol))

    async def close(self) -> None:
        """Accept no more, and drop whoever is in the middle of a handshake."""
        await self._tasks.close()

    async def _accept(self, listening: socket.socket, make_protocol: Callable[[], CountedProtocol]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionError:
                # It hung up before its turn came.
                continue
            except OSError as fault:
                log.error("no connection can be accepted", extra={"why": fault.strerror})
                await asyncio.sleep(_NO_HANDLES_SECONDS)
                continue
            if not self._limiter.acquire(str(address[0])):
                accepted.close()
                continue
            protocol = make_protocol()
            protocol.take_over_count(str(address[0]))
            self._tasks.start(self._shake_hands(accepted, protocol))

    async def _shake_hands(self, accepted: socket.socket, protocol: CountedProtocol) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: cast("asyncio.Protocol", protocol),
                accepted,
                ssl=self.tls.context,
                ssl_handshake_timeout=self._limiter.limits.header_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, ssl.SSLError):
            # A stranger's: plain HTTP, an old version, no certificate of a client, or nothing in time.
            protocol.release_count()
        except asyncio.CancelledError:
            protocol.release_count()
            raise
