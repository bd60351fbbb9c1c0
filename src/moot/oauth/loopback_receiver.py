"""Receives the code of a sign-in: a page on this machine that a provider sends the browser back to.

It answers on 127.0.0.1 alone, and only to browsers that came to that very address (DNS rebinding). A sign-in
that others may start here has a page with a button: a link that a web page opens signs nobody in.
"""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from moot.errors import UsageError
from moot.oauth.oauth_settings import REDIRECT_PATH, SignInFailed
from moot.resilience.task_set import end_tasks

log = logging.getLogger(__name__)

# A request line and headers; a code with its state is well below.
_MAX_REQUEST_BYTES: Final = 16 << 10
_REQUEST_SECONDS: Final = 10.0
_SAFE: Final = (
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
)

# Given the parameters that came back; its text is shown. SignInFailed is shown too.
OnAnswer = Callable[[Mapping[str, str]], Awaitable[str]]
# Where to send a browser that pressed the button.
OnStart = Callable[[], Awaitable[str]]


class LoopbackReceiver:
    """The page. `redirect_uri` is what the provider is told."""

    def __init__(self, on_answer: OnAnswer, *, start: tuple[str, str, OnStart] | None = None) -> None:
        """`start`: the path of a page that begins a sign-in, its text, and what gives the link."""
        self._on_answer = on_answer
        self._start = start
        self._port = 0

    @property
    def redirect_uri(self) -> str:
        return f"http://127.0.0.1:{self._port}{REDIRECT_PATH}"

    @property
    def start_link(self) -> str | None:
        return None if self._start is None else f"http://127.0.0.1:{self._port}{self._start[0]}"

    def opened(self, port: int) -> None:
        self._port = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            writer.write((await self._answer(head)).encode())
            async with asyncio.timeout(_REQUEST_SECONDS):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a page of a sign-in was not answered")
        finally:
            writer.close()

    async def _answer(self, head: str) -> str:
        line, *rest = head.split("\r\n")
        method, _, target = line.partition(" ")
        target = target.partition(" ")[0]
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
        if headers.get("host") not in (f"127.0.0.1:{self._port}", f"localhost:{self._port}"):
            return _page("421 Misdirected Request", "This page is at another address.")
        parts = urlsplit(target) if target.startswith("/") else urlsplit("/")
        if method == "GET" and parts.path == REDIRECT_PATH:
            answer = dict(parse_qsl(parts.query, keep_blank_values=True))
            try:
                return _page("200 OK", await self._on_answer(answer))
            except SignInFailed as fault:
                return _page("400 Bad Request", str(fault))
        if self._start is not None and parts.path == self._start[0]:
            return await self._begin(method, headers, *self._start[1:])
        return _page("404 Not Found", "There is no such page.")

    async def _begin(self, method: str, headers: Mapping[str, str], text: str, on_start: OnStart) -> str:
        if method == "GET":
            return _page("200 OK", text, button="Sign in")
        own = f"http://{headers.get('host', '')}"
        if method != "POST" or headers.get("origin") != own:
            return _page("403 Forbidden", "Only the button of this page begins a sign-in.")
        try:
            link = await on_start()
        except SignInFailed as fault:
            return _page("502 Bad Gateway", str(fault))
        about = f"Location: {link}\r\n{_SAFE}Content-Length: 0\r\nConnection: close"
        return f"HTTP/1.1 303 See Other\r\n{about}\r\n\r\n"


def _page(status: str, text: str, *, button: str | None = None) -> str:
    form = "" if button is None else f'<form method="post"><button>{html.escape(button)}</button></form>'
    head = '<meta charset=utf-8><meta name=color-scheme content="light dark"><title>Moot</title>'
    body = f"<!doctype html>{head}<p>{html.escape(text)}</p>{form}"
    size = len(body.encode())
    about = f"Content-Type: text/html; charset=utf-8\r\nContent-Length: {size}\r\n{_SAFE}Connection: close"
    return f"HTTP/1.1 {status}\r\n{about}\r\n\r\n{body}"


@asynccontextmanager
async def open_receiver(receiver: LoopbackReceiver, port: int = 0) -> AsyncIterator[LoopbackReceiver]:
    """The page while the block runs; raises UsageError when the port is taken."""
    running: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(receiver.serve(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_MAX_REQUEST_BYTES)
    except OSError as fault:
        raise UsageError(
            f"no page for sign-ins can be opened on port {port}: {fault.strerror or fault}"
        ) from None
    receiver.opened(server.sockets[0].getsockname()[1])
    try:
        yield receiver
    finally:
        server.close()
        await end_tasks(list(running))
