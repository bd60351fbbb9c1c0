"""Which chats an agent takes: those that are for it, each once, and only so many of one member; and in which
order they get their turns.

A chat that came while the connection was lost is taken afterwards, as far as the gateway still has it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, Generic, Literal, TypeVar

from moot.errors import MootError, UsageError
from moot.participant.connection.gateway_reads import HISTORY_MARGIN_SECONDS
from moot.participant.conversation.chat import mentions
from moot.participant.joined_space import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.resilience.rate_limits import sliding_windows

log = logging.getLogger(__name__)

Work = TypeVar("Work")
# Which chats are for an agent: those that name it, or all.
Answers = Literal["named", "all"]

_MAX_COUNTED_MEMBERS: Final = 10_000
_MAX_SEEN_CHATS: Final = 10_000
_MAX_REJECTIONS: Final = 1_000
_MAX_REMARKS: Final = 20


class ChatIntake:
    """Passes each chat that is for us on to `take`."""

    def __init__(
        self, space: JoinedSpace, take: Callable[[Envelope], Awaitable[None]], *, answers: Answers
    ) -> None:
        self._space = space
        self._take = take
        self._answers = answers
        self._seen_ids: LatestDict[str, None] = LatestDict(_MAX_SEEN_CHATS)
        # Apart: whoever cancels much must not make us forget what we have answered.
        self._cancelled_ids: LatestDict[str, None] = LatestDict(_MAX_SEEN_CHATS)
        # When the last chat was sent, for those that come while we are away.
        self._last_ts = ""

    def start(self) -> None:
        """Listen, before anything else is awaited: so no chat is missed."""
        self._space.on("chat")(self.handle)
        self._space.on("chat/cancel")(self.note_cancelled)
        self._space.on_reconnected(self.catch_up)

    async def handle(self, chat: Envelope) -> None:
        """Pass a chat on, unless it was seen before or is not for us."""
        if chat.id in self._seen_ids or chat.id in self._cancelled_ids:
            return
        self._last_ts = chat.ts
        self._seen_ids[chat.id] = None
        if self._is_for_us(chat):
            await self._take(chat)

    async def catch_up(self) -> None:
        """Handle the chats that came while the connection was lost."""
        space, since = self._space, self.missed_since()
        if since is None:
            return
        with suppress(MootError):
            missed = await space.recall(since)
            for envelope in missed:
                if envelope.kind == "chat/cancel":
                    self.note_cancelled(envelope)
            for envelope in missed:
                if envelope.kind == "chat" and envelope.sender != space.me:
                    await self.handle(envelope)

    def missed_since(self) -> float | None:
        """From when on chats may be missing (seconds since 1970); None if there was none yet."""
        if not self._last_ts:
            return None
        with suppress(ValueError):
            last = datetime.fromisoformat(self._last_ts).timestamp()
            return last - HISTORY_MARGIN_SECONDS
        return None

    def note_cancelled(self, cancel: Envelope) -> None:
        """What is cancelled before its turn to be handled came needs no answer (MEW 3.4.2)."""
        for id in cancel.correlation_id:
            self._cancelled_ids[id] = None

    def _is_for_us(self, chat: Envelope) -> bool:
        return is_named(self._space, chat) or (self._answers == "all" and not chat.to and _has_text(chat))


def is_named(space: JoinedSpace, chat: Envelope) -> bool:
    """Whether a chat is addressed to us or, if it is addressed to nobody, mentions us."""
    names = (space.me, space.name)
    if not _has_text(chat):
        return False
    if chat.to:
        return any(name in chat.to for name in names)
    return any(mentions(chat.payload["text"], name) for name in names)


def _has_text(chat: Envelope) -> bool:
    text = chat.payload.get("text")
    return isinstance(text, str) and bool(text.strip())


class TurnQueue(Generic[Work]):
    """Chats that wait for their turns, with whatever is to be known of each.

    `refuse` tells the sender of a chat why it gets none: `too_many` of one member, or the queue is `full`.
    """

    def __init__(
        self,
        refuse: Callable[[Envelope, str], Awaitable[None]],
        *,
        max_queued: int,
        max_per_minute: int,
        too_many: str,
        full: str,
    ) -> None:
        self._refuse = refuse
        self._works: deque[Work] = deque()
        self._max_queued = max_queued
        self._news = asyncio.Event()
        self._rates = ChatRates(max_per_minute)
        self._too_many = too_many
        self._full = full

    @property
    def waiting(self) -> int:
        return len(self._works)

    async def queue_chat(
        self, space: JoinedSpace, chat: Envelope, work: Work, write: Callable[[Work], None] | None = None
    ) -> bool:
        """Acknowledge a chat that gets its turn. One that `write` cannot write down could get lost."""
        rate, why = self._rates.count_chat(chat.sender), ""
        if rate != "taken":
            log.warning("too many turns", extra={"participant": chat.sender})
            why = self._too_many
        elif len(self._works) >= self._max_queued:
            why = self._full
        elif write is not None:
            try:
                write(work)
            except UsageError as fault:
                why = f"I cannot take this: {fault}."
        if why:
            if rate != "ignored":
                await self._refuse(chat, why)
            return False
        self.resume(work)
        with suppress(MootError):
            await space.chats.acknowledge(chat)
        return True

    def resume(self, work: Work) -> None:
        """Go on with what an earlier run has taken."""
        self._works.append(work)
        self._news.set()

    async def wait(self) -> None:
        """Wait until something waits for its turn. Until it is taken, it can still be removed."""
        while not self._works:
            self._news.clear()
            await self._news.wait()

    def take(self) -> Work | None:
        """The next one, unless it was removed meanwhile."""
        return self._works.popleft() if self._works else None

    async def next(self) -> Work:
        await self.wait()
        return self._works.popleft()

    def remove(self, is_unwanted: Callable[[Work], bool]) -> list[Work]:
        """Take out what gets no turn any more; returns it."""
        works, self._works = self._works, deque()
        removed: list[Work] = []
        for work in works:
            (removed if is_unwanted(work) else self._works).append(work)
        return removed


class ChatRates:
    """How many chats of one member are taken within a minute; 0 is any number."""

    def __init__(self, max_per_minute: int) -> None:
        self._windows = sliding_windows(max_per_minute, 60.0, max_keys=_MAX_COUNTED_MEMBERS)
        self._refused: set[str] = set()

    def count_chat(self, sender: str) -> Literal["taken", "refused", "ignored"]:
        """Count a chat. The first one too many is refused; the next are ignored, until one is taken again.

        Another agent would answer each refusal.
        """
        if not self._windows.take(sender, time.monotonic()):
            self._refused.discard(sender)
            return "taken"
        if sender in self._refused:
            return "ignored"
        self._refused.add(sender)
        return "refused"


class DecisionRemarks:
    """Chats about a rejection or a proposal: they explain a decision, and are no question (MEW 3.3.3)."""

    def __init__(self) -> None:
        self._rejection_ids: LatestDict[str, None] = LatestDict(_MAX_REJECTIONS)
        self._chats: list[Envelope] = []

    def __len__(self) -> int:
        return len(self._chats)

    def note_rejection(self, envelope: Envelope) -> None:
        """A chat that refers to it is a remark."""
        self._rejection_ids[envelope.id] = None

    def is_remark(self, space: JoinedSpace, chat: Envelope) -> bool:
        return any(id in self._rejection_ids or space.proposals.get(id) for id in chat.correlation_id)

    def add(self, chat: Envelope) -> None:
        """Keep a remark for the agent, if it has not too many already."""
        if len(self._chats) < _MAX_REMARKS:
            self._chats.append(chat)

    def take_remarks(self) -> list[Envelope]:
        """The remarks since the last time."""
        taken, self._chats = self._chats, []
        return taken
