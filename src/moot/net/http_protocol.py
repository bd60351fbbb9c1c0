"""uvicorn's HTTP protocol with limits: headers, requests in advance, responses nobody reads, connections.

uvicorn itself waits for ever for headers that come one byte a minute, parses all requests that come in one
packet before it has answered the first, and takes any number of connections from one address.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from moot.net.counted_address import peer_address
from moot.net.relay_connection import drop_when_silent

log = logging.getLogger(__name__)

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
# What a gateway adds to a request that it relays, beside what a member may send: headers, a longer name of
# its own, a space after each colon.
RELAY_HEADERS: Final = 4
RELAY_HEADER_BYTES: Final = 1_024
# Connections from another gateway's address that have not told yet whom they are for: as many as it relays.
MAX_UNREAD_RELAYS: Final = 4_096
_TOO_MANY_HEADERS: Final = f"more than {MAX_HEADERS} headers"
_UNREAD: Final = "unread from "
# As long as a join: whoever is slower with its headers does not join in time either.
HEADER_SECONDS: Final = 10.0
# Who is refused a connection sees no reason. Operators do, at most so often.
_LOG_SECONDS: Final = 60.0
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
        # Whether another gateway relays from an address.
        self.is_gateway: Callable[[str], bool] = lambda _: False
        self._by_address: dict[str, int] = {}
        self._log_from = 0.0

    def address_of(self, transport: asyncio.BaseTransport) -> str:
        """The address that a connection counts for; empty for our own."""
        if transport in self.own:
            return ""
        address = self.relayed.get(transport)
        return peer_address(transport) if address is None else address

    def unread(self, address: str) -> str:
        """What a connection from there counts for until its head is read: a gateway has not said for whom."""
        return _UNREAD + address if address and self.is_gateway(address) else address

    def acquire(self, address: str) -> bool:
        """Count one more connection if there is room for it; whoever gets True has to `release` it."""
        if self.connections >= self.max_connections or not self._has_room(address):
            return self._refuse(address)
        self.connections += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        return True

    def move(self, before: str, address: str) -> bool:
        """Let a connection count for another address from now on, if there is room; it keeps its place."""
        if before == address:
            return True
        if not self._has_room(address):
            return self._refuse(address)
        self._by_address[address] = self._by_address.get(address, 0) + 1
        self._forget(before)
        return True

    def release(self, address: str) -> None:
        self.connections -= 1
        self._forget(address)

    def _refuse(self, address: str) -> bool:
        self.refused += 1
        now = time.monotonic()
        if now >= self._log_from:
            self._log_from = now + _LOG_SECONDS
            facts = {
                "address": address,
                "of_address": self._by_address.get(address, 0),
                "of_all": self.connections,
            }
            limits = {
                "max_connections_per_address": self.max_per_address,
                "max_connections": self.max_connections,
            }
            log.warning("connection refused: too many", extra=facts | limits)
        return False

    def _has_room(self, address: str) -> bool:
        most = self.max_per_address
        if most and address.startswith(_UNREAD):
            most = max(most, MAX_UNREAD_RELAYS)
        # Our own connections have limits of their own.
        return not most or not address or self._by_address.get(address, 0) < most

    def _forget(self, address: str) -> None:
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
        # As they came, with the request's line.
        _head_bytes = 0
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
        _is_upgrade_ignored = False

        def connection_made(self, transport: Any) -> None:
            if self.is_own:
                limiter.own.add(transport)
            super().connection_made(transport)
            if not self._is_counted:
                self._address = limiter.unread(limiter.address_of(transport))
                if not limiter.acquire(self._address):
                    # No request was sent yet, so no response is: the cheapest way to refuse.
                    transport.abort()
                    return
            self._is_counted = True
            self._start_timer(HEADER_SECONDS)

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
            if not self._is_in_body:
                end = data.find(_END_OF_HEADERS)
                self._head_bytes += len(data) if end < 0 else end
                if self._head_bytes > MAX_HEADER_BYTES + RELAY_HEADER_BYTES:
                    self._stop_timer()
                    self.send_400_response("headers too large")
                    return
            self._unset_keepalive_if_required()
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._is_upgrade_ignored:
                    self._go_on_without_upgrade(data[upgrade.args[0] :])
                elif self._should_upgrade():
                    self.handle_websocket_upgrade()
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")

        def _go_on_without_upgrade(self, rest: bytes) -> None:
            """The parser takes what follows for another protocol, not for a body: it reads the head anew."""
            version = self.parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
            lines += [b"%b: %b" % pair for pair in self.headers if pair[0] != b"upgrade"]
            self._is_upgrade_ignored = False
            self._head_bytes = 0
            self._held = rest + self._held
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._parse(b"\r\n".join([*lines, b"", b""]))

        def on_message_begin(self) -> None:
            # Each request on a kept connection has its own time and size for headers.
            super().on_message_begin()
            self._headers = 0
            self._is_in_body = False
            self._seen_once, self._repeated, self._has_body = frozenset(), None, False
            self._are_headers_complete = False
            self._discarded_bytes = 0
            if self._timer is None:
                self._start_timer(HEADER_SECONDS)

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._are_headers_complete:
                # A trailer behind a body in chunks: nobody here asks for one, and it must pass for no header.
                return
            self._headers += 1
            if self._headers > MAX_HEADERS + RELAY_HEADERS:
                raise self._refuse(_TOO_MANY_HEADERS)
            name = name.lower()
            if name in _ONLY_ONCE:
                if name in self._seen_once:
                    self._repeated = name
                self._seen_once |= {name}
            elif name in _BODY_HEADERS:
                self._has_body = True
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            is_connect = self.parser.get_method() == b"CONNECT"
            if self.parser.should_upgrade() and not self._should_upgrade() and not is_connect:
                # RFC 9110, 7.8: whoever does not speak the other protocol goes on in this one.
                self._is_upgrade_ignored = True
                return
            self._stop_timer()
            self._are_headers_complete = self._is_in_body = True
            if self._repeated is not None:
                name = self._repeated.decode()
                raise self._refuse(f"the header {name} is given more than once: send it once")
            is_relayed = self._note_sender()
            if self._headers > MAX_HEADERS + is_relayed * RELAY_HEADERS:
                raise self._refuse(_TOO_MANY_HEADERS)
            if self._head_bytes > MAX_HEADER_BYTES + is_relayed * RELAY_HEADER_BYTES:
                raise self._refuse("headers too large")
            # A body that comes too slowly is cut off, too; how large it may be is checked elsewhere.
            self._start_timer(BODY_TIME_FACTOR * HEADER_SECONDS)
            super().on_headers_complete()
            if self._has_body:
                # Read on when the body is asked for, which nobody does for a stranger.
                self.flow.pause_reading()

        def _note_sender(self) -> bool:
            """Whom another gateway relays counts for its own address; nobody else is believed about one."""
            claims = [value for name, value in self.headers if name == RELAYED_HEADER]
            claimed = None
            if claims:
                method = self.parser.get_method().decode("ascii")
                claimed = limiter.read_claim(method, self.url, claims[0]) if len(claims) == 1 else None
                self.headers[:] = [pair for pair in self.headers if pair[0] != RELAYED_HEADER]
                self.headers.append((RELAYED_HEADER, b"1" if claimed else b""))
            address = claimed or self._address.removeprefix(_UNREAD)
            if not limiter.move(self._address, address):
                self.transport.abort()
                raise self._refuse("too many connections from this address")
            self._address = address
            if claimed:
                self.client = self.scope["client"] = (claimed, 0)
                drop_when_silent(self.transport)
            return bool(claimed)

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
            if self._is_upgrade_ignored:
                return
            self._stop_timer()
            self._head_bytes = 0
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

        def _start_timer(self, seconds: float) -> None:
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
