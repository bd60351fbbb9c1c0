"""One HTTP GET or POST: bounded in time and size, without redirects, proxies or connections kept open."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

import httptools

from moot.errors import Unreachable
from moot.net.outbound import OpenSocket, explain_untrusted

_SECURE: Final = ("https", "wss")
_CHUNK_BYTES: Final = 1 << 16
# Status line and headers together; servers send one or two KiB.
_MAX_HEADER_BYTES: Final = 32 << 10


class HttpResponse(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class PostResponse(NamedTuple):
    """The head of an answer to a POST; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]


class ResponseTooLarge(Unreachable):
    """The answer is larger than the caller takes."""


class _ResponseParser:
    """What httptools calls while it reads."""

    def __init__(self, max_bytes: int) -> None:
        self.body = bytearray()
        self.headers: dict[str, str] = {}
        self.in_headers = True
        self.done = False
        self.too_large = False
        self._max_bytes = max_bytes
        self._read_bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    @property
    def status(self) -> int:
        return self._parser.get_status_code()

    def feed(self, data: bytes) -> None:
        self._read_bytes += len(data)
        self._parser.feed_data(data)
        if self.in_headers and self._read_bytes > _MAX_HEADER_BYTES:
            self.too_large = True

    # Called by httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        # An interim answer (103) is followed by the real one.
        self.in_headers = self.status < 200

    def on_body(self, piece: bytes) -> None:
        if len(self.body) + len(piece) > self._max_bytes:
            self.too_large = True
        else:
            self.body += piece

    def on_message_complete(self) -> None:
        self.done = not self.in_headers


async def fetch(
    url: str,
    *,
    headers: Mapping[str, str],
    timeout_seconds: float,
    max_bytes: int,
    tls: ssl.SSLContext | None = None,
    open_socket: OpenSocket | None = None,
) -> HttpResponse:
    """GET a URL; raises Unreachable when there is no whole answer, ResponseTooLarge above `max_bytes`.

    `open_socket` connects in our place, for whoever wants to see the address first.
    """
    parts = urlsplit(url)
    answer = _ResponseParser(max_bytes)
    request = _request("GET", parts, headers)
    await _exchange(
        parts, request, answer, lambda: answer.done, timeout_seconds, tls=tls, open_socket=open_socket
    )
    return _whole(answer, parts, max_bytes)


async def post(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    timeout_seconds: float,
    tls: ssl.SSLContext | None = None,
    open_socket: OpenSocket | None = None,
) -> PostResponse:
    """POST to a URL; raises Unreachable when no answer has begun in time. Its body is not read.

    `open_socket` connects in our place, as for `fetch`; what else it raises comes through.
    """
    parts = urlsplit(url)
    answer = _ResponseParser(_CHUNK_BYTES)
    request = _request("POST", parts, {**headers, "Content-Length": str(len(body))}) + body
    await _exchange(
        parts,
        request,
        answer,
        lambda: not answer.in_headers,
        timeout_seconds,
        tls=tls,
        open_socket=open_socket,
    )
    if answer.in_headers:
        raise Unreachable(f"{parts.netloc} hung up before its answer")
    return PostResponse(answer.status, answer.headers)


async def post_form(
    url: str,
    form: Mapping[str, str],
    *,
    headers: Mapping[str, str],
    timeout_seconds: float,
    max_bytes: int,
    tls: ssl.SSLContext | None = None,
    open_socket: OpenSocket | None = None,
) -> HttpResponse:
    """POST a form and read the whole answer; raises as `fetch` does."""
    return await post_body(
        url,
        urlencode(form).encode("ascii"),
        headers={**headers, "Content-Type": "application/x-www-form-urlencoded"},
        timeout_seconds=timeout_seconds,
        max_bytes=max_bytes,
        tls=tls,
        open_socket=open_socket,
    )


async def post_body(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    timeout_seconds: float,
    max_bytes: int,
    tls: ssl.SSLContext | None = None,
    open_socket: OpenSocket | None = None,
) -> HttpResponse:
    """POST and read the whole answer; raises as `fetch` does."""
    parts = urlsplit(url)
    answer = _ResponseParser(max_bytes)
    request = _request("POST", parts, {**headers, "Content-Length": str(len(body))}) + body
    await _exchange(
        parts, request, answer, lambda: answer.done, timeout_seconds, tls=tls, open_socket=open_socket
    )
    return _whole(answer, parts, max_bytes)


def _whole(answer: _ResponseParser, parts: SplitResult, max_bytes: int) -> HttpResponse:
    if answer.too_large:
        raise ResponseTooLarge(f"the answer of {parts.netloc} is larger than {max_bytes} bytes")
    if not answer.done:
        raise Unreachable(f"{parts.netloc} hung up in the middle of its answer")
    return HttpResponse(answer.status, bytes(answer.body))


async def _exchange(
    parts: SplitResult,
    request: bytes,
    answer: _ResponseParser,
    is_enough: Callable[[], bool],
    timeout_seconds: float,
    *,
    tls: ssl.SSLContext | None,
    open_socket: OpenSocket | None = None,
) -> None:
    """Send a request and read until it is enough, or there is no more, or too much."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await _connect(parts, tls, open_socket)
            try:
                writer.write(request)
                while not is_enough() and not answer.too_large:
                    data = await reader.read(_CHUNK_BYTES)
                    if not data:
                        break
                    answer.feed(data)
            finally:
                # No orderly close: the other side may be the one that hangs.
                writer.transport.abort()
    except ssl.SSLCertVerificationError as fault:
        raise Unreachable(f"no answer from {parts.netloc}: {explain_untrusted(fault)}") from fault
    except (OSError, UnicodeError, httptools.HttpParserError, httptools.HttpParserUpgrade) as fault:
        # A host that is no name at all is a UnicodeError.
        why = str(fault) or f"nothing within {timeout_seconds:g} s"
        raise Unreachable(f"no answer from {parts.netloc}: {why}") from fault


async def _connect(
    parts: SplitResult, tls: ssl.SSLContext | None, open_socket: OpenSocket | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host = parts.hostname or ""
    secure = parts.scheme in _SECURE
    port = parts.port or (443 if secure else 80)
    context = (tls or ssl.create_default_context()) if secure else None
    if open_socket is None:
        return await asyncio.open_connection(host, port, ssl=context)
    opened = await open_socket(host, port)
    try:
        return await asyncio.open_connection(
            sock=opened, ssl=context, server_hostname=host if secure else None
        )
    except BaseException:
        opened.close()
        raise


def _request(method: str, parts: SplitResult, headers: Mapping[str, str]) -> bytes:
    query = f"?{parts.query}" if parts.query else ""
    lines = [
        f"{method} {parts.path or '/'}{query} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: close",
        "Accept: application/json",
        # Compressed, a small answer could become a large one.
        "Accept-Encoding: identity",
    ]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
