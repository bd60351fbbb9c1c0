"""HTTP requests: bounded in time and size, without redirects, proxies or connections kept open."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpClient:
    """How far requests go, and how they connect. What it raises is Unreachable when there is no whole answer.

    `open_socket` connects in our place, for whoever wants to see the address first; what else it raises comes
    through.
    """

    # Connection, request and answer together.
    timeout_seconds: float
    # Of the body of an answer; a larger one is ResponseTooLarge.
    max_bytes: int = _CHUNK_BYTES
    # Sent with each request.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    open_socket: OpenSocket | None = None

    async def get(self, url: str) -> HttpResponse:
        return await self._whole(url, "GET", None, {})

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        return await self._whole(url, "POST", body, headers)

    async def put(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        return await self._whole(url, "PUT", body, headers)

    async def delete(self, url: str) -> HttpResponse:
        return await self._whole(url, "DELETE", None, {})

    async def post_form(self, url: str, form: Mapping[str, str]) -> HttpResponse:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self.post(url, urlencode(form).encode("ascii"), headers)

    async def post_unread(self, url: str, body: bytes, headers: Mapping[str, str]) -> PostResponse:
        """POST, and read no more than the head of the answer."""
        parts = urlsplit(url)
        answer = _ResponseParser(self.max_bytes)
        request = self._request("POST", parts, body, headers)
        await self._exchange(parts, request, answer, lambda: not answer.in_headers)
        if answer.in_headers:
            raise Unreachable(f"{parts.netloc} hung up before its answer")
        return PostResponse(answer.status, answer.headers)

    async def _whole(
        self, url: str, method: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpResponse:
        parts = urlsplit(url)
        answer = _ResponseParser(self.max_bytes)
        request = self._request(method, parts, body, headers)
        await self._exchange(parts, request, answer, lambda: answer.done)
        if answer.too_large:
            raise ResponseTooLarge(f"the answer of {parts.netloc} is larger than {self.max_bytes} bytes")
        if not answer.done:
            raise Unreachable(f"{parts.netloc} hung up in the middle of its answer")
        return HttpResponse(answer.status, bytes(answer.body))

    async def _exchange(
        self, parts: SplitResult, request: bytes, answer: _ResponseParser, is_enough: Callable[[], bool]
    ) -> None:
        """Send a request and read until it is enough, or there is no more, or too much."""
        try:
            async with asyncio.timeout(self.timeout_seconds):
                reader, writer = await self._connect(parts)
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
            why = str(fault) or f"nothing within {self.timeout_seconds:g} s"
            raise Unreachable(f"no answer from {parts.netloc}: {why}") from fault

    async def _connect(self, parts: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = parts.hostname or ""
        secure = parts.scheme in _SECURE
        port = parts.port or (443 if secure else 80)
        context = (self.tls or ssl.create_default_context()) if secure else None
        if self.open_socket is None:
            return await asyncio.open_connection(host, port, ssl=context)
        opened = await self.open_socket(host, port)
        try:
            return await asyncio.open_connection(
                sock=opened, ssl=context, server_hostname=host if secure else None
            )
        except BaseException:
            opened.close()
            raise

    def _request(
        self, method: str, parts: SplitResult, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        query = f"?{parts.query}" if parts.query else ""
        lines = [
            f"{method} {parts.path or '/'}{query} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Connection: close",
            "Accept: application/json",
            # Compressed, a small answer could become a large one.
            "Accept-Encoding: identity",
        ]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **headers}.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
