"""Rate limits by key: one token bucket or one sliding window for each sender, session or address."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Protocol

from moot.resilience.sliding_window import SlidingWindow
from moot.resilience.token_bucket import TokenBucket


class RateLimit(Protocol):
    """A token bucket or a sliding window."""

    def take(self, now: float) -> float: ...


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
