"""Messages that were received and not shown yet, and what the terminal learns from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from moot.operations.trust_log import TrustLog
from moot.participant import MissedMessages
from moot.protocol.envelope import Envelope
from moot.tui.name_completion import KnownTools
from moot.tui.panes import MemberPane
from moot.tui.text_diff import KnownTexts

# The oldest beyond this are dropped and shown as a gap.
MAX_QUEUED_MESSAGES: Final = 20_000


class IncomingMessages:
    """A bounded queue between the task that receives and the timer that shows."""

    def __init__(self, tools: KnownTools, trust: TrustLog, members: MemberPane) -> None:
        self.texts = KnownTexts()
        self._tools = tools
        self._trust = trust
        self._members = members
        self._queue: deque[Envelope | MissedMessages] = deque()
        self._missed = 0

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, items: Iterable[Envelope | MissedMessages]) -> None:
        for item in items:
            self._queue.append(item)
            if len(self._queue) > MAX_QUEUED_MESSAGES:
                self._queue.popleft()
                self._missed += 1

    def take_all(self) -> list[Envelope | MissedMessages]:
        """All queued messages in order; what can be learned from them is noted."""
        items = list(self._queue)
        self._queue.clear()
        if self._missed:
            items.insert(0, MissedMessages("slow", self._missed))
            self._missed = 0
        for item in items:
            if isinstance(item, Envelope):
                self._observe(item)
        return items

    def _observe(self, envelope: Envelope) -> None:
        kind = envelope.kind
        if kind.startswith("mcp/") or kind == "system/presence":
            self.texts.observe(envelope)
            self._tools.observe(envelope)
            self._trust.count_decision(envelope)
        elif kind.startswith("trust/") or kind == "chat":
            self._trust.observe(envelope)
        elif kind.startswith("participant/"):
            self._members.observe_control(kind, envelope.sender, tuple(envelope.to))
