"""Talking (MEW 3.4): chat, that it was seen, and that it needs no attention any more.

A chat of somebody else waits in the queue until we acknowledge it or it is cancelled. Reasoning is not chat
and never stands here (MEW 3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from moot.errors import UsageError
from moot.participant.calls.outcome import SentEnvelope
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender
from moot.participant.limits import ParticipantLimits
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

Format = Literal["plain", "markdown"]


def format_of(chat: Envelope) -> Format:
    """How a chat is to be shown: as it stands, unless it says that it is Markdown (MEW 3.4)."""
    return "markdown" if chat.payload.get("format") == "markdown" else "plain"


class Chats:
    """Chats of others that wait for our acknowledgement, and who has seen which."""

    def __init__(self, limits: ParticipantLimits) -> None:
        self._waiting: dict[str, Envelope] = {}
        self._seen_by: dict[str, dict[str, str]] = {}
        self._kept = limits.chats_kept
        self._most = limits.chats_bytes
        self._bytes = 0

    def waiting(self) -> list[Envelope]:
        """Oldest first; at most `chats_kept`, the oldest are forgotten."""
        return list(self._waiting.values())

    def acknowledged(self, chat: str) -> dict[str, str]:
        """Who has confirmed a chat, ours or another's, and as what (received, read, …)."""
        return dict(self._seen_by.get(chat, {}))

    # What is heard

    def chat(self, envelope: Envelope, *, me: str) -> None:
        if envelope.sender == me or (envelope.to and me not in envelope.to):
            return
        self._waiting[envelope.id] = envelope
        self._bytes += len(envelope.raw)
        while len(self._waiting) > self._kept or (self._bytes > self._most and len(self._waiting) > 1):
            self._done(next(iter(self._waiting)))

    def _done(self, id: str) -> None:
        chat = self._waiting.pop(id, None)
        if chat is not None:
            self._bytes -= len(chat.raw)

    def acknowledge(self, envelope: Envelope, *, me: str) -> None:
        status = envelope.payload.get("status")
        for id in envelope.correlation_id:
            if envelope.sender == me:
                self._done(id)
            if id not in self._seen_by and len(self._seen_by) >= self._kept:
                del self._seen_by[next(iter(self._seen_by))]
            by_member = self._seen_by.setdefault(id, {})
            if len(by_member) < self._kept:
                by_member[envelope.sender] = status if isinstance(status, str) else "received"

    def cancel(self, envelope: Envelope) -> None:
        for id in envelope.correlation_id:
            self._done(id)


class Chatting:
    """What a member can say in words."""

    _voice: EnvelopeSender

    async def chat(
        self,
        text: str,
        *,
        to: Addressees = (),
        format: Format | None = None,
        about: Addressees = (),
        context: str | None = None,
    ) -> SentEnvelope:
        """Say something to everybody, or to some (all hear it, D-01); `about` makes it a reply.

        Comes back once it was delivered; raises Refused when the gateway does not deliver it.
        """
        if format not in (None, "plain", "markdown"):
            raise UsageError(f"a chat is plain or markdown, not {format!r}")
        payload: dict[str, Json] = {"text": text}
        if format is not None:
            payload["format"] = format
        sent, _ = await self._voice.confirmed("chat", payload, to=to, about=about, context=context)
        return sent

    async def acknowledge(self, chat: Envelope | str, status: str = "received") -> SentEnvelope:
        """MEW 3.4.1: confirm that a chat was seen; `status` is received, read, or your own word."""
        id, to = _named(chat)
        return self._voice.say("chat/acknowledge", {"status": status}, to=to, about=id)

    async def cancel_chat(
        self, chat: Envelope | SentEnvelope | str, reason: str = "handled_elsewhere"
    ) -> SentEnvelope:
        """MEW 3.4.2: tell everybody that a chat needs no attention any more."""
        id = chat if isinstance(chat, str) else chat.id
        sent, _ = await self._voice.confirmed("chat/cancel", {"reason": reason}, about=id)
        return sent


def _named(chat: Envelope | str) -> tuple[str, Sequence[str]]:
    return (chat, ()) if isinstance(chat, str) else (chat.id, (chat.sender,))
