"""Rate limits by key: one token bucket or one sliding window for each sender, session or address."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Protocol


class TokenBucket:
    """Fills at `per_second` up to `burst` tokens, and starts full. A rate of 0 never refuses.

    A clock that goes back adds nothing, and what was left stays: nobody gains by it and nobody is locked out.
    """

    __slots__ = ("_burst", "_per_second", "_tokens", "_updated_at")

    def __init__(self, per_second: float, burst: float, now: float) -> None:
        self._per_second = per_second
        # Less than one token would never let anything through.
        self._burst = max(1.0, float(burst))
        self._tokens = self._burst
        self._updated_at = now

    def take(self, now: float) -> float:
        """Take one token if there is one; returns 0.0, or else the seconds until there is one."""
        wait_seconds = self.wait_seconds(now)
        if not wait_seconds:
            self._tokens -= 1.0
        return wait_seconds

    def take_anyway(self, now: float, *, max_debt_seconds: float) -> float:
        """Take one token even if there is none; returns the seconds until the debt is paid back.

        A debt grows to `max_debt_seconds` at most; what goes beyond that is forgiven.
        """
        if self._per_second <= 0:
            return 0.0
        self._refill(now)
        self._tokens = max(self._tokens - 1.0, -self._per_second * max_debt_seconds)
        return max(0.0, -self._tokens / self._per_second)

    def wait_seconds(self, now: float) -> float:
        """The seconds until `take` succeeds; 0.0 when it would now."""
        if self._per_second <= 0:
            return 0.0
        self._refill(now)
        return 0.0 if self._tokens >= 1.0 else (1.0 - self._tokens) / self._per_second

    def tokens(self, now: float) -> float:
        """How many tokens there are; below zero while there is a debt."""
        self._refill(now)
        return self._tokens

    def _refill(self, now: float) -> None:
        elapsed = now - self._updated_at
        self._updated_at = now
        if elapsed > 0:
            self._tokens = min(self._burst, self._tokens + elapsed * self._per_second)


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
