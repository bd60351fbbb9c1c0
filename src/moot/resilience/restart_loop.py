"""A restart loop: something that ends is started again with back-off, until it shall not be."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from moot.resilience.task_set import check_cancelled

# Before a restart, doubled each time: a crash at once is noticed by the eye; half a second later it is back.
FIRST_SECONDS: Final = 0.5
# What cannot start costs two starts a minute, and is there soon after it is mended.
MAX_SECONDS: Final = 30.0
# What worked for a minute failed for another reason than the last time: the first delay again.
STEADY_SECONDS: Final = 60.0

T = TypeVar("T")


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


async def keep_running(
    run: Callable[[], Awaitable[T]],
    *,
    should_restart: Callable[[T], bool],
    on_delay: Callable[[T, float], None],
    at_once: Callable[[T], bool] = lambda _: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    draw: Callable[[], float] = random.random,
) -> T:
    """Await `run` again and again; returns what it returned when that is no reason to restart.

    `on_delay` is told each result and how many seconds it is until the next run; after a result for which
    `at_once` says so, nothing is waited for. What `run` raises ends the loop, and so does cancelling it, also
    when `run` loses the cancellation.
    """
    backoff = Backoff(FIRST_SECONDS, MAX_SECONDS, draw=draw)
    while True:
        started_at = clock()
        result = await run()
        check_cancelled()
        if not should_restart(result):
            return result
        if clock() - started_at >= STEADY_SECONDS:
            backoff.reset()
        delay_seconds = 0.0 if at_once(result) else backoff.next_delay()
        on_delay(result, delay_seconds)
        await sleep(delay_seconds)
