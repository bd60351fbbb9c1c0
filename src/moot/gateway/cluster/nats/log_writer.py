"""Writing the log: one NATS message on its way, and what comes meanwhile is the next one.

A message that may or may not have arrived is sent again with the same bytes and headers, for ever:
`Nats-Msg-Id` lets the server know it, and `Nats-Expected-Last-Subject-Sequence` refuses it after a later one.
So nothing is doubled and nothing is swapped, whatever fails. Two on their way could be swapped by a retry.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import nats.errors
import nats.js.errors
from nats.js.client import JetStreamContext

from moot.errors import OutcomeUnknown, Unavailable, UsageError
from moot.gateway.cluster.nats.batch import (
    FORMAT,
    SIZES_BYTES,
    BatchHead,
    LoggedInput,
    encode_batch,
    encode_inputs,
    encode_part,
)
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS
from moot.gateway.cluster.nats.secure_client import SecureClient

log = logging.getLogger(__name__)

# Wrong last sequence, and: another message of this subject is in process.
_WRONG_LAST: Final = frozenset({10071, 10164})
_TRY_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.02
_HEAD_BYTES: Final = 512
# Inputs in one message of the log: the measured rate grows little beyond.
MAX_BATCH_INPUTS: Final = 256
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_MESSAGE_ID: Final = "Nats-Msg-Id"
# How the headers begin of the answer that a server gives where nobody takes the message.
_NOBODY: Final = b"NATS/1.0 503"
# What an input came to is not for the log to know.
OnDone = Callable[[Any], None]


class PendingInput:
    """An input on its way to the log. `sent`: it may be in the log, and nobody can take it back."""

    __slots__ = ("at", "input", "on_done", "secrets", "sent", "size")

    def __init__(self, input: LoggedInput, on_done: OnDone | None) -> None:
        self.input = input
        self.size = SIZES_BYTES + len(input.head) + len(input.raw)
        self.at = time.monotonic()
        self.sent = False
        # Called with what came of it when it was applied, or with Unavailable when it was withdrawn.
        self.on_done = on_done
        # Fresh tokens that only this gateway knows; the log has their hashes.
        self.secrets: tuple[str, ...] = ()


class LogWriter:
    """Appends the inputs of one gateway to one stream. `run` sends them."""

    def __init__(
        self,
        client: SecureClient,
        context: JetStreamContext,
        *,
        stream: str,
        subject: str,
        gateway: str,
        max_payload_bytes: int,
        position: Callable[[], int],
    ) -> None:
        self._client = client
        self._context = context
        self._stream = stream
        self._subject = subject
        self._gateway = gateway
        # How far this gateway has read the log.
        self._position = position
        self.max_bytes = max_payload_bytes - _HEAD_BYTES
        self.epoch = 0
        # The sequence of our last message in the stream; 0: there is none.
        self.last = 0
        self.queued: deque[PendingInput] = deque()
        self.queued_bytes = 0
        # Sent, and not yet read back: by number of the batch.
        self.unread: dict[int, list[PendingInput]] = {}
        # When each of them was made.
        self.made_at: dict[int, float] = {}
        # Why NATS does not take the message that is on its way; empty while it does, or does not answer.
        self.refusal = ""
        # Told how long it took until NATS acknowledged a message.
        self.on_published: Callable[[float], None] = lambda _seconds: None
        self._number = 0
        self._wants_beat = self._wants_probe = False
        # Nothing is written behind what was appended last.
        self._is_ended = False
        self._news = asyncio.Event()
        # Where answers come, how many were asked for, and the one that is waited for.
        self._inbox = ""
        self._asked = itertools.count(1)
        self._awaited = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._read: tuple[int, int] = (0, 0)
        # Two processes that are given one name must not take each other's messages for their own.
        self._nonce = secrets.token_hex(8)

    @property
    def is_idle(self) -> bool:
        return not self.queued and not self.unread

    @property
    def pending_inputs(self) -> int:
        """Inputs that wait, or are on their way and were not read back."""
        return len(self.queued) + sum(map(len, self.unread.values()))

    def append(self, input: LoggedInput, on_done: OnDone | None = None) -> PendingInput:
        pending = PendingInput(input, on_done)
        if self._is_ended:
            if on_done is not None:
                on_done(Unavailable("this gateway has stopped to serve this space: not done"))
            return pending
        self.queued.append(pending)
        self.queued_bytes += pending.size
        self._news.set()
        return pending

    def end(self, last: LoggedInput) -> None:
        """Append the last input: behind it, others must not take this gateway for one that lives."""
        self.append(last)
        self._is_ended = True

    def beat(self) -> None:
        """Write a heartbeat with the next message; one at a time, so that a pause is not made up for."""
        self._wants_beat = not self._is_ended
        self._news.set()

    def probe(self) -> None:
        """Write a message, if only an empty one: when it is back, all that was in the log before is known."""
        if not self.unread and not self._is_ended:
            self._wants_probe = True
            self._news.set()

    def refuse_older(self, seconds: float) -> None:
        """Take back what has waited for so long, is not on its way, and has somebody to be told so."""
        limit = time.monotonic() - seconds
        if not self.queued or self.queued[0].at > limit:
            return
        withdrawn = [each.on_done for each in self.queued if each.at <= limit and each.on_done is not None]
        self.queued = deque(each for each in self.queued if each.at > limit or each.on_done is None)
        self.queued_bytes = sum(each.size for each in self.queued)
        for tell in withdrawn:
            tell(Unavailable("this gateway does not reach the log of its cluster: not done"))

    def give_up_waiting(self) -> None:
        """Tell who waits for what is on its way that nobody knows what becomes of it."""
        for pending in itertools.chain(*self.unread.values()):
            if pending.on_done is not None:
                pending.on_done(
                    OutcomeUnknown(
                        "the cluster's log did not answer in time, so the outcome is not known: look for its "
                        "id before you send it again, or send it again with the same id"
                    )
                )
                pending.on_done = None

    def note_read(self, number: int, sequence: int) -> list[PendingInput]:
        """Our batch came back through the log: the inputs that it held."""
        self._read = (number, sequence)
        self.retry_now()
        return self.unread.pop(number, [])

    def retry_now(self) -> None:
        """The connection is back, or our message was read: its answer may never come."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(b"")

    async def run(self) -> None:
        """Send until cancelled. Raises UsageError when another process writes as this gateway."""
        self._inbox = self._client.new_inbox()
        subscription = await self._client.subscribe_raw(f"{self._inbox}.*", self._take_answer)
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self.queued or self._wants_beat or self._wants_probe:
                    await self._send_next()
        finally:
            with suppress(*NATS_FAULTS):
                await self._client.unsubscribe_raw(subscription)

    async def _send_next(self) -> None:
        taken: list[PendingInput] = []
        size = 0
        while self.queued and len(taken) < MAX_BATCH_INPUTS:
            size += self.queued[0].size
            if taken and size > self.max_bytes:
                break
            pending = self.queued.popleft()
            self.queued_bytes -= pending.size
            pending.sent = True
            taken.append(pending)
        data = encode_inputs(each.input for each in taken)
        if len(data) <= self.max_bytes:
            self.unread[self._number + 1] = taken
            head = self._next_head()
            await self._publish_timed(head.number, encode_batch(head, data))
            return
        # One input: more than one were not taken.
        parts = [data[place : place + self.max_bytes] for place in range(0, len(data), self.max_bytes)]
        # Under the number of the last part, and from now on: they are on their way.
        self.unread[self._number + len(parts)] = taken
        for number, part in enumerate(parts):
            head = self._next_head()
            await self._publish_timed(head.number, encode_part(head, number, len(parts), part))

    def _next_head(self) -> BatchHead:
        self._number += 1
        beat, self._wants_beat, self._wants_probe = self._wants_beat, False, False
        self.made_at[self._number] = time.monotonic()
        seed = secrets.token_hex(16)
        return BatchHead(FORMAT, self._gateway, self.epoch, self._number, seed, beat, made_at=time.time())

    async def _publish_timed(self, number: int, payload: bytes) -> None:
        began = time.monotonic()
        await self._publish(number, payload)
        self.on_published(time.monotonic() - began)

    async def _publish(self, number: int, payload: bytes) -> None:
        message_id = f"{self._gateway}:{self.epoch}:{self._nonce}:{number}"
        headers = {_EXPECTED: str(self.last), _MESSAGE_ID: message_id}
        while True:
            if self._read[0] == number:
                self.last, self.refusal = self._read[1], ""
                return
            try:
                self.last = await self._try(payload, headers)
                self.refusal = ""
                return
            except nats.js.errors.APIError as fault:
                if fault.err_code in _WRONG_LAST:
                    found = await self._find(message_id)
                    if found is not None and found > 0:
                        self.last = found
                        return
                    if found == 0:
                        headers[_EXPECTED] = "0"
                else:
                    self._note_refusal(f"{fault.description} ({fault.err_code})")
                await asyncio.sleep(_RETRY_SECONDS)
            except nats.js.errors.NoStreamResponseError:
                self._note_refusal("nobody takes messages of this stream in, or it elects a leader")
                await asyncio.sleep(_RETRY_SECONDS)
            except NATS_FAULTS as fault:
                log.debug("log does not answer", extra={"fault": repr(fault), "stream": self._stream})
                await asyncio.sleep(_RETRY_SECONDS)

    def _note_refusal(self, why: str) -> None:
        """Told once, however often it is tried again."""
        if why != self.refusal:
            log.warning("NATS does not take messages", extra={"stream": self._stream, "why": why})
        self.refusal = why

    async def _try(self, payload: bytes, headers: dict[str, str]) -> int:
        """One try; ends early when there is a reason to look again."""
        loop = asyncio.get_running_loop()
        answer = self._answer = loop.create_future()
        inbox = f"{self._inbox}.{next(self._asked)}"
        # Answers to an earlier try may still come.
        self._awaited = inbox.encode()
        timer = loop.call_later(_TRY_SECONDS, self.retry_now)
        try:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            await self._client.publish_raw(self._subject, inbox, f"NATS/1.0\r\n{lines}\r\n".encode(), payload)
            answered = json.loads(await answer or b"null")
        finally:
            timer.cancel()
            self._answer = None
        if answered is None:
            raise TimeoutError
        if "error" in answered:
            raise nats.js.errors.APIError.from_error(answered["error"])
        return int(answered["seq"])

    def _take_answer(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> None:
        """Called with each answer, as the connection is read."""
        if subject != self._awaited or self._answer is None or self._answer.done():
            return
        if headers is not None and headers.startswith(_NOBODY):
            self._answer.set_exception(nats.js.errors.NoStreamResponseError())
        else:
            self._answer.set_result(data)

    async def _find(self, message_id: str) -> int | None:
        """The sequence of our message if it is the subject's last; 0: our last one was trimmed, and this one
        is not in; None: not known yet."""
        try:
            found = await self._context.get_last_msg(self._stream, self._subject)
        except nats.js.errors.NotFoundError:
            return await self._find_trimmed()
        except NATS_FAULTS:
            return None
        if (found.headers or {}).get(_MESSAGE_ID) == message_id:
            return int(found.seq or 0)
        if int(found.seq or 0) > self.last:
            raise UsageError(
                f"another process writes the log as gateway {self._gateway}: give each gateway of a cluster "
                "its own name (gateway.cluster.gateway)"
            )
        return None

    async def _find_trimmed(self) -> int | None:
        """The subject is empty. If we have read all that was trimmed, ours is not among that."""
        try:
            state = (await self._context.stream_info(self._stream)).state
        except NATS_FAULTS:
            return None
        return 0 if self._position() + 1 >= state.first_seq else None
