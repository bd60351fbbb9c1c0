"""Which gateway serves which shard, and when one begins and leaves: the same for all who know the same."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from moot.gateway.cluster.shard_shares import STEADY_SECONDS, Moves, Sharer, chosen_of, moves_of, server_of

SHARDS = range(1, 64)
NOTHING = Moves(frozenset(), {})
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=8)
gateways = st.dictionaries(names, names, min_size=1, max_size=12)


@given(gateways, st.randoms())
def test_all_who_know_the_same_gateways_say_the_same_in_whatever_order_they_heard_of_them(
    places: dict[str, str], shuffle: random.Random
) -> None:
    heard = list(places.items())
    shuffle.shuffle(heard)
    for shard in SHARDS:
        assert server_of(shard, dict(heard)) == server_of(shard, places)
    assert server_of(1, {}) is None


@given(gateways, names, names)
def test_one_that_comes_takes_only_its_share_and_one_that_goes_gives_only_its_own(
    places: dict[str, str], name: str, place: str
) -> None:
    """Read in the other direction, it is the one that goes."""
    without = {each: where for each, where in places.items() if each != name}
    for shard in SHARDS:
        before, after = server_of(shard, without), server_of(shard, without | {name: place})
        assert after in (before, name)


def test_shares_are_about_equal() -> None:
    found = Counter(server_of(shard, {name: f"gateway-{name}" for name in "abcde"}) for shard in range(6_400))
    # 1,280 each; six standard deviations are 192.
    assert all(1_088 < found[name] < 1_472 for name in "abcde")


def sharer(*serves: int, since: float = 0.0, told_at: float = 100.0, **more: object) -> Sharer:
    return Sharer("", told_at, dict.fromkeys(serves, since), **more)  # type: ignore[arg-type]


def placed(**sharers: Sharer) -> dict[str, Sharer]:
    return {name: each._replace(place=name) for name, each in sharers.items()}


# Of these two it is a's.
A_S = next(shard for shard in SHARDS if server_of(shard, {"a": "a", "b": "b"}) == "a")


def test_its_gateway_begins_with_a_shard_at_once_and_the_other_leaves_it_after_some_steady_seconds() -> None:
    both = placed(a=sharer(), b=sharer(A_S))
    assert moves_of("a", both, [A_S], {}) == Moves(frozenset({A_S}), {})
    assert moves_of("b", both, [A_S], {A_S: 0.0}) == NOTHING
    fresh = placed(a=sharer(A_S, since=100 - STEADY_SECONDS + 0.1), b=sharer(A_S))
    assert moves_of("b", fresh, [A_S], {A_S: 0.0}) == NOTHING
    steady = placed(a=sharer(A_S, since=100 - STEADY_SECONDS), b=sharer(A_S))
    assert moves_of("b", steady, [A_S], {A_S: 0.0}) == Moves(frozenset(), {A_S: "a"})
    assert moves_of("a", steady, [A_S], {A_S: 0.0}) == NOTHING


def test_what_was_taken_over_from_one_that_died_is_not_left_to_its_last_words() -> None:
    last_words = placed(a=sharer(A_S, told_at=100.0), b=sharer(A_S, told_at=102.0))
    assert moves_of("b", last_words, [A_S], {A_S: 100.5}) == NOTHING


def test_who_ends_or_refuses_a_shard_leaves_it_as_soon_as_another_serves_it() -> None:
    for given_up in ({"is_leaving": True}, {"refuses": {A_S}}):
        alone = placed(a=sharer(A_S, **given_up), b=sharer())
        assert moves_of("a", alone, [A_S], {A_S: 0.0}) == NOTHING
        assert moves_of("b", alone, [A_S], {}) == Moves(frozenset({A_S}), {})
        both = placed(a=sharer(A_S, **given_up), b=sharer(A_S, since=99.9))
        assert moves_of("a", both, [A_S], {A_S: 0.0}) == Moves(frozenset(), {A_S: "b"})


def test_a_shard_that_all_refuse_is_served_by_one_that_stays() -> None:
    assert chosen_of(A_S, placed(a=sharer(refuses={A_S}), b=sharer(refuses={A_S}))) == "a"
    assert chosen_of(A_S, placed(a=sharer(is_leaving=True), b=sharer(refuses={A_S}))) == "b"
    assert chosen_of(A_S, placed(a=sharer(is_leaving=True))) is None


def test_what_a_gateway_served_before_it_was_started_anew_is_served_by_the_next_one_until_it_is_there() -> (
    None
):
    """Others need not wait for its start, however long that takes; and it moves nothing before."""
    starting = placed(a=sharer(is_coming=True), b=sharer())
    assert moves_of("b", starting, [A_S], {}) == Moves(frozenset({A_S}), {})
    assert moves_of("a", starting, [A_S], {A_S: 0.0}) == NOTHING
    begun = placed(a=sharer(A_S, is_coming=True), b=sharer(A_S))
    assert moves_of("b", begun, [A_S], {A_S: 0.0}) == NOTHING


def test_one_that_does_not_hear_itself_does_nothing() -> None:
    assert moves_of("b", placed(a=sharer()), SHARDS, dict.fromkeys(SHARDS, 0.0)) == NOTHING


@given(st.randoms())
def test_whatever_gateways_believe_a_shard_is_never_left_by_all(chance: random.Random) -> None:
    """Each may hear of others too late, or of some that are gone. Who leaves knows one that serves."""
    living = {name: name for name in "abcd"}
    serving = {name: {1: 0.0} for name in living if chance.random() < 0.5} or {"a": {1: 0.0}}
    for _ in range(20):
        decided = {}
        for name in living:
            heard = {
                other: Sharer(other, 100.0, serving.get(other, {}))
                for other in living
                if other == name or chance.random() < 0.7
            }
            decided[name] = moves_of(name, heard, [1], serving.get(name, {}))
        for name, moves in decided.items():
            if 1 in moves.begin:
                serving[name] = {1: 0.0}
        for name, moves in decided.items():
            if 1 in moves.leave:
                del serving[name]
        assert serving


def test_one_that_comes_and_goes_moves_a_shard_once_in_some_seconds_at_most() -> None:
    """However often it does: b takes the shard over each time that it hears nothing for three seconds."""
    for period in (1, 2, 4, 7, 8, 9, 30):
        began: dict[int, float] = {A_S: 0.0}
        heard: list[tuple[int, float]] = []
        moved = 0
        for now in range(600):
            is_there = now // period % 2 == 0
            if is_there:
                since = heard[-1][1] if heard and heard[-1][0] == now - 1 else float(now)
                heard.append((now, since))
            told_at, since = heard[-1]
            sharers = {"b": Sharer("b", float(now), {})}
            if told_at > now - 3:
                sharers["a"] = Sharer("a", float(told_at), {A_S: since})
            moves = moves_of("b", sharers, [A_S], began)
            if moves.begin:
                began, moved = {A_S: float(now)}, moved + 1
            elif moves.leave:
                began, moved = {}, moved + 1
        assert moved <= 2 * 600 / (3 + STEADY_SECONDS), period
        if period < STEADY_SECONDS:
            assert moved == 0, period
