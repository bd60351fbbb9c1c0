"""Stream data on the wire: `#stream-id#` and then anything at all (MEW 3.10.3, D-35).

A frame is forwarded as it came, byte for byte and as text or binary, so `raw` is kept and the parts are
slices of it. Which streams exist and who may write is the space's business.
"""

from __future__ import annotations

from typing import Final

import msgspec

from moot.errors import InvalidEnvelope, UsageError

# The gateway makes the ids; this only bounds the search for the second `#`.
STREAM_ID_BYTES: Final = 256


class Frame(msgspec.Struct, frozen=True):
    """One piece of a stream."""

    stream_id: str
    raw: bytes
    binary: bool

    @property
    def data(self) -> bytes:
        return self.raw[self.raw.index(b"#", 1) + 1 :]


def is_frame(raw: bytes) -> bool:
    """Whether a message is stream data rather than an envelope; no JSON text starts with `#`."""
    return raw.startswith(b"#")


def read_frame(raw: bytes, *, binary: bool, max_bytes: int) -> Frame:
    """The frame in these bytes; raises InvalidEnvelope if it is none."""
    if len(raw) > max_bytes:
        raise InvalidEnvelope(f"a frame of {len(raw)} bytes is larger than max_bytes {max_bytes}")
    if not raw.startswith(b"#"):
        raise InvalidEnvelope("a frame starts with #stream_id#")
    end = raw.find(b"#", 1, STREAM_ID_BYTES + 2)
    if end < 0:
        raise InvalidEnvelope(f"a frame starts with #stream_id# of at most {STREAM_ID_BYTES} bytes")
    try:
        # A text message that is no UTF-8 makes conforming receivers hang up, all of them at once.
        if not binary:
            raw.decode("utf-8")
        stream_id = raw[1:end].decode("utf-8")
    except UnicodeDecodeError:
        what = "a frame's stream_id" if binary else "a text frame"
        raise InvalidEnvelope(f"{what} must be valid UTF-8") from None
    if not stream_id or not stream_id.isprintable():
        raise InvalidEnvelope("a frame's stream_id must be non-empty and printable")
    return Frame(stream_id, raw, binary)


def write_frame(stream_id: str, data: bytes, *, binary: bool) -> Frame:
    """A frame to be sent; raises UsageError for what no receiver could read back."""
    try:
        frame = read_frame(b"#%b#%b" % (stream_id.encode(), data), binary=binary, max_bytes=1 << 62)
    except (InvalidEnvelope, UnicodeEncodeError) as fault:
        raise UsageError(f"cannot be sent as a frame: {fault}") from None
    if frame.stream_id != stream_id:
        raise UsageError(f"a stream id holds no '#': {stream_id!r}")
    return frame
