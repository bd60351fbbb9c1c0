"""WebSocket connections on uvicorn's port: the handshakes at both ends, whole messages in, raw bytes out.

uvicorn gives us the upgrade request after its own HTTP parser has read it: `WebSocketServer` goes into its
`ws=` option and makes the protocol of every connection. Starlette's middleware does not see these
connections; the `Admit` function decides who may connect.

    frame_reader      bytes to messages, a slice at a time
    read_schedule     whose slice is next
    here              opening, pings and pongs, closing

A connection ends in three steps. Whoever starts sends a close frame; the other side answers with one; we say
that nothing more comes (`write_eof`) and wait for the other side to hang up. What it still sends is read and
dropped: closing a socket with unread bytes resets the connection, and the close frame with its reason would
be lost. None of that takes longer than `CLOSE_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

from moot.net import read_schedule
from moot.net.counted_address import peer_address
from moot.net.frame_reader import FrameReader
from moot.net.read_schedule import ReadSchedule
from moot.net.upgrade_request import (
    RelayedUpgrade,
    Upgrade,
    UpgradeRefusal,
    accepting_response,
    parse_upgrade,
    refusing_response,
)
from moot.net.websocket_frame import (
    CLOSE,
    GOING_AWAY,
    INTERNAL_ERROR,
    MESSAGE_TOO_BIG,
    PING,
    PONG,
    FrameError,
    encode_close,
    encode_frame,
    read_close_code,
)

D = TypeVar("D")
log = logging.getLogger(__name__)

# What is still read of a connection that has ended; beyond that it stays with the peer until it is dropped.
_MAX_DROPPED_BYTES: Final = 1 << 20
# How often is looked whether the last connection has ended.
_POLL_SECONDS: Final = 0.01
# The largest message in pieces of 256 bytes, smaller than any client makes them. More: closed with 1008.
MAX_MESSAGE_FRAGMENTS: Final = 4_352
# Above this the transport reports that a reader is behind.
WRITE_BUFFER_BYTES: Final = 256 << 10
# How often who says nothing is pinged: proxies drop a silent connection after 30 s or more.
PING_SECONDS: Final = 20.0
# As long again; after it the other side is gone.
PING_TIMEOUT_SECONDS: Final = 20.0
# How long a peer may take to answer our close; a slow one has to read everything before it first: 256 KiB
# take 2 s at 1 Mbit/s. Then it is dropped, and what it has not read, including the close and its reason, may
# be lost.
CLOSE_SECONDS: Final = 3.0


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


Decision = UpgradeRefusal | RelayedUpgrade | Handler
# With a future it is decided later, and nothing is read meanwhile.
Admit = Callable[[Upgrade], Decision | asyncio.Future[Decision]]


class WebSocketServer:
    """For uvicorn's `ws=` option: makes the protocol of one connection; `admit` decides on each.

    `on_lost` is called with the address of every connection that ends, admitted or not.
    """

    def __init__(
        self,
        admit: Admit,
        on_lost: Callable[[str], None] = lambda _peer: None,
        address_of: Callable[[asyncio.BaseTransport], str] = peer_address,
        *,
        max_message_bytes: int = (1 << 20) + (64 << 10),
        ping_seconds: float | None = None,
    ) -> None:
        self.admit = admit
        # Above the largest envelope and frame of a space, whose own limits answer with an error first.
        self.max_message_bytes = max_message_bytes
        # 0: nobody is pinged.
        self.ping_seconds = PING_SECONDS if ping_seconds is None else ping_seconds
        self.on_lost = on_lost
        self.address_of = address_of
        self.schedule = ReadSchedule()
        # All connections read into the same bytes, which are taken before anybody else reads.
        self.read_buffer = bytearray(read_schedule.SLICE_BYTES)
        self.sockets: set[ServerSocket] = set()

    def __call__(self, **_: Any) -> ServerSocket:
        return ServerSocket(self)

    async def wait_closed(self, seconds: float) -> None:
        """Wait until every connection has ended; those that have not by then are dropped."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.sockets and loop.time() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        for each in list(self.sockets):
            each.abort()


class ServerSocket(asyncio.BufferedProtocol):
    """One WebSocket: whole messages in, raw bytes out."""

    def __init__(self, server: WebSocketServer) -> None:
        self.peer = ""
        self.used_seconds = 0.0
        self.is_queued = False
        self.is_closing = False
        self._server = server
        self._handler: Handler | None = None
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(
            _ignore_message, self._handle_control, server.max_message_bytes, MAX_MESSAGE_FRAGMENTS
        )
        # Of `max_first_bytes`, what may still come.
        self._first_left: int | None = None
        self._max_first_bytes = 0
        self._dropped_bytes = 0
        self._is_full = False
        self._pongs: list[bytes] = []
        self._read_at = 0.0
        self._ping_timer: asyncio.TimerHandle | None = None
        self._drop_timer: asyncio.TimerHandle | None = None

    # Called by uvicorn and the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        self.peer = self._server.address_of(transport)
        # What is written is whole already; waiting for more would only delay it.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.sockets.add(self)

    def data_received(self, data: bytes) -> None:
        """Called with the upgrade request only; from then on the transport fills our buffer itself."""
        transport = self._transport
        assert transport is not None  # noqa: S101  # it was made just now
        upgrade = parse_upgrade(data, self.peer)
        if isinstance(upgrade, UpgradeRefusal):
            self._refuse(upgrade, transport)
            return
        decision = _guard(lambda: self._server.admit(upgrade))
        if not isinstance(decision, asyncio.Future):
            self._answer(upgrade, decision, transport)
            return
        # Otherwise what a client sends ahead of our answer would be dropped.
        transport.pause_reading()
        decision.add_done_callback(lambda done: self._answer_late(upgrade, done))

    def get_buffer(self, _size_hint: int) -> bytearray | memoryview:
        buffer = self._server.read_buffer
        return memoryview(buffer)[: self._first_left] if self._first_left else buffer

    def buffer_updated(self, size: int) -> None:
        if self._handler is None or self._first_left == 0:
            self._drop_bytes(size)
            return
        if self._first_left is not None:
            self._first_left -= size
        self._read_at = now = time.monotonic()
        server = self._server
        self._reader.take(server.read_buffer, size)
        server.schedule.handle(self, size, now)

    def eof_received(self) -> None:
        """The transport closes itself after this."""

    def pause_writing(self) -> None:
        self._is_full = True
        if self._handler is not None:
            self._handler.full()

    def resume_writing(self) -> None:
        self._is_full = False
        self._send_pongs()
        if self._handler is not None:
            self._handler.drained()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._end()
        self._transport = None
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        self._server.sockets.discard(self)
        self._server.on_lost(self.peer)

    # Called by the schedule

    def handle_slice(self, seconds: float) -> bool:
        """Handle what was read for so long at most; True if some is left."""
        try:
            is_left = self._reader.read(read_schedule.SLICE_FRAMES, seconds)
        except FrameError as fault:
            is_too_large = self._first_left is not None and fault.code == MESSAGE_TOO_BIG
            reason = f"the first message has at most {self._max_first_bytes} bytes"
            self._hang_up(fault.code, reason if is_too_large else fault.reason)
            return False
        except Exception:
            # A connection's task: whatever went wrong stays with us, the peer gets no detail.
            log.exception("a message could not be handled")
            self.close(INTERNAL_ERROR, "internal error")
            return True
        if self._pongs:
            self._send_pongs()
        if self._first_left == 0 and not is_left:
            self._hang_up(MESSAGE_TOO_BIG, f"no join within the first {self._max_first_bytes} bytes")
        return is_left

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Called by handlers

    def write(self, data: bytes) -> None:
        """Bytes that are frames already."""
        if self._transport is not None and not self.is_closing:
            if self._pongs:
                # An answer to what came before goes before what came of the rest.
                data = b"".join([*self._pongs, data])
                self._pongs.clear()
            self._transport.write(data)

    def close(self, code: int, reason: str) -> None:
        """Start the closing handshake; what was written before still goes out."""
        if self._send_close(code, reason):
            self._start_drop_timer()

    def abort(self) -> None:
        """Drop the connection at once; what was not sent is lost."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def accept_all(self) -> None:
        """From here on messages may be as large as any."""
        self._first_left = None
        self._reader.max_message_bytes = self._server.max_message_bytes

    # Opening

    def _answer_late(self, upgrade: Upgrade, decided: asyncio.Future[Decision]) -> None:
        decision = None if decided.cancelled() else _guard(decided.result)
        if decision is None or self._transport is None or self._transport.is_closing():
            if isinstance(decision, RelayedUpgrade):
                decision.drop()
            self.abort()
            return
        self._answer(upgrade, decision, self._transport)
        self.resume_reading()

    def _answer(self, upgrade: Upgrade, decision: Decision, transport: asyncio.Transport) -> None:
        if isinstance(decision, UpgradeRefusal):
            self._refuse(decision, transport)
            return
        if isinstance(decision, RelayedUpgrade):
            self._server.sockets.discard(self)
            decision.take_over(transport, lambda: self._server.on_lost(self.peer))
            return
        transport.write(accepting_response(upgrade, decision.subprotocol))
        self._open(decision, transport)

    def _refuse(self, refusal: UpgradeRefusal, transport: asyncio.Transport) -> None:
        self.is_closing = True
        transport.write(refusing_response(refusal))
        _end_writing(transport)
        self._start_drop_timer()

    def _open(self, handler: Handler, transport: asyncio.Transport) -> None:
        # uvloop's own low-water mark is 16 bytes: it would count as full until nearly everything is sent.
        high = WRITE_BUFFER_BYTES
        transport.set_write_buffer_limits(high=high, low=high // 4)
        self._handler = handler
        # Straight from frame to handler: nothing stands between them that a message would have to pay for.
        self._reader = FrameReader(
            handler.received, self._handle_control, self._server.max_message_bytes, MAX_MESSAGE_FRAGMENTS
        )
        if handler.max_first_bytes is not None:
            self._first_left = self._max_first_bytes = handler.max_first_bytes
            self._reader.max_message_bytes = min(handler.max_first_bytes, self._server.max_message_bytes)
        self._read_at = time.monotonic()
        if self._server.ping_seconds > 0:
            self._start_ping_timer(self._server.ping_seconds)
        handler.opened(self)

    # Control frames

    def _handle_control(self, opcode: int, payload: bytes) -> None:
        if opcode == CLOSE:
            self._handle_close(payload)
        elif opcode == PING and not self.is_closing:
            pong = encode_frame(payload, PONG)
            if self._is_full:
                # RFC 6455, 5.5.3: who does not read gets an answer to the last ping only.
                self._pongs = [pong]
            else:
                self._pongs.append(pong)

    def _send_pongs(self) -> None:
        if self._pongs and not self._is_full:
            self.write(b"")

    def _handle_close(self, payload: bytes) -> None:
        code = read_close_code(payload)
        self._send_pongs()
        self._hang_up(code, "")

    # Silence

    def _start_ping_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._ping_timer = loop.call_later(seconds, self._check_silence)

    def _check_silence(self) -> None:
        """Ask whoever was silent for `ping_seconds`."""
        left = self._server.ping_seconds - (time.monotonic() - self._read_at)
        if left > 0:
            self._start_ping_timer(left)
            return
        self.write(encode_frame(b"", PING))
        seconds = min(PING_TIMEOUT_SECONDS, self._server.ping_seconds)
        loop = asyncio.get_running_loop()
        self._ping_timer = loop.call_later(seconds, self._check_answered, self._read_at)

    def _check_answered(self, read_at: float) -> None:
        """Whatever comes is a sign of life: a pong may stand behind a large message."""
        if self._read_at > read_at:
            self._check_silence()
            return
        seconds = min(PING_TIMEOUT_SECONDS, self._server.ping_seconds)
        self._hang_up(GOING_AWAY, f"no answer to a ping within {seconds:g} s")

    # Closing

    def _send_close(self, code: int, reason: str) -> bool:
        """What was written before goes out first. False if a close was sent already."""
        transport = self._transport
        if transport is None or self.is_closing:
            return False
        if self._handler is not None:
            self._handler.flush()
        self.is_closing = True
        self._reader.ignores_messages = True
        transport.write(encode_close(code, reason))
        return True

    def _hang_up(self, code: int, reason: str) -> None:
        """Send a close if none was sent, and nothing after it; read nothing more."""
        self._send_close(code, reason)
        self._end()
        if self._transport is not None and not self._transport.is_closing():
            _end_writing(self._transport)
            self._start_drop_timer()

    def _drop_bytes(self, size: int) -> None:
        """What comes after the end is read, so that the end is noticed, but not for ever."""
        self._dropped_bytes += size
        if self._dropped_bytes > _MAX_DROPPED_BYTES:
            self.pause_reading()

    def _end(self) -> None:
        """The handler is done with this connection, which may still be open for a moment."""
        self.is_closing = True
        self._reader.stop()
        self._pongs.clear()
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.closed()

    def _start_drop_timer(self) -> None:
        if self._drop_timer is None:
            loop = asyncio.get_running_loop()
            self._drop_timer = loop.call_later(CLOSE_SECONDS, self.abort)


def _guard(decide: Callable[[], D]) -> D | UpgradeRefusal:
    try:
        return decide()
    except Exception:
        # A request's task: whatever went wrong stays with us, the peer gets no detail.
        log.exception("an upgrade could not be decided")
        return UpgradeRefusal(500, b'{"error":"internal error"}')


def _end_writing(transport: asyncio.Transport) -> None:
    """Say that nothing more comes. TLS cannot say that of one direction: there both ends say goodbye."""
    if not transport.can_write_eof():
        transport.close()
        return
    try:
        transport.write_eof()
    except OSError:
        # The peer was gone before our last bytes: nobody is left to be told. uvloop says nothing of it.
        transport.abort()


def _ignore_message(_data: bytes, _binary: bool) -> None:
    """No message comes before the handshake is done."""
