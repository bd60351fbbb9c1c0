"""Reading from a connection that nobody has vouched for yet: so many bytes in all, and not one more.

`FirstBytes` stands in for the two methods by which a transport fills the buffer of a protocol, so that
whoever is let in pays nothing for it later. A frame that says it is larger is refused when its head has come,
not when all of it has.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

# RFC 6455, 7.4.1.
_TOO_LARGE: Final = 1009
# RFC 6455, 5.2: the lengths that announce 2 and 8 bytes with the real one.
_LENGTH_BYTES: Final = {126: 2, 127: 8}
# After a refusal so many times the bytes that were allowed are read and thrown away: so the end of most
# connections is noticed. What comes beyond that stays with the peer until the connection is dropped.
_DISCARDED_TIMES: Final = 32


class BufferedReader(Protocol):
    """The protocol of a connection: it is fed with bytes, and its transport is known."""

    get_buffer: Any
    buffer_updated: Any
    transport: Any

    def feed(self, data: bytes) -> None: ...


class Closable(Protocol):
    """A WebSocket that can be closed with a code and a reason."""

    @property
    def is_closing(self) -> bool: ...

    def close(self, code: int, reason: str) -> None: ...


class FirstBytes:
    """At most `max_bytes` of one connection, until `lift`."""

    def __init__(self, protocol: BufferedReader, connection: Closable, max_bytes: int) -> None:
        self._protocol = protocol
        self._connection = connection
        self._max_bytes = max_bytes
        self._buffer = bytearray(max_bytes)
        self._size = 0
        # Where the next frame begins.
        self._frame_at = 0
        self._is_lifted = False
        self._discarded: int | None = None
        protocol.get_buffer, protocol.buffer_updated = self._get_buffer, self._buffer_updated

    def lift(self) -> None:
        """Let the transport fill the protocol's own buffer."""
        self._is_lifted = True
        protocol = self._protocol
        del protocol.get_buffer, protocol.buffer_updated
        transport = protocol.transport.underlying_transport
        if not transport.is_closing():
            # uvloop has kept the methods that it found when it was told of the protocol.
            transport.set_protocol(protocol)

    def _get_buffer(self, _size_hint: int) -> memoryview:
        return memoryview(self._buffer)[self._size :]

    def _buffer_updated(self, size: int) -> None:
        if self._discarded is not None:
            self._discard(size)
            return
        start, self._size = self._size, self._size + size
        if not self._connection.is_closing and self._announces_large_frame():
            self._refuse(f"the first message has at most {self._max_bytes} bytes")
            return
        self._protocol.feed(bytes(self._buffer[start : self._size]))
        if self._size == self._max_bytes and not self._is_lifted:
            self._refuse(f"no join within the first {self._max_bytes} bytes")

    def _announces_large_frame(self) -> bool:
        """Walk over the frames that have begun; whether one of them is larger than all that may come."""
        buffer = self._buffer
        while self._frame_at + 2 <= self._size:
            at = self._frame_at
            length = buffer[at + 1] & 0x7F
            head = 2 + _LENGTH_BYTES.get(length, 0)
            if self._size < at + head:
                return False
            if length in _LENGTH_BYTES:
                length = int.from_bytes(buffer[at + 2 : at + head], "big")
            if length > self._max_bytes:
                return True
            # Clients mask: four bytes more.
            self._frame_at = at + head + (4 if buffer[at + 1] & 0x80 else 0) + length
        return False

    def _refuse(self, reason: str) -> None:
        # Does nothing where a close is under way already; it drops the connection after a while.
        self._connection.close(_TOO_LARGE, reason)
        self._size = self._discarded = 0

    def _discard(self, size: int) -> None:
        assert self._discarded is not None  # noqa: S101  # the caller has looked
        self._discarded += size
        transport = self._protocol.transport.underlying_transport
        if self._discarded > _DISCARDED_TIMES * self._max_bytes and not transport.is_closing():
            transport.pause_reading()
