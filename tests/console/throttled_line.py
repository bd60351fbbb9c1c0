"""A slow line: a proxy that hands on so many bytes a second in each direction, each of them late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_PIECE_BYTES = 1_400


class ThrottledLine:
    """Listens on `port`; `gateway_port` may be set, and set anew, after it has begun to listen."""

    def __init__(self, bytes_per_second: float, delay_seconds: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._delay_seconds = delay_seconds
        # One line for all connections, as to a phone; one for each direction.
        self._lines = {"up": asyncio.Lock(), "down": asyncio.Lock()}
        self.gateway_port = 0
        self.port = 0
        self.carried_bytes = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            backwards, forwards = await asyncio.open_connection("127.0.0.1", self.gateway_port)
        except OSError:
            writer.close()
            return
        ways = [self._carry("up", reader, forwards), self._carry("down", backwards, writer)]
        with suppress(ConnectionError):
            await asyncio.gather(*ways)
        for each in (writer, forwards):
            each.close()

    async def _carry(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self._delay_seconds)
        while piece := await reader.read(_PIECE_BYTES):
            async with self._lines[way]:
                await asyncio.sleep(len(piece) / self._bytes_per_second)
            self.carried_bytes += len(piece)
            writer.write(piece)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


@asynccontextmanager
async def throttled_line(bytes_per_second: float, delay_seconds: float) -> AsyncIterator[ThrottledLine]:
    line = ThrottledLine(bytes_per_second, delay_seconds)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
