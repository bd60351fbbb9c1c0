"""One stream of the log as a gateway uses it: append an input, and here is the next.

`age_seconds` tells since when nothing is known of the log: the time since the latest own message was made
that came back through the own reader. There is a heartbeat every second. Nothing else proves that a gateway
is not cut off: a server in a minority accepts connections, answers questions, and calls itself healthy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import nats.js.errors

from moot.config.cluster_config import ClusterConfig
from moot.errors import UsageError
from moot.gateway.cluster.nats.batch import LogBatch, LoggedInput, decode_batch
from moot.gateway.cluster.nats.log_reader import LogReader
from moot.gateway.cluster.nats.log_writer import LogWriter, PendingInput
from moot.gateway.cluster.nats.nats_connection import ClusterConnection, retry
from moot.resilience.task_set import end_tasks

log = logging.getLogger(__name__)

# Between two looks whether the last message came back.
_END_LOOK_SECONDS: Final = 0.01
# Sequence, the server's time in seconds, what was written, and our own inputs in it.
OnBatch = Callable[[int, float, LogBatch, Sequence[PendingInput]], None]


class SharedLog:
    """Append with `writer`; `on_batch` is called with everything that is in the log, in its order."""

    def __init__(
        self,
        connection: ClusterConnection,
        config: ClusterConfig,
        *,
        stream: str,
        subject: str,
        gateway: str,
        position: int,
        on_batch: OnBatch,
    ) -> None:
        self._config = config
        self._context = connection.context
        self._stream, self._subject, self._gateway = stream, subject, gateway
        self._on_batch = on_batch
        self.writer = LogWriter(
            connection.client,
            connection.context,
            stream=stream,
            subject=subject,
            gateway=gateway,
            max_payload_bytes=connection.max_payload_bytes,
            position=lambda: self.position,
        )
        self.reader = LogReader(connection.client, connection.context, stream, position, self._take)
        self._known_at = time.monotonic()
        self._known_more = asyncio.Event()
        # How far NATS' clock is ahead of ours, by the latest own message that came back.
        self.clock_offset_seconds = 0.0
        # Done when the log cannot be followed any more: why.
        self.failed: asyncio.Future[UsageError] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._target = 0
        self._caught_up = asyncio.Event()

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._known_at

    @property
    def position(self) -> int:
        return self.reader.applied

    async def catch_up(self, until: int) -> None:
        """Read everything up to this sequence. Raises UsageError when that cannot be."""
        self._target = until
        self._start(self.reader.run())
        waiting = asyncio.ensure_future(self._caught_up.wait())
        try:
            while self.position < until and not self.failed.done():
                before = self.position
                await asyncio.wait(
                    (waiting, self.failed),
                    timeout=self._config.stale_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if self.position == before and not self.failed.done():
                    raise UsageError(
                        f"the log {self._stream} cannot be read: nothing came in "
                        f"{self._config.stale_seconds:g} seconds"
                    )
        finally:
            waiting.cancel()
        if self.failed.done():
            raise self.failed.result()

    async def wait_known(self, since: float) -> None:
        """Wait until all is applied that was in the log at this time of `time.monotonic`."""
        while self._known_at < since:
            self._known_more.clear()
            self.writer.probe()
            await self._known_more.wait()

    async def begin(self, epoch: int) -> None:
        """Write from now on, as the process of this number."""
        try:
            last = await retry(lambda: self._context.get_last_msg(self._stream, self._subject))
            self.writer.last = int(last.seq or 0)
        except nats.js.errors.NotFoundError:
            self.writer.last = 0
        self.writer.epoch = epoch
        self._known_at = time.monotonic()
        self._start(self.writer.run())
        self._start(self._beat())

    async def end(self, last: LoggedInput, until: float) -> bool:
        """Write what waits, and this as the last; whether all came back by then, on the loop's clock."""
        self.writer.end(last)
        while not (self.failed.done() or self.writer.is_idle):
            if asyncio.get_running_loop().time() >= until:
                return False
            await asyncio.sleep(_END_LOOK_SECONDS)
        return self.writer.is_idle

    async def stop(self) -> None:
        """Whoever still waits is told that it is not done, or that nobody knows."""
        await end_tasks(self._tasks)
        self.writer.refuse_older(0.0)
        self.writer.give_up_waiting()

    def fail(self, why: UsageError) -> None:
        if not self.failed.done():
            self.failed.set_result(why)

    async def guard(self, running: Awaitable[None]) -> None:
        """Wait for what has to run for ever; should it fail, this log has failed."""
        try:
            await running
        except UsageError as fault:
            self.fail(fault)
        except Exception as fault:
            # Without it nothing is read or written any more, and nobody would be told.
            log.exception("the log cannot be followed", extra={"stream": self._stream})
            self.fail(UsageError(f"the log {self._stream} cannot be followed ({fault!r}): see the log"))

    def _start(self, running: Awaitable[None]) -> None:
        self._tasks.append(asyncio.create_task(self.guard(running)))

    async def _beat(self) -> None:
        while True:
            self.writer.beat()
            await asyncio.sleep(self._config.heartbeat_seconds)

    def _take(self, sequence: int, nanoseconds: int, data: bytes) -> None:
        if self.failed.done():
            return
        try:
            batch = decode_batch(data)
        except UsageError as fault:
            self.fail(fault)
            return
        head, own = batch.head, list[PendingInput]()
        if head.gateway == self._gateway and head.epoch == self.writer.epoch:
            own = self.writer.note_read(head.number, sequence)
            # From when it was made: if it took long to come back, what we know is as old.
            self._known_at = self.writer.made_at.pop(head.number, self._known_at)
            # In the middle of its way there and back, if both take as long.
            stored_at = head.made_at + self.age_seconds / 2
            self.clock_offset_seconds = nanoseconds / 1e9 - stored_at
            self._known_more.set()
        try:
            self._on_batch(sequence, nanoseconds / 1e9, batch, own)
        except Exception:
            # NATS' client would go on with the next one.
            log.exception("a message of the log could not be applied", extra={"sequence": sequence})
            self.fail(UsageError(f"message {sequence} of {self._stream} could not be applied: see the log"))
        if sequence >= self._target:
            self._caught_up.set()
