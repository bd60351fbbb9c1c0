"""A proxy that loses answers: of each path the first, which is cut off or never comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from tests.console.gateway_and_members import Loop

Loss = Literal["cut", "silent", "half"]


class LossyProxy:
    """Listens on a port of its own; one request a connection, so that each answer can be lost alone."""

    def __init__(self, gateway_port: int, loss: Loss, kinds: tuple[str, ...]) -> None:
        self.gateway_port = gateway_port
        self.port = 0
        self.asked: Counter[str] = Counter()
        # Answers that somebody waits for, and that will never come.
        self.withheld = 0
        self._loss = loss
        # Of which paths, by how they end.
        self._kinds = kinds
        self._open: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode().partition("?")[0]
            self.asked[path] += 1
            is_lost = self.asked[path] == 1 and path.endswith(self._kinds)
            if is_lost and self._loss == "silent":
                self.withheld += 1
                try:
                    # Until the browser gives it up.
                    await reader.read()
                finally:
                    self.withheld -= 1
                return
            if is_lost and self._loss == "cut":
                return
            backwards, forwards = await asyncio.open_connection("127.0.0.1", self.gateway_port)
            self._open.append(forwards)
            own, theirs = f"127.0.0.1:{self.port}".encode(), f"127.0.0.1:{self.gateway_port}".encode()
            if b"upgrade: websocket" not in head.lower():
                head = head.replace(b"keep-alive", b"close")
            forwards.write(head.replace(own, theirs))
            if is_lost:
                writer.write(await backwards.readuntil(b"\r\n\r\n") + await backwards.readexactly(100))
                await writer.drain()
                forwards.close()
                return
            await asyncio.gather(_copy(reader, forwards), _copy(backwards, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def close(self, server: asyncio.Server) -> None:
        server.close()
        for each in self._open:
            each.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
        target.close()


@contextmanager
def lossy_proxy(loop: Loop, gateway_port: int, loss: Loss, *kinds: str) -> Iterator[LossyProxy]:
    proxy = LossyProxy(gateway_port, loss, kinds)

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(proxy.serve, "127.0.0.1", 0)

    server = loop.run(listen())
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        loop.run(proxy.close(server))
