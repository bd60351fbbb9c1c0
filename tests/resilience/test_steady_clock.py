"""A clock that never jumps, and that starts no earlier than it is told."""

from __future__ import annotations

import time

from moot.resilience.steady_clock import SteadyClock


class Wall:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def test_a_wall_clock_that_is_set_shows_and_changes_nothing() -> None:
    wall = Wall()
    clock = SteadyClock(wall=wall)
    before = clock()
    assert abs(before - time.time()) < 1_000
    for ahead in (3_600.0, -3_600.0):
        wall.ahead = ahead
        assert before <= clock() < before + 1_000
        assert abs(clock.wall_ahead_seconds - ahead) < 1_000


def test_it_continues_no_earlier_than_it_is_told_and_is_never_put_back() -> None:
    clock = SteadyClock()
    later = clock() + 3_600
    clock.advance_to(later)
    assert clock() >= later
    clock.advance_to(later - 7_200)
    assert clock() >= later
