"""A relay with Moot's sockets and batching and nothing else: what comes in goes out to all, unread.

It is the floor that the gateway is held against: the difference is what a space costs.
"""

from __future__ import annotations

import asyncio
import socket

import uvicorn
import uvloop

from moot.net.outbox import Outbox, Outgoing
from moot.net.websocket_frame import BINARY, TEXT, encode_frame
from moot.net.websocket_server import ServerSocket, WebSocketServer


class Relay:
    def __init__(self) -> None:
        self.outgoing = Outgoing(asyncio.get_running_loop())
        self.audience: list[Outbox] = []

    def changed(self, audience: list[Outbox]) -> None:
        # A new list: a batch stands for its audience as it was.
        self.audience = audience


class Peer:
    """One connection of the relay."""

    subprotocol: str | None = None
    max_first_bytes: int | None = None

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._outbox = Outbox("all", lambda _: None)

    def opened(self, connection: ServerSocket) -> None:
        self._outbox.attach(connection)
        self._relay.changed([*self._relay.audience, self._outbox])

    def received(self, data: bytes, binary: bool) -> None:
        relay = self._relay
        relay.outgoing.append(relay.audience, "all", encode_frame(data, BINARY if binary else TEXT))

    def closed(self) -> None:
        self._outbox.detach()
        self._relay.changed([other for other in self._relay.audience if other is not self._outbox])

    def full(self) -> None:
        self._outbox.pause(asyncio.get_running_loop().time())

    def drained(self) -> None:
        self._outbox.resume(asyncio.get_running_loop().time())

    def flush(self) -> None:
        """Nothing waits for a close here."""


async def _nothing_else(_scope: object, _receive: object, _send: object) -> None:
    """HTTP is not answered."""


async def serve() -> None:
    relay = Relay()
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"relay listening on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        _nothing_else,
        ws=WebSocketServer(lambda _: Peer(relay)),  # type: ignore[arg-type]
        http="httptools",
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    uvloop.run(serve())
