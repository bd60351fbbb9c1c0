"""Reads the frames of one client: bytes in, whole messages and control frames out (RFC 6455, 5).

`take` keeps bytes, `read` handles what they hold: so many frames or so many seconds of it, whichever comes
first, and says whether more is left. That is why this is ours and not a library's: a library hands over all
that a packet holds, and a megabyte of empty frames is a second of work in which nobody else is served.

Nothing is held while nothing waits: a connection that once sent a large message is as small as before.
A fault raises FrameError after everything in front of it was handled.

`PurePythonFrameReader` says how it works; `_frame_reader.pyx` does the same in C where it is built, and
`tests/net/test_frame_reader.py` runs both and compares.
"""

from __future__ import annotations

import codecs
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moot.net.websocket_frame import (
    BINARY,
    CONTINUATION,
    INVALID_TEXT,
    MESSAGE_TOO_BIG,
    POLICY_VIOLATION,
    PROTOCOL_ERROR,
    TEXT,
    FrameError,
)

_MAX_CONTROL_BYTES: Final = 125
_MASK_BYTES: Final = 4
_OPCODES: Final = frozenset({0x0, 0x1, 0x2, 0x8, 0x9, 0xA})


class PurePythonFrameReader:
    """Frames of one client, which masks them."""

    def __init__(
        self,
        on_message: Callable[[bytes, bool], object],
        on_control: Callable[[int, bytes], object],
        max_message_bytes: int,
        max_fragments: int,
    ) -> None:
        self._on_message = on_message
        self._on_control = on_control
        self.max_message_bytes = max_message_bytes
        self._max_fragments = max_fragments
        # Messages are not handed over any more; control frames are.
        self.ignores_messages = False
        self._is_stopped = False
        self._waiting = bytearray()
        self._start = 0
        # Bytes to come of a message that is ignored.
        self._skip = 0
        # Of a message in fragments: None between messages. Checked as UTF-8 up to `_valid`.
        self._message: bytearray | None = None
        self._is_binary = False
        self._fragments = 0
        self._valid = 0

    @property
    def held_bytes(self) -> int:
        """What this reader keeps in memory for its connection."""
        return len(self._waiting) + len(self._message or b"")

    def take(self, data: bytearray, size: int) -> None:
        """Keep the first `size` bytes of `data`."""
        if self._is_stopped:
            return
        skipped = min(self._skip, size)
        self._skip -= skipped
        self._waiting += memoryview(data)[skipped:size]

    def read(self, max_frames: int, seconds: float) -> bool:
        """Handle what waits; True if some may be left. Raises FrameError, and what the callbacks raise."""
        deadline = time.monotonic() + seconds
        try:
            for _ in range(max_frames):
                if self._is_stopped or not self._read_frame():
                    return False
                if time.monotonic() >= deadline:
                    break
            return self._start < len(self._waiting)
        except FrameError:
            self.stop()
            raise
        finally:
            if self._start == len(self._waiting):
                self._waiting = bytearray()
            else:
                del self._waiting[: self._start]
            self._start = 0

    def stop(self) -> None:
        """Read and keep nothing more."""
        self._is_stopped = True
        self._waiting = bytearray()
        self._start = 0
        self._message = None

    def _read_frame(self) -> bool:
        """Handle one frame; False where it has not come whole."""
        data, start = self._waiting, self._start
        available = len(data) - start
        if available < 2:
            return False
        first, second = data[start], data[start + 1]
        opcode, is_final, size = first & 0x0F, first >= 0x80, second & 0x7F
        if first & 0x70:
            raise FrameError(PROTOCOL_ERROR, "reserved bits are set, but no extension was agreed")
        if opcode not in _OPCODES:
            raise FrameError(PROTOCOL_ERROR, f"opcode {opcode:#x} is not defined")
        if not second & 0x80:
            raise FrameError(PROTOCOL_ERROR, "a client has to mask its frames")
        is_control = opcode > BINARY
        if is_control and not is_final:
            raise FrameError(PROTOCOL_ERROR, "a control frame may not be fragmented")
        if is_control and size > _MAX_CONTROL_BYTES:
            raise FrameError(PROTOCOL_ERROR, "a control frame holds at most 125 bytes")
        head = 2
        if size >= 126:
            head, least = (4, 126) if size == 126 else (10, 1 << 16)
            if available < head:
                return False
            size = int.from_bytes(data[start + 2 : start + head], "big")
            if size < least or size >> 63:
                raise FrameError(PROTOCOL_ERROR, "the length of a frame is not encoded in the fewest bytes")
        whole = head + _MASK_BYTES + size
        if not is_control:
            if self.ignores_messages:
                self._start += min(whole, available)
                self._skip = max(0, whole - available)
                return True
            self._check_message(opcode, size)
        if available < whole:
            return False
        self._start += whole
        payload_start = start + head + _MASK_BYTES
        payload = _unmask(bytes(data[payload_start : start + whole]), data[payload_start - 4 : payload_start])
        if is_control:
            self._on_control(opcode, payload)
        elif opcode != CONTINUATION and is_final:
            if opcode == TEXT:
                _check_text(payload, is_whole=True)
            self._on_message(payload, opcode == BINARY)
        else:
            self._add_fragment(opcode, payload, is_final)
        return True

    def _check_message(self, opcode: int, size: int) -> None:
        """As soon as the head of a frame has come: it does not have to be kept to be refused."""
        message = self._message
        if opcode == CONTINUATION and message is None:
            raise FrameError(PROTOCOL_ERROR, "a continuation of nothing")
        if opcode != CONTINUATION and message is not None:
            raise FrameError(PROTOCOL_ERROR, "a new message inside a fragmented one")
        if size + len(message or b"") > self.max_message_bytes:
            raise FrameError(MESSAGE_TOO_BIG, f"message larger than {self.max_message_bytes} bytes")
        if message is not None and self._fragments >= self._max_fragments:
            raise FrameError(POLICY_VIOLATION, f"message in more than {self._max_fragments} fragments")

    def _add_fragment(self, opcode: int, payload: bytes, is_final: bool) -> None:
        if opcode != CONTINUATION:
            self._message = bytearray()
            self._is_binary = opcode == BINARY
            self._fragments = self._valid = 0
        message = self._message
        assert message is not None  # noqa: S101  # see _check_message
        message += payload
        self._fragments += 1
        if not self._is_binary:
            # Also before the end: whoever sends what is no text need not finish it.
            with memoryview(message) as view:
                self._valid += _check_text(view[self._valid :], is_whole=is_final)
        if is_final:
            self._message = None
            self._on_message(bytes(message), self._is_binary)


def _unmask(data: bytes, mask: bytearray) -> bytes:
    size = len(data)
    repeated = (mask * (size // _MASK_BYTES + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def _check_text(data: bytes | memoryview, *, is_whole: bool) -> int:
    """How many bytes are characters; of a text that is not whole the last one may be cut."""
    try:
        return codecs.utf_8_decode(data, "strict", is_whole)[1]
    except UnicodeDecodeError:
        raise FrameError(INVALID_TEXT, "text is not valid UTF-8") from None


if TYPE_CHECKING or os.environ.get("MOOT_PURE_PYTHON"):
    FrameReader = PurePythonFrameReader
else:
    try:
        from moot.net._frame_reader import FrameReader
    except ImportError:
        FrameReader = PurePythonFrameReader

COMPILED: Final = FrameReader is not PurePythonFrameReader
