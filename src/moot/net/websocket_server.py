"""WebSocket connections on uvicorn's port, read by picows (RFC 6455).

picows parses frames and checks opcodes, masks, control frames and close codes. It hands over raw frames, so
fragments, reserved bits, the UTF-8 of text and the closing handshake are ours. This is the only file that
knows picows, and `picows.picows.WSProtocol` is the one name in it that is not public (hence the pin).

uvicorn gives us the upgrade request after its own HTTP parser has read it: `server_protocol` makes the
class for its `ws=` option. Starlette's middleware does not see these connections; the `Admit` function
decides who may connect.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

import msgspec
from picows import (
    WSAutoPingStrategy,
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSProtocolError,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from moot.net.first_bytes import FirstBytes

log = logging.getLogger(__name__)
# picows logs the mistakes of peers as errors of ours; the peer gets a close code, and that is enough.
_picows_log = logging.getLogger(f"{__name__}.picows")
_picows_log.setLevel(logging.CRITICAL)

# Looked up once: every frame is compared with these.
_TEXT: Final = WSMsgType.TEXT
_BINARY: Final = WSMsgType.BINARY
_CONTINUATION: Final = WSMsgType.CONTINUATION
_CLOSE: Final = WSMsgType.CLOSE

# A close reason fits into a control frame together with its code (RFC 6455, 5.5).
_MAX_REASON_BYTES: Final = 123
_CONNECTION = re.compile(rb"\r\nconnection: [^\r]*", re.IGNORECASE)
# RFC 6455, 7.4.1, and the registry's later ones.
_CLOSE_CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})


class SocketLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one WebSocket connection may do."""

    # Above the largest envelope and frame of a space, whose own limits answer with an error first.
    message_bytes: int = (1 << 20) + (64 << 10)
    # Above this the transport reports that a reader is behind.
    write_buffer_bytes: int = 256 << 10
    # 4 KiB hold nearly every envelope; the buffer grows when a larger one comes.
    read_buffer_bytes: int = 4 << 10
    ping_seconds: float = 20.0
    ping_timeout_seconds: float = 20.0
    # How long a peer may take to answer our close; a slow one has to read everything before it first. Then
    # it is dropped, and what it has not read, including the close and its reason, may be lost.
    close_seconds: float = 3.0


class Upgrade(msgspec.Struct, frozen=True):
    """A request to become a WebSocket."""

    path: str  # with its query
    headers: Mapping[str, str]
    peer: str


class UpgradeRefusal(msgspec.Struct, frozen=True):
    """No WebSocket: an HTTP answer instead."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class Handler(Protocol):
    """What handles one connection. Called from the loop; nothing here may block or raise."""

    subprotocol: str | None
    # How many bytes are read before the handler calls `accept_all`; None: any number from the start.
    max_first_bytes: int | None

    def opened(self, connection: ServerSocket) -> None: ...

    def received(self, data: bytes, binary: bool) -> None: ...

    def closed(self) -> None: ...

    def full(self) -> None: ...

    def drained(self) -> None: ...

    def flush(self) -> None: ...


Admit = Callable[[Upgrade], UpgradeRefusal | Handler]


class ServerSocket(WSListener):
    """One WebSocket: whole messages in, raw bytes out."""

    def __init__(self, handler: Handler, limits: SocketLimits) -> None:
        self.handler = handler
        self.limits = limits
        self.peer = ""
        self._transport: WSTransport | None = None
        self._fragments: list[bytes] | None = None
        self._fragments_size = 0
        self._fragments_binary = False
        self._is_closing = False
        self._drop_timer: asyncio.TimerHandle | None = None
        self._first_bytes: FirstBytes | None = None

    # Called by picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        # uvloop's own low-water mark is 16 bytes: it would count as full until nearly everything is sent.
        high = self.limits.write_buffer_bytes
        transport.underlying_transport.set_write_buffer_limits(high=high, low=high // 4)
        self.handler.opened(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            raise self._protocol_error(
                WSCloseCode.PROTOCOL_ERROR, "reserved bits are set, but no extension was agreed"
            )
        kind = frame.msg_type
        if kind is _TEXT or kind is _BINARY:
            if self._is_closing:
                return
            if self._fragments is not None:
                raise self._protocol_error(
                    WSCloseCode.PROTOCOL_ERROR, "a new message inside a fragmented one"
                )
            if frame.fin:
                self._handle_message(frame.get_payload_as_bytes(), kind is _BINARY)
                return
            self._fragments, self._fragments_size = [], 0
            self._fragments_binary = kind is _BINARY
            self._add_fragment(frame)
        elif kind is _CONTINUATION:
            if self._is_closing:
                return
            if self._fragments is None:
                raise self._protocol_error(WSCloseCode.PROTOCOL_ERROR, "a continuation of nothing")
            self._add_fragment(frame)
        elif kind == WSMsgType.PING:
            # Not by picows itself, which would answer before the reserved bits are checked.
            if not self._is_closing:
                transport.send_pong(frame.get_payload_as_bytes())
        elif kind is _CLOSE:
            self._handle_close(transport, frame)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        # picows keeps what broke the connection until somebody retrieves it, or logs that nobody did.
        retrieved = asyncio.ensure_future(transport.wait_disconnected())
        retrieved.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._transport = None
        self._is_closing = True
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        self.handler.closed()

    def pause_writing(self) -> None:
        self.handler.full()

    def resume_writing(self) -> None:
        self.handler.drained()

    # Called by handlers

    def write(self, data: bytes) -> None:
        """Bytes that are frames already."""
        if self._transport is not None and not self._is_closing:
            self._transport.underlying_transport.write(data)

    def close(self, code: int, reason: str) -> None:
        """Start the closing handshake; what was written before still goes out."""
        transport = self._transport
        if transport is None or self._is_closing:
            return
        self.handler.flush()
        self._is_closing = True
        short = reason.encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore").encode()
        transport.send_close(cast("WSCloseCode", code), short)  # any number, also those of 4000 and up
        loop = asyncio.get_running_loop()
        self._drop_timer = loop.call_later(self.limits.close_seconds, self._drop)

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def limit_first_bytes(self, protocol: _ServerProtocol, max_bytes: int) -> None:
        """Read no more than so many bytes before `accept_all`."""
        self._first_bytes = FirstBytes(protocol, self, max_bytes)

    def accept_all(self) -> None:
        """From here on messages may be as large as `SocketLimits` say."""
        if self._first_bytes is not None:
            self._first_bytes.lift()
            self._first_bytes = None

    def _protocol_error(self, code: WSCloseCode, reason: str) -> WSProtocolError:
        """Read nothing more; picows sends the close. What was written before still goes out."""
        if not self._is_closing:
            self.handler.flush()
        self._is_closing = True
        return WSProtocolError(code, reason)

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.abort()

    def _add_fragment(self, frame: WSFrame) -> None:
        fragments = self._fragments
        assert fragments is not None  # noqa: S101  # both callers have set it
        self._fragments_size += frame.payload_size
        if self._fragments_size > self.limits.message_bytes:
            raise self._protocol_error(
                WSCloseCode.MESSAGE_TOO_BIG, f"message larger than {self.limits.message_bytes} bytes"
            )
        fragments.append(frame.get_payload_as_bytes())
        if frame.fin:
            self._fragments = None
            self._handle_message(b"".join(fragments), self._fragments_binary)

    def _handle_message(self, data: bytes, binary: bool) -> None:
        if len(data) > self.limits.message_bytes:
            # picows has sent its close for that and hands over the message all the same.
            self._is_closing = True
            return
        if not binary and not data.isascii():
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                raise self._protocol_error(WSCloseCode.INVALID_TEXT, "text is not valid UTF-8") from None
        try:
            self.handler.received(data, binary)
        except Exception:
            # A connection's task: whatever went wrong stays with us, the peer gets no detail.
            log.exception("a message could not be handled")
            self.close(WSCloseCode.INTERNAL_ERROR.value, "internal error")

    def _handle_close(self, transport: WSTransport, frame: WSFrame) -> None:
        # picows has refused most codes below 3000 that may not be sent, but not all.
        code = int(frame.get_close_code()) if frame.payload_size else 1000  # type: ignore[call-overload]
        if not (code in _CLOSE_CODES or 3000 <= code < 5000):
            raise self._protocol_error(WSCloseCode.PROTOCOL_ERROR, f"close code {code} may not be sent")
        if not self._is_closing:
            self.handler.flush()
            self._is_closing = True
            transport.send_close(cast("WSCloseCode", code))
        transport.disconnect()


class _ServerProtocol(WSProtocol):  # type: ignore[misc]
    """picows' protocol, fed by uvicorn with the request that it has read already."""

    on_lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Called with the upgrade request only; from then on the transport fills our buffer itself."""
        # uvicorn has found `upgrade` among the tokens; picows wants it alone, and Firefox sends two.
        self.feed(_CONNECTION.sub(b"\r\nconnection: upgrade", data, count=1))

    def feed(self, data: bytes) -> None:
        """Process bytes that somebody else has read."""
        view = memoryview(data)
        # By the class: the instance may have got others from `FirstBytes`.
        get_buffer, buffer_updated = type(self).get_buffer, type(self).buffer_updated
        while view:
            room = get_buffer(self, len(view))
            size = min(len(room), len(view))
            room[:size] = view[:size]
            view = view[size:]
            buffer_updated(self, size)


def server_protocol(
    admit: Admit, limits: SocketLimits, on_lost: Callable[[str], None] = lambda _peer: None
) -> Callable[..., asyncio.BaseProtocol]:
    """For uvicorn's `ws=` option: makes the protocol of one connection; `admit` decides on each.

    `on_lost` is called with the address of every connection that ends, admitted or not.
    """

    def protocol(**_: Any) -> asyncio.BaseProtocol:
        made: list[_ServerProtocol] = []

        def address_of() -> str:
            peer = made[0].transport.underlying_transport.get_extra_info("peername")
            return str(peer[0]) if peer else ""

        def listener(request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
            headers = {name.lower(): value for name, value in request.headers.items()}
            address = address_of()
            made[0].on_lost = lambda: on_lost(address)
            if headers.get("sec-websocket-version") != "13":
                response = WSUpgradeResponse.create_error_response(426, None, {"Sec-WebSocket-Version": "13"})
                return WSUpgradeResponseWithListener(response, None)
            decision = admit(Upgrade(request.path.decode("latin-1"), headers, address))
            if isinstance(decision, UpgradeRefusal):
                kind = {"Content-Type": "application/json"} | dict(decision.headers)
                response = WSUpgradeResponse.create_error_response(
                    HTTPStatus(decision.status), decision.body, kind
                )
                return WSUpgradeResponseWithListener(response, None)
            chosen = {"Sec-WebSocket-Protocol": decision.subprotocol} if decision.subprotocol else None
            connection = ServerSocket(decision, limits)
            connection.peer = address
            if decision.max_first_bytes is not None:
                connection.limit_first_bytes(made[0], decision.max_first_bytes)
            return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(chosen), connection)

        made.append(
            _ServerProtocol(
                None,
                None,
                False,
                listener,
                _picows_log,
                True,
                None,
                limits.ping_seconds > 0,
                limits.ping_seconds,
                min(limits.ping_timeout_seconds, limits.ping_seconds),
                WSAutoPingStrategy.PING_WHEN_IDLE,
                False,
                limits.message_bytes,
                None,
                limits.read_buffer_bytes,
            )
        )
        return made[0]

    return protocol
