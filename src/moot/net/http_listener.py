"""Serves an ASGI application on a port of ours: bound first, with connection limits, closed at the end."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from moot.errors import MootError, UsageError
from moot.net.http_protocol import ConnectionLimiter, ConnectionLimits, limited_http_protocol

Application = Callable[[Any, Any, Any], Awaitable[None]]

# Streams that a client keeps open are cut after this when we stop.
_SHUTDOWN_SECONDS = 1
# Connections that wait to be taken; as many as the kernel allows, where that is less.
_BACKLOG = 2048


def bind_socket(host: str, port: int, *, host_name: str = "", port_name: str = "") -> socket.socket:
    """A listening socket; raises an error saying what to try instead, by the names of the settings.

    UsageError for an address that this machine does not have; MootError for one that we do not get, such as
    a port that another program uses: the call was right.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        named = f"{host_name} {host}" if host_name else f"cannot listen on {host}"
        raise UsageError(f"{named}: no such address on this machine. Try 127.0.0.1") from None
    family, kind, protocol, _, address = infos[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # Already here: a port that is bound and not listened to could be bound by another, too.
        listening.listen(_BACKLOG)
    except OSError as fault:
        listening.close()
        named = f" with {port_name}" if port_name else ""
        error = UsageError if fault.errno == errno.EADDRNOTAVAIL else MootError
        raise error(
            f"cannot listen on {host} port {port}: {fault.strerror}. {_advice(fault, named)}"
        ) from fault
    listening.setblocking(False)
    return listening


def _advice(fault: OSError, named: str) -> str:
    match fault.errno:
        case errno.EADDRINUSE:
            return f"Another program uses it: choose another port{named}, or 0 for any that is free"
        case errno.EADDRNOTAVAIL:
            return "This machine has no such address. Try 127.0.0.1"
        case errno.EACCES:
            return f"Ports below 1024 are for the superuser: choose another{named}, such as 8080"
        case _:
            return f"Try another port{named}, or 0 for any that is free"


class HttpListener(uvicorn.Server):
    """uvicorn on a socket of ours, from `listen` to `stop`. It handles no signals: whoever owns it does."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        # uvicorn logs its own start and stop; whoever serves does that better.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        # It warns of every request that is no HTTP: strangers would fill the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._serving: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    async def listen(self, on: socket.socket) -> None:
        """Return once connections are accepted; raises what prevented it."""
        self._serving = asyncio.create_task(self.serve(sockets=[on]))
        up = asyncio.create_task(self._listening.wait())
        await asyncio.wait([up, self._serving], return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._serving.done():
            self._serving.result()

    async def stop(self) -> None:
        """Accept no more connections, close those that are open, and return when all is done."""
        self.should_exit = True
        if self._serving is not None:
            await self._serving

    # Called by uvicorn

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening.set()


@asynccontextmanager
async def serve_http(
    application: Application, listening: socket.socket, *, keep_alive_seconds: int = 60
) -> AsyncIterator[None]:
    """Serve an ASGI application on this socket while the block runs; the socket is closed at the end."""
    config = uvicorn.Config(
        application,
        http=limited_http_protocol(ConnectionLimiter(ConnectionLimits())),
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=keep_alive_seconds,
    )
    listener = HttpListener(config)
    try:
        await listener.listen(listening)
        yield
    finally:
        await listener.stop()
        listening.close()
