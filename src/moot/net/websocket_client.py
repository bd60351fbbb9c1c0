"""A WebSocket opened by us: whole messages in and out, and whether to reconnect when it breaks (RFC 6455).

picows connects, parses frames and checks opcodes, masks, control frames and close codes. It hands over raw
frames, so fragments, reserved bits, the UTF-8 of text and the closing handshake are ours. What we send is
masked and written at once; what the other side does not take yet waits in the transport, up to
`OUTBOX_BYTES`, and no more than that is accepted. Nothing here knows what the bytes mean.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, cast
from urllib.parse import SplitResult, urlencode, urlsplit

from moot.errors import OutboxFull, TimedOut, Unreachable, UsageError
from moot.net.connect_errors import UpgradeRefused, without_query
from moot.net.outbound import OpenSocket, explain_untrusted
from moot.net.websocket_engine import (
    WSAutoPingStrategy,
    WSCloseCode,
    WSError,
    WSFrame,
    WSHandshakeError,
    WSListener,
    WSMsgType,
    WSProtocolError,
    WSTransport,
    ws_connect,
)
from moot.protocol.close_codes import CLOSE_CODES

log = logging.getLogger(__name__)
# picows logs the mistakes of peers as errors of ours; whoever dials gets an exception, and that is enough.
_picows_log = logging.getLogger(f"{__name__}.picows")
_picows_log.setLevel(logging.CRITICAL)

# A connection that ended without a close frame (RFC 6455, 7.4.1).
ABNORMAL_CLOSE: Final = 1006
# A close reason fits into a control frame together with its code (RFC 6455, 5.5).
_MAX_REASON_BYTES: Final = 123
# A gateway sends whole messages; a proxy in front of it may cut them.
MAX_MESSAGE_FRAGMENTS: Final = 4_352
# How long the other side may take to answer our close.
CLOSE_SECONDS: Final = 3.0
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


# Above the largest envelope that a gateway sends; MEW's limit is 1 MiB (`max_bytes`).
MESSAGE_BYTES: Final = 4 << 20
# What may wait to be sent. Four of the largest envelopes; a gateway that takes no more is in trouble.
OUTBOX_BYTES: Final = 4 << 20
# As on the gateway's side: silence for this long is asked about, and then ended.
PING_SECONDS: Final = 20.0
# The TCP connection and the upgrade together.
CONNECT_SECONDS: Final = 10.0


class MessageListener(Protocol):
    """Receives what comes. Called from the loop; nothing here may block or raise."""

    def opened(self, line: ClientSocket) -> None: ...

    def received(self, data: bytes, binary: bool) -> None: ...

    def closed(self, code: int, reason: str) -> None: ...


class ClientSocket(WSListener):
    """One open WebSocket of ours."""

    def __init__(self, listener: MessageListener, message_bytes: int) -> None:
        self.code = ABNORMAL_CLOSE
        self.reason = ""
        self._listener = listener
        self._message_bytes = message_bytes
        self._transport: WSTransport | None = None
        self._fragments: list[bytes] | None = None
        self._fragments_size = 0
        self._fragments_binary = False
        self.is_closing = False
        self._drop_timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._has_closed = asyncio.Event()
        self._is_aborted = False
        self._has_opened = False

    # Called by picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._has_opened = True
        self._transport = transport
        # uvloop's own low-water mark is 16 bytes: it would count as full until nearly everything is sent.
        high = OUTBOX_BYTES // 4
        transport.underlying_transport.set_write_buffer_limits(high=high, low=high // 4)
        self._listener.opened(self)
        if self._is_aborted:
            # `dial` was cancelled before the handshake was done.
            self._drop()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if transport.is_close_frame_sent:
            # picows has closed because of a frame that is too large, and then goes on to hand it over.
            self.is_closing = True
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            raise self._protocol_error(
                WSCloseCode.PROTOCOL_ERROR, "reserved bits are set, but no extension was agreed"
            )
        kind = frame.msg_type
        if kind == WSMsgType.CLOSE:
            self._handle_close(transport, frame)
            return
        if self.is_closing:
            return
        if kind == WSMsgType.PING:
            # Not by picows itself, which would answer before the reserved bits are checked.
            transport.send_pong(frame.get_payload_as_bytes())
            return
        if kind in (WSMsgType.TEXT, WSMsgType.BINARY):
            if self._fragments is not None:
                raise self._protocol_error(
                    WSCloseCode.PROTOCOL_ERROR, "a new message inside a fragmented one"
                )
            binary = kind == WSMsgType.BINARY
            if not frame.fin:
                self._fragments, self._fragments_size = [], 0
                self._fragments_binary = binary
                self._add_fragment(frame)
                return
            # Straight to the listener: every member does this for everything that is said.
            data: bytes | None = frame.get_payload_as_bytes()
        else:
            binary = self._fragments_binary
            data = self._add_fragment(frame) if kind == WSMsgType.CONTINUATION else None
        if data is None:
            return
        if len(data) > self._message_bytes:
            # picows has sent its close for that and hands over the message all the same.
            self.is_closing = True
            return
        if not binary and not data.isascii():
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                raise self._protocol_error(WSCloseCode.INVALID_TEXT, "text is not valid UTF-8") from None
        try:
            self._listener.received(data, binary)
        except Exception:
            # A connection's task: whatever went wrong stays with us, the peer gets no detail.
            log.exception("a message could not be handled")
            self.close(WSCloseCode.INTERNAL_ERROR.value, "internal error")

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        # picows keeps what broke the connection until somebody retrieves it, or logs that nobody did.
        retrieved = asyncio.ensure_future(transport.wait_disconnected())
        retrieved.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._transport = None
        self.is_closing = True
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        if not self._has_closed.is_set():
            self._has_closed.set()
            self._writable.set()
            self._listener.closed(self.code, self.reason)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Called by whoever dialled

    def close(self, code: int, reason: str) -> None:
        """Start the closing handshake; what was sent before still goes out."""
        transport = self._transport
        if transport is None or self.is_closing:
            return
        self.is_closing = True
        short = reason.encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore").encode()
        transport.send_close(cast("WSCloseCode", code), short)  # any number, also those of 4000 and up
        loop = asyncio.get_running_loop()
        self._drop_timer = loop.call_later(CLOSE_SECONDS, self._drop)

    def abort(self) -> None:
        """Drop this connection at once, also if it is still being opened."""
        self._is_aborted = True
        self._drop()

    def send(self, data: bytes, *, binary: bool = False) -> None:
        """One message, in order; raises OutboxFull. On a closed connection it is dropped."""
        transport = self._transport
        if transport is None or self.is_closing:
            return
        waiting = transport.underlying_transport.get_write_buffer_size()
        if waiting + len(data) > OUTBOX_BYTES:
            raise OutboxFull(
                f"{waiting} bytes wait to be sent already, and {OUTBOX_BYTES} may: wait until some are gone"
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

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.abort()

    def _protocol_error(self, code: WSCloseCode, reason: str) -> WSProtocolError:
        """Read nothing more; picows sends the close."""
        self.is_closing = True
        return WSProtocolError(code, reason)

    def _add_fragment(self, frame: WSFrame) -> bytes | None:
        """The whole message, if this was its last part."""
        fragments = self._fragments
        if fragments is None:
            raise self._protocol_error(WSCloseCode.PROTOCOL_ERROR, "a continuation of nothing")
        self._fragments_size += frame.payload_size
        if self._fragments_size > self._message_bytes:
            raise self._protocol_error(
                WSCloseCode.MESSAGE_TOO_BIG, f"message larger than {self._message_bytes} bytes"
            )
        if len(fragments) >= MAX_MESSAGE_FRAGMENTS:
            raise self._protocol_error(
                WSCloseCode.POLICY_VIOLATION,
                f"message in more than {MAX_MESSAGE_FRAGMENTS} fragments",
            )
        fragments.append(frame.get_payload_as_bytes())
        if not frame.fin:
            return None
        self._fragments = None
        return b"".join(fragments)

    def _handle_close(self, transport: WSTransport, frame: WSFrame) -> None:
        body = frame.get_payload_as_bytes()
        self.code = struct.unpack("!H", body[:2])[0] if len(body) >= 2 else 1000
        self.reason = body[2:].decode("utf-8", "replace")
        if not self.is_closing:
            self.is_closing = True
            transport.send_close(cast("WSCloseCode", self.code))
        transport.disconnect()


async def dial(
    url: str,
    listener: MessageListener,
    *,
    headers: Mapping[str, str],
    message_bytes: int = MESSAGE_BYTES,
    connect_seconds: float | None = None,
    ping_seconds: float | None = None,
    open_socket: OpenSocket | None = None,
    tls: ssl.SSLContext | None = None,
) -> ClientSocket:
    """Open a WebSocket; raises UpgradeRefused, Unreachable. Cancelling leaves nothing behind.

    No redirect is followed and no proxy is used: a token goes to the host that was named, and nowhere else.
    `open_socket` connects to a host and a port in our place, for whoever wants to see the address first.
    """
    line = ClientSocket(listener, message_bytes)
    connect_seconds = CONNECT_SECONDS if connect_seconds is None else connect_seconds
    ping_seconds = PING_SECONDS if ping_seconds is None else ping_seconds

    async def connected(parsed: Any) -> socket.socket:
        assert open_socket is not None  # noqa: S101  # only used where it is given
        return await open_socket(str(parsed.host), int(parsed.port))

    try:
        async with asyncio.timeout(connect_seconds):
            await ws_connect(
                lambda: line,
                url,
                websocket_handshake_timeout=connect_seconds,
                logger_name=_picows_log,
                enable_auto_ping=ping_seconds > 0,
                auto_ping_idle_timeout=ping_seconds,
                auto_ping_reply_timeout=ping_seconds,
                auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
                enable_auto_pong=False,
                max_frame_size=message_bytes,
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
        raise Unreachable(f"{without_query(url)} is no WebSocket server: {fault}") from None
    except ssl.SSLCertVerificationError as fault:
        line.abort()
        raise Unreachable(f"{without_query(url)} cannot be reached: {explain_untrusted(fault)}") from fault
    except (OSError, WSError, EOFError, UnicodeError) as fault:
        # TimeoutError is an OSError; ssl's errors are too. A host that is no name at all is a UnicodeError.
        line.abort()
        why = str(fault) or f"nothing within {connect_seconds:g} s"
        raise Unreachable(f"{without_query(url)} cannot be reached: {why}") from fault
    except BaseException:
        line.abort()
        raise
    if not line._has_opened:
        # A server that hangs up in the middle of the handshake leaves a socket that never opened.
        raise Unreachable(f"{without_query(url)} hung up before it was a WebSocket")
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
