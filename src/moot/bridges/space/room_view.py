"""Who is in a space and what was said there, as one member hears it for all that a process serves.

A person at a server for many hears only what is theirs; what everybody hears, the server's own member hears
once.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import Final

from moot.mcp.eras import JsonObject
from moot.participant import JoinedSpace, Member
from moot.protocol.envelope import Envelope

MAX_CHATS: Final = 200
MAX_CHAT_CHARS: Final = 4_000


class RoomView:
    """What one member hears of the room, from now on."""

    def __init__(self, space: JoinedSpace) -> None:
        self.space = space
        self.heard = 0
        self._chats: deque[JsonObject] = deque(maxlen=MAX_CHATS)
        space.on("chat", own=True)(self._on_chat)

    def _on_chat(self, envelope: Envelope) -> None:
        text = envelope.payload.get("text")
        if isinstance(text, str):
            chat: JsonObject = {"from": envelope.sender, "at": envelope.ts, "text": text[:MAX_CHAT_CHARS]}
            if envelope.to:
                chat["to"] = list(envelope.to)
            self._chats.append(chat)
            self.heard += 1

    def chats(self, after: int, limit: int) -> list[JsonObject]:
        """The latest chats, of those heard after the first `after`."""
        count = min(limit, self.heard - after)
        return list(self._chats)[-count:] if count > 0 else []

    def members(self, space: JoinedSpace) -> dict[str, Member]:
        """Who else is here than this space's member, by id, as far as it or we were told."""
        members = chain(self.space.roster.values(), space.roster.values())
        found = {member.id: member for member in members}
        found.pop(space.me, None)
        return found
