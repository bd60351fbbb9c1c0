"""A WebSocket opened by us: whole messages in and out, and how to come back when it breaks (RFC 6455).

Frames are read by the same code as on the gateway's side (`net.websocket`). What we send is masked and
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

# picows reports what peers do wrong as errors of ours; whoever dials is told, and that is enough.
_picows_log = logging.getLogger(f"{__name__}.picows")
_picows_log.setLevel(logging.CRITICAL)

# A connection that ended without a word (RFC 6455, 7.4.1).
LOST: Final = 1006
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
# Answers of a door that is only closed for the moment: a busy gateway, or a proxy before one that restarts.
_COME_BACK: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


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
    def may_return(self) -> bool:
        """Whether asking again later can help."""
        return self.status in _COME_BACK


class MessageListener(Protocol):
    """Who is told what comes. Called from the loop; nothing here may block or raise."""

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
        self.code = LOST
        self.reason = ""
        self._outbox_bytes = limits.outbox_bytes
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self._given_up = False
        self._has_opened = False

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._has_opened = True
        super().on_ws_connected(transport)
        if self._given_up:
            # Whoever dialled was cancelled before the handshake was over.
            self._drop()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if transport.is_close_frame_sent:
            # picows has closed because of a frame that is too large, and then goes on to hand it over.
            self._is_closing = True
        super().on_ws_frame(transport, frame)

    def give_up(self) -> None:
        """Nobody wants this connection any more, open or still to come."""
        self._given_up = True
        self._drop()

    def send(self, data: bytes, *, binary: bool = False) -> None:
        """One message, in order; raises OutboxFull. On a connection that is gone it goes nowhere."""
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

    async def drained(self, within: float) -> None:
        """Wait until the other side has taken most of what was sent; raises TimedOut."""
        try:
            async with asyncio.timeout(within):
                await self._writable.wait()
        except TimeoutError:
            raise TimedOut(f"the gateway took nothing for {within:g} s") from None

    async def gone(self, within: float) -> None:
        """Wait until the connection has ended; it is cut off if that takes longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._gone.wait()
        self._drop()

    @property
    def is_full(self) -> bool:
        """Whether a writer in bulk should wait for `drained`."""
        return not self._writable.is_set()

    def _peer_closes(self, transport: WSTransport, frame: WSFrame) -> None:
        body = frame.get_payload_as_bytes()
        if len(body) >= 2:
            self.code = struct.unpack("!H", body[:2])[0]
            self.reason = body[2:].decode("utf-8", "replace")
        else:
            self.code = 1000
        super()._peer_closes(transport, frame)


class _FrameListener:
    """Between a connection, which knows no close codes, and a listener, which wants them."""

    subprotocol: str | None = None

    def __init__(self, line: ClientSocket, listener: MessageListener) -> None:
        self._line = line
        self._listener = listener
        self.received = listener.received

    def opened(self, _: ServerSocket) -> None:
        self._listener.opened(self._line)

    def closed(self) -> None:
        line = self._line
        if line._gone.is_set():
            return
        line._gone.set()
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
    """Open a WebSocket; raises TurnedAway, Unreachable. Cancelling leaves nothing behind.

    No redirect is followed and no proxy asked: a token goes to the host that was named, and nowhere else.
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
        line.give_up()
        if fault.response is not None:
            raise UpgradeRefused(int(fault.response.status), fault.raw_body or b"") from None
        raise Unreachable(f"{_shown(url)} is no WebSocket server: {fault}") from None
    except ssl.SSLCertVerificationError as fault:
        line.give_up()
        raise Unreachable(f"{_shown(url)} cannot be reached: {explain_untrusted(fault)}") from fault
    except (OSError, WSError, EOFError) as fault:
        # TimeoutError is an OSError; ssl's errors are too.
        line.give_up()
        why = str(fault) or f"nothing within {limits.connect_seconds:g} s"
        raise Unreachable(f"{_shown(url)} cannot be reached: {why}") from fault
    except BaseException:
        line.give_up()
        raise
    if not line._has_opened:
        # Whoever hangs up in the middle of the handshake leaves a line that never opened.
        raise Unreachable(f"{_shown(url)} hung up before it was a WebSocket")
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


def may_return(code: int) -> bool:
    """Whether a connection that was closed like this is opened again by itself."""
    row = CLOSE_CODES.get(code)
    # Unknown codes are a proxy's or a network's; those are not about us.
    return row.reconnect if row is not None else True


def _shown(url: str) -> str:
    """An address without its query, which may hold what is nobody's business."""
    return url.partition("?")[0]
