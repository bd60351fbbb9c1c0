"""WebSocket frames as a server writes them: unmasked, whole, ready to be sent to many (RFC 6455, 5.2).

What comes is read by `frame_reader`; here stands what a close frame that came means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

# Close codes that a server chooses itself (RFC 6455, 7.4.1).
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
INVALID_TEXT: Final = 1007
POLICY_VIOLATION: Final = 1008
MESSAGE_TOO_BIG: Final = 1009
INTERNAL_ERROR: Final = 1011

# Those that a peer may send (RFC 6455, 7.4.1, and the registry's later ones), besides 3000 to 4999.
_CLOSE_CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
_NORMAL_CLOSE: Final = 1000
# A close reason fits into a control frame together with its code (RFC 6455, 5.5).
_MAX_REASON_BYTES: Final = 123
_FINAL: Final = 0x80
_MEDIUM = struct.Struct("!BBH")
_LONG = struct.Struct("!BBQ")


class FrameError(Exception):
    """The peer broke the protocol of frames: it gets this close code and reason, and is read no more."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def encode_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """One message in one frame."""
    size = len(payload)
    first = _FINAL | opcode
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65_536:
        return _MEDIUM.pack(first, 126, size) + payload
    return _LONG.pack(first, 127, size) + payload


def split_frames(data: bytes) -> Iterator[bytes]:
    """The messages of frames as `encode_frame` makes them."""
    at = 0
    while at < len(data):
        size, at = data[at + 1], at + 2
        if size == 126:
            size, at = int.from_bytes(data[at : at + 2], "big"), at + 2
        elif size == 127:
            size, at = int.from_bytes(data[at : at + 8], "big"), at + 8
        yield data[at : at + size]
        at += size


def encode_close(code: int, reason: str = "") -> bytes:
    """A close frame; a reason that is too long is cut."""
    short = reason.encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore").encode()
    return encode_frame(code.to_bytes(2, "big") + short, CLOSE)


def read_close_code(payload: bytes) -> int:
    """The code of a close frame that came; raises FrameError for one that may not be sent."""
    code = int.from_bytes(payload[:2], "big") if payload else _NORMAL_CLOSE
    if len(payload) == 1 or not (code in _CLOSE_CODES or 3000 <= code < 5000):
        raise FrameError(PROTOCOL_ERROR, f"close code {code} may not be sent")
    try:
        payload[2:].decode("utf-8")
    except UnicodeDecodeError:
        raise FrameError(INVALID_TEXT, "the reason of a close is not valid UTF-8") from None
    return code
