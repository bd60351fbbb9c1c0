"""The end of a WebSocket connection, on the event loop of the standard library."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from moot.net import websocket_server
from moot.net.upgrade_request import Upgrade
from moot.net.websocket_server import ServerSocket, WebSocketServer
from tests.gateway.raw import CLOSE, frame
from tests.waiting import HANG_SECONDS

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class SilentHandler:
    """Says nothing, and remembers the end."""

    def __init__(self) -> None:
        self.subprotocol: str | None = None
        self.max_first_bytes: int | None = None
        self.closings = 0

    def opened(self, connection: ServerSocket) -> None:
        pass

    def received(self, data: bytes, binary: bool) -> None:
        pass

    def closed(self) -> None:
        self.closings += 1

    def full(self) -> None:
        pass

    def drained(self) -> None:
        pass

    def flush(self) -> None:
        pass


class UpgradedConnection(asyncio.Protocol):
    """Hands a connection on as uvicorn does, once its HTTP parser has read the upgrade request."""

    def __init__(self, server: WebSocketServer) -> None:
        self._server = server

    def connection_made(self, transport: Any) -> None:
        connection = self._server()
        connection.connection_made(transport)
        connection.data_received(UPGRADE)
        transport.set_protocol(connection)


def test_a_peer_that_says_goodbye_and_is_gone_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our answer to its close finds nobody: the socket cannot be shut down once more."""
    handler = SilentHandler()

    async def run() -> list[dict[str, Any]]:
        loop = asyncio.get_running_loop()
        unhandled: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _loop, context: unhandled.append(context))
        lost = asyncio.Event()

        def admit(_upgrade: Upgrade) -> SilentHandler:
            return handler

        # Without the drop timer: the connection has to end by itself.
        monkeypatch.setattr(websocket_server, "CLOSE_SECONDS", HANG_SECONDS * 2)
        server = WebSocketServer(admit, lambda _peer: lost.set())
        listening = await loop.create_server(lambda: UpgradedConnection(server), "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.setblocking(False)
            # Nothing unread: a peer that leaves something unread resets the connection at once.
            assert (await loop.sock_recv(peer, 4096)).startswith(b"HTTP/1.1 101")
            peer.send(frame(CLOSE, b"\x03\xe8"))
        async with asyncio.timeout(HANG_SECONDS):
            await lost.wait()
        assert not server.sockets
        listening.close()
        return unhandled

    with asyncio.Runner() as runner:
        assert runner.run(run()) == []
    assert handler.closings == 1
    assert [record.getMessage() for record in caplog.records] == []
