"""Applies controls that others send us, and answers them (MEW 3.9).

The answers that MEW demands are sent whatever `Controls` does: a status after most controls, exactly one
compact-done for each compact, an acknowledgement of a shutdown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from moot.errors import MootError
from moot.participant.connection.envelope_sender import CloseReason, EnvelopeSender, OwnPause
from moot.participant.connection.link import Link
from moot.participant.connection.message_feed import Feed, MissedMessages, Spawn
from moot.participant.control.controls import Control, Controls
from moot.participant.control.open_work import OpenWork
from moot.participant.control.status_reporter import StatusReporter
from moot.protocol.close_codes import SHUT_DOWN
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# Controls that wait for their turn; beyond that the oldest is dropped.
_MAX_QUEUED: Final = 64


class ControlHandler:
    """Applies the controls that are for us, in order; a pause takes effect at once."""

    def __init__(
        self,
        sender: EnvelopeSender,
        controls: Controls,
        reporter: StatusReporter,
        open_work: OpenWork,
        link: Link,
        spawn: Spawn,
    ) -> None:
        self._sender = sender
        self._controls = controls
        self._reporter = reporter
        self._open_work = open_work
        self._link = link
        self._spawn = spawn
        self._queue: Feed[Envelope] = Feed(_MAX_QUEUED, sender.counts)
        self._timer: asyncio.TimerHandle | None = None

    def handle(self, envelope: Envelope) -> None:
        """A control for somebody; what is for us is queued."""
        me = self._sender.me
        if envelope.to and me not in envelope.to:
            return
        if not envelope.to and envelope.sender == me:
            return
        if envelope.kind == "participant/pause":
            self._pause(envelope)
        elif envelope.kind == "participant/resume":
            if envelope.sender == me or self._sender.pause is None:
                return  # D-25: nobody ends their own pause
            self._unpause()
        elif envelope.kind == "participant/shutdown":
            # MEW 3.9.10: however this connection ends now, it is not opened again.
            self._link.reconnect = False
        self._queue.put(envelope)

    async def run(self) -> None:
        """Apply one control after the other until the connection ends."""
        async for item in self._queue:
            if isinstance(item, MissedMessages):
                log.warning("too many controls", extra={"missed": item.missed})
                continue
            try:
                await self._apply(Control(item))
            except MootError as fault:
                log.info("a control was not answered", extra={"kind": item.kind, "why": str(fault)})
            except Exception:
                # User code; the next control must still be applied.
                self._sender.counts.failed_handlers += 1
                log.exception("a control failed")

    def end(self) -> None:
        self._queue.end()
        if self._timer is not None:
            self._timer.cancel()

    def handle_pause_refusal(self, details: Mapping[str, Json]) -> None:
        """A refusal says that we are paused, since before we joined."""
        if self._sender.pause is not None:
            return
        seconds = details.get("retry_after")
        id = details.get("pause_id")
        left = float(seconds) if isinstance(seconds, int | float) else None
        self._set_pause(id if isinstance(id, str) else "", "the space", None, left)

    def _pause(self, envelope: Envelope) -> None:
        seconds = envelope.payload.get("timeout_seconds")
        until = None if seconds is None else asyncio.get_running_loop().time() + seconds
        now = self._sender.pause
        if now is not None and (now.until is None or (until is not None and until <= now.until)):
            return  # D-25: pausing again only ever prolongs
        self._set_pause(envelope.id, envelope.sender, Control(envelope).reason, seconds)

    def _set_pause(self, id: str, by: str, reason: str | None, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._unpause()
        until = None if seconds is None else loop.time() + seconds
        self._sender.set_pause(OwnPause(id, by, reason, until))
        if seconds is not None:
            self._timer = loop.call_later(seconds, self._handle_pause_timeout)

    def _unpause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sender.set_pause(None)

    def _handle_pause_timeout(self) -> None:
        pause = self._sender.pause
        self._timer = None
        self._sender.set_pause(None)
        if pause is None:
            return
        # MEW 3.9.2: a member that resumes when the time is up says so, if its rights allow it.
        me = self._sender.me
        if pause.id and self._sender.may("participant/resume", {}, me):
            try:
                self._sender.send("participant/resume", {}, to=me, about=pause.id)
            except MootError as fault:
                log.info("not sent", extra={"kind": "participant/resume", "why": type(fault).__name__})
        self._spawn(self._call_on_resume())

    async def _call_on_resume(self) -> None:
        try:
            await self._controls.on_resume(None)
        except Exception:
            # User code in a task of its own.
            self._sender.counts.failed_handlers += 1
            log.exception("a control failed")

    # Applying

    async def _apply(self, control: Control) -> None:
        controls, payload = self._controls, control.payload
        match control.envelope.kind:
            case "participant/pause":
                await controls.on_pause(control)
            case "participant/resume":
                await controls.on_resume(control)
            case "participant/request-status":
                await self._reporter.answer(control, fields=payload.get("fields"))
            case "participant/forget":
                await self._then_report(
                    control, controls.on_forget(control, payload["direction"], payload.get("entries"))
                )
            case "participant/compact":
                await self._compact(control)
            case "participant/clear":
                await self._clear(control)
            case "participant/restart":
                self._open_work.interrupt("this member was restarted")
                await self._then_report(control, controls.on_restart(control))
            case "participant/shutdown":
                await self._shut_down(control)

    async def _then_report(self, control: Control, act: Awaitable[None]) -> None:
        """Do it, then answer with a status, also if it failed."""
        try:
            await act
        finally:
            await self._reporter.answer(control)

    async def _clear(self, control: Control) -> None:
        """MEW 3.9.8. Whoever cleared nothing says so: what it has read is not forgotten."""
        more: dict[str, Json] = {"cleared": False}
        try:
            await self._controls.on_clear(control)
            if self._controls.clears:
                more = {}
        finally:
            await self._reporter.answer(control, more=more)

    async def _compact(self, control: Control) -> None:
        """MEW 3.9.6, 3.9.7: a status when it starts and ends, and exactly one compact-done."""
        done: dict[str, Json] = {"skipped": True, "reason": "the compaction failed"}
        why: dict[str, Json] = {} if control.reason is None else {"reason": control.reason}
        try:
            await self._reporter.answer(control, more={"status": "compacting", **why})
            freed = await self._controls.on_compact(control, control.payload.get("target_tokens"))
            if freed is None:
                done = {"skipped": True, "reason": "nothing to compact"}
            else:
                done = {
                    "status": "compacted",
                    "freed_tokens": freed.tokens,
                    "freed_messages": freed.messages,
                }
                await self._reporter.answer(control, more={"status": "compacted", **why})
        finally:
            self._reporter.reply(control, "participant/compact-done", done)

    async def _shut_down(self, control: Control) -> None:
        self._reporter.reply(control, "chat/acknowledge", {"status": "shutting_down"})
        try:
            await self._controls.on_shutdown(control)
        finally:
            self._open_work.close()
            reason = control.reason or f"shut down by {control.sender}"
            self._link.leave(CloseReason(SHUT_DOWN, reason))
