"""Which chats of a space are questions to the agent, and in which order they get their turns.

    chat for us → remark on what it does already → kept for the turn
                → question → bounded queue → acknowledged → its turn

No question disappears: it gets a turn, or its sender is told why not. One that was asked while the agent was
away is found in the gateway's history. If it was acknowledged, an earlier run had begun with it, and nobody
knows how far it came: then the asker is told, and nothing is done twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from moot.agents.model.agent_settings import AgentSettings
from moot.errors import MootError
from moot.participant import JoinedSpace
from moot.participant.programs.chat_intake import ChatIntake, DecisionRemarks, TurnQueue, is_named
from moot.participant.programs.repeated_send import deliver
from moot.protocol.envelope import Envelope

# Chats that wait for their turn; more are asked to come later.
MAX_QUEUED_TURNS: Final = 32
# Turns that one member may cause within a minute: two agents must not keep each other busy for ever.
MAX_TURNS_PER_MINUTE: Final = 20
# Characters of one answer in the chat; the rest is cut off, and the chat says so.
CHAT_CHARS: Final = 60_000
# How far back the agent looks for unanswered questions when it joins or was away.
MISSED_SECONDS: Final = 300.0


class QuestionInbox:
    """Which questions get a turn. `in_turn` says whether the agent works on one."""

    def __init__(self, space: JoinedSpace, settings: AgentSettings, in_turn: Callable[[], bool]) -> None:
        self._space = space
        self._settings = settings
        self._in_turn = in_turn
        most = MAX_TURNS_PER_MINUTE
        self.queue: TurnQueue[Envelope] = TurnQueue(
            self.answer,
            max_queued=MAX_QUEUED_TURNS,
            max_per_minute=most,
            too_many=f"I answer {most} questions a minute of one member: ask again later.",
            full="I have too much to do already: ask again later.",
        )
        self._intake = ChatIntake(space, self._take_chat, answers=settings.answers)
        # What people said about decisions during this turn.
        self.remarks = DecisionRemarks()
        # Questions that an earlier run had begun with.
        self._begun: frozenset[str] = frozenset()

    def start(self) -> None:
        """Listen, before anything else is awaited: so no chat is missed."""
        self._space.on("chat")(self._intake.handle)
        self._space.on("chat/cancel")(self._intake.note_cancelled)
        self._space.on("mcp/reject")(self.remarks.note_rejection)
        self._space.on_reconnected(self.catch_up)

    async def _take_chat(self, chat: Envelope) -> None:
        """Queue a question, keep a remark, or tell the sender why not."""
        if chat.id in self._begun:
            text = (
                "I was restarted before I could answer this. What I had done until then is in the "
                "history; ask again if you still need an answer."
            )
            await self.answer(chat, text)
            return
        if self.remarks.is_remark(self._space, chat):
            # It stays in the transcript, and in a turn the model reads it.
            if self._in_turn():
                self.remarks.add(chat)
            return
        await self.queue.queue_chat(self._space, chat, chat)

    async def answer(self, chat: Envelope, text: str) -> None:
        """Say it to whoever asked; waits for the end of a pause, of a rate limit and of a lost connection."""
        limit = CHAT_CHARS
        if len(text) > limit:
            text = f"{text[:limit]}\n[… {len(text) - limit} more characters are not shown]"
        await deliver(self._space, "chat", {"text": text}, to=(chat.sender,), about=(chat.id,))

    async def catch_up(self) -> None:
        """Take the questions that came while we were away, as far as the gateway still has them."""
        seconds = MISSED_SECONDS
        if seconds <= 0:
            return
        now, last = time.time(), self._intake.missed_since()
        since = now - seconds if last is None else min(now - seconds, last)
        with suppress(MootError):
            missed, self._begun = self._find_missed(await self._space.history(since))
            for chat in missed:
                await self._intake.handle(chat)

    def _find_missed(self, history: Iterable[Envelope]) -> tuple[list[Envelope], frozenset[str]]:
        """Questions of members who are here that nobody settled, and the ids of those that we acknowledged.

        A reply to something else than a chat is a remark; so is one to what is older than the history.
        """
        space = self._space
        us = (space.me, space.name)
        asked: dict[str, Envelope] = {}
        chats: set[str] = set()
        begun: set[str] = set()
        reasoning: dict[str, Sequence[str]] = {}
        for envelope in history:
            own, about = envelope.sender in us, envelope.correlation_id
            settled: Iterable[str] = ()
            match envelope.kind:
                case "chat":
                    if own:
                        settled = about
                    elif chats.issuperset(about) and is_named(space, envelope):
                        asked[envelope.id] = envelope
                    chats.add(envelope.id)
                case "chat/cancel":
                    settled = about
                case "chat/acknowledge" if own:
                    begun.update(about)
                case "reasoning/start" if own:
                    reasoning[envelope.id] = about
                case "reasoning/cancel" if not own and envelope.context is not None:
                    # Somebody stopped it, and knows why no answer came.
                    settled = reasoning.get(envelope.context, ())
            for id in settled:
                asked.pop(id, None)
        return [chat for chat in asked.values() if chat.sender in space.roster], frozenset(begun)
