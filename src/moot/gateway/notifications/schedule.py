"""When and how a receiver is told: now, later, one by one or as one summary. Pure; it is told the time.

What is due is told one message each, as long as there are few. More than `MAX_SEPARATE_MESSAGES` at once, or
more than the rate has room for, become one summary. What is over the rate waits until there is room. In quiet
hours nothing is sent; what became due in them goes out together afterwards, if it is still open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

T = TypeVar("T")

# More than so many at once become one summary.
MAX_SEPARATE_MESSAGES: Final = 3
_MINUTE_SECONDS: Final = 60.0
# To one receiver or device; what comes beyond waits and goes out as one summary.
MAX_MESSAGES_PER_MINUTE: Final = 6


class QuietTimes(NamedTuple):
    """A part of every day, by the clock of a time zone; it may go past midnight. Times are as `22:00`."""

    start: str
    end: str
    zone: ZoneInfo

    def contain(self, at: float) -> bool:
        """Whether a moment, in seconds since 1970, is in them."""
        clock = f"{datetime.fromtimestamp(at, self.zone):%H:%M}"
        if self.start < self.end:
            return self.start <= clock < self.end
        return clock >= self.start or clock < self.end


class Schedule:
    """What was sent to one receiver lately, and what may be sent next."""

    def __init__(self, quiet: QuietTimes | None = None) -> None:
        self._quiet = quiet
        self._sent: deque[float] = deque()

    def next_messages(self, due: Mapping[T, float], *, now: float, wall: float) -> list[list[T]]:
        """What to send now, as messages about one thing each, or as one about all of them.

        `due` says since when each thing is due, by the wall clock; `now` is any clock that only goes forward.
        """
        if not due or not self.may_send(now=now, wall=wall):
            return []
        quiet, room = self._quiet, self._room(now)
        was_held = quiet is not None and any(map(quiet.contain, due.values()))
        if was_held or len(due) > min(room, MAX_SEPARATE_MESSAGES):
            return [list(due)]
        return [[each] for each in due]

    def may_send(self, *, now: float, wall: float) -> bool:
        """Whether anything can be sent now: the rate has room, and it is not quiet."""
        quiet = self._quiet
        return self._room(now) > 0 and not (quiet is not None and quiet.contain(wall))

    def record_sent(self, now: float) -> None:
        self._sent.append(now)

    def _room(self, now: float) -> int:
        while self._sent and now - self._sent[0] >= _MINUTE_SECONDS:
            self._sent.popleft()
        return max(0, MAX_MESSAGES_PER_MINUTE - len(self._sent))
