"""One HTTP GET over a real socket: what comes back, and every way in which nothing does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from moot.errors import Unreachable
from moot.net.http_client import HttpClient, HttpResponse, PostResponse, ResponseTooLarge
from tests.waiting import HANG_SECONDS, until

ANSWERS = {
    "/chunks": b"HTTP/1.1 203 Fine\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
    "/moved": b"HTTP/1.1 302 Found\r\nLocation: /chunks\r\nContent-Length: 0\r\n\r\n",
    "/big": b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000,
    "/headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
    "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nx",
    "/hinted": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    b"HTTP/1.1 429 Wait\r\nRetry-After: 7\r\nContent-Length: 9\r\n\r\n",
    "/upgrade": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nxx",
    "/odd": b"what?\r\n\r\n",
}


class Server:
    """Answers by path; what is not in `ANSWERS` is never answered."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    stopped = asyncio.Event()
    answering: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        # On a busy machine an impatient client may hang up before it has asked.
        with contextlib.suppress(OSError, EOFError), contextlib.closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            server.heads.append(head)
            path = head.split()[1].decode().partition("?")[0]
            if path not in ANSWERS:
                await stopped.wait()
            else:
                writer.write(ANSWERS[path])
                await writer.drain()
        answering.discard(asyncio.current_task())

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        stopped.set()
        listening.close()
        await until(lambda: not answering)


async def get(url: str, *, timeout_seconds: float = HANG_SECONDS) -> HttpResponse:
    client = HttpClient(timeout_seconds=timeout_seconds, max_bytes=100, headers={"X-Test": "t"})
    return await client.get(url)


async def post(url: str) -> PostResponse:
    return await HttpClient(timeout_seconds=HANG_SECONDS).post_unread(url, b"{}", {})


async def test_status_and_body_come_back_and_headers_are_sent() -> None:
    async with serving() as server:
        assert await get(server.url("/chunks?y=1")) == HttpResponse(203, b"abc")
        (head,) = server.heads
    lines = head.decode().split("\r\n")
    assert lines[0] == "GET /chunks?y=1 HTTP/1.1"
    assert {f"Host: 127.0.0.1:{server.port}", "X-Test: t", "Accept-Encoding: identity"} <= set(lines)


async def test_a_redirect_is_an_answer_and_not_followed() -> None:
    async with serving() as server:
        assert await get(server.url("/moved")) == HttpResponse(302, b"")
        assert len(server.heads) == 1


@pytest.mark.parametrize("path", ["/big", "/headers"])
async def test_an_answer_that_is_too_large_is_not_read_to_its_end(path: str) -> None:
    async with serving() as server:
        with pytest.raises(ResponseTooLarge, match="larger than 100 bytes"):
            await get(server.url(path))


@pytest.mark.parametrize(("path", "words"), [("/short", "hung up in the middle"), ("/odd", "no answer from")])
async def test_what_is_no_whole_answer_is_none(path: str, words: str) -> None:
    async with serving() as server:
        with pytest.raises(Unreachable, match=words):
            await get(server.url(path))


async def test_nobody_waits_longer_than_the_timeout() -> None:
    async with serving() as server:
        with pytest.raises(Unreachable, match=r"nothing within 0\.1 s"):
            await get(server.url("/never"), timeout_seconds=0.1)


async def test_a_socket_that_the_caller_opens_is_used_instead_of_the_name() -> None:
    asked: list[tuple[str, int]] = []
    async with serving() as server:

        async def open_socket(host: str, port: int) -> socket.socket:
            asked.append((host, port))
            opened = socket.socket()
            opened.setblocking(False)
            await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", server.port))
            return opened

        client = HttpClient(timeout_seconds=HANG_SECONDS, open_socket=open_socket)
        response = await client.get("http://nowhere.invalid/chunks")
    assert response.body == b"abc"
    assert asked == [("nowhere.invalid", 80)]


async def test_a_post_is_answered_when_the_head_of_the_real_answer_is_there() -> None:
    async with serving() as server:
        answer = await post(server.url("/hinted"))
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert server.heads[0].startswith(b"POST /hinted HTTP/1.1\r\n")
    assert b"\r\nContent-Length: 2\r\n" in server.heads[0]


@pytest.mark.parametrize("path", ["/upgrade", "/odd", "/headers"])
async def test_an_answer_to_a_post_that_is_none_is_unreachable(path: str) -> None:
    async with serving() as server:
        with pytest.raises(Unreachable):
            await post(server.url(path))


async def test_a_host_that_can_have_no_address_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        await post(f"http://a..{'b' * 70}/")
