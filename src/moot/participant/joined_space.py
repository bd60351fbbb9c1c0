"""The handle of a space: everything a member can do there, in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

from moot.errors import ConnectionClosed, MootError
from moot.participant.calls.call_methods import Asking
from moot.participant.calls.outcome import CloseReason, SentEnvelope
from moot.participant.connection.envelope_sender import Addressees, OwnPause
from moot.participant.connection.message_feed import Reader, called
from moot.participant.connection.missed_decisions import fetch_history
from moot.participant.control.administration import Managing
from moot.participant.conversation.chat import Chatting
from moot.participant.conversation.reasoning import Reasoning
from moot.participant.conversation.stream import StreamOpening
from moot.participant.conversation.transcript import Transcript
from moot.participant.membership import Membership
from moot.participant.serving.offer_methods import Offers
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json, Payload
from moot.protocol.patterns import Rights

F = TypeVar("F", bound=Callable[..., Any])


class JoinedSpace(Membership, Asking, Offers, Chatting, Managing):
    """One space as one member sees it. Made by `connect`; valid within its block."""

    # Who and where

    @property
    def me(self) -> str:
        """Our runtime id."""
        return self._voice.me

    @property
    def space(self) -> str:
        """The name of the space as it was asked for; empty for the only one of a gateway."""
        return self._door.space

    @property
    def name(self) -> str:
        """Our logical name, which the configuration and capabilities use; mostly the same as `me` (D-19)."""
        return self.roster.own_name

    @property
    def dialect(self) -> DialectName:
        return self._voice.dialect

    @property
    def rights(self) -> Rights:
        """What the latest welcome allows us (MEW 5.2)."""
        return self._voice.rights

    @property
    def state(self) -> Literal["joined", "reconnecting", "closed"]:
        if self.ending is not None:
            return "closed"
        return "joined" if self._voice.is_joined else "reconnecting"

    @property
    def paused(self) -> OwnPause | None:
        """By whom, why and until when, if we are (MEW 3.9.1)."""
        return self._voice.pause

    @property
    def memory(self) -> Transcript | None:
        return self.controls.memory

    def may(self, kind: str, payload: Payload | None = None, to: Addressees = ()) -> bool:
        """Whether our rights let this through; what we owe somebody needs none (D-15)."""
        return self._voice.may(kind, payload, to)

    # Staying and leaving

    async def stay(self) -> CloseReason:
        """Wait for the end: a shutdown, a removal, a replaced connection, or `close`."""
        await self._ended.wait()
        if self.ending is None:
            raise ConnectionClosed(1006, "ended without a reason")
        return self.ending

    async def close(self, reason: str = "leaving") -> None:
        """Leave now; the block may go on, but nothing is heard or said any more."""
        if self.ending is None:
            self._say_last_words()
            self.link.leave(reason)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.leave_seconds):
                    await self._ended.wait()
            self.ended(CloseReason(1000, reason))

    async def ready(self, within: float | None = None) -> None:
        """Wait until we are connected and not paused; raises TimedOut."""
        await self._voice.ready(self.limits.held_answer_seconds if within is None else within)

    # Saying anything

    async def send(
        self,
        kind: str,
        payload: Payload | None = None,
        *,
        to: Addressees = (),
        about: Addressees = (),
        context: str | None = None,
        confirm: bool = False,
    ) -> SentEnvelope:
        """One envelope of any kind that members send; `about` becomes `correlation_id`.

        With `confirm` it waits until the gateway has taken it, and raises the Refused that it answers with.
        """
        sent = self._voice.say(kind, payload, to=to, about=about, context=context)
        if confirm:
            await self._voice.echo(sent)
        return sent

    async def notify(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        to: Addressees = (),
        about: Addressees = (),
    ) -> bool:
        """An MCP notification. False: we have no right to send it; that is counted and no error."""
        return self._host.notify(method, params, to=to, about=about, owed=False)

    async def report_status(self, to: Addressees = (), **metrics: Json) -> None:
        """MEW 3.9.4: tell how things stand without being asked."""
        await self._controlled.report_status(to, **metrics)

    # Thinking and streaming

    def reasoning(
        self,
        message: str,
        *,
        about: Addressees = (),
        under: Reasoning | str | None = None,
        stop: bool = True,
        stream: bool = False,
    ) -> Reasoning:
        """A sequence of thoughts as a block (MEW 3.5); `stream=True` opens a stream for it, too."""
        return Reasoning(self._thinking, message, about=about, under=under, stop=stop, stream=stream)

    async def cancel_reasoning(
        self, context: str, reason: str = "superseded", *, about: Addressees = ()
    ) -> SentEnvelope:
        """End anybody's sequence; the one who thinks stops (D-31)."""
        return await self._thinking.cancel(context, reason, about=about)

    def stream(
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
        """Open a stream: `async with space.stream("bob") as stream: await stream.write(…)` (MEW 3.10.1).

        Only `target` gets its frames, everybody if there is none. Awaited instead, it gives the handle.
        """
        opened = self.streams.open(
            target,
            direction=direction,
            description=description,
            content_type=content_type,
            format=format,
            metadata=metadata,
            expected_size_bytes=expected_size_bytes,
            about=about,
            **custom,
        )
        return StreamOpening(opened)

    # Listening

    def on(self, kind: str, *, own: bool = False) -> Callable[[F], F]:
        """Call the function for every envelope of a kind; `*` as in capabilities. `own`: ours, too.

        Plain functions are called at once and must be quick; coroutine functions run one envelope after the
        other, each handler by itself.
        """

        def register(handler: F) -> F:
            self._handlers.add(kind, handler, own=own)
            return handler

        return register

    def on_rejoined(self, handler: F) -> F:
        """Call this, without anything to look at, when we are back after a lost connection."""
        feeds, limits = self._rejoined_feeds, self.limits

        def call(_: None) -> Any:
            return handler()

        async def call_and_wait(_: None) -> None:
            await handler()

        chosen = call_and_wait if asyncio.iscoroutinefunction(handler) else call
        self._rejoined.append(called(chosen, self.spawn, self.counts, limits.feed_items, feeds))
        return handler

    def envelopes(self, *, own: bool = False, size: int | None = None) -> Reader[Envelope]:
        """All that is said from now on, in order; a Gap where slowness or a lost connection missed some."""
        feeds = self._all if own else self._others
        return feeds.read(size or self.limits.feed_items)

    async def history(self, since: float = 0.0) -> list[Envelope]:
        """What the gateway remembers of what we were to hear since then (seconds since 1970), oldest first.

        Its memory is bounded and may be turned off; nothing of it is handled or checked here.
        """
        return await fetch_history(self._door, self.me, since, self.limits) or []

    async def recall(self, since: float = 0.0) -> list[Envelope]:
        """Make known what was said before we joined: proposals, chats and thoughts; no handler sees it.

        Returns what was new and passed the checks, oldest first.
        """
        return self._recall(await self.history(since))

    # The block

    async def enter(self) -> None:
        """Come in; raises NotAdmitted or Unreachable."""
        await self._tasks.enter()
        arrived = self._arrived = asyncio.get_running_loop().create_future()
        try:
            self.spawn(self._keep_up(arrived))
            await arrived
        except BaseException:
            await self._tasks.leave()
            raise
        self.spawn(self._controlled.work())
        asyncio.get_running_loop().call_soon(self._begin)

    async def leave(self) -> None:
        """Go: last words, goodbye, and no task is left."""
        try:
            await self.close()
        except MootError:
            pass
        finally:
            self.ended(CloseReason(1000, "left"))
            await self._tasks.leave()

    async def _keep_up(self, arrived: asyncio.Future[None]) -> None:
        try:
            await self.link.run()
        except MootError as fault:
            if not arrived.done():
                arrived.set_exception(fault)
