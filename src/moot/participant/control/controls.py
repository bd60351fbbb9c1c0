"""How a member reacts to controls: pause, status, forget, compact, restart, shutdown (MEW 3.9).

`Controls` has a method for each control; an agent overrides those it cares for, or sets them:
`space.controls.on_compact = compact`. `ControlHandler` calls them and sends the answers that MEW demands.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from moot.participant.conversation.transcript import CompactionResult, Direction, Transcript
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json


class Control(msgspec.Struct, frozen=True):
    """One control that somebody sent us."""

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
    """The reactions of a plain member. What a method raises is logged; the sender still gets its answer."""

    transcript: Transcript | None = None

    @property
    def clears(self) -> bool:
        """Whether `on_clear` clears anything: without a transcript the context is elsewhere, if at all."""
        own = getattr(self.on_clear, "__func__", None) is not Controls.on_clear
        return own or self.transcript is not None

    async def on_pause(self, control: Control) -> None:
        """We are paused already and can send nothing but acknowledgements and cancellations."""

    async def on_resume(self, control: Control | None) -> None:
        """The pause is over; `control` is None when its time was up."""

    async def on_status(self, control: Control | None) -> Mapping[str, Json]:  # noqa: ARG002
        """Returns the metrics of a status; `messages_in_context` is added if it is missing."""
        transcript = self.transcript
        if transcript is None:
            return {"messages_in_context": 0}
        return {
            "messages_in_context": len(transcript),
            "tokens": transcript.tokens,
            "max_tokens": transcript.max_tokens,
            "headroom_tokens": transcript.headroom,
            "compactions": transcript.compactions,
        }

    async def on_forget(self, control: Control, direction: Direction, entries: int | None) -> None:  # noqa: ARG002
        """Forget the oldest or newest messages (MEW 3.9.5)."""
        if self.transcript is not None:
            self.transcript.forget(direction, entries)

    async def on_compact(self, control: Control | None, target_tokens: int | None) -> CompactionResult | None:  # noqa: ARG002
        """Compact the transcript (MEW 3.9.6); None if there is nothing to compact.

        `control` is None when the transcript is nearly full and nobody asked.
        """
        return None if self.transcript is None else await self.transcript.compact(target_tokens)

    async def on_clear(self, control: Control) -> None:  # noqa: ARG002
        """Forget everything, protected or not (MEW 3.9.8)."""
        if self.transcript is not None:
            self.transcript.clear()

    async def on_restart(self, control: Control) -> None:  # noqa: ARG002
        """Start again (MEW 3.9.9); pending calls have failed and our streams are closed by now."""
        if self.transcript is not None:
            self.transcript.clear()

    async def on_shutdown(self, control: Control) -> None:
        """Clean up (MEW 3.9.10); the connection ends when this returns, or after the gateway's 5 seconds."""
