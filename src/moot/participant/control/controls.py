"""Being controlled (MEW 3.9): what a member does when it is paused, asked, made to forget, restarted, ended.

`Controls` has a method for each control; an agent overrides those it cares for, or sets them:
`space.controls.on_compact = compact`. The answers that MEW demands are sent around them, whatever they do: a
status after most, exactly one compact-done per compact, an acknowledgement of a shutdown. A pause takes
effect before anything else is done; controls are worked off one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moot.errors import MootError, UsageError
from moot.participant.calls.outcome import MissedMessages
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, OwnPause
from moot.participant.connection.message_feed import Feed
from moot.participant.connection.payload_shapes import PayloadShapeError, check_metrics
from moot.participant.conversation.contexts import Sequence
from moot.participant.conversation.transcript import CompactionResult, Direction, Transcript
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant.joined_space import JoinedSpace

log = logging.getLogger(__name__)

# Controls of one member that wait for their turn; a controller that sends more is not heard.
_QUEUED: Final = 64


@dataclass(frozen=True, slots=True)
class Control:
    """One control: who sent it and what it says."""

    envelope: Envelope

    @property
    def sender(self) -> str:
        return self.envelope.sender

    @property
    def payload(self) -> Mapping[str, Json]:
        return self.envelope.payload

    @property
    def reason(self) -> str | None:
        reason = self.envelope.payload.get("reason")
        return reason if isinstance(reason, str) else None


class Controls:
    """What a plain member does. What a method raises is logged; the controller is told what is owed to it."""

    # Set before the first control can come.
    space: JoinedSpace
    memory: Transcript | None = None

    async def on_pause(self, control: Control) -> None:
        """We are paused already; nothing but acknowledgements and cancellations leaves us."""

    async def on_resume(self, control: Control | None) -> None:
        """The pause is over; None when its time was up."""

    async def on_status(self, control: Control | None) -> Mapping[str, Json]:  # noqa: ARG002
        """The metrics of a status; `messages_in_context` is added where it is missing."""
        memory = self.memory
        if memory is None:
            return {"messages_in_context": 0}
        return {
            "messages_in_context": len(memory),
            "tokens": memory.tokens,
            "max_tokens": memory.max_tokens,
            "headroom_tokens": memory.headroom,
            "compactions": memory.compactions,
        }

    async def on_forget(self, control: Control, direction: Direction, entries: int | None) -> None:  # noqa: ARG002
        """MEW 3.9.5: drop records at one end."""
        if self.memory is not None:
            self.memory.forget(direction, entries)

    async def on_compact(self, control: Control | None, target_tokens: int | None) -> CompactionResult | None:  # noqa: ARG002
        """MEW 3.9.6: make room; None: there was nothing to compact. None as control: it was our own idea."""
        return None if self.memory is None else await self.memory.compact(target_tokens)

    async def on_clear(self, control: Control) -> None:  # noqa: ARG002
        """MEW 3.9.8: forget everything, protected or not."""
        if self.memory is not None:
            self.memory.clear()

    async def on_restart(self, control: Control) -> None:  # noqa: ARG002
        """MEW 3.9.9: back to the beginning; pending calls have failed and own streams are closed by now."""
        if self.memory is not None:
            self.memory.clear()

    async def on_shutdown(self, control: Control) -> None:
        """MEW 3.9.10: last things; the connection ends when this returns, or after the gateway's 5 s."""


class Controlled:
    """Hears controls, obeys, and answers."""

    def __init__(self, space: JoinedSpace, voice: EnvelopeSender, controls: Controls) -> None:
        self.controls = controls
        controls.space = space
        self._space = space
        self._voice = voice
        self._queue: Feed[Envelope] = Feed(_QUEUED, voice.counts)
        self._timer: asyncio.TimerHandle | None = None
        self._told_of_limit = False
        self._compacting = False

    # What is heard

    def hear(self, envelope: Envelope) -> None:
        """A control for somebody; what concerns us is obeyed in order, a pause at once."""
        me = self._voice.me
        if envelope.to and me not in envelope.to:
            return
        if not envelope.to and envelope.sender == me:
            return
        if envelope.kind == "participant/pause":
            self._pause(envelope)
        elif envelope.kind == "participant/resume":
            if envelope.sender == me or self._voice.pause is None:
                return  # D-25: nobody lifts their own pause
            self._unpause()
        elif envelope.kind == "participant/shutdown":
            self._space.no_return()
        self._queue.put(envelope)

    async def work(self) -> None:
        """The task that obeys, one control after the other."""
        async for item in self._queue:
            if isinstance(item, MissedMessages):
                log.warning("controls came too fast", extra={"missed": item.missed})
                continue
            try:
                await self._obey(Control(item))
            except MootError as fault:
                log.info("a control was not answered", extra={"kind": item.kind, "why": str(fault)})
            except Exception:
                self._voice.counts.failed_handlers += 1
                log.exception("a control could not be obeyed")

    def end(self) -> None:
        self._queue.end()
        if self._timer is not None:
            self._timer.cancel()

    def paused_by_gateway(self, details: Mapping[str, Json]) -> None:
        """A refusal tells of a pause that we did not hear, from before we joined."""
        if self._voice.pause is not None:
            return
        seconds = details.get("retry_after")
        id = details.get("pause_id")
        left = float(seconds) if isinstance(seconds, int | float) else None
        self._set_pause(id if isinstance(id, str) else "", "the space", None, left)

    def _pause(self, envelope: Envelope) -> None:
        seconds = envelope.payload.get("timeout_seconds")
        until = None if seconds is None else asyncio.get_running_loop().time() + seconds
        now = self._voice.pause
        if now is not None and (now.until is None or (until is not None and until <= now.until)):
            return  # D-25: pausing again only ever prolongs
        self._set_pause(envelope.id, envelope.sender, Control(envelope).reason, seconds)

    def _set_pause(self, id: str, by: str, reason: str | None, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._unpause()
        until = None if seconds is None else loop.time() + seconds
        self._voice.set_pause(OwnPause(id, by, reason, until))
        if seconds is not None:
            self._timer = loop.call_later(seconds, self._time_is_up)

    def _unpause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._voice.set_pause(None)

    def _time_is_up(self) -> None:
        pause = self._voice.pause
        self._timer = None
        self._voice.set_pause(None)
        if pause is None:
            return
        # MEW 3.9.2: whoever resumes by itself still says so, where it may.
        if pause.id and self._voice.may("participant/resume", {}, self._voice.me):
            self._say("participant/resume", {}, to=self._voice.me, about=pause.id, owed=False)
        self._space.spawn(self._resumed_by_itself())

    async def _resumed_by_itself(self) -> None:
        try:
            await self.controls.on_resume(None)
        except Exception:
            self._voice.counts.failed_handlers += 1
            log.exception("a control could not be obeyed")

    # Obeying

    async def _obey(self, control: Control) -> None:
        controls, payload = self.controls, control.payload
        match control.envelope.kind:
            case "participant/pause":
                await controls.on_pause(control)
            case "participant/resume":
                await controls.on_resume(control)
            case "participant/request-status":
                await self._report(control, payload.get("fields"))
            case "participant/forget":
                await self._then_report(
                    control, controls.on_forget(control, payload["direction"], payload.get("entries"))
                )
            case "participant/compact":
                await self._compact(control)
            case "participant/clear":
                await self._then_report(control, controls.on_clear(control))
            case "participant/restart":
                await self._space.interrupt("this member was restarted")
                await self._then_report(control, controls.on_restart(control))
            case "participant/shutdown":
                await self._shut_down(control)

    async def _then_report(self, control: Control, act: Awaitable[None]) -> None:
        """Do it, then tell how things stand, also when it failed."""
        try:
            await act
        finally:
            await self._report(control, None)

    async def _report(self, control: Control, fields: list[str] | None, **more: Json) -> None:
        metrics = await self._metrics(control, fields)
        body = metrics | more
        self._say("participant/status", body, to=control.sender, about=control.envelope.id, owed=True)

    async def _metrics(self, control: Control | None, fields: list[str] | None) -> dict[str, Json]:
        metrics: dict[str, Json] = {"messages_in_context": 0, **await self.controls.on_status(control)}
        check_metrics(metrics)
        if fields is None:
            return metrics
        # D-27: the count is always there, everything else only if it was asked for.
        return {name: value for name, value in metrics.items() if name in {"messages_in_context", *fields}}

    async def _compact(self, control: Control) -> None:
        """MEW 3.9.6, 3.9.7: tell when it starts and ends, and that it is done, exactly once."""
        done: dict[str, Json] = {"skipped": True, "reason": "the compaction failed"}
        why = {} if control.reason is None else {"reason": control.reason}
        try:
            await self._report(control, None, status="compacting", **why)
            freed = await self.controls.on_compact(control, control.payload.get("target_tokens"))
            if freed is None:
                done = {"skipped": True, "reason": "nothing to compact"}
            else:
                done = {
                    "status": "compacted",
                    "freed_tokens": freed.tokens,
                    "freed_messages": freed.messages,
                }
                await self._report(control, None, status="compacted", **why)
        finally:
            id = control.envelope.id
            self._say("participant/compact-done", done, to=control.sender, about=id, owed=True)

    async def _shut_down(self, control: Control) -> None:
        id = control.envelope.id
        self._say("chat/acknowledge", {"status": "shutting_down"}, to=control.sender, about=id, owed=True)
        try:
            await self.controls.on_shutdown(control)
        finally:
            self._space.shut_down(control.reason or f"shut down by {control.sender}")

    # Reporting unasked

    async def report_status(self, to: Addressees = (), **metrics: Json) -> None:
        """MEW 3.9.4: a status of one's own accord; metrics are named in snake_case."""
        body = await self._metrics(None, None) | metrics
        try:
            check_metrics(body)
        except PayloadShapeError as fault:
            raise UsageError(str(fault)) from None
        self._voice.say("participant/status", body, to=to)

    def remember(self, envelope: Envelope, sequence: Sequence | None) -> None:
        """Keep something in mind, and whether it belongs to somebody else's thoughts."""
        memory = self.controls.memory
        if memory is None or (envelope.kind == "mcp/request" and "id" not in envelope.payload):
            return  # notifications are no part of a conversation
        me = self._voice.me
        starts = envelope.kind == "reasoning/start"
        foreign = envelope.sender != me if starts else sequence is not None and sequence.owner != me
        memory.remember(envelope, foreign=foreign)
        self.watch_memory()

    def watch_memory(self) -> None:
        """After something was remembered: say once that it gets tight, and compact before it is full."""
        memory = self.controls.memory
        if memory is None:
            return
        if not memory.is_beyond(memory.tell_at):
            self._told_of_limit = False
            return
        if not self._told_of_limit:
            self._told_of_limit = True
            self._space.spawn(self._tell_of_limit())
        if memory.is_beyond(memory.compact_at) and not self._compacting:
            self._compacting = True
            self._space.spawn(self._compact_by_itself())

    async def _tell_of_limit(self) -> None:
        await self._tell_all(status="near_limit")

    async def _compact_by_itself(self) -> None:
        """MEW 3.9.5: afterwards everybody is told the state and the headroom."""
        try:
            freed = await self.controls.on_compact(None, None)
            more: dict[str, Json] = {"status": "compacted" if freed is not None else "nothing_to_compact"}
            if freed is not None:
                more |= {"freed_tokens": freed.tokens, "freed_messages": freed.messages}
            await self._tell_all(**more)
        except Exception:
            self._voice.counts.failed_handlers += 1
            log.exception("a compaction failed")
        finally:
            self._compacting = False

    async def _tell_all(self, **more: Json) -> None:
        body = await self._metrics(None, None) | more
        if self._voice.may("participant/status", body):
            self._say("participant/status", body, to=(), about=(), owed=False)

    def _say(
        self, kind: str, payload: Mapping[str, Json], *, to: Addressees, about: Addressees, owed: bool
    ) -> None:
        try:
            self._voice.say(kind, payload, to=to, about=about, owed=owed)
        except UsageError:
            raise
        except MootError as fault:
            log.info("not said", extra={"kind": kind, "why": type(fault).__name__})
