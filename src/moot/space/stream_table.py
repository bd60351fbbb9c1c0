"""Open streams: who owns them, who may write, who receives (MEW 3.10, D-33 to D-39)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from moot.errors import StreamNotFound
from moot.protocol.operation import Json, JsonValue, UnreadPayload
from moot.space.config import Name

# D-33: a client's request never overrides what the gateway says about a stream.
SERVER_FIELDS: Final = frozenset(
    {"stream_id", "owner", "authorized_writers", "created", "participantId", "requestId", "encoding"}
)
_TEXT_TYPES: Final = ("text/", "application/json")


class StreamRecord(msgspec.Struct):
    """One open stream. Names are logical; the wire shows runtime ids."""

    id: str
    owner: Name
    direction: str
    created: str
    request_id: str
    open_id: str
    # Every field of the original request, for late joiners (j8v); without what only the gateway may say.
    request: dict[str, Json]
    # None: frames go to everybody. Empty: every target is gone, and frames go to nobody (D-39).
    target: list[Name] | None = None
    writers: list[Name] = msgspec.field(default_factory=list)
    # Writers by an explicit stream/grant-write: they keep writing after a transfer of ownership (D-38).
    granted: list[Name] = msgspec.field(default_factory=list)
    # When the gateway closes it because its owner stayed away.
    closes_at: float | None = None

    @property
    def encoding(self) -> str:
        content_type = self.request.get("content_type")
        text = isinstance(content_type, str) and content_type.startswith(_TEXT_TYPES)
        return "text" if text else "binary"


class StreamTable:
    """The open streams of a space by id."""

    def __init__(self) -> None:
        self.open: dict[str, StreamRecord] = {}

    def find(self, id: JsonValue) -> StreamRecord:
        stream = self.open.get(id) if isinstance(id, str) else None
        if stream is None:
            raise StreamNotFound(f"stream {id!r} is not open in this space", stream_id=id)
        return stream

    def named_by(self, payload: UnreadPayload, correlation: tuple[str, ...] | list[str]) -> StreamRecord:
        """D-37: by payload.stream_id, else by correlation to the open or the request."""
        if "stream_id" in payload:
            return self.find(payload["stream_id"])
        for stream in self.open.values():
            if stream.open_id in correlation or stream.request_id in correlation:
                return stream
        raise StreamNotFound("name the stream: payload.stream_id, or correlation_id of its stream/open")

    def owned_by(self, name: Name) -> list[StreamRecord]:
        return [stream for stream in self.open.values() if stream.owner == name]

    def save(self) -> list[Json]:
        return [msgspec.to_builtins(stream) for stream in self.open.values()]

    @classmethod
    def load(cls, saved: list[dict[str, Any]]) -> StreamTable:
        streams = cls()
        for row in saved:
            streams.open[row["id"]] = msgspec.convert(row, StreamRecord)
        return streams
