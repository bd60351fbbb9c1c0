"""A WebSocket client that does as it is told, right or wrong: frames by hand on a TCP socket (RFC 6455)."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import orjson

from tests.waiting import bounded

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="


class Frame(NamedTuple):
    """One frame as the gateway sent it."""

    opcode: int
    payload: bytes
    final: bool

    @property
    def code(self) -> int | None:
        """Of a close frame: its code, if it has one."""
        return struct.unpack("!H", self.payload[:2])[0] if len(self.payload) >= 2 else None

    @property
    def reason(self) -> str:
        return self.payload[2:].decode()


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    final: bool = True,
    reserved: int = 0,
    masked: bool = True,
    size: int | None = None,
    mask: bytes | None = None,
) -> bytes:
    """The bytes of one frame; `size` claims another length than the payload has. A mask of 0s is quick."""
    length = len(payload) if size is None else size
    head = bytes([(0x80 if final else 0) | (reserved << 4) | opcode])
    bit = 0x80 if masked else 0
    if length < 126:
        head += bytes([bit | length])
    elif length < 1 << 16:
        head += struct.pack("!BH", bit | 126, length)
    else:
        head += struct.pack("!BQ", bit | 127, length)
    if not masked:
        return head + payload
    mask = os.urandom(4) if mask is None else mask
    if not any(mask):
        return head + mask + payload
    return head + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


def closing(code: int | None = 1000, reason: bytes = b"") -> bytes:
    return frame(CLOSE, b"" if code is None else struct.pack("!H", code) + reason)


def upgrade(port: int, where: str = "/ws", headers: Mapping[str, str] | None = None) -> bytes:
    usual = {
        "Host": f"127.0.0.1:{port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    given = dict(headers or {})
    replaced = {name.lower() for name in given}
    lines = {name: value for name, value in usual.items() if name.lower() not in replaced} | given
    text = f"GET {where} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return text.encode("latin-1") + b"\r\n"


class RawClient:
    """One TCP connection; after `upgraded` it reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def send_in_pieces(self, data: bytes, step: int) -> None:
        """Each piece in a packet of its own, as far as the kernel lets us."""
        for start in range(0, len(data), step):
            self.writer.write(data[start : start + step])
            await self.writer.drain()
            await asyncio.sleep(0)

    async def upgraded(
        self,
        where: str = "/ws?space=lab",
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Become a WebSocket; returns the headers of the answer."""
        port = self.writer.get_extra_info("peername")[1]
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        self.send(upgrade(port, where, sent))
        status, answer = await self.answer()
        assert status == 101, (status, answer)
        return answer

    async def answer(self) -> tuple[int, dict[str, str]]:
        """The status and headers of an HTTP answer; its body stays unread."""
        async with bounded():
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}

    async def post(self, where: str, token: str, body: bytes) -> tuple[int, Any]:
        """One request on this connection: a tenth of what a whole HTTP client costs."""
        port = self.writer.get_extra_info("peername")[1]
        self.send(
            f"POST {where} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        status, headers = await self.answer()
        return status, orjson.loads(await self.reader.readexactly(int(headers["content-length"])))

    async def frame(self) -> Frame | None:
        """The next frame, None when the connection has ended."""
        try:
            async with bounded():
                first, second = await self.reader.readexactly(2)
                assert not first & 0x70, "the gateway set reserved bits"
                assert not second & 0x80, "the gateway masked a frame"
                size = second & 0x7F
                if size == 126:
                    (size,) = struct.unpack("!H", await self.reader.readexactly(2))
                elif size == 127:
                    (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
                payload = await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Frame(first & 0x0F, payload, bool(first & 0x80))

    async def frames_until(self, opcode: int) -> list[Frame]:
        """All frames up to the first of this opcode, or to the end of the connection."""
        found: list[Frame] = []
        while (one := await self.frame()) is not None:
            found.append(one)
            if one.opcode == opcode:
                break
        return found

    async def closed(self) -> int | None:
        """The code of the close frame, after which nothing comes; None when there was none."""
        *_, last = [None, *await self.frames_until(CLOSE)]
        if last is None or last.opcode != CLOSE:
            return None
        return last.code

    async def ended(self) -> bytes:
        """What still comes until the other side has hung up."""
        try:
            async with bounded():
                return await self.reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self.writer.transport.abort()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def raw_client(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[RawClient]:
    """A TCP connection to the gateway; a small receive buffer makes a slow reader quickly slow."""
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    link.setblocking(False)
    await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", port))
    # The limit bounds what is read ahead: who stops reading stops soon.
    client = RawClient(*await asyncio.open_connection(sock=link, limit=1 << 16))
    try:
        yield client
    finally:
        await client.close()
