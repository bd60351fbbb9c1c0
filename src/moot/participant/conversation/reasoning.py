"""Our own reasoning sequences (MEW 3.5), as blocks.

    async with space.reasoning("Which file?", about=request_id) as r:
        await r.thought("The newest one, probably.")
        await r.conclude("report.txt")

Thoughts are sent at once. When somebody cancels the sequence the block is stopped and raises
ReasoningCancelled (D-31); with `stop=False` only `r.cancelled` is set. A block that ends normally sends
`reasoning/conclusion`, one that fails or is cancelled sends `reasoning/cancel`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

from moot.errors import MootError, ReasoningCancelled, UsageError
from moot.participant.calls.call_options import PerformOptions
from moot.participant.calls.outcome import Outcome
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, SentEnvelope
from moot.participant.conversation.contexts import Contexts, ReasoningSequence
from moot.participant.conversation.stream_client import StreamClient
from moot.participant.conversation.stream_handle import StreamHandle, close_quietly
from moot.participant.decisions.proposal_client import ProposalClient
from moot.protocol.operation import Json

log = logging.getLogger(__name__)


class ReasoningParts(NamedTuple):
    """The parts of a member that a reasoning sequence uses."""

    sender: EnvelopeSender
    contexts: Contexts
    streams: StreamClient
    proposal_client: ProposalClient


class Reasoning:
    """One sequence of ours. Everything sent through it carries its context (MEW 3)."""

    def __init__(
        self,
        parts: ReasoningParts,
        message: str,
        *,
        about: Addressees = (),
        under: Reasoning | str | None = None,
        stop: bool = True,
        stream: bool = False,
        default_conclusion: str = "done",
    ) -> None:
        self.id = ""
        self.cancelled = asyncio.Event()
        # With `stream=True`: where long reasoning goes, beside the thoughts (MEW 3.10.1).
        self.stream: StreamHandle | None = None
        self._parts = parts
        self._message = message
        self._about = about
        self._above = under.context if isinstance(under, Reasoning) else under
        self._stop = stop
        self._wants_stream = stream
        self._default_conclusion = default_conclusion
        self._ended = False
        self._by = ""
        self._reason: str | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._stopped = False
        # Whether it was ended from here without a conclusion.
        self._aborted = False

    @property
    def context(self) -> str:
        """The context of its messages; only there once the block has begun."""
        if not self.id:
            raise UsageError("a sequence has a context once its block has begun: async with …")
        return f"{self._above}/{self.id}" if self._above else self.id

    async def __aenter__(self) -> Self:
        parts = self._parts
        sent, _ = await parts.sender.send_confirmed(
            "reasoning/start", {"message": self._message}, about=self._about, context=self._above
        )
        self.id = sent.id
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        parts.contexts.on_cancel.append(self._handle_cancel)
        if self._wants_stream:
            self.stream = await parts.streams.open(
                (),
                description=self._message,
                content_type="text/plain",
                format="reasoning",
                about=self.id,
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._parts.contexts.on_cancel.remove(self._handle_cancel)
        with suppress(MootError):
            # Perhaps nothing can be sent any more; the block's own exception is the one that counts.
            self._send_end(kind)
        if self.stream is not None:
            # MEW 3.10.4: the reason tells a normal end from another one, also to who missed the rest.
            is_complete = kind is None and not self._aborted and not self.cancelled.is_set()
            close_quietly(self.stream, "complete" if is_complete else "cancelled")
        if self._stopped and self._task is not None:
            self._stopped = False
            # As asyncio.timeout does it: only our own cancellation is turned into an error.
            if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
                raise ReasoningCancelled(self._by, self._reason) from None
        return False

    def _send_end(self, kind: type[BaseException] | None) -> None:
        if self._ended:
            return
        if kind is None:
            self._end("reasoning/conclusion", {"message": self._default_conclusion})
        else:
            reason = "superseded" if issubclass(kind, asyncio.CancelledError) else "error"
            self._end("reasoning/cancel", {"reason": reason})

    def _end(self, kind: str, payload: Mapping[str, Json], about: Addressees = ()) -> SentEnvelope:
        sent = self._parts.sender.send(kind, payload, context=self.context, about=about)
        self._ended = True
        return sent

    def _handle_cancel(self, sequence: ReasoningSequence) -> None:
        if sequence.id != self.id or self._ended:
            return
        self._ended = True
        self._by = sequence.cancelled_by or ""
        self._reason = sequence.reason
        self.cancelled.set()
        if self._stop and self._task is not None and not self._task.done():
            self._stopped = True
            self._task.cancel()

    def _check_active(self) -> None:
        if self.cancelled.is_set():
            raise ReasoningCancelled(self._by, self._reason)
        if self._ended:
            raise UsageError("this sequence has ended: start another one")

    async def thought(self, message: str, **more: Json) -> SentEnvelope:
        """Send one thought; raises ReasoningCancelled after a cancellation (MEW 3.5.5)."""
        self._check_active()
        return self._parts.sender.send(
            "reasoning/thought", {"message": message, **more}, context=self.context
        )

    async def conclude(self, message: str, **more: Json) -> SentEnvelope:
        """End the sequence with a conclusion (MEW 3.5.4)."""
        self._check_active()
        return self._end("reasoning/conclusion", {"message": message, **more})

    async def cancel(self, reason: str = "superseded", *, about: Addressees = ()) -> SentEnvelope:
        """End the sequence without a conclusion (MEW 3.5.5); `about` may name the cause."""
        self._check_active()
        self._aborted = True
        return self._end("reasoning/cancel", {"reason": reason}, about)

    async def chat(self, text: str, *, to: Addressees = (), about: Addressees = ()) -> SentEnvelope:
        """Chat within the sequence (MEW 3.5.1)."""
        return self._parts.sender.send("chat", {"text": text}, to=to, about=about, context=self.context)

    async def send(
        self, kind: str, payload: Mapping[str, Json], *, to: Addressees = (), about: Addressees = ()
    ) -> SentEnvelope:
        """Send anything else that belongs to the sequence."""
        return self._parts.sender.send(kind, payload, to=to, about=about, context=self.context)

    async def perform(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        **options: Unpack[PerformOptions],
    ) -> Outcome:
        """Request or propose as a part of the sequence; options as in `space.perform`."""
        options["context"] = self.context
        return await self._parts.proposal_client.perform(to, method, params, **options)

    def sub(self, message: str, **options: Any) -> Reasoning:
        """A sequence within this one."""
        return Reasoning(self._parts, message, under=self, **options)
