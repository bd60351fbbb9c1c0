"""Seen ids: kept while they could be used again, and never forgotten before."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import EndpointUnavailable
from moot.xprotocol.events.replay import ReplayCache


def name(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


def test_an_id_is_seen_until_its_end_and_its_room_is_free_some_seconds_later() -> None:
    cache = ReplayCache(limit=1)
    assert not cache.seen(name(1), 100)
    cache.remember(name(1), 100, now=0)
    assert cache.seen(name(1), 100)
    for now in (50, 99.9, 100):
        with pytest.raises(EndpointUnavailable):
            cache.remember(name(2), 500, now=now)
        assert cache.seen(name(1), 100)
    cache.remember(name(2), 500, now=110)
    assert len(cache) == 1


def test_a_full_memory_refuses_the_new_and_keeps_the_old() -> None:
    cache = ReplayCache(limit=3)
    for number in range(3):
        cache.remember(name(number), 100 + 100 * number, now=0)
    with pytest.raises(EndpointUnavailable) as refused:
        cache.remember(name(9), 1000, now=40)
    assert refused.value.retry_after is not None
    assert all(cache.seen(name(number), 100 + 100 * number) for number in range(3))
    assert not cache.seen(name(9), 1000)
    # Whoever waits as long as told is not refused again.
    cache.remember(name(9), 1000, now=40 + refused.value.retry_after)


def test_remembering_twice_takes_one_place() -> None:
    cache = ReplayCache(limit=2)
    cache.remember(name(1), 100, now=0)
    cache.remember(name(1), 100, now=1)
    cache.remember(name(2), 100, now=1)
    assert len(cache) == 2


def test_a_clock_that_goes_back_brings_nothing_back() -> None:
    cache = ReplayCache()
    cache.remember(name(1), 100, now=0)
    cache.remember(name(2), 500, now=300)
    assert len(cache) == 1
    # 1 was forgotten at 300. At 50 its event would be good again, so it counts as seen.
    assert cache.seen(name(1), 100)
    assert not cache.seen(name(3), 600)


moves = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 200), st.integers(0, 60)), min_size=1, max_size=60
)


@given(moves, st.integers(1, 8))
def test_whatever_happens_no_live_id_is_forgotten(moves: list[tuple[int, int, int]], limit: int) -> None:
    """Beside a memory that never forgets anything."""
    cache, now = ReplayCache(limit), 0
    accepted: dict[str, int] = {}
    for number, lifetime, step in moves:
        now += step
        # An id names one event, and so one end.
        until = accepted.get(name(number), now + lifetime)
        if until <= now:
            continue
        seen = cache.seen(name(number), until)
        assert seen == (name(number) in accepted) or until <= now
        if seen:
            continue
        try:
            cache.remember(name(number), until, now)
        except EndpointUnavailable:
            assert len(cache) == limit
            continue
        accepted[name(number)] = until
        assert len(cache) <= limit
        assert all(cache.seen(each, end) for each, end in accepted.items() if end > now)
