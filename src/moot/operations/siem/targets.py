"""Where events go: a file, syslog over TCP or TLS (RFC 5424, 6587, 5425), or HTTP.

`send` returns once the other side has what it was given, or raises OSError. Syslog has no answers: so each
batch has a connection of its own, whose end the receiver confirms by closing it after it has read everything.
"""

from __future__ import annotations

import os
import socket
import ssl
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from moot.config.gateway_config import is_loopback
from moot.errors import UsageError
from moot.private_files import append_lines

SECONDS: Final = 30.0
# RFC 5424: facility 13 (log audit), severity 5 (notice).
_PRIORITY: Final = 13 * 8 + 5


_MAX_ANSWER_BYTES: Final = 64 << 10


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Elsewhere it would be asked for, with the token and without the events, and count as sent."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


class SecurityLine(NamedTuple):
    id: str
    # RFC 3339.
    time: str
    json: bytes


Send = Callable[[Sequence[SecurityLine]], None]


def target_of(url: str, token: str | None = None) -> Send:
    """How to send to a file, to syslog or over HTTP; raises UsageError."""
    at = urlsplit(url)
    if at.scheme == "file" and at.path:
        return lambda lines: _append(Path(at.path), lines)
    if at.scheme in ("syslog", "syslog+tls") and at.hostname:
        context = ssl.create_default_context() if at.scheme == "syslog+tls" else None
        place = (at.hostname, at.port or (6514 if context else 601))
        return lambda lines: _syslog(place, context, lines)
    if at.scheme in ("http", "https") and at.hostname:
        if token and at.scheme == "http" and not is_loopback(at.hostname):
            raise UsageError(f"{url}: everybody on the way would read the token: use https")
        return lambda lines: _post(url, token, lines)
    raise UsageError(f"{url}: is none of file:PATH, syslog://HOST:PORT, syslog+tls://HOST:PORT, https://…")


def _append(path: Path, lines: Sequence[SecurityLine]) -> None:
    append_lines(path, b"".join(line.json + b"\n" for line in lines))


def _syslog(place: tuple[str, int], context: ssl.SSLContext | None, lines: Sequence[SecurityLine]) -> None:
    host = socket.gethostname() or "-"
    with socket.create_connection(place, SECONDS) as plain:
        connection = plain if context is None else context.wrap_socket(plain, server_hostname=place[0])
        with connection:
            for line in lines:
                head = f"<{_PRIORITY}>1 {line.time} {host} moot {os.getpid()} {line.id.rpartition('/')[2]} - "
                message = head.encode() + line.json
                connection.sendall(b"%d %b" % (len(message), message))
            if isinstance(connection, ssl.SSLSocket):
                # Waits for the other side's own end; one that ends without saying so has read it all, too.
                with suppress(ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    connection.unwrap()
                return
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass


def _post(url: str, token: str | None, lines: Sequence[SecurityLine]) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    body = b"".join(line.json + b"\n" for line in lines)
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310  # checked above
    with _OPENER.open(request, timeout=SECONDS) as answer:
        answer.read(_MAX_ANSWER_BYTES)
