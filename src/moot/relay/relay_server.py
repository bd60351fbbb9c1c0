"""A relay on a port, from start to stop: by itself (`moot xp relay`) or inside another program.

async with running_relay(RelaySettings(data=folder, port=0)) as relay:
    relay.url        # ws://127.0.0.1:PORT
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import uvicorn

from moot import __version__
from moot.net.http_listener import HttpListener, bind_socket
from moot.net.http_protocol import ConnectionLimiter, limited_http_protocol
from moot.net.outbox import Outbox, Outgoing
from moot.net.probes import LIVE_PATH, READY_PATH, liveness, readiness
from moot.net.websocket_server import Handler, ServerSocket, Upgrade, UpgradeRefusal, server_protocol
from moot.relay.relay import Relay, RelayClientState
from moot.relay.relay_settings import LOOPBACK, RelaySettings
from moot.relay.wire_messages import notice_message
from moot.store.event_store import EventStore

log = logging.getLogger(__name__)

_GOING_AWAY: Final = 1001
_TRY_AGAIN: Final = 1013
# Clients are told within this; then what they sent is on disk, and the store is closed.
_GOODBYE_SECONDS: Final = 1.0
_NO_PAGE: Final = (404, b'{"error":"this is a relay: connect with a WebSocket"}')


class RelaySocket:
    """One WebSocket of one client."""

    subprotocol: str | None = None

    def __init__(self, server: RelayServer) -> None:
        self._server = server
        self._connection: ServerSocket | None = None
        self._outbox = Outbox("all", server.settings.outbox, self._too_slow)
        self._client = RelayClientState(self, server.settings.limits, time.time())
        self._room = asyncio.Event()
        self._room.set()
        self._full_timer: asyncio.TimerHandle | None = None

    # What the connection calls

    def opened(self, connection: ServerSocket) -> None:
        self._connection = connection
        self._outbox.attach(connection)
        self._server.sockets.add(self)
        self._server.relay.enter(self._client)

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
        self._room.set()
        self._server.relay.leave(self._client)

    def full(self) -> None:
        loop = asyncio.get_running_loop()
        self._room.clear()
        self._outbox.pause(loop.time())
        if self._full_timer is None:
            seconds = self._server.settings.outbox.seconds
            # Also when nothing more is said: whoever took nothing for so long is stuck.
            self._full_timer = loop.call_later(
                seconds, self._too_slow, f"{seconds:g} s behind, the most that outbox_seconds allows"
            )

    def drained(self) -> None:
        self._stop_full_timer()
        self._outbox.resume(asyncio.get_running_loop().time())
        # `resume` may have filled the transport anew, and then `full` was called from within.
        if self._full_timer is None:
            self._room.set()

    def flush(self) -> None:
        self._server.outgoing.flush()

    # What the relay calls

    def send(self, frame: bytes) -> None:
        self._server.outgoing.send(self._outbox, frame)

    def end(self, code: int, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(code, reason)

    def cut(self) -> None:
        """Whoever does not answer the goodbye is not waited for."""
        if self._connection is not None:
            self._connection._drop()

    async def ready(self) -> None:
        # One turn of the loop: what was sent leaves at its end, and only then is known to fill the transport.
        await asyncio.sleep(0)
        await self._room.wait()

    def _too_slow(self, how_far: str) -> None:
        log.info("slow", extra={"behind": how_far})
        self._stop_full_timer()
        self._outbox.detach()
        self._room.set()
        self.end(_TRY_AGAIN, f"reading too slowly: {how_far}")

    def _stop_full_timer(self) -> None:
        if self._full_timer is not None:
            self._full_timer.cancel()
            self._full_timer = None


class RelayServer:
    """A relay that listens. Made by `running_relay`."""

    def __init__(self, settings: RelaySettings, store: EventStore, listening: socket.socket) -> None:
        self.settings = settings
        self.store = store
        self.port: int = listening.getsockname()[1]
        self.addresses = settings.addresses(self.port)
        self.outgoing = Outgoing(asyncio.get_running_loop())
        self.relay = Relay(store, settings.limits, self.addresses, self._start)
        self.sockets: set[RelaySocket] = set()
        self.door = ConnectionLimiter(settings.door)
        self._listening = listening
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        config = uvicorn.Config(
            self._http,
            http=limited_http_protocol(self.door),
            ws=server_protocol(self._admit, settings.sockets, self.door.release),  # type: ignore[arg-type]
            interface="asgi3",
            proxy_headers=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=15,
        )
        self._listener = HttpListener(config)

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"ws://{host}:{self.port}"

    async def start(self) -> None:
        """Listen, with nothing in the store whose time is over."""
        await self._prune()
        self._start(self._prune_again())
        await self._listener.listen(self._listening)

    async def stop(self) -> None:
        """Tell clients, close sockets; what was taken is on disk when this is done."""
        # Whoever is told to go may be back before the port is closed, and would stay with nobody behind it.
        self._is_stopping = True
        self._listener.should_exit = True
        with suppress(sqlite3.Error):
            await self.store.committed()
        # One turn, so that the last OKs go out before the goodbye.
        await asyncio.sleep(0)
        for one in list(self.sockets):
            one.end(_GOING_AWAY, "the relay is stopping")
        deadline = asyncio.get_running_loop().time() + _GOODBYE_SECONDS
        while self.sockets and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for one in list(self.sockets):
            one.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.stop()
        for one in list(self.sockets):
            one.cut()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that ends with this server at the latest."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("a task of the relay failed", exc_info=fault)

    async def _prune_again(self) -> None:
        while True:
            await asyncio.sleep(self.settings.prune_seconds)
            await self._prune()

    async def _prune(self) -> None:
        try:
            removed = await self.store.prune()
        except sqlite3.Error as fault:
            # A full disk: events are refused meanwhile, and what is stored can still be read.
            log.error("events cannot be pruned", extra={"fault": str(fault)})
            return
        if removed:
            log.info("pruned", extra={"events": removed})

    def _admit(self, upgrade: Upgrade) -> UpgradeRefusal | Handler:
        if self._is_stopping:
            return UpgradeRefusal(503, b'{"error":"the relay is stopping: come back later"}')
        origin = upgrade.headers.get("origin")
        if origin is not None and self.settings.is_local and not _is_local_origin(origin):
            # Any page in a browser on this machine can reach it here (D-84); programs send no origin.
            return UpgradeRefusal(
                403, b'{"error":"this relay is for programs on this machine, not for web pages"}'
            )
        if upgrade.path.partition("?")[0] not in self._paths:
            return UpgradeRefusal(404, b'{"error":"the relay is at another path: /"}')
        return RelaySocket(self)

    @property
    def _paths(self) -> frozenset[str]:
        # Behind a proxy the relay may live at a path of its own, which the proxy may hand on or take away.
        found = {"", "/"}
        for address in self.addresses:
            path = "/" + address.split("/", 3)[3] if address.count("/") > 2 else "/"
            found |= {path, path + "/"}
        return frozenset(found)

    async def _http(self, scope: Any, _receive: Any, send: Any) -> None:
        """What a browser or a health check is told; everything else happens on the WebSocket."""
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
        said = {
            "relay": "xp1",
            "version": __version__,
            "status": "ok",
            "connections": len(self.sockets),
            "events": stats.events,
        }
        return 200, orjson.dumps(said)


@asynccontextmanager
async def running_relay(settings: RelaySettings) -> AsyncIterator[RelayServer]:
    """A relay for as long as the block lasts; raises UsageError when it cannot listen or use its data."""
    # Says what is missing before anything is opened.
    settings.addresses(settings.port)
    listening = bind_socket(settings.host, settings.port, port_name="--port")
    try:
        store = EventStore.open(settings.data, settings.store)
    except BaseException:
        listening.close()
        raise
    try:
        server = RelayServer(settings, store, listening)
        try:
            await server.start()
            yield server
        finally:
            await server.stop()
    finally:
        listening.close()
        await store.close()


def _is_local_origin(origin: str) -> bool:
    """Of a page that was served by this machine itself."""
    try:
        return (urlsplit(origin).hostname or "") in LOOPBACK
    except ValueError:
        return False
