"""Back-off: how long to wait before the next try, doubling up to a maximum, with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """The delays of one thing that is tried again and again.

    Each delay is drawn between half of the step and the whole step, lest a thousand clients that failed
    together come back together.
    """

    def __init__(
        self, first_seconds: float, max_seconds: float, *, draw: Callable[[], float] = random.random
    ) -> None:
        self._first_seconds = min(first_seconds, max_seconds)
        self._max_seconds = max_seconds
        self._draw = draw
        self._step_seconds = self._first_seconds

    def next_delay(self) -> float:
        """The seconds to wait before the next try."""
        step = self._step_seconds
        self._step_seconds = min(self._max_seconds, step * 2)
        return step * (0.5 + 0.5 * self._draw())

    def reset(self) -> None:
        """It worked: the next failure starts with the shortest delay again."""
        self._step_seconds = self._first_seconds
