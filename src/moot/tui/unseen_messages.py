"""What was heard and not shown yet, and what is learned from it on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from moot.participant import MissedMessages
from moot.protocol.envelope import Envelope
from moot.tui.name_completion import KnownTools
from moot.tui.panes import MemberPane
from moot.tui.text_diff import KnownTexts
from moot.tui.trust_log import TrustLog

# Heard and not shown yet; the oldest beyond that are told as a gap.
HEARD_AHEAD: Final = 20_000


class UnseenMessages:
    """A bounded queue between the task that hears and the timer that shows."""

    def __init__(self, tools: KnownTools, trust: TrustLog, people: MemberPane) -> None:
        self.texts = KnownTexts()
        self._tools = tools
        self._trust = trust
        self._people = people
        self._queue: deque[Envelope | MissedMessages] = deque()
        self._missed = 0

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, items: Iterable[Envelope | MissedMessages]) -> None:
        for item in items:
            self._queue.append(item)
            if len(self._queue) > HEARD_AHEAD:
                self._queue.popleft()
                self._missed += 1

    def take(self) -> list[Envelope | MissedMessages]:
        """All that waits, in order, learned from."""
        items = list(self._queue)
        self._queue.clear()
        if self._missed:
            items.insert(0, MissedMessages("slow", self._missed))
            self._missed = 0
        for item in items:
            if isinstance(item, Envelope):
                self._learn(item)
        return items

    def _learn(self, envelope: Envelope) -> None:
        kind = envelope.kind
        if kind.startswith("mcp/") or kind == "system/presence":
            self.texts.hear(envelope)
            self._tools.hear(envelope)
            self._trust.count(envelope)
        elif kind.startswith("trust/") or kind == "chat":
            self._trust.hear(envelope)
        elif kind.startswith("participant/"):
            self._people.hear(kind, envelope.sender, tuple(envelope.to))
