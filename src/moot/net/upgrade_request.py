"""The opening handshake of a WebSocket, from the server's side (RFC 6455, 4.2).

uvicorn has parsed the request and writes it anew, a header a line, before it hands it over.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES: Final = 16
VERSION: Final = "13"


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


class RelayedUpgrade(NamedTuple):
    """Another server decides: from now on this connection and one to it have the same bytes."""

    # The connection, and what to call when it has ended.
    take_over: Callable[[asyncio.Transport, Callable[[], None]], None]
    # Nobody is there any more.
    drop: Callable[[], None]


def parse_upgrade(request: bytes, peer: str) -> Upgrade | UpgradeRefusal:
    """The request, if it asks for a WebSocket of the version that there is."""
    first, *lines = request.decode("latin-1").split("\r\n")
    method, path, *_ = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition(":")
        if separator:
            headers[name.strip().lower()] = value.strip()
    if method != "GET":
        return _bad_request("a WebSocket is asked for with GET")
    if headers.get("sec-websocket-version") != VERSION:
        return UpgradeRefusal(
            HTTPStatus.UPGRADE_REQUIRED,
            b'{"error":"only version 13 of WebSocket is spoken here"}',
            {"Sec-WebSocket-Version": VERSION},
        )
    if not _is_key(headers.get("sec-websocket-key", "")):
        return _bad_request("Sec-WebSocket-Key has to be 16 bytes in base64")
    return Upgrade(path, headers, peer)


def accepting_response(upgrade: Upgrade, subprotocol: str | None) -> bytes:
    """The answer after which the connection is a WebSocket."""
    key = upgrade.headers["sec-websocket-key"].encode("latin-1")
    # SHA-1 is the protocol's choice, and keeps no secret.
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Accept": accept}
    if subprotocol is not None:
        headers["Sec-WebSocket-Protocol"] = subprotocol
    return _response(HTTPStatus.SWITCHING_PROTOCOLS, headers, b"")


def refusing_response(refusal: UpgradeRefusal) -> bytes:
    """An ordinary HTTP answer, after which the connection is closed."""
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(refusal.body)),
        "Connection": "close",
    }
    return _response(HTTPStatus(refusal.status), {**headers, **refusal.headers}, refusal.body)


def _response(status: HTTPStatus, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _bad_request(message: str) -> UpgradeRefusal:
    return UpgradeRefusal(HTTPStatus.BAD_REQUEST, msgspec.json.encode({"error": message}))
