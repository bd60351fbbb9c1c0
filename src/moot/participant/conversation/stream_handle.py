"""The handle to write to a stream and to manage it (MEW 3.10)."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Final, Self

from moot.errors import MootError, OutboxFull, Refused, StreamNotFound, UsageError
from moot.participant.connection.envelope_sender import EnvelopeSender, SentEnvelope
from moot.participant.connection.pending_replies import PendingReplies
from moot.participant.conversation.stream import StreamInfo
from moot.protocol.frames import write_frame
from moot.protocol.operation import Json
from moot.protocol.payloads import STREAM_GATEWAY

# How long a writer waits for a gateway that accepts nothing.
WRITE_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class StreamHandle:
    """A stream that we own or may write to. As a block it is closed at the end."""

    def __init__(
        self, info: StreamInfo, sender: EnvelopeSender, writer_changes: PendingReplies[tuple[str, ...]]
    ) -> None:
        self.info = info
        self._sender = sender
        self._writer_changes = writer_changes
        self._refusal: Refused | None = None

    @property
    def id(self) -> str:
        return self.info.id

    async def write(self, data: str | bytes) -> None:
        """Send one frame: text as text, bytes as binary. Waits while the gateway is slow; raises TimedOut.

        A refusal comes later than the write that caused it, and is raised by the next one.
        """
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        sender, info = self._sender, self.info
        if info.closed is not None:
            raise StreamNotFound(f"stream {info.id} is closed: {info.closed}", stream_id=info.id)
        if sender.me not in info.writers:
            raise UsageError(f"{sender.me} may not write to {info.id}: its owner is {info.owner}")
        if sender.pause is not None:
            sender.check_not_paused("stream frame")
        binary = not isinstance(data, str)
        frame = write_frame(info.id, data.encode() if isinstance(data, str) else data, binary=binary)
        socket = sender.socket
        if socket.is_full:
            await socket.wait_drained(WRITE_SECONDS)
            socket = sender.socket
        try:
            socket.send(frame.raw, binary=binary)
        except OutboxFull:
            await socket.wait_drained(WRITE_SECONDS)
            sender.socket.send(frame.raw, binary=binary)

    async def grant_write(self, member: str, *, reason: str | None = None) -> tuple[str, ...]:
        """Let a member write (MEW 3.10.5); returns all who may now."""
        return await self._change_writers("stream/grant-write", "participant_id", member, reason)

    async def revoke_write(self, member: str, *, reason: str | None = None) -> tuple[str, ...]:
        """Let a member write no longer (MEW 3.10.6); returns all who still may."""
        return await self._change_writers("stream/revoke-write", "participant_id", member, reason)

    async def transfer(self, member: str, *, reason: str | None = None) -> tuple[str, ...]:
        """Make a member the owner (MEW 3.10.7); we cannot write then, unless that was granted separately."""
        return await self._change_writers("stream/transfer-ownership", "new_owner", member, reason)

    async def _change_writers(
        self, kind: str, field: str, member: str, reason: str | None
    ) -> tuple[str, ...]:
        payload: dict[str, Json] = {"stream_id": self.id, field: member}
        if reason is not None:
            payload["reason"] = reason
        sent = self._sender.send(kind, payload, to=STREAM_GATEWAY)
        what = f"the gateway's answer to {kind}"
        return await self._writer_changes.wait(sent.id, self._sender.limits.answer_seconds, what)

    async def close(self, reason: str = "complete") -> None:
        """Close the stream (MEW 3.10.4); closing it twice does nothing."""
        if self.info.closed is None:
            await self._sender.wait_for_echo(_send_close(self, reason))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.info.closed is None and self.info.owner == self._sender.me:
            close_quietly(self, "complete" if kind is None else "cancelled")


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


def close_quietly(handle: StreamHandle, reason: str) -> None:
    """Close a stream if anything can still be sent, without waiting for it."""
    try:
        _send_close(handle, reason)
    except MootError as fault:
        log.debug("not closed", extra={"stream": handle.id, "why": type(fault).__name__})


def _send_close(handle: StreamHandle, reason: str) -> SentEnvelope:
    payload: dict[str, Json] = {"stream_id": handle.id, "reason": reason}
    return handle._sender.send("stream/close", payload, about=handle.info.open_id or ())


def refuse_next_write(handle: StreamHandle, refusal: Refused) -> None:
    """The gateway refused a frame; the next write raises this."""
    handle._refusal = refusal
