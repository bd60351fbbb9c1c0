"""Streams (MEW 3.10): who owns which, writing to them, reading from them.

The gateway opens them and tells everybody who owns and may write; frames travel beside the envelopes. Frames
that nobody reads yet are kept within `stream_unread_bytes`, so that a reader that is told of a stream and
then opens it misses nothing; beyond that the oldest go, and the reader finds a Gap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from moot.errors import (
    MootError,
    OutboxFull,
    ParticipantPaused,
    RateLimited,
    Refused,
    StreamNotFound,
    TimedOut,
    UsageError,
)
from moot.participant.calls.outcome import MissedMessages
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, addressees
from moot.participant.connection.message_feed import Feed, Spawn, called
from moot.participant.connection.pending_replies import PendingReplies
from moot.participant.conversation.stream import Chunk, StreamHandle, StreamInfo, UnreadChunks, stream_info
from moot.protocol.envelope import Envelope
from moot.protocol.frames import Frame, write_frame
from moot.protocol.operation import Json, Payload
from moot.protocol.payloads import GATEWAY, STREAM_GATEWAY

log = logging.getLogger(__name__)


class StreamClient:
    """The open streams of the space, and what was not read of them yet."""

    def __init__(self, voice: EnvelopeSender, spawn: Spawn) -> None:
        self.voice = voice
        self._spawn = spawn
        self._active: dict[str, StreamInfo] = {}
        self._readers: dict[str, UnreadChunks] = {}
        self._unread = 0
        self._requested: dict[str, Payload] = {}
        # Requests of ours that nobody waits for any more.
        self._unwanted: set[str] = set()
        self._handles: dict[str, StreamHandle] = {}
        # By the id of our stream/request, or of our stream/grant-write and so on.
        self._opening: PendingReplies[StreamInfo] = PendingReplies()
        self._managing: PendingReplies[tuple[str, ...]] = PendingReplies()
        self._watchers: list[Callable[[StreamInfo], None]] = []
        self._feeds: list[Feed[StreamInfo]] = []

    # Looking

    @property
    def active(self) -> Mapping[str, StreamInfo]:
        return self._active

    def __iter__(self) -> Iterator[StreamInfo]:
        return iter(list(self._active.values()))

    def owned(self) -> list[StreamInfo]:
        return [info for info in self._active.values() if info.owner == self.voice.me]

    def on_open(self, handler: Callable[[StreamInfo], Any]) -> Callable[[StreamInfo], Any]:
        """Call this for every stream that is opened from now on; works as a decorator."""
        size = self.voice.limits.feed_items
        self._watchers.append(called(handler, self._spawn, self.voice.counts, size, self._feeds))
        return handler

    # Opening and writing

    async def open(
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
    ) -> StreamHandle:
        """Ask the gateway for a stream; only `target` gets its frames, everybody if there is none."""
        if content_type is None and (format is not None or custom):
            log.warning("a stream of one's own format should say its content_type", extra={"format": format})
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
        sent = self.voice.say("stream/request", payload, to=STREAM_GATEWAY, about=about)
        what = "the gateway's stream/open"
        try:
            info = await self._opening.wait(sent.id, self.voice.limits.confirm_seconds, what)
        except (asyncio.CancelledError, TimedOut):
            # Should it open after all, nobody would ever close it.
            self._unwanted.add(sent.id)
            raise
        return self.writer(info.id)

    def writer(self, stream_id: str) -> StreamHandle:
        """A handle for a stream that we own or were let write to."""
        info = self._active.get(stream_id)
        if info is None:
            raise StreamNotFound(f"stream {stream_id!r} is not open here", stream_id=stream_id)
        handle = self._handles.get(stream_id)
        if handle is None:
            handle = self._handles[stream_id] = StreamHandle(self, info)
        return handle

    async def write(self, info: StreamInfo, data: str | bytes) -> None:
        voice = self.voice
        if info.closed is not None:
            raise StreamNotFound(f"stream {info.id} is closed: {info.closed}", stream_id=info.id)
        if voice.me not in info.writers:
            raise UsageError(f"{voice.me} may not write to {info.id}: its owner is {info.owner}")
        if voice.pause is not None:
            voice.check_not_paused("stream frame")
        binary = not isinstance(data, str)
        frame = write_frame(info.id, data.encode() if isinstance(data, str) else data, binary=binary)
        line = voice.line
        if line.is_full:
            await line.wait_drained(voice.limits.write_seconds)
            line = voice.line
        try:
            line.send(frame.raw, binary=binary)
        except OutboxFull:
            await line.wait_drained(voice.limits.write_seconds)
            voice.line.send(frame.raw, binary=binary)

    async def manage(
        self, kind: str, info: StreamInfo, field: str, member: str, reason: str | None
    ) -> tuple[str, ...]:
        payload: dict[str, Json] = {"stream_id": info.id, field: member}
        if reason is not None:
            payload["reason"] = reason
        sent = self.voice.say(kind, payload, to=STREAM_GATEWAY)
        what = f"the gateway's answer to {kind}"
        return await self._managing.wait(sent.id, self.voice.limits.confirm_seconds, what)

    # Reading

    async def read(self, stream_id: str) -> AsyncIterator[Chunk | MissedMessages]:
        """The frames of a stream until it is closed, from the first that is still kept. One reader each."""
        reader = self._readers.get(stream_id)
        if reader is None:
            if stream_id not in self._active:
                raise StreamNotFound(f"stream {stream_id!r} is not open here", stream_id=stream_id)
            reader = self._reader(stream_id)
        try:
            while True:
                if reader.missed:
                    missed, reader.missed = reader.missed, 0
                    self.voice.counts.gaps += 1
                    yield MissedMessages("slow", missed)
                elif reader.chunks:
                    chunk = reader.chunks.popleft()
                    reader.size -= len(chunk.data)
                    self._unread -= len(chunk.data)
                    yield chunk
                elif reader.ended:
                    return
                else:
                    reader.news.clear()
                    await reader.news.wait()
        finally:
            if self._readers.get(stream_id) is reader and reader.ended:
                self._forget(stream_id)

    def _reader(self, stream_id: str) -> UnreadChunks:
        reader = self._readers[stream_id] = UnreadChunks(self.voice.limits.stream_unread_bytes)
        return reader

    def _forget(self, stream_id: str) -> None:
        reader = self._readers.pop(stream_id, None)
        if reader is not None:
            self._unread -= reader.size

    def frame(self, frame: Frame) -> None:
        """A frame has come. One of a stream that is not open is nobody's."""
        info = self._active.get(frame.stream_id)
        if info is None:
            return
        reader = self._readers.get(frame.stream_id) or self._reader(frame.stream_id)
        self._unread += reader.put(Chunk(frame.data, frame.binary))
        if self._unread > self.voice.limits.streams_unread_bytes:
            # All together hold too much: the fullest gives way.
            fullest = max(self._readers.values(), key=lambda each: each.size)
            while self._unread > self.voice.limits.streams_unread_bytes and fullest.chunks:
                before = fullest.size
                fullest.drop()
                self._unread -= before - fullest.size

    # What is heard

    def welcome(self, entries: list[Payload]) -> None:
        """MEW 3.8.1: the streams that are open now; those we knew and that are not among them have ended."""
        listed = {entry["stream_id"]: entry for entry in entries}
        for id in [id for id in self._active if id not in listed]:
            self._close(id, "ended while we were away")
        for id, entry in listed.items():
            info = self._active.get(id)
            if info is None:
                self._active[id] = stream_info(entry)
            else:
                fresh = stream_info(entry)
                info.owner, info.writers, info.target = fresh.owner, fresh.writers, fresh.target

    def requested(self, envelope: Envelope) -> None:
        """Somebody's `stream/request`: what it says of the stream is not repeated when that opens."""
        if len(self._requested) >= self.voice.limits.contexts_kept:
            del self._requested[next(iter(self._requested))]
        self._requested[envelope.id] = envelope.payload

    def opened(self, envelope: Envelope) -> None:
        """`stream/open`: to everybody, and in answer to a request."""
        request_id = envelope.correlation_id[0] if envelope.correlation_id else ""
        info = stream_info({**self._requested.pop(request_id, {}), **envelope.payload})
        info.request_id = request_id
        info.open_id = envelope.id
        self._active[info.id] = info
        self._opening.resolve(info.request_id, info)
        if request_id in self._unwanted:
            self._unwanted.discard(request_id)
            with suppress(MootError):
                self.writer(info.id).say_close("cancelled")
        for watcher in self._watchers:
            watcher(info)

    def changed(self, envelope: Envelope) -> None:
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
            self._managing.resolve(id, info.writers)

    def closed(self, envelope: Envelope) -> str | None:
        """A stream ends; returns what is wrong if its sender has no business with it (D-37)."""
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

    def refused(self, id: str, refusal: Refused) -> bool:
        self._unwanted.discard(id)
        return self._opening.fail(id, refusal) or self._managing.fail(id, refusal)

    def frame_refused(self, refusal: Refused) -> bool:
        """A refusal without a correlation is about a frame (D-36); the next write raises it."""
        if isinstance(refusal, RateLimited | ParticipantPaused):
            for each in self._handles.values():
                each.fault = refusal
            return bool(self._handles)
        handle = self._handles.get(str(refusal.details.get("stream_id")))
        if handle is not None:
            handle.fault = refusal
        return handle is not None

    def lost(self, fault: Callable[[], Exception]) -> None:
        self._unwanted.clear()
        self._opening.fail_all(fault)
        self._managing.fail_all(fault)

    def end(self) -> None:
        for id in list(self._active):
            self._close(id, "the connection ended")
        for feed in self._feeds:
            feed.end()
