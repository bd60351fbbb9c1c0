"""A sliding window: exactly so many in any stretch of time, where a token bucket counts on average."""

from __future__ import annotations

from collections import deque


class SlidingWindow:
    """At most `max_count` within any `window_seconds`. It is told the time. A count of 0 never refuses."""

    __slots__ = ("_max_count", "_times", "_window_seconds")

    def __init__(self, max_count: int, window_seconds: float) -> None:
        self._max_count = max_count
        self._window_seconds = window_seconds
        self._times: deque[float] = deque()

    def take(self, now: float) -> float:
        """Count one if there is room for it; returns 0.0, or else the seconds until there is room."""
        if self._max_count <= 0:
            return 0.0
        times, window = self._times, self._window_seconds
        # A clock that was set back leaves times far in the future: they do not lock anybody out.
        while times and (now - times[0] >= window or times[0] > now + window):
            times.popleft()
        if len(times) >= self._max_count:
            # Not counted: whoever keeps asking is let in as soon as there is room.
            return max(0.001, times[0] + window - now)
        times.append(now)
        return 0.0
