"""The load: WebSocket clients that count and do not read. Runs on a core of its own, told what to do by lines
of JSON on stdin, and answers each with one on stdout.

    connect   one sender and some receivers, of Moot, of the relay or of nats-server
    flood     messages as fast as a window allows: so many on the way, as the sender's own echo shows
    flow      a steady rate in the background
    joins     one more client joins, is welcomed and leaves, again and again; how long each took
    hold      many members that only listen
    close     all of them go

What is sent is ready-made, and receivers look at nothing but the size of a frame, so that one core of load
does for one core of server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import orjson
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

SIZE = 500  # bytes of an envelope
CONNECTING = 64  # at the same time
_SUBJECT = b"bench"
_NATS_HEAD = b"MSG %b 1 %d\r\n" % (_SUBJECT, SIZE)
_NATS_BYTES = len(_NATS_HEAD) + SIZE + 2
_NATS_PING = len(b"PING\r\n")
# How long nothing must come before everything said so far counts as heard.
_QUIET_SECONDS = 0.3
_PATIENCE_SECONDS = 60.0
# Whose joins are measured: a gateway counts those of each member.
VISITORS = [f"visitor-{number}" for number in range(4)]


class Tally:
    """What all clients together have heard, and who wants to know when it is enough."""

    def __init__(self) -> None:
        self.seen = 0
        self.odd = 0
        self.started = False
        self.enough = 1 << 62
        self.done: asyncio.Future[None] | None = None


class Client(WSListener):
    """Counts frames of the size of an envelope; others are odd."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.transport: WSTransport | None = None
        self.gone = asyncio.get_running_loop().create_future()
        self.seen = self.received = 0
        # What a sender does when it has heard some of its own messages again.
        self.on_echo: Callable[[], None] | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        if frame.payload_size == SIZE:
            self.seen += 1
        else:
            self.tally.odd += 1
        if frame.last_in_buffer:
            self.count()

    def count(self) -> None:
        """Once for all that one read brought."""
        tally = self.tally
        self.received, self.seen = self.seen, 0
        tally.seen += self.received
        if self.on_echo is not None:
            self.on_echo()
        if tally.seen >= tally.enough and tally.done is not None and not tally.done.done():
            tally.done.set_result(None)

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        if not self.gone.done():
            self.gone.set_result(None)

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.underlying_transport.write(data)


class NatsClient(Client):
    """Counts bytes: nats-server puts as many messages into a frame as it likes."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._bytes = 0

    def on_ws_connected(self, transport: WSTransport) -> None:
        super().on_ws_connected(transport)
        hello = b'CONNECT {"verbose":false,"pedantic":false,"echo":true,"headers":false}\r\n'
        transport.send(WSMsgType.BINARY, hello + b"SUB %b 1\r\n" % _SUBJECT)

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        if not self.tally.started:
            self.tally.odd += 1  # INFO
        elif frame.payload_size != _NATS_PING:
            whole, self._bytes = divmod(self._bytes + frame.payload_size, _NATS_BYTES)
            self.seen += whole
        if frame.last_in_buffer:
            self.count()


def masked(payload: bytes, opcode: int) -> bytes:
    """A client's frame of 126 bytes and more. The mask is zero, which is one too, and changes nothing."""
    return struct.pack("!BBHI", 0x80 | opcode, 0x80 | 126, len(payload), 0) + payload


def chats(run: int, count: int) -> Iterator[bytes]:
    """500-byte chats of `sender`, each with an id of its own."""
    mark = b"NUMBER-12345"
    head = {
        "protocol": "mew/v0.4",
        "id": f"{run:08x}-7b36-4b8b-9ad8-{mark.decode()}",
        "ts": "2026-08-26T14:00:00.000Z",
        "from": "sender",
        "kind": "chat",
    }
    missing = SIZE - len(orjson.dumps(head | {"payload": {"text": "", "format": "plain"}}))
    text = ("lorem ipsum dolor " * 30)[:missing]
    before, _, after = orjson.dumps(head | {"payload": {"text": text, "format": "plain"}}).partition(mark)
    for number in range(count):
        yield before + b"%012d" % number + after


class Crowd:
    """One sender and its receivers."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.clients: list[Client] = []
        self.nats = False
        self._runs = int(time.time()) & 0xFFFFFF

    async def connect(self, server: str, url: str, receivers: int) -> None:
        self.nats = server == "nats"
        self.tally = Tally()
        names = [f"receiver-{number}" for number in range(receivers)] + ["sender"]
        self.clients = list(await connected(url, names, self.tally, NatsClient if self.nats else Client))
        await self._quiet()

    async def hold(self, url: str, spaces: int, members: int) -> None:
        """Many who only listen, space after space."""
        names = [f"member-{number}" for number in range(members)]
        for number in range(spaces):
            self.clients += await connected(f"{url}{number}", names, self.tally, buffer=4096)
        await self._quiet()

    async def _quiet(self) -> None:
        """Until everybody has heard of everybody."""
        before = -1
        while before != self.tally.odd:
            before = self.tally.odd
            await asyncio.sleep(_QUIET_SECONDS)

    def frames(self, count: int) -> list[bytes]:
        self._runs += 1
        if self.nats:
            pub = b"PUB %b %d\r\n" % (_SUBJECT, SIZE)
            return [masked(pub + chat + b"\r\n", 2) for chat in chats(self._runs, count)]
        return [masked(chat, 1) for chat in chats(self._runs, count)]

    async def flood(self, messages: int, window: int) -> dict[str, float]:
        """Keep `window` messages on the way, as the sender's own echo shows, until all were heard by all."""
        frames = self.frames(messages)
        say({"ready": len(frames)})
        await wait_for_word("go")
        tally, sender = self.tally, self.clients[-1]
        odd, sent, echoed = tally.odd, 0, 0
        before = tally.seen

        def refill() -> None:
            nonlocal sent, echoed
            echoed += sender.received
            upto = min(messages, echoed + window)
            if upto > sent:
                sender.write(b"".join(frames[sent:upto]))
                sent = upto

        tally.enough = before + messages * len(self.clients)
        tally.done = asyncio.get_running_loop().create_future()
        tally.started = True
        start, cpu = time.monotonic(), time.process_time()
        sender.received = 0
        refill()
        sender.on_echo = refill
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await tally.done
        sender.on_echo, tally.enough = None, 1 << 62
        return {
            "seconds": time.monotonic() - start,
            "load_cpu": time.process_time() - cpu,
            "odd": tally.odd - odd,
        }

    async def flow(self, per_second: int, seconds: float) -> None:
        """A steady rate, ten messages at a time."""
        loop = asyncio.get_running_loop()
        frames = self.frames(int(per_second * seconds))
        start = loop.time()
        for at in range(0, len(frames), 10):
            await asyncio.sleep(max(0.0, start + at / per_second - loop.time()))
            self.clients[-1].write(b"".join(frames[at : at + 10]))

    async def close(self) -> None:
        for client in self.clients:
            if client.transport is not None:
                client.transport.underlying_transport.abort()
        await asyncio.gather(*(client.gone for client in self.clients))
        self.clients = []


async def connected(
    url: str, names: Sequence[str], tally: Tally, kind: type[Client] = Client, *, buffer: int = 65_536
) -> Sequence[Client]:
    """Clients with these names, in order; a name is a token here."""
    at_once = asyncio.Semaphore(CONNECTING)

    async def one(name: str) -> Client:
        async with at_once:
            _, client = await ws_connect(
                lambda: kind(tally),
                url,
                extra_headers={"Authorization": f"Bearer {token_of(name)}"},
                websocket_handshake_timeout=30,
                read_buffer_init_size=buffer,
            )
            assert isinstance(client, Client)
            return client

    return await asyncio.gather(*(one(name) for name in names))


def token_of(name: str) -> str:
    """Made up from the name: nothing here is worth guarding."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=") + "-bench-token"


class Joiner(WSListener):
    """Waits for its welcome: the first frame of all."""

    def __init__(self) -> None:
        self.welcome = asyncio.get_running_loop().create_future()
        self.gone = asyncio.get_running_loop().create_future()

    def on_ws_frame(self, _transport: WSTransport, _frame: WSFrame) -> None:
        if not self.welcome.done():
            self.welcome.set_result(time.perf_counter())

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


async def joins(url: str, count: int) -> list[float]:
    """Seconds from nothing (no TCP connection yet) to the welcome."""
    took = []
    for number in range(count):
        start = time.perf_counter()
        headers = {"Authorization": f"Bearer {token_of(VISITORS[number % len(VISITORS)])}"}
        transport, joiner = await ws_connect(Joiner, url, extra_headers=headers)
        assert isinstance(joiner, Joiner)
        async with asyncio.timeout(10):
            took.append(await joiner.welcome - start)
            transport.underlying_transport.abort()
            await joiner.gone
        await asyncio.sleep(0.005)
    return took


def say(fact: object) -> None:
    print(json.dumps(fact), flush=True)


_lines: asyncio.StreamReader


async def wait_for_word(word: str) -> None:
    answer = json.loads(await _lines.readline())
    assert answer["job"] == word, answer


async def obey() -> None:
    """Line after line, until there are no more."""
    global _lines
    _lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(_lines), sys.stdin
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd()
    while line := await _lines.readline():
        say(await _do(crowd, json.loads(line)))


async def _do(crowd: Crowd, answer: dict[str, Any]) -> object:
    match answer.pop("job"):
        case "connect":
            await crowd.connect(**answer)
            return {"clients": len(crowd.clients)}
        case "flood":
            return await crowd.flood(**answer)
        case "joins":
            flow = asyncio.create_task(crowd.flow(answer["per_second"], answer["seconds"]))
            took = await joins(answer["url"], answer["count"])
            late = flow.done()
            flow.cancel()
            with suppress(asyncio.CancelledError):
                await flow
            return {"took": took, "flowed_throughout": not late}
        case "hold":
            await crowd.hold(**answer)
            return {"clients": len(crowd.clients)}
        case "close":
            await crowd.close()
            return {}
        case other:
            raise ValueError(other)


if __name__ == "__main__":
    uvloop.run(obey())
