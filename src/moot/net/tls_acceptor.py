"""Accepts connections that speak TLS, and shakes hands with them before HTTP sees them.

Not by `create_server(ssl=…)`: there the context cannot be replaced, and whoever connects and never shakes
hands is counted by nobody for a minute. Here a connection counts from its first moment, has as long for the
handshake as for its headers, and gets the context that is current. Whoever speaks plain HTTP is told so,
in plain HTTP, and let go.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, cast

from moot.net import http_protocol
from moot.net.http_protocol import ConnectionLimiter
from moot.net.server_tls import ServerTls
from moot.resilience.task_set import TaskSet

log = logging.getLogger(__name__)

# Of a client that is told goodbye and says nothing; the loop's own is 30 s.
_SHUTDOWN_SECONDS: Final = 3.0
# Without free file handles nobody can be accepted; asyncio's own servers wait as long.
_NO_HANDLES_SECONDS: Final = 1.0
# Every method of HTTP begins with a letter; a TLS record with its type, a small number (RFC 8446, 5.1).
_LETTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_EXPLANATION: Final = b'{"error":"tls_required","message":"this port speaks TLS: use https:// or wss://"}'
_PLAIN_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_EXPLANATION), _EXPLANATION)
)
# So much of a request is read and thrown away: a socket that is closed with unread bytes loses the answer.
_DISCARDED_BYTES: Final = 65_536
_DISCARD_SECONDS: Final = 1.0


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
            counted = self._limiter.unread(str(address[0]))
            if not self._limiter.acquire(counted):
                accepted.close()
                continue
            protocol = make_protocol()
            protocol.take_over_count(counted)
            self._tasks.start(self._shake_hands(accepted, protocol))

    async def _shake_hands(self, accepted: socket.socket, protocol: CountedProtocol) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + http_protocol.HEADER_SECONDS
        try:
            if not await _speaks_tls(accepted, end):
                protocol.release_count()
                return
            await loop.connect_accepted_socket(
                lambda: cast("asyncio.Protocol", protocol),
                accepted,
                ssl=self.tls.context,
                ssl_handshake_timeout=max(0.001, end - loop.time()),
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, ssl.SSLError):
            # A stranger's: an old version, no certificate of a client, or nothing in time.
            protocol.release_count()
        except asyncio.CancelledError:
            protocol.release_count()
            raise


async def _speaks_tls(accepted: socket.socket, end: float) -> bool:
    """Whether a handshake may begin, which nothing was read of; otherwise the connection is closed.

    Raises OSError, and closes as well, when nothing came until `end`, by the loop's clock.
    """
    try:
        async with asyncio.timeout_at(end):
            first = await _first_byte(accepted)
        if first not in _LETTERS:
            return True
        await _explain(accepted)
    except BaseException:
        accepted.close()
        raise
    accepted.close()
    return False


async def _first_byte(accepted: socket.socket) -> int:
    """What the other side says first, which stays to be read; raises OSError when it hangs up instead."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(accepted, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(accepted)
    first = accepted.recv(1, socket.MSG_PEEK)
    if not first:
        raise ConnectionResetError
    return first[0]


async def _explain(accepted: socket.socket) -> None:
    """Answer a request in plain HTTP; returns when the other side has hung up, or was given time for it."""
    loop = asyncio.get_running_loop()
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            left = _DISCARDED_BYTES - len(await loop.sock_recv(accepted, _DISCARDED_BYTES))
            await loop.sock_sendall(accepted, _PLAIN_ANSWER)
            accepted.shutdown(socket.SHUT_WR)
            while left > 0 and (more := await loop.sock_recv(accepted, left)):
                left -= len(more)
