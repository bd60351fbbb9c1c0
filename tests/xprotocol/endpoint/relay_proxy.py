"""Between a client and a real relay: passes messages on, or does whatever a hostile relay would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from moot.xprotocol.relay.relay_server import RelayServer
from tests.xprotocol.relay.raw_client import relay_in

# From the relay (True) or from the client; the messages that go on instead of this one.
Mangle = Callable[[bool, bytes], list[bytes]]


class Proxy:
    """`mangle` may be changed at any time."""

    def __init__(self) -> None:
        self.url = ""
        self.upstream = ""
        self.mangle: Mangle = lambda _from_relay, message: [message]
        self.connections: set[ServerConnection] = set()
        self.accepted = 0

    async def cut(self) -> None:
        """Every connection, in the middle of whatever it was."""
        for one in list(self.connections):
            one.transport.abort()

    async def handle(self, client: ServerConnection) -> None:
        self.accepted += 1
        self.connections.add(client)
        try:
            async with connect(self.upstream, max_size=None, close_timeout=1) as relay:

                async def to_relay() -> None:
                    async for message in client:
                        raw = message.encode() if isinstance(message, str) else message
                        for one in self.mangle(False, raw):
                            await relay.send(one, text=True)

                async def to_client() -> None:
                    async for message in relay:
                        raw = message.encode() if isinstance(message, str) else message
                        for one in self.mangle(True, raw):
                            await client.send(one, text=True)

                both = [asyncio.create_task(to_relay()), asyncio.create_task(to_client())]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for one in both:
                        one.cancel()
                    await asyncio.gather(*both, return_exceptions=True)
        except (ConnectionClosed, OSError):
            pass
        finally:
            self.connections.discard(client)


@asynccontextmanager
async def proxied_relay(folder: Path) -> AsyncIterator[tuple[RelayServer, Proxy]]:
    """A relay, and a proxy before it that clients take for the relay."""
    proxy = Proxy()
    async with serve(proxy.handle, "127.0.0.1", 0, max_size=None, close_timeout=1) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        proxy.url = f"ws://127.0.0.1:{port}"
        async with relay_in(folder, urls=(proxy.url,)) as relay:
            proxy.upstream = relay.url
            yield relay, proxy
