"""Token buckets and sliding windows, told the time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.resilience.rate_limits import SlidingWindow, TokenBucket, sliding_windows, token_buckets

# A wall clock, with the precision that it has.
START = 1_790_000_000.0


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(2, 3, START)
    assert [bucket.take(START) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(START) == pytest.approx(0.5)
    assert bucket.take(START + 0.25) == pytest.approx(0.25)
    # What was refused has cost nothing.
    assert bucket.take(START + 0.5) == 0.0
    assert bucket.take(START + 0.5) == pytest.approx(0.5)


def test_a_large_burst_is_exact_on_a_wall_clock() -> None:
    bucket = TokenBucket(500, 2_000, START)
    assert sum(not bucket.take(START) for _ in range(2_100)) == 2_000


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(2, 3, START)
    assert bucket.tokens(START + 3_600) == 3.0


def test_whoever_waits_as_long_as_told_is_let_through() -> None:
    bucket = TokenBucket(4, 1, 100.0)
    assert bucket.take(100.0) == 0.0
    wait = bucket.take(100.1)
    assert wait > 0
    assert bucket.take(100.1 + wait) == 0.0


def test_a_clock_that_goes_back_gives_nothing_and_locks_nobody_out() -> None:
    bucket = TokenBucket(2, 3, 100.0)
    for _ in range(3):
        bucket.take(100.0)
    assert bucket.take(50.0) == pytest.approx(0.5)
    assert bucket.take(50.5) == 0.0


@pytest.mark.parametrize("burst", [0, 0.1, 1])
def test_a_burst_below_one_lets_one_through_at_a_time(burst: float) -> None:
    bucket = TokenBucket(0.5, burst, 0.0)
    assert [bucket.take(now) for now in (0.0, 1.0, 2.0)] == [0.0, pytest.approx(1.0), 0.0]


def test_a_rate_of_zero_refuses_nothing() -> None:
    bucket = TokenBucket(0, 1, 0.0)
    assert [bucket.take(0.0) for _ in range(1_000)] == [0.0] * 1_000
    assert bucket.take_anyway(0.0, max_debt_seconds=1.0) == bucket.wait_seconds(0.0) == 0.0


def test_a_debt_grows_to_its_bound_and_is_paid_back_by_waiting() -> None:
    bucket = TokenBucket(10, 2, 0.0)
    waits = [bucket.take_anyway(0.0, max_debt_seconds=0.5) for _ in range(9)]
    assert waits[:2] == [0.0, 0.0]
    assert waits[2:] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5])
    assert bucket.tokens(0.0) == -5.0
    assert bucket.tokens(0.5) == pytest.approx(0.0)
    assert bucket.wait_seconds(0.5) == pytest.approx(0.1)


def test_without_debt_a_bucket_is_emptied_at_most() -> None:
    bucket = TokenBucket(1, 1, 0.0)
    for _ in range(3):
        assert bucket.take_anyway(0.0, max_debt_seconds=0.0) == 0.0
    assert bucket.wait_seconds(0.0) == 1.0


@given(
    st.floats(0.1, 1_000),
    st.integers(1, 50),
    st.lists(st.floats(0, 2), min_size=1, max_size=200),
)
def test_a_bucket_lets_through_no_more_than_burst_and_rate(
    per_second: float, burst: int, steps: list[float]
) -> None:
    now = START
    bucket = TokenBucket(per_second, burst, now)
    taken = 0
    for step in steps:
        now += step
        taken += not bucket.take(now)
    assert taken <= burst + (now - START) * per_second + 1e-3


def test_a_window_holds_at_any_moment_and_not_just_on_average() -> None:
    window = SlidingWindow(3, 60.0)
    assert [window.take(now) for now in (0.0, 50.0, 55.0)] == [0.0] * 3
    assert window.take(59.0) == pytest.approx(1.0)
    # A window after the first there is room for one, and not for three.
    assert window.take(60.0) == 0.0
    assert window.take(61.0) == pytest.approx(49.0)


def test_a_window_survives_a_clock_that_is_set_back() -> None:
    window = SlidingWindow(1, 60.0)
    assert window.take(1_000_000.0) == 0.0
    assert window.take(10.0) == 0.0
    # A little back is no way around the count.
    assert window.take(5.0) == pytest.approx(65.0)


def test_a_window_of_zero_refuses_nothing() -> None:
    window = SlidingWindow(0, 60.0)
    assert [window.take(0.0) for _ in range(1_000)] == [0.0] * 1_000


def test_keys_are_counted_apart_and_the_one_unused_for_longest_is_forgotten() -> None:
    limits = token_buckets(1, 1, max_keys=2)
    assert limits.take("a", 0.0) == limits.take("b", 0.0) == 0.0
    assert limits.take("a", 0.0) > 0
    assert limits.take("c", 0.0) == 0.0
    # b was unused for longest; a is still held back.
    assert limits.take("a", 0.0) > 0
    assert limits.take("b", 0.0) == 0.0
    assert len(limits) == 2


def test_windows_of_a_hundred_thousand_keys_are_those_of_the_last_ones() -> None:
    limits = sliding_windows(5, 60.0, max_keys=1_000)
    for n in range(100_000):
        assert limits.take(f"key {n}", n / 1_000) == 0.0
    assert len(limits) == 1_000


def test_nobody_is_counted_where_nobody_is_limited() -> None:
    for limits in (token_buckets(0, 5, max_keys=10), sliding_windows(0, 60.0, max_keys=10)):
        assert [limits.take("a", 0.0) for _ in range(100)] == [0.0] * 100
        assert len(limits) == 0
