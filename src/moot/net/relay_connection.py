"""Connections from one gateway to another, for members that came to the wrong one, and what passes their
bytes on.

Nothing is read ahead: what one side does not take is not read of the other one. An end of one side is passed
on as what it is, and the other side has a moment to end as well.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import hmac
import socket
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

import msgspec

P = TypeVar("P", bound=asyncio.BaseProtocol)

# Gateways are near each other: one that does not answer by then is gone or behind a wall.
CONNECT_SECONDS: Final = 2.0
# What waits in a direction for whoever reads slowly, beside what the kernel keeps.
BUFFER_BYTES: Final = 64 << 10
# Between the end of one side and that of the other one; a close of a WebSocket takes 3 s at most.
_LINGER_SECONDS: Final = 5.0
# What this machine has no more of: files, memory, ports.
_OWN_LACKS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN}
)
# A machine that is gone says nothing: it is asked by the kernel after so long, so often, so many times.
# The last one, in ms, is for bytes that nobody acknowledges: while there are some, it is not asked.
_SILENCE: Final = (
    ("TCP_KEEPIDLE", 20),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 4),
    ("TCP_USER_TIMEOUT", 40_000),
)


class RelayAddress(msgspec.Struct, frozen=True):
    """Where a gateway is reached by the others."""

    host: str
    port: int
    # An Origin that it answers to, and behind the scheme a Host.
    origin: str
    # SHA-256 of its certificate, in hex; empty where it speaks plain HTTP.
    certificate: str = ""
    # From where it connects to the others, if that is not the host.
    source: str = ""


class RequestHead(NamedTuple):
    """What is sent on of a request before its body. Names of headers are in lower case."""

    method: str
    target: bytes
    headers: Iterable[tuple[bytes, bytes]]


class NotTried(OSError):
    """This gateway could not even try: that says nothing of the other one."""


async def open_connection(
    address: RelayAddress, make_protocol: Callable[[], P], own: tuple[Path, Path] | None = None
) -> tuple[asyncio.Transport, P]:
    """Raises OSError. `own`: certificate and key, for a gateway that asks its clients for theirs."""
    try:
        context = _context(own) if address.certificate else None
    except OSError as fault:
        raise NotTried(f"the own certificate cannot be used: {fault}") from None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, protocol = await asyncio.get_running_loop().create_connection(
                make_protocol,
                address.host,
                address.port,
                ssl=context,
                server_hostname=address.host if address.certificate else None,
            )
    except OSError as fault:
        if fault.errno in _OWN_LACKS and not isinstance(fault, ssl.SSLError):
            raise NotTried(*fault.args) from None
        raise
    secure = transport.get_extra_info("ssl_object")
    if secure is not None:
        shown = hashlib.sha256(secure.getpeercert(True) or b"").hexdigest()
        if not hmac.compare_digest(shown, address.certificate):
            transport.abort()
            raise ConnectionRefusedError("another certificate than the one that this gateway tells of")
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    drop_when_silent(transport)
    return transport, protocol


def drop_when_silent(transport: asyncio.BaseTransport) -> None:
    """Lose this connection within 40 s of the moment at which the machine at its other end is gone."""
    connected = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _SILENCE:
        # Not all systems have them.
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _context(own: tuple[Path, Path] | None) -> ssl.SSLContext:
    """No authority is asked: the very certificate is known, from where only gateways write."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if own is not None:
        context.load_cert_chain(*own)
    return context


class RelayEnd(asyncio.Protocol):
    """One of two connections; what comes in here goes out at the other end."""

    def __init__(self, on_lost: Callable[[], None] = lambda: None) -> None:
        self.transport: asyncio.Transport
        self._on_lost = on_lost
        self._other: RelayEnd | None = None
        self._is_lost = False

    def wait(self) -> None:
        """Read nothing until somebody is at the other end. In `connection_made` uvloop would not heed it."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def join(self, transport: asyncio.Transport, on_lost: Callable[[], None]) -> None:
        """Pass bytes between this connection and another one, which somebody else has read of until now."""
        near = RelayEnd(on_lost)
        near.transport = transport
        near._other, self._other = self, near
        transport.set_protocol(near)
        drop_when_silent(transport)
        if self._is_lost:
            transport.close()
            return
        for each in (transport, self.transport):
            each.set_write_buffer_limits(high=BUFFER_BYTES, low=BUFFER_BYTES // 4)
            each.resume_reading()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self._other is not None  # noqa: S101  # nothing is read before
        self._other.transport.write(data)

    def pause_writing(self) -> None:
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.resume_reading()

    def eof_received(self) -> bool:
        if self._other is None:
            # TLS reads ahead.
            return False
        other = self._other.transport
        if not other.can_write_eof():
            other.close()
        elif not other.is_closing():
            other.write_eof()
        self._abort_later()
        # TLS ends in both directions at once.
        return self.transport.can_write_eof()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._is_lost = True
        if self._other is not None and not self._other._is_lost:
            # What is left is still written, if it is taken.
            self._other.transport.close()
            self._other._abort_later()
        self._on_lost()

    def _abort_later(self) -> None:
        loop = asyncio.get_running_loop()
        for end in (self, self._other):
            if end is not None and not end._is_lost:
                loop.call_later(_LINGER_SECONDS, end.transport.abort)
