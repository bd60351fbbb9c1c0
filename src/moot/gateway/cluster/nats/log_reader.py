"""Reading the log: message by message, each the one that follows.

Whatever does not follow is not applied: a consumer that skipped something, restarted, or fell silent is
thrown away, and a new one begins behind the last message that was applied.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo
from nats.js.client import JetStreamContext

from moot.errors import UsageError
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS
from moot.gateway.cluster.nats.stream_health import is_led
from moot.resilience.task_set import end_tasks

log = logging.getLogger(__name__)

# Shorter than anybody's patience; a stopped server is noticed after three of them.
_HEARTBEAT_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 1.5
_LOOK_SECONDS: Final = 0.1
# With many messages at hand, others have a turn after so long: NATS' pings, and sockets of members.
_TURN_SECONDS: Final = 0.02
# What is asked while JetStream elects a leader is never answered.
_FIRST_TRY_SECONDS: Final = 1.0
_MAX_TRY_SECONDS: Final = 8.0
# A log whose leader says for so long that it ends before what was read has lost something.
_SHORT_SECONDS: Final = 15.0
# What an operator can do about it is on the page that this names.
LOST_MESSAGES: Final = (
    "NATS has lost messages that it had acknowledged, or the stream was made anew. Stop all gateways and "
    'choose what to go on with: "When NATS has lost messages" in docs/how-to/run-a-cluster.md'
)
# The server forgets a consumer that nobody listens to.
_INACTIVE_SECONDS: Final = 30.0

# Sequence, time in nanoseconds, bytes.
OnMessage = Callable[[int, int, bytes], None]


class LogReader:
    """Reads one stream from `applied` + 1 on. `on_message` must not raise."""

    def __init__(
        self, client: Client, context: JetStreamContext, stream: str, applied: int, on_message: OnMessage
    ) -> None:
        self._client = client
        self._context = context
        self._stream = stream
        self._on_message = on_message
        # The sequence of the last message that was applied.
        self.applied = applied
        # How many consumers were thrown away.
        self.restarts = 0
        # Set when the connection is back: the answer may never come.
        self._again = asyncio.Event()
        self._try_seconds = _FIRST_TRY_SECONDS
        self._subscription: Subscription | None = None
        self._heard_at = self._turn_at = 0.0
        self._is_broken = False
        # The message that was applied last; None: it is in the snapshot from which we began.
        self._latest: bytes | None = None
        # Since when the log's leader says that it ends before what was read.
        self._short_since: float | None = None

    async def run(self) -> None:
        """Read until cancelled. Raises UsageError when messages are gone that were not applied."""
        try:
            while True:
                if (
                    self._subscription is None
                    or self._is_broken
                    or time.monotonic() - self._heard_at > _SILENT_SECONDS
                ):
                    try:
                        await self._try_start()
                    except NATS_FAULTS as fault:
                        log.debug("log not read", extra={"stream": self._stream, "fault": repr(fault)})
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            await self._drop()

    def retry_now(self) -> None:
        """The connection is back: what waits for an answer of the old one may wait for ever."""
        self._again.set()

    async def _try_start(self) -> None:
        """One try; ends early when there is a reason to begin anew. Raises TimeoutError then."""
        self._again.clear()
        starting = asyncio.ensure_future(self._start_again())
        again = asyncio.ensure_future(self._again.wait())
        try:
            await asyncio.wait(
                (starting, again), timeout=self._try_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not starting.done():
                # Longer the next time: a server may only be slow.
                self._try_seconds = min(_MAX_TRY_SECONDS, 2 * self._try_seconds)
                raise TimeoutError
            self._try_seconds = _FIRST_TRY_SECONDS
            starting.result()
        finally:
            await end_tasks((starting, again))

    async def _start_again(self) -> None:
        await self._drop()
        info = await self._context.stream_info(self._stream)
        state = info.state
        if state.first_seq > self.applied + 1:
            raise UsageError(
                f"the log {self._stream} begins at {state.first_seq}, and this gateway has read up to "
                f"{self.applied}: it was away for too long. Start it again: it begins at the latest snapshot"
            )
        if state.last_seq < self.applied:
            self._check_end(info)
            return
        self._short_since = None
        await self._check_latest(state.first_seq)
        inbox = self._client.new_inbox()
        self._is_broken = False
        self._heard_at = time.monotonic()
        self.restarts += 1
        subscription: Subscription | None = None

        async def take(message: Msg) -> None:
            if self._subscription is subscription:
                await self._take(message)

        subscription = await self._client.subscribe(inbox, cb=take)
        self._subscription = subscription
        await self._context.add_consumer(
            self._stream,
            config=ConsumerConfig(
                deliver_subject=inbox,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self.applied + 1,
                ack_policy=AckPolicy.NONE,
                idle_heartbeat=_HEARTBEAT_SECONDS,
                flow_control=True,
                max_deliver=1,
                mem_storage=True,
                num_replicas=1,
                inactive_threshold=_INACTIVE_SECONDS,
            ),
        )

    def _check_end(self, info: StreamInfo) -> None:
        """The log seems to end before what was read. Raises UsageError if its leader keeps saying so."""
        if not is_led(info):
            # A server that was cut off, or has just started, answers with what it has: nothing is known.
            self._short_since = None
            return
        if self._short_since is None:
            self._short_since = time.monotonic()
        if time.monotonic() - self._short_since >= _SHORT_SECONDS:
            raise UsageError(
                f"the log {self._stream} ends at {info.state.last_seq}, and this gateway has read up to "
                f"{self.applied}: {LOST_MESSAGES}"
            )

    async def _check_latest(self, first: int) -> None:
        """Raises UsageError when the log has something else where this gateway read its latest message."""
        if self._latest is None or self.applied < first:
            return
        found = await self._context.get_msg(self._stream, self.applied)
        if found.data != self._latest:
            raise UsageError(
                f"message {self.applied} of the log {self._stream} is not the one that this gateway has "
                f"read: {LOST_MESSAGES}"
            )

    async def _take(self, message: Msg) -> None:
        self._heard_at = time.monotonic()
        if message.headers is not None and not message.data and "Status" in message.headers:
            if message.reply:
                # Flow control: the server goes on when we have come this far.
                await self._client.publish(message.reply)
            return
        if self._is_broken:
            return
        metadata = message.metadata
        sequence, timestamp = metadata.sequence.stream, _nanoseconds(message)
        if sequence <= self.applied:
            return
        if sequence != self.applied + 1:
            log.info(
                "log has a gap: reading it again",
                extra={"stream": self._stream, "expected": self.applied + 1, "got": sequence},
            )
            self._is_broken = True
            return
        self.applied, self._latest = sequence, message.data
        self._on_message(sequence, timestamp, message.data)
        if time.monotonic() - self._turn_at > _TURN_SECONDS:
            await asyncio.sleep(0)
            self._turn_at = time.monotonic()

    async def _drop(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            await subscription.unsubscribe()
        except NATS_FAULTS:
            # The connection is gone, and the subscription with it.
            return


def _nanoseconds(message: Msg) -> int:
    """When the server stored it, exactly.

    The reply is `$JS.ACK.stream.consumer.delivered.sequence.….nanoseconds.pending`.
    """
    fields = message.reply.split(".")
    # With a domain and an account there are two more in front, and a token behind.
    return int(fields[7] if len(fields) == 9 else fields[9])
