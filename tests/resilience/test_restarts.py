"""Back-off and the restart loop, with a clock and jitter of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from moot.resilience import restart_loop
from moot.resilience.restart_loop import Backoff, keep_running
from tests.waiting import bounded


@pytest.fixture(autouse=True)
def delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_loop, "FIRST_SECONDS", 1.0)
    monkeypatch.setattr(restart_loop, "MAX_SECONDS", 5.0)


def test_delays_double_up_to_their_maximum_and_start_again_after_a_reset() -> None:
    backoff = Backoff(0.25, 4.0, draw=lambda: 1.0)
    assert [backoff.next_delay() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.next_delay() == 0.25


def test_jitter_takes_up_to_half_of_a_delay() -> None:
    shortest = Backoff(1.0, 4.0, draw=lambda: 0.0)
    assert [shortest.next_delay() for _ in range(3)] == [0.5, 1.0, 2.0]
    drawn = Backoff(1.0, 1.0)
    delays = [drawn.next_delay() for _ in range(200)]
    assert min(delays) >= 0.5
    assert max(delays) <= 1.0
    assert len(set(delays)) > 100


def test_the_first_delay_is_no_longer_than_the_maximum() -> None:
    backoff = Backoff(10.0, 2.0, draw=lambda: 1.0)
    assert [backoff.next_delay(), backoff.next_delay()] == [2.0, 2.0]


class Runs:
    """Something that ends again and again after as many seconds as it is told, on a clock of its own."""

    def __init__(self, *seconds: float) -> None:
        self._seconds: Iterator[float] = iter(seconds)
        self.now = 0.0
        self.count = 0
        self.delays: list[tuple[int, float]] = []

    async def run(self) -> int:
        self.now += next(self._seconds)
        self.count += 1
        return self.count

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def keep_running(self, *, until: int) -> int:
        return await keep_running(
            self.run,
            should_restart=lambda count: count < until,
            on_delay=lambda count, seconds: self.delays.append((count, seconds)),
            clock=lambda: self.now,
            sleep=self.sleep,
            draw=lambda: 1.0,
        )


async def test_what_fails_quickly_is_restarted_with_growing_delays_until_it_shall_not_be() -> None:
    runs = Runs(0.1, 0.1, 0.1, 0.1, 0.1)
    assert await runs.keep_running(until=5) == 5
    assert runs.delays == [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0)]
    assert runs.now == pytest.approx(12.5)


async def test_delays_start_again_after_steady_work() -> None:
    runs = Runs(0, 0, 61, 0, 0)
    await runs.keep_running(until=5)
    assert [seconds for _, seconds in runs.delays] == [1.0, 2.0, 1.0, 2.0]


async def test_what_is_not_to_be_restarted_ends_without_a_delay() -> None:
    runs = Runs(3)
    assert await runs.keep_running(until=1) == 1
    assert runs.delays == []
    assert runs.now == 3.0


async def test_what_a_run_raises_ends_the_loop() -> None:
    runs = Runs(1)
    # The second run has nothing to do, and fails.
    with pytest.raises(RuntimeError):
        await runs.keep_running(until=9)
    assert runs.count == 1


async def test_a_run_that_loses_its_cancellation_is_the_last() -> None:
    began, runs = asyncio.Event(), 0

    async def lose_it() -> None:
        nonlocal runs
        runs += 1
        began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    task = asyncio.create_task(keep_running(lose_it, should_restart=lambda _: True, on_delay=lambda *_: None))
    await began.wait()
    task.cancel()
    async with bounded():
        await asyncio.wait([task])
    assert task.cancelled()
    assert runs == 1
