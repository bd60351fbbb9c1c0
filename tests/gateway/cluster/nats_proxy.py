"""What stands between a gateway and NATS, and can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.gateway.cluster.nats_servers import NatsServers
from tests.waiting import until


class CuttingProxy:
    """Forwards to NATS. `cut` lets what was sent arrive and drops the answers: stored, and nobody knows."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self.holds = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self._target)
        self._pairs.append((writer, forth))
        self._open += 1
        try:
            await asyncio.gather(self._pipe(reader, forth), self._pipe(back, writer, is_answer=True))
        finally:
            self._open -= 1

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._passes.wait()
                if not (is_answer and self.holds):
                    writer.write(data)
        writer.close()

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for ours, theirs in pairs:
            ours.transport.abort()
            theirs.close()
        self.holds = False

    async def close(self) -> None:
        """End all connections, whatever is still on its way."""
        self.heal()
        for pair in self._pairs:
            for writer in pair:
                writer.transport.abort()
        await until(lambda: self._open == 0)

    def part(self) -> None:
        """A partition: connections stay, and nothing passes in either direction until `heal`."""
        self._passes.clear()

    def heal(self) -> None:
        self._passes.set()


@asynccontextmanager
async def proxied(nats: NatsServers) -> AsyncIterator[tuple[CuttingProxy, str]]:
    proxy = CuttingProxy(nats.ports[0])
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await proxy.close()
