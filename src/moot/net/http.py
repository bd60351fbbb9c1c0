"""uvicorn's HTTP protocol with a watch at the door: slow or huge headers, and too many connections.

uvicorn itself waits for ever for headers that come one byte a minute, and takes any number of connections
from one address.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class DoorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection may take before it has asked for anything."""

    header_bytes: int = 16_384
    header_seconds: float = 10.0
    connections_per_address: int = 64  # 0: any number
    max_connections: int = 20_000


class Door:
    """Counts connections by address; one for all protocols of a server."""

    def __init__(self, limits: DoorLimits) -> None:
        self.limits = limits
        self.connections = 0
        self.refused = 0
        self._by_address: dict[str, int] = {}

    def enter(self, address: str) -> bool:
        """Whether one more may come in; each that did has to `leave`."""
        most = self.limits.connections_per_address
        here = self._by_address.get(address, 0)
        if self.connections >= self.limits.max_connections or (most and here >= most):
            self.refused += 1
            return False
        self.connections += 1
        self._by_address[address] = here + 1
        return True

    def leave(self, address: str) -> None:
        self.connections -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]


def http_protocol(door: Door) -> type[HttpToolsProtocol]:
    """What goes behind uvicorn's `http=`."""

    class Watched(HttpToolsProtocol):
        _address = ""
        _counted = False
        _timer: asyncio.TimerHandle | None = None
        _unread = 0

        def connection_made(self, transport: Any) -> None:
            peer = transport.get_extra_info("peername")
            self._address = str(peer[0]) if peer else ""
            super().connection_made(transport)
            if not door.enter(self._address):
                # Nothing was asked yet, so nothing is answered: the cheapest way to say no.
                transport.abort()
                return
            self._counted = True
            self._timer = self.loop.call_later(door.limits.header_seconds, self._too_late)

        def data_received(self, data: bytes) -> None:
            if self._timer is not None:
                self._unread += len(data)
                if self._unread > door.limits.header_bytes and b"\r\n\r\n" not in data:
                    self._stop_watching()
                    self.send_400_response("headers too large")
                    return
            super().data_received(data)

        def on_headers_complete(self) -> None:
            self._stop_watching()
            super().on_headers_complete()

        def handle_websocket_upgrade(self) -> None:
            self._stop_watching()
            # From here on the WebSocket's protocol owns the connection, and counts it out.
            self._counted = False
            super().handle_websocket_upgrade()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_watching()
            if self._counted:
                self._counted = False
                door.leave(self._address)
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._unread = 0

        def _stop_watching(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_late(self) -> None:
            self._timer = None
            if not self.transport.is_closing():
                self.transport.abort()

    return Watched
