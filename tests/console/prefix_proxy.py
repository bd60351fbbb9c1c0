"""A reverse proxy that shows a gateway below a path, as people run it behind a web server that they have."""

from __future__ import annotations

import asyncio
import re
from types import TracebackType

from tests.console.gateway_and_members import Loop

_KEEP = re.compile(rb"^connection:[^\r]*keep-alive[^\r]*\r\n", re.IGNORECASE | re.MULTILINE)


class PrefixProxy:
    """Listens on a port of its own; `/moot/…` there is `/…` at the gateway, and all else is 404."""

    def __init__(self, loop: Loop, gateway_port: int) -> None:
        self._loop = loop
        self.gateway_port = gateway_port
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/moot/"

    def __enter__(self) -> PrefixProxy:
        self._loop.run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._close())

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, rest = head.split(b" ", 2)
            if not path.startswith(b"/moot/"):
                writer.write(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            try:
                backwards, forwards = await asyncio.open_connection("127.0.0.1", self.gateway_port)
            except OSError:
                writer.write(b"HTTP/1.1 502 Bad\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbad")
                return
            rest = rest.replace(b"127.0.0.1:%d" % self.port, b"127.0.0.1:%d" % self.gateway_port)
            forwards.write(
                b" ".join([method, path.removeprefix(b"/moot"), _KEEP.sub(b"Connection: close\r\n", rest)])
            )
            try:
                await asyncio.gather(_copy(reader, forwards), _copy(backwards, writer))
            finally:
                forwards.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    target.write_eof()
