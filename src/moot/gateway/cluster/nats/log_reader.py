"""Reading the log: message by message, each the one that follows.

Whatever does not follow is not applied: a consumer that skipped something, restarted, or fell silent is
thrown away, and a new one begins behind the last message that was applied.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo
from nats.js.client import JetStreamContext

from moot.errors import UsageError
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS
from moot.gateway.cluster.nats.secure_client import SecureClient
from moot.gateway.cluster.nats.stream_health import is_led
from moot.resilience.task_set import TaskSet, end_tasks

log = logging.getLogger(__name__)

# Shorter than anybody's patience; a stopped server is noticed after three of them.
_HEARTBEAT_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 1.5
_LOOK_SECONDS: Final = 0.1
# With many messages at hand, others have a turn after so long: NATS' pings, and sockets of members.
_TURN_SECONDS: Final = 0.02
# What is read and not applied yet, as much as NATS' client would hold; what does not fit is read again later.
_MAX_WAITING_BYTES: Final = 128 << 20
# How the headers begin of what a server says itself, and not a message of the log.
_STATUS: Final = b"NATS/1.0 "
# In a heartbeat: the server has sent as much as it may and waits for this to be answered.
_STALLED: Final = re.compile(rb"\r\nNats-Consumer-Stalled: *([^\r]+)\r\n")
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


class ReadMessage(NamedTuple):
    """What a consumer sent: a message of the log, or its wish to hear how far we are."""

    reply: bytes
    data: bytes
    is_status: bool


class LogReader:
    """Reads one stream from `applied` + 1 on. `on_message` must not raise."""

    def __init__(
        self,
        client: SecureClient,
        context: JetStreamContext,
        stream: str,
        applied: int,
        on_message: OnMessage,
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
        self._heard_at = 0.0
        self._is_broken = False
        # Read, and not applied yet. Whoever reads the connection waits for nobody: it has NATS' pings, too.
        self._waiting: deque[ReadMessage] = deque()
        self._waiting_bytes = 0
        self._is_full = self._has_turn = False
        self._tasks = TaskSet("log reader")
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
            await self._tasks.close()

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
        self._is_broken = self._is_full = False
        self._heard_at = time.monotonic()
        self.restarts += 1
        self._subscription = await self._client.subscribe_raw(inbox, self._take)
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

    def _take(self, _subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        """Called with each message of the consumer, as the connection is read."""
        self._heard_at = time.monotonic()
        if self._is_broken:
            return
        is_status = headers is not None and not data and headers.startswith(_STATUS)
        if headers is not None and is_status and not reply:
            stalled = _STALLED.search(headers)
            if stalled is None:
                # A heartbeat like most.
                return
            # The wish was lost with a connection, or our answer was: nothing else would come any more.
            reply = stalled[1]
        if self._is_full or self._waiting_bytes + len(data) > _MAX_WAITING_BYTES:
            self._is_full = True
            return
        self._waiting_bytes += len(data)
        self._waiting.append(ReadMessage(reply, data, is_status))
        self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._apply_waiting)

    def _apply_waiting(self) -> None:
        """Apply what was read, for as long as one turn."""
        self._has_turn = False
        waiting, until = self._waiting, time.monotonic() + _TURN_SECONDS
        try:
            while waiting and not self._is_broken and time.monotonic() < until:
                message = waiting.popleft()
                self._waiting_bytes -= len(message.data)
                if message.is_status:
                    # Flow control: the server goes on when we have come this far.
                    self._tasks.start(self._answer(message.reply))
                else:
                    self._apply(message)
        finally:
            self._heard_at = time.monotonic()
            if self._is_broken:
                self._forget_waiting()
            elif waiting:
                self._ask_for_turn()
            elif self._is_full:
                # What came meanwhile is read again.
                self._is_broken = True

    def _apply(self, message: ReadMessage) -> None:
        try:
            sequence, nanoseconds = _place_of(message.reply)
        except (ValueError, IndexError):
            log.warning("a message that is not of the log", extra={"stream": self._stream})
            return
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
        self._on_message(sequence, nanoseconds, message.data)

    async def _answer(self, reply: bytes) -> None:
        try:
            await self._client.publish(reply.decode())
        except NATS_FAULTS:
            # The connection is gone: the next consumer begins behind what was applied.
            return

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    async def _drop(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._forget_waiting()
        if subscription is None:
            return
        try:
            await self._client.unsubscribe_raw(subscription)
        except NATS_FAULTS:
            # The connection is gone, and the subscription with it.
            return


def _place_of(reply: bytes) -> tuple[int, int]:
    """The sequence of a message, and when the server stored it, exactly, in nanoseconds.

    The reply is `$JS.ACK.stream.consumer.delivered.sequence.sequence.nanoseconds.pending`; with a domain and
    an account there are two more in front, and a token behind. Raises ValueError or IndexError for another.
    """
    fields = reply.split(b".")
    first = 5 if len(fields) == 9 else 7
    return int(fields[first]), int(fields[first + 2])
