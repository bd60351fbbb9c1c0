"""A token bucket: so many a second on average, so many at once. It is told the time."""

from __future__ import annotations


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
