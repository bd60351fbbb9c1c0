"""Effects: what a run in an overlay changed, applied as a whole or not at all, and taken back."""

from __future__ import annotations

import pytest

from moot.box.box_support import why_not_confined
from tests.preview.effect_soak import run_effect_kills, run_effect_races, run_effects

boxes = pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")


@boxes
def test_an_applied_effect_equals_a_real_run_and_is_taken_back_byte_for_byte() -> None:
    run_effects(4, seed=1)


def test_killed_before_any_step_files_are_old_or_new() -> None:
    run_effect_kills(1, seed=3)


def test_what_others_change_meanwhile_never_mixes_with_an_effect() -> None:
    run_effect_races(30, seed=1)
