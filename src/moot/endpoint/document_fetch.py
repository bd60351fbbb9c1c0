"""One GET of a public JSON document, from an address that was checked: nothing is followed, all is bounded.

Not `net.dial_http`: that one resolves the name itself, and here the address that was looked at has to be the
one that is talked to.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import httptools

from moot.endpoint.address_check import Resolve, connect, is_loopback, system_resolve
from moot.errors import InvalidJson, MootError, Unreachable
from moot.protocol import strict_json
from moot.protocol.operation import Json

_CHUNK: Final = 1 << 16
# Of status line and headers together; servers send one or two.
_HEADER_BYTES: Final = 32 << 10
MAX_URL_CHARS: Final = 2_048


class BadDocument(MootError):
    """A server answered, but not with the document that was asked for; the text says what came instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy:
    """How far fetches go. `ca_file` are authorities beside which no other counts; None: the system's."""

    # Name, connection and answer together.
    seconds: float = 15.0
    bytes: int = 8 << 20
    # Also lets plain HTTP through, to loopback addresses only.
    allow_private: bool = False
    ca_file: Path | None = None
    resolve: Resolve = system_resolve


class _FetchedResponse:
    """What httptools calls while it reads."""

    def __init__(self, most: int) -> None:
        self.body = bytearray()
        self.done = False
        self.too_large = False
        self.in_headers = True
        self._most = most

    def on_headers_complete(self) -> None:
        self.in_headers = False

    def on_body(self, piece: bytes) -> None:
        if len(self.body) + len(piece) > self._most:
            self.too_large = True
        else:
            self.body += piece

    def on_message_complete(self) -> None:
        self.done = True


def check_url(url: str, reach: FetchPolicy) -> SplitResult:
    """An address that may be fetched; raises BadDocument for what is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadDocument(f"{url[:200]!r} is no address") from None
    if len(url) > MAX_URL_CHARS or not url.isascii() or not url.isprintable() or " " in url:
        raise BadDocument(f"an address has at most {MAX_URL_CHARS} visible ASCII characters")
    if not parts.hostname or parts.username is not None or parts.password is not None or port == 0:
        raise BadDocument(f"{url[:200]!r} has to name a host, and no user")
    plain = parts.scheme == "http" and reach.allow_private and _is_local(parts.hostname)
    if parts.scheme != "https" and not plain:
        raise BadDocument(
            f"{url[:200]!r} has to begin with https://; http:// is for loopback addresses alone, and only "
            "with allow_private_addresses"
        )
    return parts


async def fetch_json(url: str, reach: FetchPolicy) -> Json:
    """The JSON at an address; raises ForbiddenAddress, Unreachable, BadDocument."""
    parts = check_url(url, reach)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    answer = _FetchedResponse(reach.bytes)
    parser = httptools.HttpResponseParser(answer)
    try:
        async with asyncio.timeout(reach.seconds):
            made = await connect(
                host,
                parts.port or (443 if secure else 80),
                within=reach.seconds,
                allow_private=reach.allow_private,
                resolve=reach.resolve,
            )
            try:
                reader, writer = await asyncio.open_connection(
                    sock=made,
                    ssl=_tls(reach.ca_file) if secure else None,
                    server_hostname=host if secure else None,
                )
            except BaseException:
                made.close()
                raise
            try:
                writer.write(_request(parts))
                await _read(reader, parser, answer)
            finally:
                # Not a goodbye in good order: the other side may be the one that hangs.
                writer.transport.abort()
    except (OSError, httptools.HttpParserError) as fault:
        why = str(fault) or f"nothing within {reach.seconds:g} s"
        raise Unreachable(f"no answer from {parts.netloc}: {why}") from None
    if answer.too_large:
        raise BadDocument(f"{_shown(url)} is larger than {reach.bytes} bytes")
    status = 0 if answer.in_headers else parser.get_status_code()
    if 300 <= status < 400:
        raise BadDocument(f"{_shown(url)} redirects, and redirects are not followed: serve it there itself")
    if status and status != 200:
        raise BadDocument(f"{_shown(url)} answers with HTTP {status}")
    if not answer.done:
        raise Unreachable(f"{parts.netloc} hung up in the middle of its answer")
    try:
        return strict_json.parse(bytes(answer.body))
    except InvalidJson as fault:
        raise BadDocument(f"{_shown(url)} is not JSON: {fault.message}") from None


async def _read(
    reader: asyncio.StreamReader, parser: httptools.HttpResponseParser, answer: _FetchedResponse
) -> None:
    total = 0
    while not answer.done and not answer.too_large:
        data = await reader.read(_CHUNK)
        if not data:
            return
        total += len(data)
        parser.feed_data(data)
        if answer.in_headers and total > _HEADER_BYTES:
            answer.too_large = True


def _request(parts: SplitResult) -> bytes:
    query = f"?{parts.query}" if parts.query else ""
    lines = [
        f"GET {parts.path or '/'}{query} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: close",
        "Accept: application/json",
        # Compressed, a small answer could become a large one.
        "Accept-Encoding: identity",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _is_local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


@cache
def _tls(ca_file: Path | None) -> ssl.SSLContext:
    # Remembered: reading the system's authorities takes some 30 ms.
    return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))


def _shown(url: str) -> str:
    return url.partition("?")[0][:200]
