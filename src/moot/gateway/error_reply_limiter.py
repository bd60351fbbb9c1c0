"""How often a peer is answered for the same kind of mistake: a client in a loop is not answered for ever."""

from __future__ import annotations

from typing import Final

# Peers choose the keys (sessions come and go, stream ids are made up); this many are remembered.
_MOST_KEYS: Final = 10_000


class ErrorReplyLimiter:
    """A leaky bucket for each key: so many answers a second, and a burst of one second's worth."""

    def __init__(self, per_second: float) -> None:
        self._seconds = 1.0 / per_second
        self._burst = max(1.0, self._seconds)
        self._drained: dict[object, float] = {}
        self.silent = 0

    def answers(self, key: object, now: float) -> bool:
        """Whether this mistake still gets an answer."""
        drained = max(self._drained.get(key, 0.0), now)
        if drained > now + 2 * self._burst:
            drained = now  # the clock went back
        if drained + self._seconds > now + self._burst:
            self.silent += 1
            return False
        if len(self._drained) >= _MOST_KEYS:
            self._drained.clear()
        self._drained[key] = drained + self._seconds
        return True
