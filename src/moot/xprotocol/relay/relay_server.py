"""The relay server: listens on a port, by itself (`moot xp relay`) or inside another program.

async with open_relay(RelaySettings(data=folder, port=0)) as relay:
    relay.url        # ws://127.0.0.1:PORT
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from moot import __version__
from moot.net import outbox
from moot.net.http_listener import HttpListener, bind_socket
from moot.net.http_protocol import ConnectionLimiter
from moot.net.outbox import Outbox, Outgoing
from moot.net.probes import LIVE_PATH, READY_PATH, liveness, readiness
from moot.net.server_tls import ServerTls
from moot.net.upgrade_request import Upgrade, UpgradeRefusal
from moot.net.websocket_server import Handler, ServerSocket, WebSocketServer
from moot.resilience.task_set import TaskSet
from moot.xprotocol.event_store.event_store import EventStore
from moot.xprotocol.relay import relay_settings
from moot.xprotocol.relay.relay import Relay, RelayClientState
from moot.xprotocol.relay.relay_settings import LOOPBACK, RelaySettings
from moot.xprotocol.relay.wire_messages import notice_message

# Between two looks for events that have expired.
PRUNE_SECONDS: Final = 60.0

log = logging.getLogger(__name__)

_GOING_AWAY: Final = 1001
_TRY_AGAIN: Final = 1013
# How long clients have to close their connections.
_CLOSE_SECONDS: Final = 1.0
_NO_PAGE: Final = (404, b'{"error":"this is a relay: connect with a WebSocket"}')


class RelaySocket:
    """One WebSocket of one client."""

    subprotocol: str | None = None
    max_first_bytes: int | None = None

    def __init__(self, server: RelayServer) -> None:
        self._server = server
        self._connection: ServerSocket | None = None
        self._outbox = Outbox(
            "all",
            self._too_slow,
            max_bytes=relay_settings.OUTBOX_BYTES,
            max_messages=relay_settings.OUTBOX_MESSAGES,
        )
        self._client = RelayClientState(self, time.time(), has_rates=server.settings.has_rate_limits)
        self._writable = asyncio.Event()
        self._writable.set()
        self._full_timer: asyncio.TimerHandle | None = None

    # Called by the connection

    def opened(self, connection: ServerSocket) -> None:
        self._connection = connection
        self._outbox.attach(connection)
        self._server.sockets.add(self)
        self._server.relay.add_client(self._client)

    def received(self, data: bytes, binary: bool) -> None:
        if binary:
            self.send(notice_message("invalid: messages are text"))
            self.end(1003, "messages are text")
            return
        self._server.relay.receive(self._client, data, time.time())

    def closed(self) -> None:
        self._server.sockets.discard(self)
        self._stop_full_timer()
        self._outbox.detach()
        self._connection = None
        self._writable.set()
        self._server.relay.remove_client(self._client)

    def full(self) -> None:
        loop = asyncio.get_running_loop()
        self._writable.clear()
        self._outbox.pause(loop.time())
        if self._full_timer is None:
            seconds = outbox.MAX_SECONDS
            # Also without new messages: a client that reads nothing for so long is stuck.
            self._full_timer = loop.call_later(seconds, self._too_slow, f"{seconds:g} s behind")

    def drained(self) -> None:
        self._stop_full_timer()
        self._outbox.resume(asyncio.get_running_loop().time())
        # `resume` may have filled the transport again and called `full`.
        if self._full_timer is None:
            self._writable.set()

    def flush(self) -> None:
        self._server.outgoing.flush()

    # Called by the relay

    def send(self, frame: bytes) -> None:
        self._server.outgoing.send(self._outbox, frame)

    def end(self, code: int, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(code, reason)

    async def ready(self) -> None:
        # One turn of the loop: data is written at its end, and only then can fill the transport.
        await asyncio.sleep(0)
        await self._writable.wait()

    def _too_slow(self, detail: str) -> None:
        log.info("client too slow", extra={"reason": detail})
        self._stop_full_timer()
        self._outbox.detach()
        self._writable.set()
        self.end(_TRY_AGAIN, f"reading too slowly: {detail}")

    def _stop_full_timer(self) -> None:
        if self._full_timer is not None:
            self._full_timer.cancel()
            self._full_timer = None


class RelayServer:
    """A relay that listens. Made by `open_relay`."""

    def __init__(self, settings: RelaySettings, store: EventStore, listener_socket: socket.socket) -> None:
        self.settings = settings
        self.store = store
        self.port: int = listener_socket.getsockname()[1]
        self.addresses = settings.addresses(self.port)
        self.outgoing = Outgoing(asyncio.get_running_loop())
        self._tasks = TaskSet("relay")
        self.relay = Relay(store, self.addresses, self._tasks.start, has_rates=settings.has_rate_limits)
        self.sockets: set[RelaySocket] = set()
        self.connection_limiter = ConnectionLimiter(
            max_per_address=relay_settings.CONNECTIONS_PER_ADDRESS,
            max_connections=relay_settings.MAX_CONNECTIONS,
        )
        self._listener_socket = listener_socket
        self._is_stopping = False
        self._websockets = WebSocketServer(
            self._admit,
            self.connection_limiter.release,
            max_message_bytes=relay_settings.MAX_MESSAGE_BYTES,
        )
        self._tls = None if settings.tls is None else ServerTls(settings.tls)
        self._listener = HttpListener(
            self._serve_http, self.connection_limiter, websockets=self._websockets, tls=self._tls
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{self.settings.scheme}://{host}:{self.port}"

    async def start(self) -> None:
        """Remove expired events and listen."""
        await self._prune()
        self._tasks.start(self._prune_periodically())
        if self._tls is not None:
            self._tasks.start(self._tls.watch())
        await self._listener.listen(self._listener_socket)

    async def stop(self) -> None:
        """Close all connections; accepted events are on disk when this is done."""
        # A client may reconnect before the port is closed.
        self._is_stopping = True
        self._listener.should_exit = True
        with suppress(sqlite3.Error):
            await self.store.wait_committed()
        # One turn, so that the last OKs are sent before the close frames.
        await asyncio.sleep(0)
        for client_socket in list(self.sockets):
            client_socket.end(_GOING_AWAY, "the relay is stopping")
        await self._websockets.wait_closed(_CLOSE_SECONDS)
        await self._tasks.close()
        await self._listener.stop()
        await self._websockets.wait_closed(0)

    async def _prune_periodically(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            await self._prune()

    async def _prune(self) -> None:
        try:
            removed = await self.store.prune()
        except sqlite3.Error as fault:
            # A full disk: events are refused meanwhile; stored ones can still be read.
            log.error("events cannot be pruned", extra={"fault": str(fault)})
            return
        if removed:
            log.info("pruned", extra={"events": removed})

    def _admit(self, upgrade: Upgrade) -> UpgradeRefusal | Handler:
        if self._is_stopping:
            return UpgradeRefusal(503, b'{"error":"the relay is stopping: try again later"}')
        origin = upgrade.headers.get("origin")
        if origin is not None and self.settings.is_local and not _is_local_origin(origin):
            # Any web page in a browser on this machine could connect (D-84); programs send no origin.
            return UpgradeRefusal(403, b'{"error":"this relay does not accept connections from web pages"}')
        if upgrade.path.partition("?")[0] not in self._paths:
            return UpgradeRefusal(404, b'{"error":"the relay is at another path: /"}')
        return RelaySocket(self)

    @property
    def _paths(self) -> frozenset[str]:
        # Behind a proxy the relay may have a path, which the proxy may keep or strip.
        found = {"", "/"}
        for address in self.addresses:
            path = "/" + address.split("/", 3)[3] if address.count("/") > 2 else "/"
            found |= {path, path + "/"}
        return frozenset(found)

    async def _serve_http(self, scope: Any, _receive: Any, send: Any) -> None:
        """Answer browsers and health checks; everything else happens on the WebSocket."""
        if scope["type"] != "http":
            return
        is_read = scope["method"] in ("GET", "HEAD")
        status, body = self._page(scope["path"]) if is_read else _NO_PAGE
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _page(self, path: str) -> tuple[int, bytes]:
        if path == LIVE_PATH:
            return liveness()
        if path == READY_PATH:
            return readiness("stopping" if self._is_stopping else None)
        if path not in ("/", "/health"):
            return _NO_PAGE
        stats = self.store.stats()
        body = {
            "relay": "xp1",
            "version": __version__,
            "status": "ok",
            "connections": len(self.sockets),
            "events": stats.events,
        }
        return 200, orjson.dumps(body)


@asynccontextmanager
async def open_relay(settings: RelaySettings) -> AsyncIterator[RelayServer]:
    """A relay for the length of the block; raises UsageError when it cannot listen or use its data."""
    # Raises before anything is opened.
    settings.addresses(settings.port)
    listener_socket = bind_socket(settings.host, settings.port, port_name="--port")
    try:
        store = EventStore.open(settings.data, settings.max_events)
    except BaseException:
        listener_socket.close()
        raise
    try:
        server = RelayServer(settings, store, listener_socket)
        try:
            await server.start()
            yield server
        finally:
            await server.stop()
    finally:
        listener_socket.close()
        await store.close()


def _is_local_origin(origin: str) -> bool:
    """Whether a page was served by this machine itself."""
    try:
        return (urlsplit(origin).hostname or "") in LOOPBACK
    except ValueError:
        return False
