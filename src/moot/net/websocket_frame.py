"""WebSocket frames as a server writes them: unmasked, whole, ready to be sent to many (RFC 6455, 5.2)."""

from __future__ import annotations

import struct
from typing import Final

TEXT: Final = 0x1
BINARY: Final = 0x2

_FINAL: Final = 0x80
_MEDIUM = struct.Struct("!BBH")
_LONG = struct.Struct("!BBQ")


def encode_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """One message in one frame."""
    size = len(payload)
    first = _FINAL | opcode
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65_536:
        return _MEDIUM.pack(first, 126, size) + payload
    return _LONG.pack(first, 127, size) + payload
