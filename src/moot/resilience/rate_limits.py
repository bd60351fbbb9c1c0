"""Rate limits by key: one token bucket or one sliding window for each sender, session or address."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Protocol

from moot.resilience.token_bucket import TokenBucket


class SlidingWindow:
    """At most `max_count` within any `window_seconds`, where a token bucket counts on average.

    It is told the time. A count of 0 never refuses.
    """

    __slots__ = ("_max_count", "_times", "_window_seconds")

    def __init__(self, max_count: int, window_seconds: float) -> None:
        self._max_count = max_count
        self._window_seconds = window_seconds
        self._times: deque[float] = deque()

    def take(self, now: float) -> float:
        """Count one if there is room for it; returns 0.0, or else the seconds until there is room."""
        wait_seconds = self.wait_seconds(now)
        if not wait_seconds and self._max_count > 0:
            self._times.append(now)
        return wait_seconds

    def wait_seconds(self, now: float) -> float:
        """The seconds until `take` succeeds; 0.0 when it would now."""
        if self._max_count <= 0:
            return 0.0
        times, window = self._times, self._window_seconds
        # A clock that was set back leaves times far in the future: they do not lock anybody out.
        while times and (now - times[0] >= window or times[0] > now + window):
            times.popleft()
        if len(times) >= self._max_count:
            # Not counted: whoever keeps asking is let in as soon as there is room.
            return max(0.001, times[0] + window - now)
        return 0.0


class RateLimit(Protocol):
    """A token bucket or a sliding window."""

    def take(self, now: float) -> float: ...

    def wait_seconds(self, now: float) -> float: ...


class RateLimits:
    """A rate limit for each key. Above `max_keys` the key that was not used for longest is forgotten."""

    def __init__(self, new_limit: Callable[[float], RateLimit] | None, *, max_keys: int) -> None:
        """`new_limit` makes the limit of a new key, given the time; None limits nobody."""
        self._new_limit = new_limit
        self._max_keys = max_keys
        self._limits: OrderedDict[Hashable, RateLimit] = OrderedDict()

    def __len__(self) -> int:
        return len(self._limits)

    def take(self, key: Hashable, now: float) -> float:
        """Count one for this key; returns 0.0, or else the seconds until there is room for it."""
        if self._new_limit is None:
            return 0.0
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = self._new_limit(now)
            if len(self._limits) > self._max_keys:
                self._limits.popitem(last=False)
        else:
            self._limits.move_to_end(key)
        return limit.take(now)

    def wait_seconds(self, key: Hashable, now: float) -> float:
        """The seconds until there is room for one of this key; counts nothing."""
        limit = self._limits.get(key)
        return 0.0 if limit is None else limit.wait_seconds(now)


def token_buckets(per_second: float, burst: float, *, max_keys: int) -> RateLimits:
    """A token bucket for each key; a rate of 0 limits nobody."""
    if per_second <= 0:
        return RateLimits(None, max_keys=max_keys)
    return RateLimits(lambda now: TokenBucket(per_second, burst, now), max_keys=max_keys)


def sliding_windows(max_count: int, window_seconds: float, *, max_keys: int) -> RateLimits:
    """A sliding window for each key; a count of 0 limits nobody."""
    if max_count <= 0:
        return RateLimits(None, max_keys=max_keys)
    return RateLimits(lambda _: SlidingWindow(max_count, window_seconds), max_keys=max_keys)
