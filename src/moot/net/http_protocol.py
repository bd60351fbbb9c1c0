"""uvicorn's HTTP protocol with limits: headers, requests in advance, responses nobody reads, connections.

uvicorn itself waits for ever for headers that come one byte a minute, parses all requests that come in one
packet before it has answered the first, and takes any number of connections from one address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from moot.net.counted_address import peer_address

# A body may take this many times as long as headers.
BODY_TIME_FACTOR: Final = 3
# What is parsed at a time: of the shortest requests 200, should the end of one not be seen before.
_PIECE_BYTES: Final = 4_096
_END_OF_HEADERS: Final = b"\r\n\r\n"
# What decides who asks and from where. Given twice, a proxy and we could each believe another one.
_ONLY_ONCE: Final = frozenset({b"authorization", b"host", b"origin"})
# So much of a body is read and thrown away after the answer: most clients send all before they read anything.
_DISCARDED_BODY_BYTES: Final = 65_536
_BODY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
# By it a gateway tells another one from which address a request came that it relays, and signs that. Behind
# the parser it has a value only where that is true.
RELAYED_HEADER: Final = b"moot-relayed"
# What Node.js takes, so what reference clients can have sent.
MAX_HEADER_BYTES: Final = 16_384
# What other servers take; a browser sends 20.
MAX_HEADERS: Final = 100
# As long as a join: whoever is slower with its headers does not join in time either.
HEADER_SECONDS: Final = 10.0
# A client that reads nothing of a response for so long is dropped.
RESPONSE_SECONDS: Final = 30.0


class ConnectionLimiter:
    """Counts connections by address; one for all protocols of a server. 0 of an address: any number."""

    def __init__(self, *, max_per_address: int = 64, max_connections: int = 20_000) -> None:
        self.max_per_address = max_per_address
        self.max_connections = max_connections
        self.connections = 0
        self.refused = 0
        # Connections of our own process: they come from no address.
        self.own: WeakSet[asyncio.BaseTransport] = WeakSet()
        # Connections that are being upgraded: what they count for, which another gateway may have signed.
        self.relayed: dict[asyncio.BaseTransport, str] = {}
        # By method, target and value of the header: that address, if it is believed.
        self.read_claim: Callable[[str, bytes, bytes], str | None] = lambda *_: None
        self._by_address: dict[str, int] = {}

    def address_of(self, transport: asyncio.BaseTransport) -> str:
        """The address that a connection counts for; empty for our own."""
        if transport in self.own:
            return ""
        address = self.relayed.get(transport)
        return peer_address(transport) if address is None else address

    def acquire(self, address: str) -> bool:
        """Count one more connection if there is room for it; whoever gets True has to `release` it."""
        most = self.max_per_address
        here = self._by_address.get(address, 0)
        # Our own connections have limits of their own.
        if self.connections >= self.max_connections or (most and address and here >= most):
            self.refused += 1
            return False
        self.connections += 1
        self._by_address[address] = here + 1
        return True

    def move(self, before: str, address: str) -> bool:
        """Let a connection count for another address from now on, if there is room for it."""
        is_moved = self.acquire(address)
        if is_moved:
            self.release(before)
        return is_moved

    def release(self, address: str) -> None:
        self.connections -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]


def limited_http_protocol(limiter: ConnectionLimiter) -> type[HttpToolsProtocol]:
    """The class for uvicorn's `http=` option."""

    class LimitedProtocol(HttpToolsProtocol):
        # Set before it is made: the other end is in our own process.
        is_own = False
        _address = ""
        _is_counted = False
        _timer: asyncio.TimerHandle | None = None
        _reads_headers = True
        _unparsed_bytes = 0
        _header_bytes = 0
        _headers = 0
        # What came behind a request that is not answered yet.
        _held = b""
        _is_in_body = False
        _is_upgraded = False
        _is_request_open = False
        _write_timer: asyncio.TimerHandle | None = None
        _seen_once: frozenset[bytes] = frozenset()
        _repeated: bytes | None = None
        _has_body = False
        _discarded_bytes = 0
        _are_headers_complete = False
        _refusal = ""

        def connection_made(self, transport: Any) -> None:
            if self.is_own:
                limiter.own.add(transport)
            self._address = limiter.address_of(transport)
            super().connection_made(transport)
            if not self._is_counted and not limiter.acquire(self._address):
                # No request was sent yet, so no response is: the cheapest way to refuse.
                transport.abort()
                return
            self._is_counted = True
            self._start_timer(HEADER_SECONDS, headers=True)

        def take_over_count(self, address: str) -> None:
            """For who has counted this connection before it was made: it is released with it."""
            self._address, self._is_counted = address, True

        def release_count(self) -> None:
            if self._is_counted:
                self._is_counted = False
                limiter.release(self._address)

        def data_received(self, data: bytes) -> None:
            """Parse up to the end of a request; what stands behind it waits for the response.

            So no connection has more than one request at work, however many it sends in one packet.
            """
            self._held += data
            if not self._is_request_open:
                self._parse_held()
            if self._held and not self.transport.is_closing():
                self.flow.pause_reading()

        def _parse_held(self) -> None:
            while self._held and not self._is_request_open and not self.transport.is_closing():
                size = _PIECE_BYTES
                if not self._is_in_body:
                    end = self._held.find(_END_OF_HEADERS, 0, size)
                    size = size if end < 0 else end + len(_END_OF_HEADERS)
                piece, self._held = self._held[:size], self._held[size:]
                self._parse(piece)

        def _parse(self, data: bytes) -> None:
            if self._timer is not None and self._reads_headers:
                end = data.find(_END_OF_HEADERS)
                self._unparsed_bytes += len(data) if end < 0 else end
                if self._unparsed_bytes > MAX_HEADER_BYTES:
                    self._stop_timer()
                    self.send_400_response("headers too large")
                    return
            super().data_received(data)

        def on_message_begin(self) -> None:
            # Each request on a kept connection has its own time and size for headers.
            super().on_message_begin()
            self._header_bytes = self._headers = 0
            self._is_in_body = False
            self._seen_once, self._repeated, self._has_body = frozenset(), None, False
            self._are_headers_complete = False
            self._discarded_bytes = 0
            if self._timer is None:
                self._start_timer(HEADER_SECONDS, headers=True)

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._are_headers_complete:
                # A trailer behind a body in chunks: nobody here asks for one, and it must pass for no header.
                return
            self._header_bytes += len(name) + len(value) + 4
            self._headers += 1
            if self._headers > MAX_HEADERS:
                raise self._refuse(f"more than {MAX_HEADERS} headers")
            name = name.lower()
            if name in _ONLY_ONCE:
                if name in self._seen_once:
                    self._repeated = name
                self._seen_once |= {name}
            elif name in _BODY_HEADERS:
                self._has_body = True
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._stop_timer()
            self._are_headers_complete = self._is_in_body = True
            if self._header_bytes > MAX_HEADER_BYTES:
                # All in one packet: counted only now.
                raise self._refuse("headers too large")
            if self._repeated is not None:
                name = self._repeated.decode()
                raise self._refuse(f"the header {name} is given more than once: send it once")
            self._note_relay()
            # A body that comes too slowly is cut off, too; how large it may be is checked elsewhere.
            self._start_timer(BODY_TIME_FACTOR * HEADER_SECONDS, headers=False)
            super().on_headers_complete()
            if self._has_body:
                # Read on when the body is asked for, which nobody does for a stranger.
                self.flow.pause_reading()

        def _note_relay(self) -> None:
            """Whom another gateway relays counts for its own address; nobody else is believed about one."""
            claims = [value for name, value in self.headers if name == RELAYED_HEADER]
            if not claims:
                return
            method = self.parser.get_method().decode("ascii")
            address = limiter.read_claim(method, self.url, claims[0]) if len(claims) == 1 else None
            self.headers[:] = [pair for pair in self.headers if pair[0] != RELAYED_HEADER]
            self.headers.append((RELAYED_HEADER, b"1" if address else b""))
            if address:
                if not limiter.move(self._address, address):
                    self.transport.abort()
                    raise self._refuse("too many connections from this address")
                self._address = address
                self.client = self.scope["client"] = (address, 0)

        def on_body(self, body: bytes) -> None:
            cycle = self.cycle
            if cycle is not None and cycle.response_complete:
                self._discarded_bytes += len(body)
                if self._discarded_bytes > _DISCARDED_BODY_BYTES and not self.transport.is_closing():
                    # Nobody will read the rest.
                    self.transport.close()
                return
            super().on_body(body)

        def _refuse(self, why: str) -> ValueError:
            """To be raised: it ends the parsing, and with it what came behind in the same packet."""
            self._refusal = why
            return ValueError(why)

        def send_400_response(self, msg: str) -> None:
            if not self.transport.is_closing():
                super().send_400_response(self._refusal or msg)

        def on_message_complete(self) -> None:
            self._stop_timer()
            self._is_in_body = False
            self._is_request_open = self.cycle is not None and not self.cycle.response_complete
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self._is_request_open = False
            super().on_response_complete()
            if self._held and not self.transport.is_closing():
                # In a turn of its own: others go between two requests of one connection.
                self.flow.pause_reading()
                self.loop.call_soon(self._parse_next)

        def _parse_next(self) -> None:
            self._parse_held()
            if not self._held and not self.transport.is_closing() and not self._is_upgraded:
                self.flow.resume_reading()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(RESPONSE_SECONDS, self._on_timeout)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_write_timer()

        def _stop_write_timer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def handle_websocket_upgrade(self) -> None:
            self._stop_timer()
            self._is_upgraded = True
            # A client has to wait for the answer before it sends frames (RFC 6455, 4.1).
            self._held = b""
            # From here on the WebSocket's protocol owns the connection, and counts it out.
            self._is_counted = False
            limiter.relayed[self.transport] = self._address
            super().handle_websocket_upgrade()
            del limiter.relayed[self.transport]

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            self._stop_write_timer()
            self._held = b""
            self.release_count()
            super().connection_lost(exc)

        def _start_timer(self, seconds: float, *, headers: bool) -> None:
            self._unparsed_bytes = 0
            self._reads_headers = headers
            self._timer = self.loop.call_later(seconds, self._on_timeout)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _on_timeout(self) -> None:
            self._timer = None
            if not self.transport.is_closing():
                self.transport.abort()

    return LimitedProtocol
