"""A relay with two doors: one to itself, and one through a proxy that does whatever a hostile relay would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from websockets.asyncio.server import serve

from moot.xprotocol.relay.relay_server import RelayServer
from tests.ports import held_port
from tests.xprotocol.endpoint.relay_proxy import Proxy
from tests.xprotocol.relay.raw_client import relay_in


@asynccontextmanager
async def hostile_relay(folder: Path) -> AsyncIterator[tuple[RelayServer, Proxy]]:
    """Unlike `proxied_relay`, the relay itself can be used as well, by whoever is not to be mangled."""
    proxy = Proxy()
    async with serve(proxy.handle, "127.0.0.1", 0, max_size=None, close_timeout=1) as server:
        proxy.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        with held_port() as port:
            proxy.upstream = f"ws://127.0.0.1:{port}"
            async with relay_in(folder, port=port, urls=(proxy.url, proxy.upstream)) as relay:
                yield relay, proxy
