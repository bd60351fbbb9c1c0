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
from moot.net.http_protocol import ConnectionLimiter, limited_http_protocol
from moot.net.server_tls import ServerTls, watch_files
from moot.net.tls_acceptor import TlsAcceptor
from moot.resilience.task_set import wait_for_any

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

    def __init__(
        self,
        application: Application,
        limiter: ConnectionLimiter,
        *,
        websockets: Any = "none",
        tls: ServerTls | None = None,
        keep_alive_seconds: int = 15,
    ) -> None:
        """`websockets` is uvicorn's `ws`: a class for connections that are upgraded, or "none"."""
        config = uvicorn.Config(
            application,
            http=limited_http_protocol(limiter),
            ws=websockets,
            interface="asgi3",
            # Nothing here asks how a client got to a proxy, so nobody has to be believed about it.
            proxy_headers=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            timeout_keep_alive=keep_alive_seconds,
        )
        super().__init__(config)
        self._tls = None if tls is None else TlsAcceptor(limiter, tls)
        self._secure: tuple[socket.socket, ...] = ()
        # uvicorn logs its own start and stop; whoever serves does that better.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        # It warns of every request that is no HTTP: strangers would fill the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._serving: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    async def listen(self, on: socket.socket, *, local: socket.socket | None = None) -> None:
        """Return once connections are accepted; raises what prevented it.

        With TLS, `on` speaks that; `local` never does.
        """
        sockets = [] if local is None else [local]
        if self._tls is None:
            sockets.append(on)
        else:
            self._secure = (on,)
        self._serving = asyncio.create_task(self.serve(sockets=sockets))
        await wait_for_any(self._listening.wait(), self._serving)
        if self._serving.done():
            self._serving.result()

    async def connect_own(self) -> socket.socket:
        """One end of a connection to what is served here, for our own process; no TLS."""
        ours, served = _connected_pair()

        def make_own() -> Any:
            protocol = self._make_protocol()
            protocol.is_own = True
            return protocol

        try:
            await asyncio.get_running_loop().connect_accepted_socket(make_own, served)
        except BaseException:
            ours.close()
            served.close()
            raise
        return ours

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
        if self._tls is not None:
            for each in self._secure:
                self._tls.start(each, self._make_protocol)
        self._listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is not None:
            await self._tls.close()
        for each in self._secure:
            each.close()
        await super().shutdown(sockets)

    def _make_protocol(self) -> Any:
        make: Any = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


def _connected_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection; not `socket.socketpair`, since picows sets options of TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        while True:
            served, peer = listening.accept()
            if peer == ours.getsockname():
                break
            # Another program was quicker.
            served.close()
    for each in (ours, served):
        each.setblocking(False)
    return ours, served


@asynccontextmanager
async def serve_http(
    application: Application,
    listening: socket.socket,
    *,
    keep_alive_seconds: int = 60,
    tls: ServerTls | None = None,
    max_per_address: int = 64,
) -> AsyncIterator[None]:
    """Serve an ASGI application on this socket while the block runs; the socket is closed at the end."""
    limiter = ConnectionLimiter(max_per_address=max_per_address)
    listener = HttpListener(application, limiter, tls=tls, keep_alive_seconds=keep_alive_seconds)
    try:
        await listener.listen(listening)
        async with watch_files(tls):
            yield
    finally:
        await listener.stop()
        listening.close()
