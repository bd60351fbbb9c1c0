"""A WebSocket opened by us: whole messages in and out, and whether to reconnect when it breaks (RFC 6455).

Frames are read by the same code as on the gateway's side (`net.websocket_server`). What we send is masked and
written at once; what the other side does not take yet waits in the transport, up to `outbox_bytes`, and no
more than that is accepted. Nothing here knows what the bytes mean.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec
from picows import (
    WSAutoPingStrategy,
    WSError,
    WSFrame,
    WSHandshakeError,
    WSMsgType,
    WSTransport,
    ws_connect,
)

from moot.errors import MootError, OutboxFull, TimedOut, Unreachable, UsageError
from moot.net.outbound import OpenSocket, explain_untrusted
from moot.net.websocket_server import ServerSocket, SocketLimits
from moot.protocol.close_codes import CLOSE_CODES

# picows logs the mistakes of peers as errors of ours; whoever dials gets an exception, and that is enough.
_picows_log = logging.getLogger(f"{__name__}.picows")
_picows_log.setLevel(logging.CRITICAL)

# A connection that ended without a close frame (RFC 6455, 7.4.1).
ABNORMAL_CLOSE: Final = 1006
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
# Answers of a gateway that is busy, or of a proxy in front of one that restarts.
_TEMPORARY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class DialLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection of ours may take."""

    # Above the largest envelope that a gateway sends; MEW's limit is 1 MiB (`max_bytes`).
    message_bytes: int = 4 << 20
    # What may wait to be sent. Four of the largest envelopes; a gateway that takes no more is in trouble.
    outbox_bytes: int = 4 << 20
    # As on the gateway's side: silence for this long is asked about, and then ended.
    ping_seconds: float = 20.0
    # The TCP connection and the upgrade together.
    connect_seconds: float = 10.0


DEFAULT_LIMITS: Final = DialLimits()


class UpgradeRefused(MootError):
    """An HTTP answer where a WebSocket was asked for."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:400].decode('utf-8', 'replace')}")
        self.status = status
        self.body = body

    @property
    def is_temporary(self) -> bool:
        """Whether trying again later can help."""
        return self.status in _TEMPORARY_STATUSES


class MessageListener(Protocol):
    """Receives what comes. Called from the loop; nothing here may block or raise."""

    def opened(self, line: ClientSocket) -> None: ...

    def received(self, data: bytes, binary: bool) -> None: ...

    def closed(self, code: int, reason: str) -> None: ...


class ClientSocket(ServerSocket):
    """One open WebSocket of ours."""

    def __init__(self, listener: MessageListener, limits: DialLimits) -> None:
        reading = SocketLimits(
            message_bytes=limits.message_bytes, write_buffer_bytes=limits.outbox_bytes // 4
        )
        super().__init__(_FrameListener(self, listener), reading)
        self.code = ABNORMAL_CLOSE
        self.reason = ""
        self._outbox_bytes = limits.outbox_bytes
        self._writable = asyncio.Event()
        self._writable.set()
        self._has_closed = asyncio.Event()
        self._is_aborted = False
        self._has_opened = False

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._has_opened = True
        super().on_ws_connected(transport)
        if self._is_aborted:
            # `dial` was cancelled before the handshake was done.
            self._drop()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if transport.is_close_frame_sent:
            # picows has closed because of a frame that is too large, and then goes on to hand it over.
            self._is_closing = True
        super().on_ws_frame(transport, frame)

    def abort(self) -> None:
        """Drop this connection at once, also if it is still being opened."""
        self._is_aborted = True
        self._drop()

    def send(self, data: bytes, *, binary: bool = False) -> None:
        """One message, in order; raises OutboxFull. On a closed connection it is dropped."""
        transport = self._transport
        if transport is None or self._is_closing:
            return
        waiting = transport.underlying_transport.get_write_buffer_size()
        if waiting + len(data) > self._outbox_bytes:
            raise OutboxFull(
                f"{waiting} bytes wait to be sent already and outbox_bytes is {self._outbox_bytes}:"
                " wait until some of it is gone"
            )
        transport.send(WSMsgType.BINARY if binary else WSMsgType.TEXT, data)

    async def wait_drained(self, timeout_seconds: float) -> None:
        """Wait until the other side has read most of what was sent; raises TimedOut."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._writable.wait()
        except TimeoutError:
            raise TimedOut(f"the gateway read nothing for {timeout_seconds:g} s") from None

    async def wait_closed(self, timeout_seconds: float) -> None:
        """Wait until the connection has ended; it is aborted if that takes longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._has_closed.wait()
        self._drop()

    @property
    def is_full(self) -> bool:
        """Whether whoever sends much should `wait_drained` first."""
        return not self._writable.is_set()

    def _handle_close(self, transport: WSTransport, frame: WSFrame) -> None:
        body = frame.get_payload_as_bytes()
        if len(body) >= 2:
            self.code = struct.unpack("!H", body[:2])[0]
            self.reason = body[2:].decode("utf-8", "replace")
        else:
            self.code = 1000
        super()._handle_close(transport, frame)


class _FrameListener:
    """Adds the close code: a connection does not know it, and a listener wants it."""

    subprotocol: str | None = None
    max_first_bytes: int | None = None

    def __init__(self, line: ClientSocket, listener: MessageListener) -> None:
        self._line = line
        self._listener = listener
        self.received = listener.received

    def opened(self, _: ServerSocket) -> None:
        self._listener.opened(self._line)

    def closed(self) -> None:
        line = self._line
        if line._has_closed.is_set():
            return
        line._has_closed.set()
        line._writable.set()
        self._listener.closed(line.code, line.reason)

    def full(self) -> None:
        self._line._writable.clear()

    def drained(self) -> None:
        self._line._writable.set()

    def flush(self) -> None:
        """Everything is written when it is sent."""


async def dial(
    url: str,
    listener: MessageListener,
    *,
    headers: Mapping[str, str],
    limits: DialLimits = DEFAULT_LIMITS,
    open_socket: OpenSocket | None = None,
    tls: ssl.SSLContext | None = None,
) -> ClientSocket:
    """Open a WebSocket; raises UpgradeRefused, Unreachable. Cancelling leaves nothing behind.

    No redirect is followed and no proxy is used: a token goes to the host that was named, and nowhere else.
    `open_socket` connects to a host and a port in our place, for whoever wants to see the address first.
    """
    line = ClientSocket(listener, limits)

    async def connected(parsed: Any) -> socket.socket:
        assert open_socket is not None  # noqa: S101  # only used where it is given
        return await open_socket(str(parsed.host), int(parsed.port))

    try:
        async with asyncio.timeout(limits.connect_seconds):
            await ws_connect(
                lambda: line,
                url,
                websocket_handshake_timeout=limits.connect_seconds,
                logger_name=_picows_log,
                enable_auto_ping=limits.ping_seconds > 0,
                auto_ping_idle_timeout=limits.ping_seconds,
                auto_ping_reply_timeout=limits.ping_seconds,
                auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
                enable_auto_pong=False,
                max_frame_size=limits.message_bytes,
                extra_headers=headers,
                max_redirects=0,
                socket_factory=None if open_socket is None else connected,
                ssl_context=tls,
                use_aiofastnet=False,
            )
    except WSHandshakeError as fault:
        line.abort()
        if fault.response is not None:
            raise UpgradeRefused(int(fault.response.status), fault.raw_body or b"") from None
        raise Unreachable(f"{_without_query(url)} is no WebSocket server: {fault}") from None
    except ssl.SSLCertVerificationError as fault:
        line.abort()
        raise Unreachable(f"{_without_query(url)} cannot be reached: {explain_untrusted(fault)}") from fault
    except (OSError, WSError, EOFError) as fault:
        # TimeoutError is an OSError; ssl's errors are too.
        line.abort()
        why = str(fault) or f"nothing within {limits.connect_seconds:g} s"
        raise Unreachable(f"{_without_query(url)} cannot be reached: {why}") from fault
    except BaseException:
        line.abort()
        raise
    if not line._has_opened:
        # A server that hangs up in the middle of the handshake leaves a socket that never opened.
        raise Unreachable(f"{_without_query(url)} hung up before it was a WebSocket")
    return line


def websocket_url(url: str, path: str, query: Mapping[str, str]) -> str:
    """The address of a WebSocket at a gateway that is given as http, https, ws or wss."""
    try:
        parts: SplitResult = urlsplit(url)
        usable = parts.scheme in _SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        example = "one looks like http://localhost:8080"
        hint = example if "://" in url or not url.strip() else f"did you mean http://{url.strip()}?"
        raise UsageError(f"{url!r} is no address of a gateway; {hint}")
    if parts.username or parts.password:
        raise UsageError("a gateway's address holds no user or password: give the token by itself")
    before = parts.path.rstrip("/").removesuffix(path)
    asked = f"?{urlencode(query)}" if query else ""
    return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{before}{path}{asked}"


def should_reconnect(code: int) -> bool:
    """Whether a connection that was closed with this code is opened again."""
    row = CLOSE_CODES.get(code)
    # Unknown codes come from a proxy or the network, and say nothing about us.
    return row.reconnect if row is not None else True


def _without_query(url: str) -> str:
    """An address without its query, which may hold secrets."""
    return url.partition("?")[0]
