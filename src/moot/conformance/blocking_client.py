"""A WebSocket client for a thread that waits: whole messages out, whole messages in (RFC 6455).

The runner does one thing after the other and has to know when everything has arrived, so nothing here is
concurrent. The handshake is an ordinary request of the standard library's HTTP client, which brings TLS.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import re
import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from moot.errors import MootError, Unreachable, UsageError

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x1, 0x2, 0x8, 0x9, 0xA
# RFC 6455, 1.3.
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# A connection that ended without a word (RFC 6455, 7.4.1).
LOST: Final = 1006
# Of what an HTTP server says instead; more is not shown.
_MAX_REFUSAL_BYTES: Final = 4_096
# A message of a gateway, far above what it may send by its own limits; a longer one ends the connection.
_MAX_MESSAGE_BYTES: Final = 64 << 20


class NoReply(Unreachable):
    """The gateway cannot be reached, or kept silent for too long."""


class HandshakeRefused(MootError):
    """An HTTP answer where a WebSocket was asked for."""

    def __init__(self, status: int, body: bytes) -> None:
        # A page for people would fill the screen.
        text = "" if body.lstrip().startswith(b"<") else body[:200].decode("utf-8", "replace")
        super().__init__(f"HTTP {status}: {text}" if text else f"HTTP {status}")
        self.status = status
        self.body = body


class WireMessage(NamedTuple):
    """One whole message."""

    data: bytes
    binary: bool


class WirePong(NamedTuple):
    """The answer to a ping of ours."""

    data: bytes


class ConnectionEnded(NamedTuple):
    """The other side ended the connection, and why."""

    code: int
    reason: str


class GatewayAddress:
    """Where a gateway is: http, https, ws or wss, with or without a path in front."""

    def __init__(self, url: str, *, seconds: float = 10.0) -> None:
        schemes = {"http": False, "ws": False, "https": True, "wss": True}
        wrong = UsageError(f"{url!r} is no address of a gateway; one looks like http://localhost:8080")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme not in schemes or not parts.hostname or re.search(r"[\x00-\x20\x7f]", url):
            raise wrong
        # Shown in messages: without a password or a token that stands in it.
        self.url = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        self.seconds = seconds
        self._host, self._port = parts.hostname, port
        self._secure = schemes[parts.scheme]
        self._prefix = parts.path.rstrip("/")

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send one request; the caller closes the connection. Raises NoReply."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self.seconds)
        target = f"{self._prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            connection.request(method, target, body, dict(headers))
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as fault:
            connection.close()
            raise NoReply(f"{self.url}: {self._explain(fault)}") from fault

    def _explain(self, fault: Exception) -> str:
        """What happened, and what to look at."""
        if isinstance(fault, TimeoutError):
            return f"no answer within {self.seconds:g} s. Is this a MEW gateway?"
        if isinstance(fault, ssl.SSLCertVerificationError):
            why = fault.verify_message
            return f"its certificate is not trusted ({why}): SSL_CERT_FILE can name the file of its CA"
        if isinstance(fault, ssl.SSLError):
            return f"{fault.reason or fault}: if the gateway has no TLS, use http://"
        text = str(fault) or type(fault).__name__
        if self._secure or isinstance(fault, ConnectionRefusedError | socket.gaierror):
            return text
        return f"{text}. Is this a MEW gateway? If it has TLS, use https://"

    def fetch(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of one request."""
        connection, response = self.ask(method, path, query=query, headers=headers, body=body)
        try:
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as fault:
            raise NoReply(f"{self.url}: {self._explain(fault)}") from fault
        finally:
            connection.close()


class BlockingClient:
    """One open WebSocket. After `ConnectionEnded` was received nothing more can be sent."""

    def __init__(
        self, address: GatewayAddress, *, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> None:
        """Connect to /ws; raises HandshakeRefused or NoReply."""
        key = base64.b64encode(os.urandom(16)).decode()
        asked = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
        }
        self._connection, response = address.ask("GET", "/ws", query=query, headers=asked | dict(headers))
        self._seconds = address.seconds
        expected = base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode()).digest())  # noqa: S324  # as the RFC says
        given = (response.getheader("Sec-WebSocket-Accept") or "").encode()
        if response.status != http.client.SWITCHING_PROTOCOLS or given != expected:
            try:
                raise HandshakeRefused(response.status, response.read(_MAX_REFUSAL_BYTES))
            except (OSError, http.client.HTTPException):
                raise HandshakeRefused(response.status, b"") from None
            finally:
                self._connection.close()
        # What came right behind the handshake is in this buffer already, so all reading goes through it.
        self._response = response
        self._reader = response.fp
        self._is_open = True

    def send(self, data: bytes, *, binary: bool = False) -> None:
        """One message in one frame. A connection that is gone says so when it is read."""
        self._write(_BINARY if binary else _TEXT, data)

    def ping(self, data: bytes) -> None:
        """Ask the other side for a sign of life, which is received as WirePong."""
        self._write(_PING, data)

    def receive(self) -> WireMessage | WirePong | ConnectionEnded:
        """The next message, or how it ended; raises NoReply after the address's `seconds`."""
        whole = bytearray()
        first = _TEXT
        while True:
            try:
                final, opcode, payload = self._frame()
            except TimeoutError:
                raise NoReply(f"nothing was heard within {self._seconds:g} s") from None
            except (OSError, EOFError):
                return self._ended(LOST, "")
            if opcode == _CLOSE:
                code = int.from_bytes(payload[:2], "big") if len(payload) > 1 else 1005
                self._write(_CLOSE, payload[:2])
                self._drain()
                return self._ended(code, payload[2:].decode("utf-8", "replace"))
            if opcode == _PING:
                self._write(_PONG, payload)
            elif opcode == _PONG:
                return WirePong(payload)
            else:
                first = opcode or first
                whole += payload
                if final:
                    return WireMessage(bytes(whole), first == _BINARY)

    def close(self) -> None:
        """Say goodbye and wait until the other side has let go."""
        if self._is_open:
            self._write(_CLOSE, (1000).to_bytes(2, "big"))
            self._drain()
            self._ended(1000, "")

    def _drain(self) -> None:
        """Read until the end: by then the gateway knows that this connection is gone."""
        try:
            while self._reader.read(4096):
                pass
        except OSError:
            return

    def _ended(self, code: int, reason: str) -> ConnectionEnded:
        self._is_open = False
        self._response.close()
        self._connection.close()
        return ConnectionEnded(code, reason)

    def _frame(self) -> tuple[bool, int, bytes]:
        head = self._exactly(2)
        size = head[1] & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._exactly(8))
        if head[1] & 0x80:
            # RFC 6455, 5.1: a server does not mask.
            raise EOFError
        if size > _MAX_MESSAGE_BYTES:
            raise EOFError
        return bool(head[0] & 0x80), head[0] & 0x0F, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _write(self, opcode: int, payload: bytes) -> None:
        size, key = len(payload), os.urandom(4)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 65_536:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
        masked = (int.from_bytes(payload, "big") ^ mask).to_bytes(size, "big")
        try:
            self._connection.sock.sendall(head + key + masked)
        except (OSError, AttributeError):
            # Gone; what it said last may still be there to be read.
            return
