"""The fast implementation against the slow twin, on thrown cases; `run_pattern_soak` runs millions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.protocol.pattern_soak import CHECKS, Dice, run_pattern_soak

# Hypothesis throws the dice, so that a failure comes back as small as it gets.
THROWN = settings(
    max_examples=examples(20),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_rule_holds_on_cases_that_shrink(check: Callable[[Dice], int]) -> None:
    @THROWN
    @given(st.randoms(use_true_random=False))
    def holds(random: Random) -> None:
        check(Dice(random))

    holds()


def test_each_rule_holds_on_thousands_of_cases() -> None:
    assert run_pattern_soak(5_000, seed=1).startswith("pattern soak: 50")


def test_the_soak_throws_the_same_cases_for_the_same_seed() -> None:
    first, second = Dice(Random(7)), Dice(Random(7))
    assert [first.message() for _ in range(50)] == [second.message() for _ in range(50)]
