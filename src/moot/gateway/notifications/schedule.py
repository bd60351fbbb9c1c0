"""When and how a receiver is told: now, later, one by one or as one summary. Pure; it is told the time.

What is due is told one message each, as long as there are few. More than `max_separate_messages` at once, or
more than the rate has room for, become one summary. What is over the rate waits until there is room, and the
summary then has everything that is still open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

_MINUTE_SECONDS: Final = 60.0


class ScheduleRules(NamedTuple):
    """The rules of one receiver."""

    max_messages_per_minute: int
    max_separate_messages: int


class Schedule:
    """What was sent to one receiver lately, and what may be sent next."""

    def __init__(self, rules: ScheduleRules) -> None:
        self._rules = rules
        self._sent: deque[float] = deque()

    def next_messages(self, due: Sequence[T], now: float) -> list[list[T]]:
        """What to send now, as messages about one thing each, or as one about all of them."""
        room = self._room(now)
        if not due or room == 0:
            return []
        if len(due) > min(room, self._rules.max_separate_messages):
            return [list(due)]
        return [[each] for each in due]

    def record_sent(self, now: float) -> None:
        self._sent.append(now)

    def _room(self, now: float) -> int:
        while self._sent and now - self._sent[0] >= _MINUTE_SECONDS:
            self._sent.popleft()
        return max(0, self._rules.max_messages_per_minute - len(self._sent))
