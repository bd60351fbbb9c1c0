"""What waits to be sent: one write per connection and loop tick, and a bound for those who read too slowly.

A message to many is framed once and appended to a *batch*. As long as the next message goes to the same
audience it joins that batch; anything else seals it. At the end of the tick every connection writes
what is pending for it, which for most of them is the same joined bytes.

A connection whose transport is full keeps what comes meanwhile, within bounds of bytes, messages and
seconds. Past any of them it is closed with the reason; nobody else waits for it. What was kept goes out piece
by piece, each when the one before it was taken: so the seconds count from the last progress, and what many
slow readers wait for is kept once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

# Without any progress: a reader that took nothing for so long is stuck, not slow.
MAX_SECONDS: Final = 10.0
# What is given to a transport at once. Joining small messages saves calls; more would only be copied early.
_PIECE_BYTES: Final = 256 << 10


class SocketWriter(Protocol):
    """Where the bytes go; an asyncio transport is one."""

    def write(self, data: bytes) -> None: ...


class Batch:
    """Messages to the same audience, in each of its dialects."""

    __slots__ = ("audience", "frames", "joined")

    def __init__(self, audience: Sequence[Outbox]) -> None:
        self.audience = audience
        self.frames: dict[str, list[bytes]] = {}
        self.joined: dict[str, bytes] = {}

    def bytes_for(self, dialect: str) -> bytes:
        """All messages of one dialect, joined once for all its connections."""
        joined = self.joined.get(dialect)
        if joined is None:
            joined = self.joined[dialect] = b"".join(self.frames.get(dialect, ()))
        return joined


class Outbox:
    """What one connection still has to be sent."""

    __slots__ = (
        "_counted",
        "_full_since",
        "_writer",
        "dialect",
        "max_bytes",
        "max_messages",
        "on_slow",
        "pending",
        "waiting_bytes",
        "waiting_messages",
    )

    def __init__(
        self,
        dialect: str,
        on_slow: Callable[[str], None],
        *,
        max_bytes: int = 16 << 20,
        max_messages: int = 4_096,
    ) -> None:
        self.dialect = dialect
        self.max_bytes = max_bytes
        self.max_messages = max_messages
        self.on_slow = on_slow
        self.pending: list[bytes | Batch] = []
        self.waiting_bytes = 0
        self.waiting_messages = 0
        self._counted = 0
        self._writer: SocketWriter | None = None
        self._full_since: float | None = None

    def attach(self, writer: SocketWriter) -> None:
        self._writer = writer

    def detach(self) -> None:
        """The connection has ended: nothing more is kept or written."""
        self._writer = None
        self.pending.clear()

    def pause(self, now: float) -> None:
        """The transport is full."""
        if self._full_since is None:
            self._full_since = now

    def resume(self, now: float) -> None:
        """The transport has drained."""
        self._full_since = None
        self.flush(now)

    def flush(self, now: float) -> None:
        """Write what is pending, or measure how far behind this reader is."""
        if self._writer is None:
            # Closed within this tick: what was added since is dropped.
            self.pending.clear()
            return
        if not self.pending:
            return
        if self._full_since is not None:
            self._count_waiting(now)
            return
        self.waiting_bytes = self.waiting_messages = self._counted = 0
        pending, self.pending = self.pending, []
        piece: list[bytes] = []
        size = 0
        for index, part in enumerate(pending, 1):
            data = part.bytes_for(self.dialect) if isinstance(part, Batch) else part
            piece.append(data)
            size += len(data)
            if size < _PIECE_BYTES and index < len(pending):
                continue
            if size:
                self._writer.write(piece[0] if len(piece) == 1 else b"".join(piece))
            if self._full_since is not None and index < len(pending):
                # `write` has filled the transport: the rest goes when it has drained.
                self.pending = [*pending[index:], *self.pending]
                self._count_waiting(now)
                return
            piece, size = [], 0

    def take(self, batch: Batch, now: float) -> None:
        """`flush` when this batch is all there is; a hundred members cost little else."""
        if self.pending or self._full_since is not None:
            self.pending.append(batch)
            self.flush(now)
        elif self._writer is not None:
            data = batch.joined.get(self.dialect)
            if data is None:
                data = batch.bytes_for(self.dialect)
            if data:
                self._writer.write(data)

    def _count_waiting(self, now: float) -> None:
        # Only what is new since the last count.
        for part in self.pending[self._counted :]:
            if isinstance(part, Batch):
                self.waiting_bytes += len(part.bytes_for(self.dialect))
                self.waiting_messages += len(part.frames.get(self.dialect, ()))
            else:
                self.waiting_bytes += len(part)
                self.waiting_messages += 1
        self._counted = len(self.pending)
        waiting, messages = self.waiting_bytes, self.waiting_messages
        since = self._full_since or now
        if waiting > self.max_bytes:
            self.on_slow(f"{waiting} bytes behind, more than {self.max_bytes}")
        elif messages > self.max_messages:
            self.on_slow(f"{messages} messages behind, more than {self.max_messages}")
        elif now - since > MAX_SECONDS:
            self.on_slow(f"{now - since:.0f} s behind, more than {MAX_SECONDS:g}")


class Outgoing:
    """All that leaves within one loop tick, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.batch: Batch | None = None
        self._dirty: dict[Outbox, None] = {}
        self._scheduled = False

    def append(self, audience: Sequence[Outbox], dialect: str, frame: bytes) -> None:
        """One message to those of an audience that use this dialect; the others do not get it."""
        batch = self.batch
        if batch is None or batch.audience is not audience:
            if batch is not None:
                self._seal()
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self.flush)
            batch = self.batch = Batch(audience)
        frames = batch.frames.get(dialect)
        if frames is None:
            frames = batch.frames[dialect] = []
        frames.append(frame)

    def send(self, outbox: Outbox, frame: bytes) -> None:
        """One message to one connection, after everything that was sent before it."""
        self._seal()
        outbox.pending.append(frame)
        self._dirty[outbox] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write now. Called by the loop once a tick; call it before closing a connection."""
        self._scheduled = False
        now = self._loop.time()
        batch = self.batch
        if batch is not None and not self._dirty:
            # The usual tick: one batch and nothing before it.
            self.batch = None
            for outbox in batch.audience:
                outbox.take(batch, now)
            return
        self._seal()
        dirty, self._dirty = self._dirty, {}
        for outbox in dirty:
            outbox.flush(now)

    def _seal(self) -> None:
        batch, self.batch = self.batch, None
        if batch is not None:
            for outbox in batch.audience:
                outbox.pending.append(batch)
                self._dirty[outbox] = None
