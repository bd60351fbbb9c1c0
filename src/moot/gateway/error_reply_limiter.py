"""How often a peer is answered for the same kind of mistake: a client in a loop is not answered for ever."""

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
        self.silent = 0

    def answers(self, key: Hashable, now: float) -> bool:
        """Whether this mistake still gets an answer."""
        if self._rates.take(key, now):
            self.silent += 1
            return False
        return True
