"""One GET of a public JSON document, from an address that was checked: no redirects, all bounded."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from moot.errors import InvalidJson, MootError
from moot.net.address_check import Resolve, connect_checked, is_loopback, system_resolve
from moot.net.http_client import HttpClient, ResponseTooLarge
from moot.protocol import strict_json
from moot.protocol.operation import Json

MAX_URL_CHARS: Final = 2_048
# Name, connection and answer together, unless less is left.
DISCOVERY_SECONDS: Final = 15.0
# A catalogue of a thousand tools with their schemas is smaller.
MAX_DISCOVERY_BYTES: Final = 8 << 20


class BadDocument(MootError):
    """A server answered, but not with the document that was asked for; the text says what came instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy:
    """How far fetches go. `ca_file` are authorities beside which no other counts; None: the system's."""

    timeout_seconds: float = DISCOVERY_SECONDS
    # Also lets plain HTTP through, to loopback addresses only.
    allow_private: bool = False
    ca_file: Path | None = None
    resolve: Resolve = system_resolve

    async def open_socket(self, host: str, port: int) -> socket.socket:
        """Connect to an address that was checked: what is checked has to be what is connected to."""
        return await connect_checked(
            host,
            port,
            timeout_seconds=self.timeout_seconds,
            allow_private=self.allow_private,
            resolve=self.resolve,
        )


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


async def fetch_json(url: str, reach: FetchPolicy, *, max_bytes: int = MAX_DISCOVERY_BYTES) -> Json:
    """The JSON at an address; raises ForbiddenAddress, Unreachable, BadDocument."""
    parts = check_url(url, reach)
    client = HttpClient(
        timeout_seconds=reach.timeout_seconds,
        max_bytes=max_bytes,
        tls=tls_context(reach.ca_file) if parts.scheme == "https" else None,
        open_socket=reach.open_socket,
    )
    try:
        response = await client.get(url)
    except ResponseTooLarge:
        raise BadDocument(f"{_shown(url)} is larger than {max_bytes} bytes") from None
    if 300 <= response.status < 400:
        raise BadDocument(f"{_shown(url)} redirects, and redirects are not followed: serve it there itself")
    if response.status != 200:
        raise BadDocument(f"{_shown(url)} answers with HTTP {response.status}")
    try:
        return strict_json.parse(response.body)
    except InvalidJson as fault:
        raise BadDocument(f"{_shown(url)} is not JSON: {fault.message}") from None


def _is_local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


@cache
def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """The TLS context that trusts these authorities; None: the system's."""
    # Cached: reading the system's authorities takes some 30 ms.
    return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))


def _shown(url: str) -> str:
    return url.partition("?")[0][:200]
