"""Streams (MEW 3.10): opening, reading, and who owns which.

The gateway opens them and tells everybody who owns and may write; frames travel beside the envelopes. Frames
that nobody has read yet are kept up to `MAX_STREAM_UNREAD_BYTES`, so a reader that learns of a stream and
then reads it misses nothing. Beyond that the oldest are dropped, and the reader finds `MissedMessages`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

from moot.errors import ParticipantPaused, RateLimited, Refused, StreamNotFound, TimedOut
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, addressees
from moot.participant.connection.message_feed import HandlerRunner, MissedMessages, RunningHandler
from moot.participant.connection.pending_replies import PendingReplies
from moot.participant.conversation import contexts
from moot.participant.conversation.stream import Chunk, StreamInfo, UnreadChunks, stream_info
from moot.participant.conversation.stream_handle import (
    StreamHandle,
    StreamOpening,
    close_quietly,
    refuse_next_write,
)
from moot.protocol.envelope import Envelope
from moot.protocol.frames import Frame
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json, Payload
from moot.protocol.payloads import GATEWAY, STREAM_GATEWAY

# Frames of one stream that nobody has read yet, and of all streams together.
MAX_STREAM_UNREAD_BYTES: Final = 1 << 20
MAX_STREAMS_UNREAD_BYTES: Final = 8 << 20

log = logging.getLogger(__name__)


class StreamClient:
    """The open streams of the space. Iterate over it for all of them."""

    def __init__(self, sender: EnvelopeSender, runner: HandlerRunner) -> None:
        self._sender = sender
        self._runner = runner
        self._active: dict[str, StreamInfo] = {}
        # While the rest of a welcome is fetched: what was listed so far.
        self._listed: set[str] | None = None
        self._readers: dict[str, UnreadChunks] = {}
        self._unread = 0
        self._requested: LatestDict[str, Payload] = LatestDict(contexts.MAX_CONTEXTS)
        # Requests of ours that nobody waits for any more.
        self._unwanted: set[str] = set()
        self._handles: dict[str, StreamHandle] = {}
        # By the id of our stream/request, and of our stream/grant-write and so on.
        self._opening: PendingReplies[StreamInfo] = PendingReplies()
        self._writer_changes: PendingReplies[tuple[str, ...]] = PendingReplies()
        self._handlers: list[RunningHandler[StreamInfo]] = []

    # Looking up

    @property
    def active(self) -> Mapping[str, StreamInfo]:
        """The open streams by id."""
        return self._active

    def __iter__(self) -> Iterator[StreamInfo]:
        return iter(list(self._active.values()))

    def owned(self) -> list[StreamInfo]:
        """The open streams that are ours."""
        return [info for info in self._active.values() if info.owner == self._sender.me]

    def on_open(self, handler: Callable[[StreamInfo], Any]) -> Callable[[StreamInfo], Any]:
        """Call this for every stream that is opened from now on; works as a decorator."""
        self._handlers.append(self._runner.start(handler))
        return handler

    # Opening

    def open(
        self,
        target: Addressees = (),
        *,
        direction: str = "upload",
        description: str | None = None,
        content_type: str | None = None,
        format: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        expected_size_bytes: int | None = None,
        about: Addressees = (),
        **custom: Json,
    ) -> StreamOpening:
        """Open a stream (MEW 3.10.1): `async with space.streams.open("bob") as stream: …`.

        Only `target` gets its frames, or everybody if there is none. Await it instead to get the handle.
        """
        if content_type is None and (format is not None or custom):
            log.warning(
                "a stream with a format of its own should have a content_type", extra={"format": format}
            )
        known: dict[str, Json] = {
            "direction": direction,
            "target": list(addressees(target)) or None,
            "description": description,
            "content_type": content_type,
            "format": format,
            "metadata": None if metadata is None else dict(metadata),
            "expected_size_bytes": expected_size_bytes,
        }
        payload = custom | {name: value for name, value in known.items() if value is not None}
        return StreamOpening(self._open(payload, about))

    async def _open(self, payload: Payload, about: Addressees) -> StreamHandle:
        sent = self._sender.send("stream/request", payload, to=STREAM_GATEWAY, about=about)
        what = "the gateway's stream/open"
        try:
            info = await self._opening.wait(sent.id, self._sender.limits.answer_seconds, what)
        except (asyncio.CancelledError, TimedOut):
            # If it opens after all, it is closed at once.
            self._unwanted.add(sent.id)
            raise
        return self.writer(info.id)

    def writer(self, stream_id: str) -> StreamHandle:
        """The handle of a stream that we own or may write to; raises StreamNotFound."""
        info = self._active.get(stream_id)
        if info is None:
            raise StreamNotFound(f"stream {stream_id!r} is not open here", stream_id=stream_id)
        handle = self._handles.get(stream_id)
        if handle is None:
            handle = self._handles[stream_id] = StreamHandle(info, self._sender, self._writer_changes)
        return handle

    # Reading

    async def read(self, stream_id: str) -> AsyncIterator[Chunk | MissedMessages]:
        """The frames of a stream until it is closed, from the first that is still kept; for one reader."""
        reader = self._readers.get(stream_id)
        if reader is None:
            if stream_id not in self._active:
                raise StreamNotFound(f"stream {stream_id!r} is not open here", stream_id=stream_id)
            reader = self._add_reader(stream_id)
        try:
            while True:
                if reader.missed:
                    missed, reader.missed = reader.missed, 0
                    self._sender.counts.gaps += 1
                    yield MissedMessages("slow", missed)
                elif reader.chunks:
                    chunk = reader.chunks.popleft()
                    reader.size -= len(chunk.data)
                    self._unread -= len(chunk.data)
                    yield chunk
                elif reader.ended:
                    return
                else:
                    reader.changed.clear()
                    await reader.changed.wait()
        finally:
            if self._readers.get(stream_id) is reader and reader.ended:
                self._forget(stream_id)

    def _add_reader(self, stream_id: str) -> UnreadChunks:
        reader = self._readers[stream_id] = UnreadChunks(MAX_STREAM_UNREAD_BYTES)
        return reader

    def _forget(self, stream_id: str) -> None:
        reader = self._readers.pop(stream_id, None)
        if reader is not None:
            self._unread -= reader.size

    def handle_frame(self, frame: Frame) -> None:
        """A frame of an open stream; others are ignored."""
        info = self._active.get(frame.stream_id)
        if info is None:
            return
        reader = self._readers.get(frame.stream_id) or self._add_reader(frame.stream_id)
        self._unread += reader.put(Chunk(frame.data, frame.binary))
        if self._unread > MAX_STREAMS_UNREAD_BYTES:
            # All streams together hold too much: drop chunks of the largest.
            largest = max(self._readers.values(), key=lambda each: each.size)
            while self._unread > MAX_STREAMS_UNREAD_BYTES and largest.chunks:
                before = largest.size
                largest.drop()
                self._unread -= before - largest.size

    # What arrives

    def apply_welcome(self, entries: list[Payload], *, complete: bool = True) -> None:
        """MEW 3.8.1: the streams that are open now; those we knew and that are not among them have ended.

        Not `complete`: the welcome had no room for all, and `apply_page` brings the others.
        """
        self._listed = set()
        self.apply_page(entries, is_last=complete)

    def apply_page(self, entries: list[Payload], *, is_last: bool) -> None:
        """More open streams. After the last page, those that were not listed have ended."""
        listed = {entry["stream_id"]: entry for entry in entries}
        if self._listed is not None:
            self._listed |= listed.keys()
        if is_last and self._listed is not None:
            for id in [id for id in self._active if id not in self._listed]:
                self._close(id, "ended while we were away")
            self._listed = None
        for id, entry in listed.items():
            info = self._active.get(id)
            if info is None:
                self._active[id] = stream_info(entry)
            else:
                fresh = stream_info(entry)
                info.owner, info.writers, info.target = fresh.owner, fresh.writers, fresh.target

    def handle_request(self, envelope: Envelope) -> None:
        """Somebody's `stream/request`: its fields are not repeated when the stream opens."""
        self._requested[envelope.id] = envelope.payload

    def handle_open(self, envelope: Envelope) -> None:
        """`stream/open`: to everybody, and in answer to a request."""
        request_id = envelope.correlation_id[0] if envelope.correlation_id else ""
        info = stream_info({**self._requested.pop(request_id, {}), **envelope.payload})
        info.request_id = request_id
        info.open_id = envelope.id
        self._active[info.id] = info
        if self._listed is not None:
            self._listed.add(info.id)
        self._opening.resolve(info.request_id, info)
        if request_id in self._unwanted:
            self._unwanted.discard(request_id)
            close_quietly(self.writer(info.id), "cancelled")
        for handler in self._handlers:
            handler.call(info)

    def handle_change(self, envelope: Envelope) -> None:
        """write-granted, write-revoked, ownership-transferred."""
        payload = envelope.payload
        info = self._active.get(payload["stream_id"])
        if info is None:
            return
        if envelope.kind == "stream/ownership-transferred":
            info.owner = payload["new_owner"]
        writers = payload.get("authorized_writers")
        info.writers = tuple(writers) if isinstance(writers, list) else (info.owner,)
        for id in envelope.correlation_id:
            self._writer_changes.resolve(id, info.writers)

    def handle_close(self, envelope: Envelope) -> str | None:
        """A stream ends; returns what is wrong if its sender may not close it (D-37)."""
        reason = envelope.payload.get("reason")
        named = envelope.payload.get("stream_id")
        about = envelope.correlation_id
        for info in list(self._active.values()):
            if info.id == named or (named is None and (info.open_id in about or info.request_id in about)):
                if envelope.sender not in (info.owner, GATEWAY, STREAM_GATEWAY):
                    return f"only its owner or the gateway closes {info.id}"
                self._close(info.id, reason if isinstance(reason, str) else "closed")
        return None

    def _close(self, id: str, reason: str) -> None:
        info = self._active.pop(id, None)
        if info is not None:
            info.closed = reason
        self._handles.pop(id, None)
        reader = self._readers.get(id)
        if reader is not None:
            reader.end()
            if not reader.chunks and not reader.missed:
                self._forget(id)

    def handle_refusal(self, id: str, refusal: Refused) -> bool:
        self._unwanted.discard(id)
        return self._opening.fail(id, refusal) or self._writer_changes.fail(id, refusal)

    def handle_frame_refusal(self, refusal: Refused) -> bool:
        """A refusal without a correlation is about a frame (D-36); the next write raises it."""
        if isinstance(refusal, RateLimited | ParticipantPaused):
            for each in self._handles.values():
                refuse_next_write(each, refusal)
            return bool(self._handles)
        handle = self._handles.get(str(refusal.details.get("stream_id")))
        if handle is not None:
            refuse_next_write(handle, refusal)
        return handle is not None

    def fail_all(self, fault: Callable[[], Exception]) -> None:
        self._unwanted.clear()
        self._opening.fail_all(fault)
        self._writer_changes.fail_all(fault)

    def end(self) -> None:
        for id in list(self._active):
            self._close(id, "the connection ended")

    def close_owned(self) -> None:
        """Close our streams, if anything can still be sent."""
        for info in self.owned():
            close_quietly(self.writer(info.id), "owner_left")
