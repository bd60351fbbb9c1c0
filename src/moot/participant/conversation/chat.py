"""Chat (MEW 3.4): messages of others until we acknowledge them or they are cancelled, and who has seen which.

Reasoning is not chat (MEW 3.5).
"""

from __future__ import annotations

import re
from typing import Final, Literal

from moot.participant.connection.envelope_sender import EnvelopeSender, SentEnvelope
from moot.protocol.envelope import Envelope

# Chats of others that are kept.
MAX_CHATS: Final = 512
MAX_CHAT_BYTES: Final = 8 << 20

ChatFormat = Literal["plain", "markdown"]


def format_of(chat: Envelope) -> ChatFormat:
    """The format of a chat: plain text, unless it says that it is Markdown (MEW 3.4)."""
    return "markdown" if chat.payload.get("format") == "markdown" else "plain"


def mentions(text: str, name: str) -> bool:
    """Whether a text mentions this name, as a whole word, with or without an @."""
    return re.search(rf"(?<![\w@.-])@?{re.escape(name)}(?![\w-])", text, re.IGNORECASE) is not None


class Chats:
    """Chats of others that we have not acknowledged yet, and who has acknowledged which."""

    def __init__(self, sender: EnvelopeSender) -> None:
        self._sender = sender
        self._pending: dict[str, Envelope] = {}
        self._seen_by: dict[str, dict[str, str]] = {}
        self._bytes = 0

    def pending(self) -> list[Envelope]:
        """Chats that we have not acknowledged, oldest first; at most `MAX_CHATS`."""
        return list(self._pending.values())

    def acknowledgements(self, chat_id: str) -> dict[str, str]:
        """Who has acknowledged a chat, ours or another's, and as what (received, read, …)."""
        return dict(self._seen_by.get(chat_id, {}))

    async def acknowledge(self, chat: Envelope | str, status: str = "received") -> SentEnvelope:
        """Confirm that a chat was seen (MEW 3.4.1); `status` is received, read, or your own word."""
        to = () if isinstance(chat, str) else (chat.sender,)
        id = chat if isinstance(chat, str) else chat.id
        return self._sender.send("chat/acknowledge", {"status": status}, to=to, about=id)

    async def cancel(
        self, chat: Envelope | SentEnvelope | str, reason: str = "handled_elsewhere"
    ) -> SentEnvelope:
        """Tell everybody that a chat needs no attention any more (MEW 3.4.2)."""
        id = chat if isinstance(chat, str) else chat.id
        sent, _ = await self._sender.send_confirmed("chat/cancel", {"reason": reason}, about=id)
        return sent

    # What arrives

    def handle(self, envelope: Envelope) -> None:
        """A chat, chat/acknowledge or chat/cancel."""
        match envelope.kind:
            case "chat":
                self._add(envelope)
            case "chat/acknowledge":
                self._note_acknowledgement(envelope)
            case "chat/cancel":
                for id in envelope.correlation_id:
                    self._remove(id)

    def _add(self, envelope: Envelope) -> None:
        me = self._sender.me
        if envelope.sender == me or (envelope.to and me not in envelope.to):
            return
        self._pending[envelope.id] = envelope
        self._bytes += len(envelope.raw)
        while len(self._pending) > MAX_CHATS or (self._bytes > MAX_CHAT_BYTES and len(self._pending) > 1):
            self._remove(next(iter(self._pending)))

    def _remove(self, id: str) -> None:
        chat = self._pending.pop(id, None)
        if chat is not None:
            self._bytes -= len(chat.raw)

    def _note_acknowledgement(self, envelope: Envelope) -> None:
        status = envelope.payload.get("status")
        for id in envelope.correlation_id:
            if envelope.sender == self._sender.me:
                self._remove(id)
            if id not in self._seen_by and len(self._seen_by) >= MAX_CHATS:
                del self._seen_by[next(iter(self._seen_by))]
            by_member = self._seen_by.setdefault(id, {})
            if len(by_member) < MAX_CHATS:
                by_member[envelope.sender] = status if isinstance(status, str) else "received"
