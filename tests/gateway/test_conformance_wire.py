"""The runner's own WebSocket client, against a server of another make and against broken bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from moot.conformance.blocking_client import (
    BlockingClient,
    ConnectionEnded,
    GatewayAddress,
    HandshakeRefused,
    NoReply,
    WireMessage,
)
from moot.conformance.live_driver import LiveDriver
from tests.waiting import HANG_SECONDS

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@contextmanager
def served(handler: Callable[[ServerConnection], None], *, seconds: float = 10) -> Iterator[GatewayAddress]:
    """A server of the websockets library, on a thread of its own."""
    with serve(handler, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield GatewayAddress(f"ws://127.0.0.1:{server.socket.getsockname()[1]}", seconds=seconds)
        finally:
            server.shutdown()
            thread.join(HANG_SECONDS)


def opened(address: GatewayAddress) -> BlockingClient:
    return BlockingClient(address, query={}, headers={})


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 300_000])
def test_messages_of_every_size_come_back_as_they_were(size: int) -> None:
    def echo(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    with served(echo) as address:
        wire = opened(address)
        wire.send(b"x" * size)
        assert wire.receive() == WireMessage(b"x" * size, False)
        wire.send(bytes(range(256)) * 4, binary=True)
        assert wire.receive() == WireMessage(bytes(range(256)) * 4, True)
        wire.close()


def test_fragments_are_joined_and_pings_are_answered_in_between() -> None:
    ponged = threading.Event()

    def speak(connection: ServerConnection) -> None:
        answered = connection.ping("are you there")
        if answered.wait(HANG_SECONDS):
            ponged.set()
        connection.send(["in ", "three ", "parts"])
        connection.close(4003, "that is all")

    with served(speak) as address:
        wire = opened(address)
        assert wire.receive() == WireMessage(b"in three parts", False)
        assert wire.receive() == ConnectionEnded(4003, "that is all")
        assert ponged.is_set()
        wire.close()
        wire.send(b"nobody hears this")


def test_silence_has_an_end() -> None:
    done = threading.Event()

    def be_silent(_: ServerConnection) -> None:
        done.wait(HANG_SECONDS)

    with served(be_silent, seconds=0.5) as address:
        wire = opened(address)
        with pytest.raises(NoReply, match="nothing was heard within"):
            wire.receive()
        driver = LiveDriver(address, {"a": "t"})
        with pytest.raises(NoReply, match="was not welcomed within"):
            driver.join("a", {})
        done.set()
        driver.close()
        wire.close()


def test_a_gateway_that_lets_false_names_pass_is_run_all_the_same() -> None:
    """It relays the marks; they are answers too, and nobody counts them as heard."""
    members: set[ServerConnection] = set()
    welcome = {"kind": "system/welcome"}

    def relay(connection: ServerConnection) -> None:
        members.add(connection)
        connection.recv()
        connection.send(json.dumps(welcome))
        for message in connection:
            for member in list(members):
                with suppress(ConnectionClosed):
                    member.send(message)
        members.discard(connection)

    with served(relay) as address:
        driver = LiveDriver(address, {"a": "t", "b": "t"})
        assert driver.join("a", {}) == {"a": [welcome]}
        assert driver.join("b", {}) == {"a": [], "b": [welcome]}
        answer = {"id": "c1", "kind": "chat"}
        assert driver.send("a", answer) == {"a": [answer], "b": [answer]}
        assert driver.raw("b", '["no object"]') == {name: [{"unreadable": '["no object"]'}] for name in "ab"}
        assert driver.leave("a") == {"b": []}
        driver.close()


@contextmanager
def answering(answer: Callable[[str], bytes]) -> Iterator[GatewayAddress]:
    """One connection that gets these bytes for its handshake, and then the end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def once() -> None:
            connection, _ = listening.accept()
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(4096)
                fields = dict(line.split(": ", 1) for line in request.decode().split("\r\n") if ": " in line)
                connection.sendall(answer(fields["Sec-WebSocket-Key"]))

        thread = threading.Thread(target=once)
        thread.start()
        yield GatewayAddress(f"http://127.0.0.1:{listening.getsockname()[1]}", seconds=5)
        thread.join(HANG_SECONDS)


def switched(key: str, then: bytes) -> bytes:
    accept = base64.b64encode(hashlib.sha1(f"{key}{GUID}".encode()).digest()).decode()  # noqa: S324
    head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return f"{head}Sec-WebSocket-Accept: {accept}\r\n\r\n".encode() + then


@pytest.mark.parametrize(
    ("then", "closed"),
    [
        (b"", ConnectionEnded(1006, "")),
        (b"\x81", ConnectionEnded(1006, "")),
        (b"\x81\x7e\x01", ConnectionEnded(1006, "")),
        # A server never masks.
        (b"\x81\x81\0\0\0\0x", ConnectionEnded(1006, "")),
        (b"\x88\x00", ConnectionEnded(1005, "")),
        (b"\x88\x02\x03\xe9", ConnectionEnded(1001, "")),
    ],
)
def test_however_a_connection_ends_it_is_told_as_an_end(then: bytes, closed: ConnectionEnded) -> None:
    with answering(lambda key: switched(key, then)) as address:
        assert opened(address).receive() == closed


def test_what_comes_right_behind_the_handshake_is_not_lost() -> None:
    with answering(lambda key: switched(key, b"\x81\x02hi")) as address:
        wire = opened(address)
        assert wire.receive() == WireMessage(b"hi", False)
        assert wire.receive() == ConnectionEnded(1006, "")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: wrong\r\n\r\n",
    ],
)
def test_no_websocket_is_told_with_what_came_instead(answer: bytes) -> None:
    with answering(lambda _: answer) as address, pytest.raises(HandshakeRefused):
        opened(address)


def test_what_is_no_http_is_no_answer() -> None:
    with answering(lambda _: b"SSH-2.0-x\r\n") as address, pytest.raises(NoReply):
        opened(address)


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    def answer(_: str) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"

    with answering(answer) as address, pytest.raises(NoReply):
        address.fetch("GET", "/", query={}, headers={"Sec-WebSocket-Key": "x"})


def test_a_join_that_ends_without_a_word_is_refused() -> None:
    with answering(lambda key: switched(key, b"\x88\x02\x03\xf0")) as address:
        (received,) = LiveDriver(address, {}).join("a", {})["a"]
    assert received["refused"] == "closed"


def test_a_door_that_is_broken_is_told_by_its_status() -> None:
    with answering(lambda _: b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n") as address:
        assert LiveDriver(address, {}).join("a", {})["a"][0]["refused"] == "http_500"


def test_a_mark_looks_like_an_envelope_of_somebody_else() -> None:
    seen: list[dict[str, object]] = []

    def answer(connection: ServerConnection) -> None:
        for message in connection:
            seen.append(json.loads(message))
            connection.send(json.dumps({"kind": "system/error", "correlation_id": seen[-1]["id"]}))

    with served(answer) as address:
        driver = LiveDriver(address, {"a": "t"})
        assert driver.join("a", {"dialect": "m3p"}) == {"a": []}
        driver.close()
    assert [(mark["kind"], mark["from"]) for mark in seen] == [("chat.message", "conformance-nobody")]
