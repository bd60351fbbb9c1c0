"""One HTTP GET, for what a WebSocket cannot be asked: bounded in time and size, no redirects, no pool."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import httptools

from moot.errors import Unreachable
from moot.net.websocket_client import untrusted

_SECURE = ("https", "wss")


class _ResponseParser:
    """What httptools calls while it reads."""

    def __init__(self, most: int) -> None:
        self.body = bytearray()
        self.done = False
        self.too_large = False
        self._most = most

    def on_body(self, piece: bytes) -> None:
        if len(self.body) + len(piece) > self._most:
            self.too_large = True
        else:
            self.body += piece

    def on_message_complete(self) -> None:
        self.done = True


async def fetch(
    url: str,
    *,
    headers: Mapping[str, str],
    within: float,
    most: int,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, bytes]:
    """Status and body of a GET; raises Unreachable when there is no answer, or none of that size."""
    parts = urlsplit(url)
    secure = parts.scheme in _SECURE
    port = parts.port or (443 if secure else 80)
    answer = _ResponseParser(most)
    parser = httptools.HttpResponseParser(answer)
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(
                parts.hostname, port, ssl=(tls or ssl.create_default_context()) if secure else None
            )
            try:
                writer.write(_request(parts.netloc, f"{parts.path or '/'}?{parts.query}", headers))
                while not answer.done and not answer.too_large:
                    data = await reader.read(1 << 16)
                    if not data:
                        break
                    parser.feed_data(data)
            finally:
                # Not a goodbye in good order: the other side may be the one that hangs.
                writer.transport.abort()
    except ssl.SSLCertVerificationError as fault:
        raise Unreachable(f"no answer from {parts.netloc}: {untrusted(fault)}") from fault
    except (OSError, httptools.HttpParserError) as fault:
        why = str(fault) or f"nothing within {within:g} s"
        raise Unreachable(f"no answer from {parts.netloc}: {why}") from fault
    if answer.too_large:
        raise Unreachable(f"the answer of {parts.netloc} is larger than {most} bytes")
    if not answer.done:
        raise Unreachable(f"{parts.netloc} hung up in the middle of its answer")
    return parser.get_status_code(), bytes(answer.body)


def _request(host: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Connection: close", "Accept: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
