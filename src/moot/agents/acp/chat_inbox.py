"""Which chats of a space are for the agent, and in which order they are its turns.

A chat is taken only when it is in the file: one that was acknowledged is answered or, after a crash, said to
be cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from moot.agents.acp.acp_settings import AcpSettings
from moot.agents.acp.session_file import OpenChat, SessionFile
from moot.agents.acp.update_relay import Turn, UpdateRelay
from moot.errors import MootError, UsageError
from moot.participant import JoinedSpace
from moot.participant.programs.chat_intake import ChatIntake, ChatRates, DecisionRemarks
from moot.protocol.envelope import Envelope


class ChatInbox:
    """Chats that wait for their turn, and remarks about decisions."""

    def __init__(
        self,
        space: JoinedSpace,
        relay: UpdateRelay,
        settings: AcpSettings,
        file: SessionFile,
        is_running: Callable[[], bool],
    ) -> None:
        limits = settings.limits
        self._space = space
        self._relay = relay
        self._settings = settings
        self._file = file
        self._is_running = is_running
        self._queue: asyncio.Queue[Envelope] = asyncio.Queue(limits.max_queued_turns)
        self._rates = ChatRates(limits.max_turns_per_minute)
        self.intake = ChatIntake(space, self._take_chat, answers=settings.answers)
        # Chats about decisions: the agent is told with the decision, or with the next prompt.
        self.remarks = DecisionRemarks()

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    async def next(self) -> Envelope:
        return await self._queue.get()

    def remove(self, ids: Collection[str]) -> None:
        """Drop chats that were cancelled before their turn."""
        for _ in range(self._queue.qsize()):
            chat = self._queue.get_nowait()
            if chat.id in ids:
                self._file.remove(chat.id)
            else:
                self._queue.put_nowait(chat)

    def clear(self) -> None:
        for _ in range(self._queue.qsize()):
            self._file.remove(self._queue.get_nowait().id)

    async def _take_chat(self, chat: Envelope) -> None:
        """Queue it, keep it as a remark, or tell its sender why not."""
        space, relay = self._space, self._relay
        if self.remarks.is_remark(space, chat):
            self.remarks.add(chat)
            return
        turn, limits = Turn(chat_id=chat.id, sender=chat.sender), self._settings.limits
        taken = self._rates.take(chat.sender)
        if taken != "taken":
            if taken == "refused":
                text = f"I answer {limits.max_turns_per_minute} messages a minute of one member: write later."
                await relay.chat(text, turn)
            return
        if self._queue.full():
            await relay.chat("I have too much to do already: write again later.", turn)
            return
        try:
            self._file.add(OpenChat(chat.id, chat.sender))
        except UsageError as fault:
            # It could get lost: then it is not taken.
            await relay.chat(f"I cannot take this: {fault}.", turn)
            return
        self._queue.put_nowait(chat)
        with suppress(MootError):
            await space.chats.acknowledge(chat)
        if not self._is_running():
            await relay.chat("The agent does not run at the moment. I pass this on when it is back.", turn)
