"""One stream: what everybody knows of it, what waits to be read, and the handle to write to it (MEW 3.10)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from moot.errors import MootError, Refused
from moot.participant.calls.outcome import SentEnvelope
from moot.protocol.operation import Json, Payload

if TYPE_CHECKING:
    from moot.participant.conversation.stream_client import StreamClient

log = logging.getLogger(__name__)

# What the gateway says of a stream; everything else in an entry is the owner's own (MEW 3.8.1).
_SERVER_FIELDS: Final = frozenset(
    {"stream_id", "owner", "direction", "created", "authorized_writers", "target", "encoding"}
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One frame's data; frames are never joined or split (MEW 3.10.3)."""

    data: bytes
    binary: bool

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class StreamInfo:
    """A stream as everybody knows it. `details` is what its owner said of it."""

    id: str
    owner: str
    writers: tuple[str, ...]
    target: tuple[str, ...] | None
    request_id: str
    open_id: str
    details: dict[str, Json] = field(default_factory=dict)
    closed: str | None = None  # the reason, once it is

    @property
    def content_type(self) -> str | None:
        value = self.details.get("content_type")
        return value if isinstance(value, str) else None


class UnreadChunks:
    """What waits to be read of one stream."""

    def __init__(self, most: int) -> None:
        self.chunks: deque[Chunk] = deque()
        self.size = 0
        self.most = most
        self.missed = 0
        self.ended = False
        self.news = asyncio.Event()

    def put(self, chunk: Chunk) -> int:
        """Keep one; returns by how much the unread bytes grew."""
        before = self.size
        self.chunks.append(chunk)
        self.size += len(chunk.data)
        while self.size > self.most and len(self.chunks) > 1:
            self.drop()
        self.news.set()
        return self.size - before

    def drop(self) -> None:
        self.size -= len(self.chunks.popleft().data)
        self.missed += 1

    def end(self) -> None:
        self.ended = True
        self.news.set()


class StreamHandle:
    """A stream that we own or may write to. As a block it is closed at the end."""

    def __init__(self, streams: StreamClient, info: StreamInfo) -> None:
        self.info = info
        self.fault: Refused | None = None
        self._streams = streams

    @property
    def id(self) -> str:
        return self.info.id

    async def write(self, data: str | bytes) -> None:
        """One frame: text as text, bytes as binary. Waits while the gateway takes nothing; raises TimedOut.

        A refusal comes later than the write that caused it, and is raised by the next one.
        """
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        await self._streams.write(self.info, data)

    async def grant_write(self, member: str, *, reason: str | None = None) -> tuple[str, ...]:
        """MEW 3.10.5: let a member write; returns all who may now."""
        return await self._streams.manage("stream/grant-write", self.info, "participant_id", member, reason)

    async def revoke_write(self, member: str, *, reason: str | None = None) -> tuple[str, ...]:
        """MEW 3.10.6: the opposite."""
        return await self._streams.manage("stream/revoke-write", self.info, "participant_id", member, reason)

    async def transfer(self, member: str, *, reason: str | None = None) -> tuple[str, ...]:
        """MEW 3.10.7: hand the stream over; we write no more, unless that was granted by itself (D-38)."""
        return await self._streams.manage("stream/transfer-ownership", self.info, "new_owner", member, reason)

    async def close(self, reason: str = "complete") -> None:
        """MEW 3.10.4: no frames after this; closing twice does nothing."""
        if self.info.closed is None:
            sent = self.say_close(reason)
            await self._streams.voice.echo(sent)

    def say_close(self, reason: str) -> SentEnvelope:
        """The same without waiting for the echo."""
        payload: dict[str, Json] = {"stream_id": self.id, "reason": reason}
        return self._streams.voice.say("stream/close", payload, about=self.info.open_id or ())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.info.closed is not None or self.info.owner != self._streams.voice.me:
            return
        try:
            self.say_close("complete" if kind is None else "cancelled")
        except MootError as unsaid:
            log.debug("not closed", extra={"stream": self.id, "why": type(unsaid).__name__})


class StreamOpening:
    """A stream that is being opened: await it for the handle, or use it as a block that closes it."""

    def __init__(self, opened: Coroutine[Any, Any, StreamHandle]) -> None:
        self._opened = opened
        self._handle: StreamHandle | None = None

    def __await__(self) -> Generator[Any, Any, StreamHandle]:
        return self._opened.__await__()

    async def __aenter__(self) -> StreamHandle:
        self._handle = await self._opened
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            await self._handle.__aexit__(kind, fault, trace)


def stream_info(entry: Payload) -> StreamInfo:
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
