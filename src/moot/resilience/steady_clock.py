"""A clock for deadlines that people can read: seconds since 1970 that never jump.

Wall clocks are set: by NTP, by an operator, by a virtual machine that comes back. A pause of ten minutes has
to last ten minutes all the same. So the wall clock is read once, at the start, and from then on a clock
counts that nobody sets, and that goes on while the machine sleeps where there is one (Linux).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Final

# Not `time.monotonic`: the compiled part of the gateway reads the same clock by its id.
CLOCK_ID: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# For who is told the time by somebody else, and goes on from there: the same clock, without a date.
seconds_running: Final[Callable[[], float]] = partial(time.clock_gettime, CLOCK_ID)


class SteadyClock:
    """Call it for the time. Each is of its own: two that were started apart may differ."""

    def __init__(self, *, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self.offset_micros = int(wall() * 1e6) - time.clock_gettime_ns(CLOCK_ID) // 1000

    def __call__(self) -> float:
        return (time.clock_gettime_ns(CLOCK_ID) // 1000 + self.offset_micros) / 1e6

    @property
    def wall_ahead_seconds(self) -> float:
        """How far the wall clock is ahead of this one; negative if it is behind."""
        return self._wall() - self()

    def advance_to(self, moment: float) -> None:
        """Continue no earlier than here: what has come to pass before a restart stays in the past."""
        behind = moment - self()
        if behind > 0:
            self.offset_micros += math.ceil(behind * 1e6)
