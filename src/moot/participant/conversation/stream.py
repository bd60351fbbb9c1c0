"""One stream as everybody knows it, and its chunks that nobody has read yet (MEW 3.10)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from moot.protocol.operation import Json, Payload

# Set by the gateway; everything else in an entry comes from the owner (MEW 3.8.1).
_SERVER_FIELDS: Final = frozenset(
    {"stream_id", "owner", "direction", "created", "authorized_writers", "target", "encoding"}
)


class Chunk(msgspec.Struct, frozen=True):
    """One frame's data; frames are never joined or split (MEW 3.10.3)."""

    data: bytes
    binary: bool

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class StreamInfo(msgspec.Struct, eq=False):
    """A stream as everybody knows it. `details` are the fields that its owner set."""

    id: str
    owner: str
    writers: tuple[str, ...]
    target: tuple[str, ...] | None
    request_id: str
    open_id: str
    details: dict[str, Json] = msgspec.field(default_factory=dict)
    closed: str | None = None  # the reason, once it is

    @property
    def content_type(self) -> str | None:
        value = self.details.get("content_type")
        return value if isinstance(value, str) else None


class UnreadChunks:
    """The chunks of one stream that nobody has read yet, the newest `max_bytes` of them."""

    def __init__(self, max_bytes: int) -> None:
        self.chunks: deque[Chunk] = deque()
        self.size = 0
        self.missed = 0
        self.ended = False
        self.changed = asyncio.Event()
        self._max_bytes = max_bytes

    def put(self, chunk: Chunk) -> int:
        """Add one; returns by how much the unread bytes grew."""
        before = self.size
        self.chunks.append(chunk)
        self.size += len(chunk.data)
        while self.size > self._max_bytes and len(self.chunks) > 1:
            self.drop()
        self.changed.set()
        return self.size - before

    def drop(self) -> None:
        self.size -= len(self.chunks.popleft().data)
        self.missed += 1

    def end(self) -> None:
        self.ended = True
        self.changed.set()


def stream_info(entry: Payload) -> StreamInfo:
    """A stream from a `stream/open` or an entry of a welcome."""
    owner = entry.get("owner")
    owner = owner if isinstance(owner, str) else ""
    writers = entry.get("authorized_writers")
    target = entry.get("target")
    return StreamInfo(
        entry["stream_id"],
        owner,
        # MEW 3.10.8: without the field the owner writes, and nobody else.
        tuple(writers) if isinstance(writers, list) else (owner,),
        tuple(target) if isinstance(target, list) and target else None,
        "",
        "",
        {name: value for name, value in entry.items() if name not in _SERVER_FIELDS},
    )
