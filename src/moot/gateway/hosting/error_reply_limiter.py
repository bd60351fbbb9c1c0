"""How often a peer gets an error reply for the same kind of mistake: a client may be in a loop."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from moot.resilience.rate_limits import token_buckets

# Peers choose the keys (sessions come and go, stream ids are made up); this many are remembered.
_MAX_KEYS: Final = 10_000


class ErrorReplyLimiter:
    """A token bucket for each key: so many answers a second, and a burst of one second's worth."""

    def __init__(self, per_second: float) -> None:
        self._rates = token_buckets(per_second, per_second, max_keys=_MAX_KEYS)
        self.suppressed = 0

    def allows(self, key: Hashable, now: float) -> bool:
        """Whether this mistake still gets an error reply."""
        if self._rates.take(key, now):
            self.suppressed += 1
            return False
        return True
