"""The attackers of `bench.floods`: one process, one flood, blocking sockets on loopback.

    python -m bench.flood_attacks NAME PORT SECONDS

What is sent is ready-made, so that a flood costs the attacker next to nothing. A flood whose connection is
closed or refused comes back at once, as an attacker would. At the end it prints how often it did so.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Final

from bench.load import token_of

SPACE: Final = "floods"
MIB: Final = 1 << 20
# At most this much of one buffer is handed to the kernel at once.
_BATCH_BYTES: Final = MIB
_TIMEOUT_SECONDS: Final = 5.0
_STREAMS: Final = 64
_CONNECTIONS: Final = 32
_DESCRIPTION_BYTES: Final = 16_200

TEXT, PING = 0x1, 0x9
_JOIN: Final = json.dumps({"type": "join", "space": SPACE}).encode()


def frame(opcode: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    """A client's frame; a mask of zeros is one, too, and changes nothing."""
    head = bytes([(0x80 if final else 0) | opcode])
    size = len(payload)
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += struct.pack("!BH", 0x80 | 126, size)
    else:
        head += struct.pack("!BQ", 0x80 | 127, size)
    return head + bytes(4) + payload


def envelope(kind: str, payload: str, *, by: str | None = "flooder") -> bytes:
    """An envelope with `payload` as it stands; of a guest, who does not know its name, `by` nobody."""
    fields = {"protocol": "mew/v0.4", "id": base64.b32encode(os.urandom(10)).decode()}
    sender = {} if by is None else {"from": by}
    head = json.dumps(fields | {"ts": "2026-08-26T14:00:00Z", "kind": kind} | sender)
    return f'{head[:-1]}, "payload": {payload}}}'.encode()


class Flood:
    """One flood until its time is over; `done` counts what was sent or tried."""

    def __init__(self, port: int, seconds: float) -> None:
        self.port = port
        self.until = time.monotonic() + seconds
        self.done = 0

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self.until

    # Connections

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=_TIMEOUT_SECONDS)

    def upgrade(self, token: str | None) -> socket.socket | None:
        """A WebSocket, or None when there is none to be had."""
        connection = self.connect()
        try:
            authorization = f"Authorization: Bearer {token}\r\n" if token else ""
            connection.sendall(
                f"GET /ws?space={SPACE} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"Sec-WebSocket-Version: 13\r\n{authorization}\r\n".encode()
            )
            if b" 101 " in connection.recv(4096).split(b"\r\n", 1)[0]:
                return connection
        except OSError:
            pass
        connection.close()
        return None

    def member(self) -> socket.socket | None:
        """The member `flooder`, whose replies are read and thrown away."""
        connection = self.upgrade(token_of("flooder"))
        if connection is not None:
            threading.Thread(target=_drain, args=(connection,), daemon=True).start()
        return connection

    def send_on_one(
        self,
        open_connection: Callable[[], socket.socket | None],
        batches: Iterator[tuple[int, bytes]],
        first: bytes = b"",
    ) -> None:
        """Batch after batch on one connection; a new one whenever it is closed."""
        connection: socket.socket | None = None
        while self.is_on:
            try:
                if connection is None:
                    connection = open_connection()
                    if connection is None:
                        time.sleep(0.01)
                        continue
                    connection.sendall(first)
                count, data = next(batches)
                connection.sendall(data)
                self.done += count
            except OSError:
                if connection is not None:
                    connection.close()
                connection = None

    # The floods

    def idle(self) -> None:
        """Nothing: what the machine does without a flood."""
        while self.is_on:
            time.sleep(0.05)

    def tiny_frames(self) -> None:
        """A member sends text frames of one byte."""
        self.send_on_one(self.member, _repeated(frame(TEXT, b"x")))

    def pings(self) -> None:
        """A member sends empty pings."""
        self.send_on_one(self.member, _repeated(frame(PING)))

    def empty_continuations(self) -> None:
        """A member sends one message that never ends, in empty fragments."""
        self.send_on_one(
            self.member, _repeated(frame(0x0, final=False)), first=frame(TEXT, b"{", final=False)
        )

    def pings_on_many(self) -> None:
        """The same from as many connections as one member may have, up to 32."""
        connections = [one for one in (self.member() for _ in range(_CONNECTIONS)) if one is not None]
        count, data = next(_repeated(frame(PING)))
        for one in connections:
            one.setblocking(False)
        while self.is_on:
            for one in connections:
                with suppress(OSError):
                    self.done += one.send(data) * count // len(data)

    def half_open_fragments(self) -> None:
        """As many connections, each with most of a message that it never finishes."""
        self._send_once(frame(TEXT, b"x" * (MIB - 1_000), final=False))

    def large_then_idle(self) -> None:
        """As many connections, each silent after one message of a mebibyte, which is refused."""
        self._send_once(frame(TEXT, b"x" * MIB))

    def _send_once(self, data: bytes) -> None:
        connections = [one for one in (self.member() for _ in range(_CONNECTIONS)) if one is not None]
        for one in connections:
            with suppress(OSError):
                one.sendall(data)
                self.done += 1
        self.idle()

    def pipelined_requests(self) -> None:
        """A stranger sends the shortest requests that are answered, all at once."""

        def stranger() -> socket.socket:
            connection = self.connect()
            threading.Thread(target=_drain, args=(connection,), daemon=True).start()
            return connection

        self.send_on_one(stranger, _repeated(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"))

    def deep_json(self) -> None:
        """A member sends a megabyte of lists in lists, as deep as is allowed, each a valid chat."""
        one = "[" * 60 + "]" * 60
        text = '{"text": [' + ",".join([one] * (900_000 // len(one))) + "]}"
        self.send_on_one(self.member, _fresh(lambda: frame(TEXT, envelope("chat", text))))

    def spaced_json(self) -> None:
        """A member sends a megabyte of small members and spaces, each a valid chat."""
        items = ", ".join(f'"k{number}" : [ {number}e0 , {{ }} ]' for number in range(32_000))
        text = '{"text": {' + items + "}}"
        self.send_on_one(self.member, _fresh(lambda: frame(TEXT, envelope("chat", text))))

    def strangers_json(self) -> None:
        """Somebody without a token sends a megabyte of deep JSON as its first frame, again and again."""
        text = '{"type": "join", "x": [' + ",".join(["[" * 60 + "]" * 60] * 8_000) + "]}"
        data = frame(TEXT, text.encode())
        while self.is_on:
            with suppress(OSError):
                connection = self.upgrade(None)
                if connection is None:
                    time.sleep(0.01)
                    continue
                with closing(connection):
                    self.done += 1
                    connection.sendall(data)
                    while connection.recv(65_536):
                        pass

    def wrong_tokens(self) -> None:
        """Somebody guesses tokens, by HTTP with a body of two megabytes and by WebSocket."""
        body = b'{"kind":"chat","payload":{"text":"' + b"x" * (2 * MIB - 100) + b'"}}'
        while self.is_on:
            self.done += 2
            token = base64.b32encode(os.urandom(20)).decode()
            with suppress(OSError), closing(self.connect()) as connection:
                head = (
                    f"POST /participants/flooder/messages?space={SPACE} HTTP/1.1\r\n"
                    f"Host: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {token}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                connection.sendall(head.encode() + body)
                connection.recv(4096)
            with suppress(OSError):
                opened = self.upgrade(token)
                if opened is not None:
                    opened.close()

    def reconnects(self) -> None:
        """A member joins and leaves as fast as it can."""
        while self.is_on:
            with suppress(OSError):
                connection = self.upgrade(token_of("flooder"))
                self.done += 1
                if connection is not None:
                    connection.close()

    def refused_messages(self) -> None:
        """A member sends calls of 100 KB that it has no right to."""
        payload = '{"method": "tools/call", "params": {"name": "' + "x" * 100_000 + '"}}'
        self.send_on_one(self.member, _fresh(lambda: frame(TEXT, envelope("mcp/request", payload))))

    def many_streams(self) -> None:
        """A member opens as many streams as it may, with long descriptions, and stays."""
        connection = self.member()
        if connection is None:
            return
        words = "d" * _DESCRIPTION_BYTES
        for number in range(_STREAMS):
            payload = json.dumps({"direction": "upload", "description": f"{number} {words}"})
            connection.sendall(frame(TEXT, envelope("stream/request", payload)))
            self.done += 1
        while self.is_on:
            time.sleep(0.05)

    def polls(self) -> None:
        """A member reads all that the gateway keeps for polling, again and again, on many connections."""
        writing = self.member()
        if writing is not None:
            # A mebibyte each: as much as is kept, or as is there by then.
            text = json.dumps({"text": "x" * (MIB - 1_000)})
            for _ in range(7):
                writing.sendall(frame(TEXT, envelope("chat", text)))
        request = (
            f"GET /participants/flooder/messages?space={SPACE} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {token_of('flooder')}\r\n\r\n"
        ).encode()
        connections = [self.connect() for _ in range(_CONNECTIONS)]
        for one in connections:
            threading.Thread(target=_drain, args=(one,), daemon=True).start()
        while self.is_on:
            for one in connections:
                with suppress(OSError):
                    one.sendall(request * 10)
                    self.done += 10
            time.sleep(0.1)

    def guests_chat(self) -> None:
        """Guests of an open space, one for each connection here, each as fast as the gateway reads."""
        self._send_as_guests("hello", 1_000)

    def guests_large(self) -> None:
        """The same with messages of almost a mebibyte."""
        self._send_as_guests("x" * (MIB - 1_000), 1)

    def _send_as_guests(self, text: str, at_once: int) -> None:
        payload = json.dumps({"text": text})

        def flood(connection: socket.socket) -> None:
            # More ids in all than a space remembers.
            data = b"".join(frame(TEXT, envelope("chat", payload, by=None)) for _ in range(at_once))
            with suppress(OSError):
                while self.is_on:
                    connection.sendall(data)
                    self.done += at_once
                    if at_once == 1:
                        data = frame(TEXT, envelope("chat", payload, by=None))

        for one in [self.guest() for _ in range(_CONNECTIONS)]:
            if one is not None:
                threading.Thread(target=flood, args=(one,), daemon=True).start()
        self.idle()

    def guests_come_and_go(self) -> None:
        """Guests join an open space and leave it as fast as one address can."""
        while self.is_on:
            with suppress(OSError):
                connection = self.upgrade(None)
                self.done += 1
                if connection is not None:
                    with closing(connection):
                        connection.sendall(frame(TEXT, _JOIN))
                        connection.recv(4096)

    def guest(self) -> socket.socket | None:
        """Somebody without a token, whose replies are read and thrown away."""
        connection = self.upgrade(None)
        if connection is not None:
            connection.sendall(frame(TEXT, _JOIN))
            threading.Thread(target=_drain, args=(connection,), daemon=True).start()
        return connection


FLOODS: Final[dict[str, Callable[[Flood], None]]] = {
    name: getattr(Flood, name)
    for name in (
        "idle",
        "tiny_frames",
        "pings",
        "empty_continuations",
        "pings_on_many",
        "half_open_fragments",
        "large_then_idle",
        "pipelined_requests",
        "deep_json",
        "spaced_json",
        "strangers_json",
        "wrong_tokens",
        "reconnects",
        "refused_messages",
        "many_streams",
        "polls",
        "guests_chat",
        "guests_large",
        "guests_come_and_go",
    )
}


def _repeated(one: bytes) -> Iterator[tuple[int, bytes]]:
    count = _BATCH_BYTES // len(one)
    data = one * count
    while True:
        yield count, data


def _fresh(make: Callable[[], bytes]) -> Iterator[tuple[int, bytes]]:
    while True:
        yield 1, make()


def _drain(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass
    connection.close()


def main() -> None:
    name, port, seconds = sys.argv[1:]
    flood = Flood(int(port), float(seconds))
    FLOODS[name](flood)
    print(json.dumps({"done": flood.done}), flush=True)


if __name__ == "__main__":
    main()
